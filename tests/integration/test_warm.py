"""`statestore warm` on state directories of an application that nothing defines, before it starts on them."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from statestore.cli.warm_server import Address, WarmState, answering, parse_address
from statestore.errors import ArchiveUnavailableError, InputError
from statestore.formats.checkpoint_file import write
from statestore.formats.offsets import STATUS_CLOSED
from statestore.model import TaskId
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.warming import choose_tasks
from statestore.reports import Status
from statestore.statedir.lock import locked
from statestore.statedir.seal import break_seal
from statestore.stores.rocksdb import RocksDB
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import command_line, dying
from tests.integration.archived import Archived
from tests.integration.broker import NO_BROKER, settle
from tests.integration.support import STORE
from tests.otlp import receiving

PARTITIONS = 2
SHAPE = f"{STORE}:kind=key-value,format=timestamped,subtopology=0"
#: Each of a hundred times, so that a snapshot is smaller than its log.
ROWS = [(b"key-%0100d" % number, b"1") for number in range(20)]
MANY = ROWS * 100


class Warmed(Archived):
    """It keeps a copy of its directory as it was when its snapshots were made."""

    directory_before: Path


class Pod:
    """A pod of the application: a state directory, and the command in its init container."""

    def __init__(self, app: Warmed, state_dir: Path, run: command_line.Command) -> None:
        self.app, self.state_dir, self.run = app, state_dir, run

    def arguments(self, *more: str, archive: str | None = None, described: bool = True) -> list[str]:
        shape = ["--store", SHAPE, "--kafka-streams", "4.3.1"] if described else []
        where = ["--archive", archive or f"file://{self.app.archive.url.removeprefix('file://')}"]
        return ["warm", "--application", self.app.name, "--parallel", "1", *shape, *where, *more]

    def warm(self, *more: str, code: int = 0, **how: Any) -> dict[str, Any]:
        """Warm, and return what it says."""
        said: dict[str, Any] = self.run.shown(*self.arguments(*more, **how), code=code)
        return said

    def outcomes(self, *more: str, **how: Any) -> dict[str, str]:
        """Warm, and return what became of each task."""
        return {row["task"]: row["outcome"] for row in self.warm(*more, **how)["rows"]}

    def die(self, point: str) -> None:
        """Warm all tasks, and be killed at a point."""
        settings = {**self.run.settings, "STATE_DIR": str(self.state_dir)}
        dying.die_in(dying.CommandLine(self.arguments("--max-bytes", "1Gi"), settings), point)

    def live(self, partition: int) -> Path:
        return self.state_dir / self.app.name / f"0_{partition}" / "rocksdb" / STORE

    def require_whole(self) -> None:
        """Compare all rows with the log."""
        specs = [self.app.store_spec(partition, state_dir=self.state_dir) for partition in range(PARTITIONS)]
        found = [verify(spec, VerifyOptions(depth="deep")) for spec in specs]
        assert [(row.status, row.keys) for row in found] == [(Status.OK, len(ROWS))] * PARTITIONS


@pytest.fixture(scope="module")
def app(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Warmed:
    """An application with snapshots, whose logs have gone on since."""
    app = Warmed(bootstrap_servers, tmp_path_factory.mktemp("warm"), partitions=PARTITIONS)
    for rows in (MANY, ROWS[:10]):
        for partition in range(PARTITIONS):
            app.send(rows, partition)
            assert app.run(partition, **({} if rows is MANY else {"archive": None})).failure is None
        if rows is MANY:
            app.directory_before = app.state_dir.with_name("before")
            shutil.copytree(app.state_dir, app.directory_before)
    settle(app.servers, app.changelog)
    return app


@pytest.fixture
def pod(app: Warmed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Pod:
    settings = {"BOOTSTRAP_SERVERS": app.servers, "STATE_DIR": str(tmp_path / "state"), "KAFKA_TIMEOUT_S": "60"}
    return Pod(app, tmp_path / "state", command_line.Command(monkeypatch, capfd, settings))


ALL = ("--max-bytes", "1Gi")
EVERY_TASK = [f"0_{partition}" for partition in range(PARTITIONS)]


def test_an_older_copy_is_found_after_a_store_was_warmed(pod: Pod) -> None:
    """Given a database that was written further than the next one, which a warm-up restored with the same identity."""
    verified = ("verify", "--application", pod.app.name, "--store", SHAPE, "--depth", "offsets")
    pod.warm(*ALL)
    written_on(pod.live(0), pod.app.store_spec(0, state_dir=pod.state_dir))
    assert status_of(pod.run.shown(*verified)) == "OK"
    shutil.rmtree(pod.live(0))
    assert pod.outcomes(*ALL)["0_0"] == "warmed"
    older = pod.app.store_spec(0, state_dir=pod.app.directory_before)
    spec = pod.app.store_spec(0, state_dir=pod.state_dir)
    break_seal(spec.paths, STORE)
    shutil.rmtree(spec.live)
    shutil.copytree(older.live, spec.live)
    spec.paths.checkpoint.write_text(write({spec.partition: pod.app.committed(0) or 0}), encoding="utf-8")
    found = pod.run.shown(*verified, code=1)
    assert status_of(found) == "CORRUPT"
    assert "an older copy" in str(found)


def written_on(live: Path, spec: StorePartitionSpec) -> None:
    """Write to the store, and close it, as Kafka Streams does."""
    break_seal(spec.paths, STORE)
    for _ in range(3):
        database = RocksDB(live, spec.store.values.column_families)
        database.write({}, status=STATUS_CLOSED)
        database.sync()
        database.close()


def status_of(report: dict[str, Any]) -> str:
    """Return the status of the store of task 0_0."""
    (found,) = [row["status"] for row in report["rows"] if row["task"] == "0_0"]
    return str(found)


def test_an_empty_disk_is_brought_up_from_snapshots_and_the_rest_of_the_logs_and_then_left_alone(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        rows = pod.warm(*ALL)["rows"]
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    assert collector.last("statestore.job.exit_code", job_name="warm", application=pod.app.name) == 0
    assert collector.last("statestore.warm.partitions", outcome="warmed", store=STORE) == PARTITIONS
    assert collector.last("statestore.restore.records", store=STORE) == 10 * PARTITIONS
    assert [(row["task"], row["outcome"], row["mode"], row["before"]) for row in rows] == [
        (task, "warmed", "snapshot", "MISSING") for task in EVERY_TASK
    ]
    assert all(row["records"] == 10 for row in rows)
    pod.require_whole()
    written = {path: path.stat().st_mtime_ns for path in pod.state_dir.rglob("*.sst")}
    assert pod.outcomes("--kafka-timeout-s", "61", described=False) == dict.fromkeys(EVERY_TASK, "ready")
    assert {path: path.stat().st_mtime_ns for path in pod.state_dir.rglob("*.sst")} == written


@pytest.mark.long
def test_without_a_word_only_tasks_that_are_here_are_warmed(pod: Pod) -> None:
    assert pod.outcomes("--require") == {}
    assert pod.outcomes("--task", "0_1") == {"0_1": "warmed"}
    shutil.rmtree(pod.live(1))
    assert pod.outcomes() == {"0_1": "warmed"}
    assert pod.outcomes("--max-bytes", "1") == {"0_1": "ready"}


def test_a_task_that_does_not_exist_is_named_with_those_that_do(pod: Pod) -> None:
    failure = pod.warm("--task", "3_1", "--require", code=2)["failure"]
    assert failure["kind"] == "InputError"
    assert "3_1" in failure["message"]
    assert "0_0, 0_1" in failure["message"]


@pytest.mark.long
def test_a_store_that_is_near_the_end_of_its_log_is_left_alone(pod: Pod) -> None:
    shutil.copytree(pod.app.directory_before, pod.state_dir)
    (row,) = pod.warm("--task", "0_0", described=False)["rows"][:1]
    assert (row["outcome"], row["before"]) == ("ready", "LAGGING")
    rows = pod.warm("--acceptable-lag", "0", described=False)["rows"]
    assert [(row["outcome"], row["mode"]) for row in rows] == [("warmed", "tail")] * PARTITIONS
    pod.require_whole()
    assert list(pod.state_dir.rglob("quarantine/*/*")) == []  # the application needs the room


@pytest.mark.long
def test_without_the_archive_logs_are_read(pod: Pod) -> None:
    rows = pod.warm(*ALL, "--require", archive="file:///proc/nowhere")["rows"]
    assert [(row["outcome"], row["mode"]) for row in rows] == [("warmed", "full")] * PARTITIONS
    pod.require_whole()


@pytest.mark.long
def test_an_archive_that_fails_meanwhile_is_done_without(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ArchiveUnavailableError("the archive does not answer")

    monkeypatch.setattr("statestore.recovery.snapshot.lay_snapshot", fails)  # no server fails at this moment alone
    rows = pod.warm(*ALL)["rows"]
    assert [(row["outcome"], row["mode"]) for row in rows] == [("warmed", "full")] * PARTITIONS
    pod.require_whole()


def test_what_is_not_known_is_left_to_the_application_with_what_to_say(pod: Pod) -> None:
    ran = pod.run(*pod.arguments(*ALL, described=False))
    assert ran.code == 0
    assert f"{pod.app.name}/{STORE} is left to the application: " in ran.err
    assert "nothing is warmed" in ran.err


@pytest.mark.long  # a lock is waited for
def test_an_application_that_runs_here_is_not_touched(pod: Pod) -> None:
    pod.warm(*ALL)
    (pod.live(0) / "CURRENT").unlink()
    with locked(pod.app.store_spec(0, state_dir=pod.state_dir).paths, 1):
        assert pod.outcomes("--acceptable-lag", "0") == {"0_0": "left", "0_1": "ready"}
        assert pod.warm("--require", code=3)["rows"][0]["retriable"]
    assert not (pod.live(0) / "CURRENT").exists()
    assert pod.outcomes() == {"0_0": "warmed", "0_1": "ready"}


def test_a_broker_that_does_not_answer_is_said_and_keeps_no_application_from_starting(pod: Pod) -> None:
    settings = {"BOOTSTRAP_SERVERS": NO_BROKER, "KAFKA_TIMEOUT_S": "0.5"}
    ran = pod.run(*pod.arguments(*ALL), "--json", "-", **settings)
    assert ran.code == 0
    assert json.loads(ran.out)["failure"]["kind"] == "KafkaUnavailableError"
    assert "warming failed, so the application restores the stores itself" in ran.err
    assert pod.run(*pod.arguments(*ALL), "--require", **settings).code == 3


def test_a_disk_without_room_is_said_and_keeps_nothing(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statestore.recovery.disk_space.free_bytes", lambda _: 1 << 20)  # no disk here is so small
    rows = pod.warm(*ALL, "--require", code=1)["rows"]
    assert {(row["outcome"], row["detail"].partition(":")[0]) for row in rows} == {("failed", "DiskSpaceError")}
    assert not any(pod.state_dir.rglob("*.sst"))


@pytest.mark.short_for("swap, before the last rename")
@pytest.mark.parametrize(
    "point",
    [
        "restore, snapshot fetched",
        pytest.param("restore, built, not swapped", marks=pytest.mark.long),
        pytest.param("restore, built, not swapped:2", marks=pytest.mark.long),
        "swap, before the last rename",
        pytest.param("swap, journal written", marks=pytest.mark.long),
        pytest.param("swap, new store live", marks=pytest.mark.long),
        pytest.param("swap, before the journal goes", marks=pytest.mark.long),
        pytest.param("restore, swapped, not sealed", marks=pytest.mark.long),
        pytest.param("restore, sealed, runs still there", marks=pytest.mark.long),
    ],
)
def test_the_next_one_repairs_what_a_killed_one_has_left(pod: Pod, point: str) -> None:
    pod.die(point)
    assert set(pod.outcomes(*ALL).values()) <= {"warmed", "ready"}
    pod.require_whole()


def test_it_tells_how_far_it_is_while_it_works() -> None:
    state = WarmState(Path("nowhere"), "restoring")
    with answering(Address("127.0.0.1", 0), state) as port:
        assert answer(port, "/ready") == (503, "restoring\n")
        assert json.loads(answer(port, "/progress")[1]) == {"phase": "restoring", "restores": []}
        assert answer(port, "/else")[0] == 404
        state.phase = "ended"
        assert answer(port, "/ready") == (200, "ready\n")


def answer(port: int | None, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("text", ["", "http", ":", "0.0.0.0:", "127.0.0.1:65536"])
def test_an_address_is_refused_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match=r"--listen: expected PORT or HOST:PORT"):
        parse_address(text)


def test_pods_begin_at_different_tasks_where_not_all_fit() -> None:
    sizes = {TaskId(0, partition): 10 for partition in range(8)}
    pods = [[task.partition for task in choose_tasks(sizes, (), (), 40, ordinal)] for ordinal in range(4)]
    assert pods == [[0, 1, 2, 3], [4, 5, 6, 7], [2, 3, 4, 5], [0, 1, 6, 7]]
    assert len(choose_tasks(sizes, (), (), 80)) == 8
    assert choose_tasks(sizes, [TaskId(0, 5)], [TaskId(0, 2)], 25) == [TaskId(0, 2), TaskId(0, 5)]
