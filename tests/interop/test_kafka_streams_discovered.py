"""What the state directories and topics of a real Kafka Streams application tell of its stores, without a definition.

The application has a store of every kind, one whose changelog is its own input, a global one, and one that is not
logged. It is stopped; some of it is then damaged, moved away, or gone on without it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import pytest
from kafka_streams import EVERY_KIND, Command, KafkaStreams
from shared_state import contents_of

from statestore.cli.app import main
from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import Chosen, PartitionSelection, Where, choose
from statestore.cli.verification import exit_code, rows_without_work, verify_all
from statestore.discovery.applications import WithoutLock, discover
from statestore.errors import InputError, LockedError, TopicMismatchError, UnknownApplicationError, UnknownStoreError
from statestore.kafka.cluster import Cluster
from statestore.reports import Action, Status, VerifyRow
from statestore.verification.options import Depth, VerifyOptions
from tests.integration.broker import T0, create_topic, produce

RETENTION_MS = 3_600_000
STORES = EVERY_KIND
START = T0 - T0 % 60_000


@dataclass(frozen=True)
class Stopped:
    """A stopped application, its state directory, and whether it had left the lock file there when it was closed."""

    app: KafkaStreams
    state_dir: Path
    table: str
    rates: str
    left_lock_file: bool

    def asked(self, stores: Sequence[str] = (), **changes: Any) -> PartitionSelection:
        where = Where(self.app.cluster, self.state_dir)
        return PartitionSelection(
            **{"where": where, "applications": [self.app.application_id], "stores": stores, **changes}
        )

    def chosen(self, stores: Sequence[str] = (), **changes: Any) -> Chosen:
        return choose(self.asked(stores, **changes), self.app.cluster.topics)

    def verified(self, *stores: str, depth: Depth = "scan", **changes: Any) -> dict[str, VerifyRow]:
        chosen = self.chosen(stores, **changes)
        chosen.require_known()
        rows = verify_all(chosen.specs, VerifyOptions(depth))
        rows += rows_without_work(chosen, self.app.cluster.topics)
        return {f"{row.store}/{row.task}": row for row in rows}

    def copy(self, directory: Path) -> Stopped:
        shutil.copytree(self.state_dir, directory)
        return replace(self, state_dir=directory)

    @property
    def directory(self) -> Path:
        return self.state_dir / self.app.application_id


def commands() -> list[Command]:
    found = []
    for partition in range(2):
        for number in range(200):
            time_ms = START + number * 30_000
            found += [
                Command(
                    store.name,
                    b"key-%d" % (number % 20),
                    b"%d" % number,
                    T0 + number,
                    start=time_ms,
                    end=time_ms + 1_000,
                    partition=partition,
                )
                for store in STORES
            ]
    return found


@pytest.fixture(scope="module")
def stopped(
    kafka_streams: Callable[..., KafkaStreams], bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Stopped:
    name = uuid4().hex[:8]
    table = create_topic(bootstrap_servers, f"table-{name}", 2, {"cleanup.policy": "compact"})
    rates = create_topic(bootstrap_servers, f"rates-{name}", 3, {"cleanup.policy": "compact"})
    for topic, partitions in ((table, 2), (rates, 3)):
        for partition in range(partitions):
            rows = [(b"%d-%d" % (partition, number), b"v") for number in range(50)]
            produce(bootstrap_servers, topic, rows, partition=partition, timestamp=T0)
    app = kafka_streams(
        partitions=2, changelog_config={}, tables={"by-id": table}, global_tables={"rates-store": rates}
    )
    state_dir = tmp_path_factory.mktemp("discovered") / "state"
    app.write(state_dir, STORES, commands())
    return Stopped(app, state_dir, table, rates, (state_dir / app.application_id / ".lock").is_file())


def test_every_store_is_told_with_kind_format_retention_and_changelog(stopped: Stopped) -> None:
    found = {store.name: store for store in stopped.chosen().discovered}
    definitions = {name: store.definition for name, store in found.items() if store.definition is not None}
    assert {name: (made.kind, made.format.value, made.retention_ms) for name, made in definitions.items()} == {
        "by-id": ("key-value", "timestamped", None),
        "rates-store": ("key-value", "timestamped", None),
        "plain-kv": ("key-value", "plain", None),
        "ts-kv": ("key-value", "timestamped", None),
        "window": ("window", "plain", RETENTION_MS),
        "ts-window": ("window", "timestamped", RETENTION_MS),
        "twice": ("window", "plain", RETENTION_MS),
        "session": ("session", "plain", RETENTION_MS),
    }
    assert definitions["twice"].retain_duplicates
    changelogs = {name: store.changelog.topic for name, store in found.items() if store.changelog}
    own = {store.name: f"{stopped.app.application_id}-{store.name}-changelog" for store in STORES}
    assert changelogs == {**own, "by-id": stopped.table, "rates-store": stopped.rates}
    assert {name: [str(task) for task in store.tasks] for name, store in found.items()} == {
        **{store.name: ["2_0", "2_1"] for store in STORES},
        "by-id": ["0_0", "0_1"],
        "rates-store": ["global"],
    }


def test_looking_leaves_the_applications_directory_as_it_is(stopped: Stopped, tmp_path: Path) -> None:
    copied = stopped.copy(tmp_path / "state")
    before = contents_of(copied.directory)
    copied.verified()
    assert contents_of(copied.directory) == before


@pytest.mark.short_for("deep")
@pytest.mark.parametrize("depth", ["offsets", "scan", "deep"])
def test_a_stopped_application_is_healthy(stopped: Stopped, depth: Depth) -> None:
    rows = stopped.verified(depth=depth)
    del rows["rates-store/global"]  # to whose topic the test of it adds
    assert {label: (row.status, row.detail) for label, row in rows.items()} == dict.fromkeys(rows, (Status.OK, ""))
    assert len(rows) == 2 * len(STORES) + 2
    assert exit_code(list(rows.values())) == 0


def test_input_that_was_not_processed_is_no_lag_of_the_store_whose_changelog_it_is(
    stopped: Stopped, tmp_path: Path
) -> None:
    # Not the module's topics: what is written here stays.
    name = uuid4().hex[:8]
    servers = stopped.app.bootstrap_servers
    state = stopped.copy(tmp_path / "state")
    produce(servers, state.table, [(name.encode(), b"later")], partition=0, timestamp=T0)
    assert state.verified("by-id")["by-id/0_0"].status is Status.OK


def test_a_global_store_is_healthy_and_what_others_add_to_its_topic_is_told_and_no_damage(stopped: Stopped) -> None:
    for depth in get_args(Depth):
        row = stopped.verified("rates-store", depth=depth)["rates-store/global"]
        assert (row.status, row.detail) == (Status.OK, "")
    produce(stopped.app.bootstrap_servers, stopped.rates, [(b"new", b"1")], partition=2, timestamp=T0)
    row = stopped.verified("rates-store")["rates-store/global"]
    assert (row.status, row.action) == (Status.LAGGING, Action.NONE)
    assert f"{stopped.rates}-2 at 50" in row.detail
    assert exit_code([row]) == 0


@pytest.mark.parametrize(("store", "path"), [("plain-kv", "2_0/rocksdb/plain-kv"), ("session", "2_0/session")])
def test_a_store_whose_directory_is_gone_in_one_task_is_missing_there(
    stopped: Stopped, tmp_path: Path, store: str, path: str
) -> None:
    state = stopped.copy(tmp_path / "state")
    shutil.rmtree(state.directory / path)
    rows = state.verified(store)
    assert {label: row.status for label, row in rows.items()} == {
        f"{store}/2_0": Status.MISSING,
        f"{store}/2_1": Status.OK,
    }
    assert exit_code(list(rows.values())) == 1


def test_a_task_that_is_gone_is_missing_unless_it_may_be_elsewhere(stopped: Stopped, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    shutil.rmtree(state.directory / "2_1")
    assert state.verified("ts-kv")["ts-kv/2_1"].status is Status.MISSING
    assert list(state.verified("ts-kv", here_only=True)) == ["ts-kv/2_0"]


def test_a_task_beyond_the_changelogs_partitions_is_named(stopped: Stopped, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    (state.directory / "2_0").rename(state.directory / "2_7")
    row = state.verified("plain-kv")["plain-kv/2_7"]
    assert (row.status, row.action) == (Status.REPARTITIONED, Action.BY_HAND)


def test_stores_without_any_directory_are_missing_and_say_how_to_restore_them(stopped: Stopped, tmp_path: Path) -> None:
    gone = replace(stopped, state_dir=tmp_path / "empty")
    gone.state_dir.mkdir()
    rows = gone.verified()
    assert {row.status for row in rows.values()} == {Status.MISSING}
    assert {row.store for row in rows.values()} == {store.name for store in STORES}
    assert "--store window:kind=" in rows["window/?_0"].detail
    assert exit_code(list(rows.values())) == 1
    described = gone.verified(f"window:kind=window,format=plain,subtopology=2,retention_ms={RETENTION_MS}")
    assert {label: row.status for label, row in described.items()} == {
        "window/2_0": Status.MISSING,
        "window/2_1": Status.MISSING,
    }
    assert gone.verified(*(f"{store.name}:engine=in_memory" for store in STORES)) == {}


def test_a_store_in_another_format_is_named_and_left_alone(stopped: Stopped, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    custom = state.directory / "2_0" / "custom"
    custom.mkdir()
    (custom / "data").mkdir()
    row = state.verified()["custom/-"]
    assert (row.status, row.action) == (Status.UNKNOWN_FORMAT, Action.BY_HAND)
    assert str(custom) in row.detail
    assert exit_code([row]) == 6


def test_a_directory_that_is_no_applications_stops_no_other_one(
    stopped: Stopped, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = stopped.copy(tmp_path / "state")
    (state.state_dir / "leftover").mkdir()
    (state.state_dir / "linked").mkdir()
    (state.state_dir / "linked" / "0_0").symlink_to(state.directory / "0_1")
    chosen = state.chosen(applications=[])
    assert {store.application for store in chosen.discovered} == {state.app.application_id}
    said = capsys.readouterr().err
    assert "application leftover: no application 'leftover'" in said
    assert "is a symbolic link" in said
    with pytest.raises(UnknownApplicationError, match="leftover"):
        state.chosen(applications=["leftover", state.app.application_id])


def test_a_retention_that_does_not_fit_the_segments_is_refused(stopped: Stopped) -> None:
    with pytest.raises(InputError, match=r"segment window\.\d+ does not fit a retention of 7000000 ms"):
        stopped.verified("window", retentions=["window=7000000"])


def test_names_that_are_not_there_are_refused_with_those_that_are(stopped: Stopped) -> None:
    with pytest.raises(UnknownStoreError, match="plain-kv"):
        stopped.chosen(["no-such"])
    with pytest.raises(UnknownStoreError, match="plain-kv"):
        stopped.chosen(retentions=["no-such=5000"])
    with pytest.raises(TopicMismatchError, match="topic no-such, said to be the changelog of store ts-kv"):
        stopped.chosen(changelogs=["ts-kv=no-such"])
    with pytest.raises(UnknownApplicationError, match="no-such"):
        stopped.chosen(applications=["no-such"])
    with pytest.raises(InputError, match="is not a valid name"):
        stopped.chosen(applications=["../etc"])
    with pytest.raises(InputError, match=r"partitions \[7\] do not exist; there are 0 to 1"):
        stopped.chosen(numbers=[1, 7])


def test_kafka_streams_leaves_its_lock_file_when_it_is_closed(stopped: Stopped) -> None:
    # Who waits for it then waits for the file that the next start locks, too (`statedir/lock.py`).
    assert stopped.left_lock_file


@pytest.mark.long
def test_an_application_that_runs_is_not_looked_into(stopped: Stopped, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    servers, application = state.app.bootstrap_servers, state.app.application_id
    before = contents_of(state.directory)
    with running(state.directory):
        found = discover(state.asked().where, Cluster(servers).topics, application, lock_wait_s=0)
        assert {(store.trouble, len(store.tasks)) for store in found if store.name != "rates-store"} == {("in use", 2)}
        rows = state.verified("plain-kv")
        assert {label: row.status for label, row in rows.items()} == dict.fromkeys(
            ["plain-kv/2_0", "plain-kv/2_1"], Status.LOCKED
        )
        assert exit_code(list(rows.values())) == 3
        with pytest.raises(LockedError):
            stores_to_restore(state.chosen(["plain-kv"]), Cluster(servers).topics)
    assert contents_of(state.directory) == before


@pytest.mark.long
@pytest.mark.parametrize("without_lock", ["if locked", "always"])
def test_an_application_that_runs_is_verified_without_its_locks(
    stopped: Stopped, tmp_path: Path, without_lock: WithoutLock
) -> None:
    state = stopped.copy(tmp_path / "state")
    before = contents_of(state.state_dir)
    with running(state.directory):
        chosen = choose(state.asked(["plain-kv"]), state.app.cluster.topics, without_lock=without_lock)
        options = VerifyOptions("deep", confirm_within_s=0)
        rows = verify_all(chosen.specs, options, live=without_lock == "always", falls_back=True)
    assert {(row.task, row.status, row.live) for row in rows} == {
        (task, Status.PROVEN, True) for task in ("2_0", "2_1")
    }
    if without_lock == "always":
        assert contents_of(state.state_dir) == before


@contextmanager
def running(directory: Path) -> Iterator[None]:
    """Hold the lock that a running Kafka Streams holds, in a process of its own as that is."""
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(directory / ".lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout.readline() == "locked\n"
        yield
        process.stdin.close()


Run = Callable[..., tuple[object, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command on an application, and return its exit code and what it said."""

    def run(state: Stopped, *arguments: str) -> tuple[object, str]:
        where = ["--state-dir", str(state.state_dir), "--bootstrap-servers", state.app.bootstrap_servers]
        monkeypatch.setattr(sys, "argv", ["statestore", *arguments, *where, "--application", state.app.application_id])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr()
        return ended.value.code, said.out + said.err

    return run


@pytest.mark.long
def test_the_command_works_on_the_directory_alone(stopped: Stopped, tmp_path: Path, command: Run) -> None:
    state = stopped.copy(tmp_path / "state")

    def run(*arguments: str) -> tuple[object, str]:
        return command(state, *arguments)

    code, listed = run("partitions")
    assert code == 0
    assert sum("sealed" in line or "closed" in line for line in listed.splitlines()) == 2 * len(STORES) + 2 + 1
    code, found = run("read", "ts-kv", "key-19")
    assert code == 0
    assert f"{b'199'.hex()} │" in found
    for task in ("0_1", "2_1"):
        shutil.rmtree(state.directory / task)
    assert run("verify", "--parallel", "2", "--depth", "offsets")[0] == 1
    assert run("restore", "--parallel", "2")[0] == 0
    assert run("verify", "--parallel", "1", "--depth", "deep")[0] == 0


# -- what is known before the loss ------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_a_verification_has_found_restores_every_store_after_a_total_loss(
    stopped: Stopped, tmp_path: Path, command: Run
) -> None:
    state = stopped.copy(tmp_path / "state")
    archive = ["--archive", f"file://{tmp_path}/archive"]
    for _ in range(2):
        assert command(state, "verify", "--parallel", "1", "--depth", "offsets", *archive)[0] == 0
    assert len(list((tmp_path / "archive" / "shapes").rglob("*.json"))) == 1, "what has not changed is not kept again"
    shutil.rmtree(state.state_dir)
    state.state_dir.mkdir()
    found = {store.name: store for store in state.chosen().discovered}
    assert {store.trouble for store in found.values()} == {"missing"}, "without the archive"
    code, said = command(state, "restore", "--parallel", "1", "--store", "window:format=timestamped", *archive)
    assert code == 2
    assert "when a directory of it was last seen, it had format=plain, not timestamped" in said
    assert command(state, "restore", "--parallel", "1", *archive)[0] == 0
    rows = state.verified(depth="deep")
    assert rows.pop("rates-store/global").status is Status.MISSING, "nobody has compared its rows"
    assert {label: (row.status, row.detail) for label, row in rows.items()} == dict.fromkeys(rows, (Status.OK, ""))
    assert len(rows) == 2 * len(STORES) + 2
    assert {store.name: store.definition for store in stopped.chosen().discovered} == {
        store.name: store.definition for store in state.chosen().discovered
    }


@pytest.mark.long
def test_what_another_machine_prints_of_its_stores_restores_them_here(
    stopped: Stopped, tmp_path: Path, command: Run
) -> None:
    file = tmp_path / "shapes.json"
    assert command(stopped, "partitions", "--json", str(file))[0] == 0
    here = replace(stopped, state_dir=tmp_path / "state")
    here.state_dir.mkdir()
    one = ["--parallel", "1", "--shapes", str(file)]
    # No directory is left that shows what the file says.
    code, said = command(here, "restore", *one, "--store", "window:format=timestamped")
    assert (code, "it had format=plain, not timestamped" in said) == (2, True)
    assert command(here, "restore", *one)[0] == 0
    rows = here.verified(depth="deep")
    assert rows.pop("rates-store/global").status is Status.MISSING, "nobody said whether it is a table"
    assert {label: (row.status, row.detail) for label, row in rows.items()} == dict.fromkeys(rows, (Status.OK, ""))
    assert {store.name: store.definition for store in stopped.chosen().discovered} == {
        store.name: store.definition for store in here.chosen().discovered
    }
    content = json.loads(file.read_text())
    for shape in content["shapes"]:
        shape["retention_ms"] = shape["retention_ms"] and 2 * shape["retention_ms"]
        shape["segment_interval_ms"] = None
    file.write_text(json.dumps(content))
    code, said = command(here, "verify", *one)
    assert code == 2
    assert f"has retention_ms={2 * RETENTION_MS}, and is known here with {RETENTION_MS}" in said


@pytest.mark.long
def test_a_store_that_its_input_restores_is_described_with_its_changelog_and_stays_what_was_said(
    stopped: Stopped, tmp_path: Path, command: Run
) -> None:
    state = replace(stopped, state_dir=tmp_path / "state")
    state.state_dir.mkdir()
    said = ["--store", "by-id:kind=key-value,format=timestamped,subtopology=0", "--changelog", f"by-id={state.table}"]
    said += ["--kafka-streams", "4.3.1"]
    code, plan = command(state, "restore", "--parallel", "1", "--dry-run", *said)
    assert (code, "by-id/0_1" in plan) == (0, True)
    assert command(state, "restore", "--parallel", "1", *said)[0] == 0
    # Nothing but what was said tells the format, also in later runs that say nothing.
    for rows in (state.verified("by-id", depth="deep"), state.verified("by-id", depth="deep")):
        assert {row.status for row in rows.values()} == {Status.OK}
        assert all("as you described it: kind=key-value, format=timestamped" in row.detail for row in rows.values())


@pytest.mark.long
def test_a_segment_that_was_there_and_is_gone_is_damage_at_every_depth(
    stopped: Stopped, tmp_path: Path, command: Run
) -> None:
    state = stopped.copy(tmp_path / "state")
    assert command(state, "verify", "--parallel", "1", "--depth", "offsets")[0] == 0
    segments = sorted((state.directory / "2_0" / "window").iterdir(), key=lambda path: path.name)
    middle = segments[-2]
    shutil.rmtree(middle)
    for depth in get_args(Depth):
        row = state.verified("window", depth=depth)["window/2_0"]
        assert (row.status, row.action) == (Status.CORRUPT, Action.FULL)
        assert f"has lost {middle}" in row.detail
    assert command(state, "verify", "--parallel", "1")[0] == 1, "and it stays so"
    assert command(state, "restore", "--parallel", "1")[0] == 0
    assert command(state, "verify", "--parallel", "1", "--depth", "offsets")[0] == 0
