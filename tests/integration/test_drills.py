"""Restore drills on real stores: each is restored apart from the live store, proven, measured, and removed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statestore.archive.layout import BLOBS
from statestore.definitions.objectives import RestoreObjectives
from statestore.definitions.store import StoreDefinition
from statestore.drills import scratch as drill_disk
from statestore.drills.keys import KEY_FILE, write_key_pair
from statestore.drills.partition import DrillSpec, drill
from statestore.drills.scratch import bytes_to_keep_free, require_apart
from statestore.errors import InputError
from statestore.formats import window_key
from statestore.kafka.cluster import Cluster
from statestore.metastore.metastore import Metastore
from statestore.recovery import disk_space, restore_progress
from statestore.reports import DrillRow
from tests.integration import dying
from tests.integration.archived import ROWS, Archived
from tests.integration.broker import T0, WAIT_S, delete_records, produce, set_topic_config, unique
from tests.integration.command_line import Command, settings_of
from tests.integration.support import Application, put, register

NO_OBJECTIVES = RestoreObjectives()


def drilled(
    application: Application, scratch: Path, objectives: RestoreObjectives = NO_OBJECTIVES, **how: Any
) -> DrillRow:
    archive = {"archive": application.archive} if isinstance(application, Archived) else {}
    row = drill(DrillSpec(application.store_spec(**archive), objectives, "run", 1 << 24, scratch, **how))
    assert not scratch.exists() or not [*scratch.iterdir()], "everything is removed"
    return row


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "drills"


@pytest.fixture
def snapshotted(archived: Archived) -> Archived:
    """An application with a snapshot, and records after it."""
    archived.process(ROWS)
    archived.send([(b"later", b"value")])
    assert Application.run(archived).failure is None
    return archived


def everything_in(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.mark.behaviour("D1")
def test_a_drill_proves_a_store_from_its_log_and_does_not_touch_it(whole: Application, scratch: Path) -> None:
    before = everything_in(whole.state_dir)
    row = drilled(whole, scratch)
    assert (row.verdict, row.failure, row.source, row.snapshot) == ("proven", None, "full", None)
    assert (row.rows, row.log_rows) == (len(whole.contents()), len(whole.contents()))
    assert any(first <= (row.committed or -1) <= last for first, last in row.offsets)
    assert len(row.rows_sha256) == 64
    assert row.seconds >= row.replay_seconds + row.build_seconds > 0
    assert everything_in(whole.state_dir) == before
    # It does not even look: the live store may be damaged, or gone.
    shutil.rmtree(whole.state_dir)
    again = drilled(whole, scratch)
    assert (again.verdict, again.rows_sha256) == ("proven", row.rows_sha256)
    assert not whole.state_dir.exists()


@pytest.mark.long
def test_a_drill_proves_a_store_from_its_snapshot(snapshotted: Archived, scratch: Path) -> None:
    before = everything_in(snapshotted.state_dir)
    snapshots = snapshotted.snapshots()
    row = drilled(snapshotted, scratch, mode="snapshot")
    assert (row.verdict, row.source, row.snapshot) == ("proven", "snapshot", snapshots[0]), row.detail
    assert row.bytes > 0
    assert len(row.snapshot_sha256) == 64
    assert row.snapshot_age_seconds is not None
    assert everything_in(snapshotted.state_dir) == before
    assert snapshotted.snapshots() == snapshots


@pytest.mark.behaviour("D3")
@pytest.mark.parametrize("how", ["bit", pytest.param("missing", marks=pytest.mark.long)])
def test_a_damaged_snapshot_fails_the_drill_although_the_log_would_do(
    archived: Archived, scratch: Path, how: str
) -> None:
    archived.process(ROWS)
    found = [path for path in (Path(archived.objects.url[7:]) / BLOBS).rglob("*") if path.is_file()]
    largest = max(found, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.unlink()
    if how == "bit":
        largest.write_bytes(content)
    row = drilled(archived, scratch, mode="snapshot")
    assert row.verdict == "failed", row
    assert archived.snapshots()[0] in row.detail
    assert archived.verify("deep").healthy


@pytest.mark.behaviour("D3")
def test_a_cut_log_without_a_snapshot_fails_the_drill(whole: Application, scratch: Path) -> None:
    set_topic_config(whole.servers, whole.changelog, cleanup_policy="compact,delete", retention_ms="-1")
    delete_records(whole.servers, whole.changelog, 3)
    row = drilled(whole, scratch)
    assert (row.verdict, row.rows) == ("failed", 0)
    assert row.failure is not None
    assert "lost records" in row.detail


@pytest.mark.behaviour("D2")
def test_rows_whose_records_the_log_no_longer_has_are_not_proven(snapshotted: Archived, scratch: Path) -> None:
    set_topic_config(snapshotted.servers, snapshotted.changelog, cleanup_policy="compact,delete", retention_ms="-1")
    delete_records(snapshotted.servers, snapshotted.changelog, snapshotted.log_end() - 3)
    row = drilled(snapshotted, scratch)
    assert (row.verdict, row.source) == ("unproven", "snapshot")
    assert "could not be judged" in row.detail


@pytest.mark.behaviour("D2")
def test_a_store_without_rows_is_not_proven(application: Application, scratch: Path) -> None:
    application.process([(b"a", b"1"), (b"a", None)])
    row = drilled(application, scratch)
    assert (row.verdict, row.rows) == ("unproven", 0)
    assert "no rows" in row.detail


@pytest.mark.behaviour("D2")
@pytest.mark.long
def test_a_store_whose_rows_prove_no_offset_is_not_proven(bootstrap_servers: str, tmp_path: Path) -> None:
    duplicates = {"kind": "window", "retention_ms": 600_000, "window_size_ms": 60_000, "retain_duplicates": True}
    application = Application(bootstrap_servers, tmp_path, stores=[StoreDefinition(name="counts", **duplicates)])
    rows = [(window_key.encode(b"a", T0, number), b"%d" % number) for number in (1, 2)]
    produce(bootstrap_servers, application.changelog, rows)
    row = drilled(application, tmp_path / "drills")
    assert row.verdict == "unproven", row
    assert row.detail


@pytest.mark.long
def test_a_restore_that_is_too_slow_or_begins_too_early_breaks_its_objective(
    snapshotted: Archived, scratch: Path
) -> None:
    slow = drilled(snapshotted, scratch, RestoreObjectives(restorable_within=1))
    assert (slow.verdict, slow.rows > 0) == ("too slow", True)
    old = drilled(snapshotted, scratch, RestoreObjectives(not_older_than=1), mode="snapshot")
    assert old.verdict == "too old"
    assert drilled(snapshotted, scratch, RestoreObjectives(not_older_than=1), mode="full").verdict == "proven"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB with 300 KiB left once what a drill leaves free is taken."""
    directory = tmp_path / "small"
    directory.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "drills", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@pytest.mark.behaviour("D5")
def test_a_full_disk_fails_the_drill_and_leaves_nothing(whole: Application, small_disk: Path) -> None:
    (small_disk / "full").write_bytes(b"x" * (10 << 20))
    row = drill(DrillSpec(whole.store_spec(), NO_OBJECTIVES, "run", 1 << 24, small_disk / "drills"))
    assert row.verdict == "failed"
    assert row.failure is not None
    assert row.failure.kind == "DiskSpaceError"
    assert not [*(small_disk / "drills").iterdir()]


@pytest.mark.long
def test_a_disk_that_fills_up_during_a_drill_fails_it_and_leaves_nothing(
    whole: Application, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The drill believes that it fits, and then another program takes the space.
    monkeypatch.setattr(disk_space, "_DATABASE_BYTES", 0)
    monkeypatch.setattr(restore_progress, "_LOOKS_EVERY_S", 0.0)
    whole.process([(b"key-%05d" % number, b"v") for number in range(20_000)])
    left = 64 * 1024
    (small_disk / "full").write_bytes(b"x" * ((24 << 20) - left))
    monkeypatch.setattr(disk_space, "estimated_bytes", lambda store, logs: 0)
    monkeypatch.setattr(disk_space, "_PLENTY_PER_OFFSET", 0)
    row = drill(DrillSpec(whole.store_spec(), NO_OBJECTIVES, "run", 1 << 16, small_disk / "drills"))
    assert row.verdict == "failed", row
    assert not [*(small_disk / "drills").iterdir()]
    assert whole.verify("deep").healthy


@pytest.mark.behaviour("D5")
def test_the_disk_of_live_stores_keeps_its_reserve(whole: Application, tmp_path: Path, small_disk: Path) -> None:
    scratch = tmp_path / "drills"
    assert bytes_to_keep_free(scratch, whole.state_dir, 123) == 123
    assert bytes_to_keep_free(scratch, whole.state_dir) > 0
    assert bytes_to_keep_free(small_disk / "drills", whole.state_dir, 123) == 0
    row = drilled(whole, scratch, reserve=1 << 60)
    assert (row.verdict, row.failure and row.failure.kind) == ("failed", "DiskSpaceError")
    assert f"{1 << 60} must stay free" in row.detail
    with pytest.raises(InputError, match="apart from the state directory"):
        require_apart(whole.state_dir / "drills", whole.state_dir)
    assert drill_disk.RESERVED_SHARE > 0


# -- the command ------------------------------------------------------------------------------------------------------


class Drilling:
    """The command `statestore drill` for an application of a catalogue, with evidence."""

    def __init__(self, application: Application, command: Command, directory: Path) -> None:
        self.application, self.command, self.directory = application, command, directory
        self.public = directory / "key.pub"

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        return self.command.shown(*self.arguments, *arguments, code=code)

    @property
    def arguments(self) -> tuple[str, ...]:
        scratch = ("--scratch", str(self.directory / "drills"), "--reserve-bytes", "0", "--parallel", "1")
        return ("drill", "--application", self.application.name, *scratch)

    def line(self) -> dying.CommandLine:
        """Return the command for another process."""
        key = {"EVIDENCE_KEY_FILE": str(self.directory / "key.pem")}
        return dying.CommandLine(self.arguments, {**self.command.settings, **key})

    def evidence(self, command: str, *arguments: str, code: int = 0) -> Any:
        said = ("evidence", command, "--application", self.application.name, "--public-key", str(self.public))
        if command == "verify":
            return self.command.shown(*said, *arguments, code=code)
        ran = self.command(*said, *arguments)
        assert ran.code == code, ran.err
        return ran.out

    @property
    def documents(self) -> list[Path]:
        return sorted((self.directory / "reports" / "evidence" / self.application.name).glob("*.json"))


@pytest.fixture
def drilling(
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Drilling:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    settings = settings_of(bootstrap_servers, tmp_path)
    register(bootstrap_servers, application.definition, service_id=settings["SERVICE_ID"])
    for partition in range(2):
        application.send([(b"key-%d" % number, b"1") for number in range(20)], partition)
        assert application.run(partition).failure is None
    write_key_pair(tmp_path / "key.pem", tmp_path / "key.pub")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key.pem"))
    return Drilling(application, Command(monkeypatch, capfd, settings), tmp_path)


def test_the_command_drills_by_urgency_and_leaves_evidence(drilling: Drilling) -> None:
    first = drilling("--limit", "1", code=10)
    assert sorted(row["standing"] for row in first["rows"]) == ["never proven", "proven"]
    assert (first["confidence"][0]["proven"], first["confidence"][0]["partitions"]) == (1, 2)
    second = drilling("--limit", "1")
    assert [row["standing"] for row in second["rows"]] == ["proven", "proven"]
    assert {row["task"] for report in (first, second) for row in report["rows"] if row["drilled"]} == {"0_0", "0_1"}
    assert second["evidence"][0]["length"] == 2
    assert second["evidence"][0]["recorded"]
    assert second["confidence"][0]["application_seconds"] > 0
    found = drilling.evidence("verify")
    assert (found["intact"], found["documents"], found["problems"]) == (True, 2, [])
    document = json.loads(drilling.documents[0].read_bytes())
    assert document["compared"]["rows"] == 20
    assert {digest["algorithm"] for digest in document["digests"]} == {"SHA-256", "XXH64"}
    page = drilling.directory / "auditor.html"
    drilling.evidence("report", "--from", "2020-01-01", "--to", "2100-01-01", str(page))
    assert "The evidence is intact" in page.read_text()
    last = drilling.documents[-1]
    content = last.read_bytes()
    last.unlink()
    assert drilling.evidence("verify", code=1)["problems"] == ["document 2 is missing"]
    cut = drilling("--store", "counts/0", code=1)
    assert "not continued" in cut["evidence"][0]["problem"]
    assert [row["failure"]["kind"] for row in cut["rows"]] == ["EvidenceError"], "the DAG's mapped task fails, too"
    last.write_bytes(content)
    assert drilling.evidence("verify")["intact"]
    shown = drilling.command.shown("report", "drill", code=1)
    assert shown["run_id"] == cut["run_id"]


def test_an_application_that_cannot_be_drilled_is_never_left_out(drilling: Drilling, bootstrap_servers: str) -> None:
    other = unique("other")
    definition = drilling.application.definition.model_copy(update={"name": other, "input_topic": "nowhere"})
    put(
        Metastore(Cluster(bootstrap_servers, WAIT_S), drilling.command.settings["SERVICE_ID"]),
        definition,
        {"nowhere": 1},
    )
    scratch = ("--scratch", str(drilling.directory / "drills"), "--reserve-bytes", "0", "--parallel", "1")
    report = drilling.command.shown("drill", *scratch, code=10)
    standings = {(row["application"], row["task"]): row["standing"] for row in report["rows"]}
    name = drilling.application.name
    assert standings == {(name, "0_0"): "proven", (name, "0_1"): "proven", (other, "-"): "never proven"}


@pytest.mark.behaviour("D4")
@pytest.mark.long
def test_each_broken_objective_has_its_own_exit_code(drilling: Drilling, tmp_path: Path) -> None:
    objectives = tmp_path / "objectives.yaml"
    definition = tmp_path / "shop.yaml"
    name = drilling.application.name

    def defined(**objectives: Any) -> None:
        content = drilling.application.definition.model_dump(mode="json", exclude_none=True)
        definition.write_text(json.dumps({**content, "objectives": objectives}))

    defined(proven_every="7d")
    drilling("--definitions", str(definition))
    defined(restorable_within="1ms")
    slow = drilling("--definitions", str(definition), "--limit", "1", code=12)
    assert {row["standing"] for row in slow["rows"]} == {"too slow"}
    defined(proven_every="1ms", budget={"bytes_per_day": 1})
    old = drilling("--definitions", str(definition), code=11)
    assert not any(row["drilled"] for row in old["rows"])
    assert "exceed" in old["rows"][0]["detail"]
    objectives.write_text(f"{name}: {{restorable_within: soon}}")
    ran = drilling.command("drill", "--application", name, "--objectives", str(objectives))
    assert ran.code == 2
    assert "restorable_within" in ran.err


@pytest.mark.behaviour("D5")
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("drill, restored, not proven", marks=pytest.mark.long),
        pytest.param("restore, batch read", marks=pytest.mark.long),
        pytest.param("restore, databases written", marks=pytest.mark.long),
        pytest.param("restore, swapped, not sealed", marks=pytest.mark.long),
        pytest.param("drill, proven, not removed", marks=pytest.mark.long),
        pytest.param("evidence signed, not appended", marks=pytest.mark.long),
        "evidence appended, head not recorded",
    ],
)
def test_what_a_killed_drill_left_is_removed_by_the_next_one(drilling: Drilling, point: str) -> None:
    before = everything_in(drilling.application.state_dir)
    assert dying.exit_code(drilling.line(), point) == -signal.SIGKILL
    assert everything_in(drilling.application.state_dir) == before
    left = [path.name for path in (drilling.directory / "drills").iterdir()]
    assert bool(left) is not point.startswith("evidence")
    # The killed run has left no report that says that anything is proven.
    assert not [*(drilling.directory / "reports").glob("drill/*.json")]
    report = drilling()
    assert [row["standing"] for row in report["rows"]] == ["proven", "proven"]
    assert not [*(drilling.directory / "drills").iterdir()]
    found = drilling.evidence("verify")
    assert found["recorded_head"] == found["head"]
    assert (found["intact"], found["documents"]) == (True, 2 + (point == "evidence appended, head not recorded"))


@pytest.mark.behaviour("D7")
@pytest.mark.long
def test_two_drills_at_once_make_one_chain(drilling: Drilling) -> None:
    running = [dying.start_process(dying.run_command, drilling.line()) for _ in range(2)]
    for process in running:
        process.join(WAIT_S)
    assert [process.exitcode for process in running] == [0, 0]
    found = drilling.evidence("verify")
    assert (found["intact"], found["documents"], found["notes"]) == (True, 4, [])


@pytest.mark.behaviour("D7")
@pytest.mark.long
def test_a_head_that_was_recorded_survives_compaction(drilling: Drilling) -> None:
    drilling("--limit", "1", code=10)
    head = drilling.evidence("verify")["recorded_head"]
    assert drilling.command("metastore", "compact").code == 0
    assert drilling.evidence("verify")["recorded_head"] == head
    assert drilling("--limit", "1")["evidence"][0]["length"] == 2
    assert drilling.evidence("verify")["documents"] == 2
    drilling.documents[-1].unlink()
    assert drilling.evidence("verify", "--head", head)["intact"], "an earlier head cannot show it"
    assert not drilling.evidence("verify", code=1)["intact"]


def test_evidence_without_a_head_is_not_called_intact(drilling: Drilling) -> None:
    ran = drilling.command("evidence", "verify", "--application", "nobody", "--public-key", str(drilling.public))
    assert ran.code == 2
    assert "has no head" in ran.err


@pytest.mark.long
def test_an_application_without_a_definition_is_drilled_by_its_recorded_description(
    whole: Application,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    command = Command(monkeypatch, capfd, settings_of(whole.servers, tmp_path))
    drilling = Drilling(whole, command, tmp_path)
    objectives = tmp_path / "objectives.yaml"
    objectives.write_text(f"{whole.name}: {{restorable_within: 15m, proven_every: 7d, nodes: 1}}")
    unknown = command(*drilling.arguments)
    assert unknown.code != 0, "nothing describes its stores"
    assert command("verify", "--application", whole.name).code == 0  # which records what they are
    report = drilling("--objectives", str(objectives))
    (row,) = report["rows"]
    assert (row["standing"], row["within_seconds"], report["evidence"]) == ("proven", 900.0, [])
    assert report["confidence"][0]["node_seconds"] == report["confidence"][0]["application_seconds"]
