"""Nodes with a state directory each: the archive has the stores, and it does not matter where a task runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from statestore_jobs.nodes import run_here

from statestore import clock
from statestore.archive.layout import BLOBS
from statestore.archive.manifest import Manifest
from statestore.archive.pins import listed_pins, pins
from statestore.archive.snapshots import history, mark_suspect
from statestore.errors import InputError
from statestore.model import StoreFormat
from statestore.partition.archived import look_into_archive
from statestore.partition.generations import snapshot_directory
from statestore.partition.reinstating import reinstate, release_replaced_pins, unpin_old
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.partition.snapshots import publish_row, suspect_all
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import RestoreSpec, restore
from statestore.recovery.snapshot_building import SnapshotSpec, snapshot_from_log
from statestore.reports import Action, ProcessRow, RestoreRow, Status, VerifyRow
from statestore.requests.restore import RestoreRequest
from statestore.statedir.seal import seal
from statestore.stores.open import open_key_value_store
from statestore.tasks import ValueAndTimestamp
from statestore.verification.check import verify, verify_many
from statestore.verification.options import VerifyOptions
from tests.faults.children import Child, Kill
from tests.integration.archived import ROWS, TINY_RUN, Archived
from tests.integration.broker import T0, create_topic, delete_records, delete_topic, set_topic_config
from tests.integration.command_line import Ran, command_on
from tests.integration.support import CHANGELOG_CONFIG, STORE, Application, plain_store


class Nodes(Archived):
    """An application whose tasks run on nodes that do not see each other's disks."""

    def __init__(self, servers: str, directory: Path, **settings: Any) -> None:
        super().__init__(servers, directory, **settings)
        self.directory = directory
        self.archive = self.archive.model_copy(update={"node_local": True})

    def disk(self, node: str) -> Path:
        """Return a node's state directory."""
        return self.directory / node / "state"

    def run_on(self, node: str, **changes: Any) -> ProcessRow:
        """Run the task on a node; it must succeed."""
        row = run_here(self.task_spec(archive=self.archive, state_dir=self.disk(node), **changes), "run", TINY_RUN)
        assert row.failure is None, row.failure
        assert [found.failure for found in row.snapshots] == [None] * len(row.snapshots)
        return row

    def spec_on(self, node: str) -> StorePartitionSpec:
        """Plan the store partition of task 0_0 for a node."""
        return self.store_spec(archive=self.archive, state_dir=self.disk(node))

    def assert_on(self, node: str) -> None:
        """Compare the node's copy with the whole log."""
        spec = self.spec_on(node).model_copy(update={"archive": None})
        row = verify(spec, VerifyOptions(depth="deep"))
        assert (row.status, row.contents.differing) == (Status.OK, 0), row

    def begin_generation_on(self, node: str) -> None:
        """Replace the store twice on a node, which begins a generation with the same rows."""
        for label in ("first", "second"):
            request = RestoreRequest(mode="full", force=True)
            row = restore(RestoreSpec(self.spec_on(node), request, label, TINY_RUN))
            assert row.failure is None, row.failure
        back = roll_back(RollbackSpec(self.spec_on(node), "back"))
        assert back.failure is None, back.failure

    def restore_on(self, node: str, *, diverged: bool = False, **how: Any) -> RestoreRow:
        """Restore the store partition of task 0_0 on a node; it must succeed."""
        mode = "full" if diverged else "auto"
        request = RestoreRequest(**{"mode": mode, "force": diverged, **how})
        row = restore(RestoreSpec(self.spec_on(node), request, f"restored-on-{node}", TINY_RUN, diverged=diverged))
        assert row.failure is None, row.failure
        return row

    def falsify(self) -> None:
        """Publish a store with a wrong row as if it was right."""
        spec = self.spec_on("a")
        store = open_key_value_store(spec.store, spec.live)
        store.put(b"key-000", ValueAndTimestamp(b"wrong", 1))
        store.commit({spec.partition: 199}, {})
        store.close()
        seal(spec.paths, spec.store.name, spec.store.store_kind)
        found = publish_row(spec, "process")
        assert found.failure is None, found.failure

    def contents_on(self, node: str) -> dict[bytes, Any]:
        """Return the rows of the node's copy."""
        spec = self.spec_on(node)
        store = open_key_value_store(spec.store, spec.live, read_only=True)
        try:
            return dict(store.range())
        finally:
            store.close(clean=False)

    def newest(self, node: str) -> Manifest:
        """Return the newest snapshot that can be used."""
        ((_, found),) = look_into_archive([self.spec_on(node)], look_at_files=False)
        assert found is not None
        return found

    def verify_on(self, node: str, depth: Any = "scan") -> VerifyRow:
        """Verify it from a node."""
        return verify_many([self.spec_on(node)], VerifyOptions(depth=depth))[0]


@pytest.fixture
def nodes(bootstrap_servers: str, tmp_path: Path) -> Nodes:
    """An application that has processed something on node `a`."""
    made = Nodes(bootstrap_servers, tmp_path)
    made.send(ROWS)
    made.run_on("a")
    return made


# -- verification -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "depth", ["deep", *(pytest.param(depth, marks=pytest.mark.long) for depth in ("offsets", "scan"))]
)
def test_a_store_that_lies_on_another_node_is_not_missing(nodes: Nodes, depth: str) -> None:
    row = nodes.verify_on("b", depth)
    assert (row.status, row.action, row.committed, row.lag) == (Status.OK, Action.NONE, 199, 0)
    assert row.depth == depth
    assert (row.keys, row.contents.differing if row.contents else None) == (
        (200, 0) if depth == "deep" else (None, None)
    )
    assert [path for path in nodes.disk("b").rglob("*") if path.is_file()] == [], "something is left in scratch space"


@pytest.mark.long
def test_a_snapshot_that_is_behind_its_log_lags(nodes: Nodes) -> None:
    nodes.send([(b"new", b"value")])
    assert Application.run(nodes, archive=None, state_dir=nodes.disk("a")).failure is None  # without publishing
    for depth in ("offsets", "scan", "deep"):
        row = nodes.verify_on("b", depth)
        assert (row.status, row.action, row.lag) == (Status.LAGGING, Action.TAIL, 2)


@pytest.mark.long
def test_a_store_without_a_snapshot_is_behind_its_log_and_not_missing(nodes: Nodes) -> None:
    shutil.rmtree(nodes.directory / "archive" / "stores")
    row = nodes.verify_on("b")
    assert (row.status, row.action) == (Status.LAGGING, Action.FULL)
    assert row.detail == "the archive has no snapshot of it that can be used"


@pytest.mark.long
def test_a_snapshot_without_one_of_its_files_is_damaged(nodes: Nodes) -> None:
    blob, *_ = nodes.objects.entries(BLOBS)
    nodes.objects.delete(blob.name)
    assert nodes.verify_on("b", "offsets").status is Status.OK
    row = nodes.verify_on("b")
    assert (row.status, row.action) == (Status.CORRUPT, Action.FULL)
    assert "the archive lacks 1 files of snapshot" in row.detail


@pytest.mark.long
def test_a_file_of_a_snapshot_with_other_bytes_is_found_by_depth_deep(nodes: Nodes) -> None:
    largest = max(nodes.objects.entries(BLOBS), key=lambda found: found.size)
    path = nodes.directory / "archive" / largest.name
    path.write_bytes(bytes(largest.size))
    assert nodes.verify_on("b").status is Status.OK
    row = nodes.verify_on("b", "deep")
    assert (row.status, row.action) == (Status.CORRUPT, Action.FULL)
    assert "does not have the SHA-256 that is its name" in row.detail


@pytest.mark.long
def test_a_suspect_snapshot_is_what_is_known_and_is_not_used(nodes: Nodes) -> None:
    spec = nodes.spec_on("b")
    directory = snapshot_directory(spec)
    (found,) = history(nodes.objects, directory).usable
    mark_suspect(nodes.objects, directory, found.name, "for a test")
    row = nodes.verify_on("b")
    assert (row.status, row.action, row.loss) == (Status.LAGGING, Action.FULL, "none")
    set_topic_config(nodes.servers, nodes.changelog, cleanup_policy="compact,delete")
    delete_records(nodes.servers, nodes.changelog, 50)
    row = nodes.verify_on("b")
    assert (row.status, row.action, row.loss) == (Status.MISSING, Action.BY_HAND, "likely")
    assert "its changelog begins at offset 50" in row.detail


@pytest.mark.long
def test_where_the_archive_does_not_answer_the_stores_are_to_be_looked_at_later(nodes: Nodes) -> None:
    shutil.rmtree(nodes.directory / "archive")
    (nodes.directory / "archive").write_text("no directory")
    row = nodes.verify_on("b")
    assert (row.status, row.action) == (Status.LOCKED, Action.LATER)


# -- the command ------------------------------------------------------------------------------------------------------

Run = Callable[..., Ran]


@pytest.fixture
def command(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command on node `a`, with the settings of all nodes."""
    run, definitions = command_on(nodes, tmp_path, monkeypatch, capfd)
    places = {"STATE_DIR": str(nodes.disk("a")), "ARCHIVE": nodes.archive.url, "NODE_LOCAL_STATE": "true"}
    return lambda *words, **settings: run(
        *words, "--definitions", str(definitions), "--json", "-", **{**places, **settings}
    )


def row_of(ran: Ran) -> dict[str, Any]:
    """Return the one row of a report."""
    (row,) = json.loads(ran.out)["rows"]
    found: dict[str, Any] = row
    return found


def test_the_command_verifies_what_the_archive_has_and_not_the_copy_on_its_node(nodes: Nodes, command: Run) -> None:
    nodes.send([(b"new", b"value")])
    nodes.run_on("b")
    ran = command("verify")
    row = row_of(ran)
    assert (ran.code, row["status"], row["committed"], row["lag"]) == (0, "OK", 201, 0), ran.err
    assert row["restore_point"]["snapshot"] == str(nodes.newest("b").name)
    assert command("verify", STATE_DIR=str(nodes.disk("new"))).code == 0, "it is in the archive, and not missing"


def test_the_command_reads_a_copy_and_says_so(nodes: Nodes, command: Run) -> None:
    nodes.send([(b"new", b"value")])
    nodes.run_on("b")
    ran = command("read", STORE, b"new".hex())
    assert (ran.code, "the archive may have newer ones" in ran.err) == (1, True), ran.err


@pytest.mark.long
def test_the_command_does_not_verify_a_copy_if_the_archive_does_not_answer(nodes: Nodes, command: Run) -> None:
    shutil.rmtree(nodes.directory / "archive")
    (nodes.directory / "archive").write_text("no directory")
    ran = command("verify")
    assert (ran.code, row_of(ran)["status"]) == (3, "LOCKED"), ran.err


def test_the_command_restores_what_the_archive_lacks_though_a_copy_is_whole(nodes: Nodes, command: Run) -> None:
    nodes.objects.delete(max(nodes.objects.entries(BLOBS), key=lambda found: found.size).name)
    replaced = str(nodes.newest("a").name)
    row = row_of(command("restore"))
    assert (row["before"], row["outcome"], row["replaced"]) == ("CORRUPT", "restored", replaced)
    assert nodes.verify_on("b", "deep").status is Status.OK


# -- process ----------------------------------------------------------------------------------------------------------


def brought(row: ProcessRow) -> str | None:
    """Return why a run has built its store on its node; None: it has used what lay there."""
    (figures,) = row.stores
    return figures.rebuilt


def test_a_task_goes_on_where_it_never_ran(nodes: Nodes) -> None:
    nodes.send([(b"new", b"value")])
    row = nodes.run_on("b")
    assert "it is not on this node" in brought(row)
    assert (row.stores[0].restored, row.records_in) == (0, 1), "all of it came with the snapshot"
    nodes.assert_on("b")


def test_a_copy_that_lags_after_a_crash_replays_the_tail_of_its_log(nodes: Nodes, tmp_path: Path) -> None:
    nodes.send([(b"new", b"value")])
    spec = nodes.task_spec(archive=nodes.archive, state_dir=nodes.disk("a"))
    Child([spec], tmp_path / "marks", kill=Kill("Kafka committed, stores not")).killed()
    row = nodes.run_on("a")
    assert (brought(row), row.stores[0].restored, row.records_in) == (None, 1, 0)
    assert not nodes.spec_on("a").paths.replaced.exists(), "a store is in quarantine"
    nodes.assert_on("a")


@pytest.mark.long
def test_alternating_nodes_give_what_one_node_gives_and_one_generation(nodes: Nodes) -> None:
    for number, node in enumerate("babba"):
        nodes.send([(b"key-%03d" % at, b"value %d" % number) for at in range(number, 100, 7)])
        row = nodes.run_on(node)
        assert row.stores[0].restored <= 30, "a copy is brought to the end of its log"
        nodes.assert_on(node)
    assert "not on this node" not in (brought(row) or ""), "the copy from before was used"
    (directory,) = nodes.directories()
    assert history(nodes.objects, directory).generation == 0


def test_an_idle_task_fetches_nothing(nodes: Nodes) -> None:
    row = nodes.run_on("b")
    assert (row.records_in, row.lag, brought(row)) == (0, 0, None)
    assert not nodes.disk("b").exists() or not list(nodes.disk("b").rglob("*.sst"))


def test_a_copy_of_a_generation_that_was_replaced_elsewhere_does_not_come_back(nodes: Nodes) -> None:
    nodes.run_on("a")
    nodes.begin_generation_on("b")
    nodes.send([(b"new", b"value")])
    row = nodes.run_on("a")
    assert "it belongs to generation 0, but generation 1 has begun" in brought(row)
    nodes.assert_on("a")


@pytest.mark.long
def test_a_copy_that_grew_from_a_suspect_snapshot_is_not_used(nodes: Nodes) -> None:
    spec = nodes.spec_on("a")
    directory = snapshot_directory(spec)
    for found in history(nodes.objects, directory).usable:
        mark_suspect(nodes.objects, directory, found.name, "for a test")
    nodes.send([(b"new", b"value")])
    row = nodes.run_on("a")
    assert "which is suspect" in brought(row)
    nodes.assert_on("a")
    assert nodes.verify_on("b", "deep").status is Status.OK


@pytest.mark.long
def test_a_damaged_copy_is_replaced_by_the_snapshot(nodes: Nodes) -> None:
    (table, *_) = sorted(nodes.spec_on("a").live.rglob("*.sst"))
    table.write_bytes(b"no table")
    nodes.send([(b"new", b"value")])
    assert "is CORRUPT here" in brought(nodes.run_on("a"))
    nodes.assert_on("a")


@pytest.mark.long
def test_where_the_archive_does_not_answer_no_task_runs(nodes: Nodes) -> None:
    shutil.move(nodes.directory / "archive", nodes.directory / "away")
    (nodes.directory / "archive").write_text("no directory")
    nodes.send([(b"new", b"value")])
    for node in "ab":
        row = run_here(nodes.task_spec(archive=nodes.archive, state_dir=nodes.disk(node)), "run", TINY_RUN)
        assert row.failure is not None
        assert row.failure.retriable
    assert row.records_in == 0


# -- restore ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_store_that_lies_on_another_node_is_not_restored(nodes: Nodes) -> None:
    row = nodes.restore_on("b")
    assert (row.before, row.outcome, row.mode) == (Status.OK, "skipped", None)
    assert not list(nodes.disk("b").rglob("*.sst"))


@pytest.mark.long
def test_a_store_without_a_snapshot_is_built_somewhere_and_published(nodes: Nodes) -> None:
    shutil.rmtree(nodes.directory / "archive" / "stores")
    row = nodes.restore_on("b")
    assert (row.before, row.outcome, row.mode, row.keys) == (Status.LAGGING, "restored", "full", 200)
    assert row.published is not None
    assert row.published.snapshot is not None
    assert nodes.verify_on("c", "deep").status is Status.OK


@pytest.mark.long
def test_a_snapshot_that_lags_is_brought_to_the_end_of_its_log(nodes: Nodes) -> None:
    nodes.send([(b"new", b"value")])
    assert Application.run(nodes, archive=None, state_dir=nodes.disk("a")).failure is None  # without publishing
    row = nodes.restore_on("b")
    assert (row.before, row.mode, row.records) == (Status.LAGGING, "snapshot", 1)
    assert nodes.verify_on("c", "deep").status is Status.OK


@pytest.mark.long
def test_what_was_wrong_in_the_archive_is_built_from_the_log_and_no_copy_brings_it_back(nodes: Nodes) -> None:
    nodes.falsify()
    found = nodes.verify_on("b", "deep")
    assert (found.status, found.action) == (Status.DIVERGED, Action.FULL)
    row = nodes.restore_on("b", diverged=True)
    assert (row.mode, row.outcome) == ("full", "restored")
    assert nodes.verify_on("c", "deep").status is Status.OK
    nodes.send([(b"new", b"value")])
    assert "which is suspect" in brought(nodes.run_on("a"))
    nodes.assert_on("a")


@pytest.mark.long
def test_a_damaged_file_in_the_archive_is_put_right_by_a_restore(nodes: Nodes) -> None:
    largest = max(nodes.objects.entries(BLOBS), key=lambda found: found.size)
    (nodes.directory / "archive" / largest.name).write_bytes(bytes(largest.size))
    row = nodes.restore_on("b", force=True)
    assert (row.mode, row.outcome) == ("full", "restored")
    assert nodes.verify_on("c", "deep").status is Status.OK


@pytest.mark.long
def test_what_the_log_has_lost_comes_from_the_snapshot(nodes: Nodes) -> None:
    set_topic_config(nodes.servers, nodes.changelog, cleanup_policy="compact,delete")
    delete_records(nodes.servers, nodes.changelog, 50)
    nodes.send([(b"new", b"value")])
    row = nodes.run_on("b")
    assert "not on this node" in brought(row)
    nodes.send([(b"newer", b"value")])
    assert brought(nodes.run_on("a")) is None
    assert nodes.verify_on("c").keys is None
    assert {found: nodes.verify_on(found).status for found in "abc"} == dict.fromkeys("abc", Status.OK)


@pytest.mark.long
def test_at_least_once_a_copy_is_not_used_after_another_node_has_worked(bootstrap_servers: str, tmp_path: Path) -> None:
    nodes = Nodes(bootstrap_servers, tmp_path, processing_guarantee="at_least_once")
    for number, node in enumerate("aba"):
        nodes.send([(b"key-%03d" % at, b"value %d" % number) for at in range(20)])
        row = nodes.run_on(node)
        nodes.assert_on(node)
    assert "another node may have worked on it" in brought(row)
    nodes.send(ROWS[:1])
    assert brought(nodes.run_on("a")) is None, "nobody else has worked since"


def test_the_newest_snapshot_is_replaced_also_if_it_came_while_a_store_was_restored(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = nodes.newest("a")
    nodes.send([(b"new", b"value")])

    def published(point: str) -> None:
        if point == "restore, built, not swapped" and nodes.newest("a").name == before.name:
            nodes.run_on("a")

    monkeypatch.setattr("statestore.kill_switch.reached", published)
    row = nodes.restore_on("b", mode="full", force=True)
    (found,) = pins(nodes.objects)
    (kept,) = found.snapshots
    assert row.replaced not in (None, str(before.name))
    assert row.replaced in kept


# -- rollback ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_a_restore_has_replaced_can_be_the_store_again_and_no_copy_of_the_other_comes_back(nodes: Nodes) -> None:
    nodes.falsify()
    falsified = nodes.newest("a")
    nodes.run_on("b")
    row = nodes.restore_on("b", diverged=True)
    assert row.replaced == str(falsified.name)
    assert (row.quarantine, row.published.snapshot is not None) == (None, True)
    nodes.send([(b"new", b"value")])
    nodes.run_on("b")
    (found,) = pins(nodes.objects)
    assert found.snapshots == (falsified.directory.snapshot(falsified.name),)

    made = reinstate(nodes.spec_on("c"), falsified, "by a test")
    assert made.generation == 1
    row = nodes.run_on("b")
    assert "generation 1 has begun" in brought(row)
    found = nodes.verify_on("c", "deep")
    assert (found.status, found.action) == (Status.DIVERGED, Action.BY_HAND), "nobody replaces it unasked"
    assert "by a test" in found.detail
    for diverged in (True, False):
        request = RestoreRequest(mode="full", force=True)
        refused = restore(RestoreSpec(nodes.spec_on("c"), request, "unasked", TINY_RUN, diverged=diverged))
        assert refused.failure is not None
        assert "it is here by by a test" in refused.failure.message
    (kept,) = listed_pins(nodes.objects)
    assert release_replaced_pins(nodes.spec_on("c"), kept.created_ms) == 0, "it may have been replaced since"
    assert release_replaced_pins(nodes.spec_on("c"), kept.created_ms + 1) == 1
    assert list(pins(nodes.objects)) == []


@pytest.mark.long
@pytest.mark.parametrize("days_ahead", [-30, 0, 30])
def test_what_was_replaced_stays_pinned_for_days_of_the_archive_whatever_hosts_say(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, days_ahead: int
) -> None:
    nodes.falsify()
    now_ms, ahead_ms = clock.now_ms, days_ahead * 86_400_000
    with monkeypatch.context() as patch:  # no test may set the clock of a host
        patch.setattr(clock, "now_ms", lambda: now_ms() + ahead_ms)
        nodes.restore_on("b", diverged=True)
    (kept,) = listed_pins(nodes.objects)
    with monkeypatch.context() as patch:
        patch.setattr(clock, "now_ms", lambda: now_ms() - ahead_ms)
        assert unpin_old(nodes.objects, 3_600, dry_run=False) == ()
        path = nodes.directory / "archive" / kept.pin.place
        two_hours_ago = path.stat().st_mtime - 7_200
        os.utime(path, (two_hours_ago, two_hours_ago))
        assert unpin_old(nodes.objects, 3_600, dry_run=True) == kept.pin.snapshots
        assert len(list(pins(nodes.objects))) == 1
        assert unpin_old(nodes.objects, 3_600, dry_run=False) == kept.pin.snapshots
    assert list(pins(nodes.objects)) == []


@pytest.mark.long
def test_a_restore_that_is_tried_again_on_another_node_knows_what_it_had_replaced(nodes: Nodes) -> None:
    nodes.falsify()
    falsified = nodes.newest("a")
    request = RestoreRequest(mode="full", force=True)
    rows = [
        restore(RestoreSpec(nodes.spec_on(node), how, "one restore", TINY_RUN, diverged=diverged))
        for node, how, diverged in [("b", request, True), ("c", RestoreRequest(), False), ("c", request, False)]
    ]
    assert [row.failure for row in rows] == [None] * 3
    assert [row.outcome for row in rows] == ["restored"] * 3
    assert [row.replaced for row in rows] == [str(falsified.name)] * 3
    (kept,) = pins(nodes.objects)
    assert kept.snapshots == (falsified.directory.snapshot(falsified.name),)
    assert nodes.restore_on("c").outcome == "skipped", "of another restore"


@pytest.mark.long
def test_a_store_as_of_a_point_is_built_once_however_often_that_is_tried(nodes: Nodes, tmp_path: Path) -> None:
    request = RestoreRequest(mode="as-of", as_of_offset=100, target=tmp_path / "then")
    rows = [restore(RestoreSpec(nodes.spec_on("b"), request, "one restore", TINY_RUN)) for _ in range(2)]
    assert [(row.failure, row.outcome) for row in rows] == [(None, "restored")] * 2


@pytest.mark.long
def test_what_grew_from_a_suspect_snapshot_while_it_was_marked_is_marked_too(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.send([(b"new", b"value")])
    marked: list[str] = []

    def published_before_the_first(objects: Any, directory: Any, name: Any, why: str) -> None:
        if not marked:
            nodes.run_on("a")
        marked.append(str(name))
        mark_suspect(objects, directory, name, why)

    monkeypatch.setattr("statestore.partition.snapshots.mark_suspect", published_before_the_first)
    suspect_all(nodes.spec_on("b"), "by a test")
    assert len(marked) == len(set(marked)) == 2
    assert history(nodes.objects, snapshot_directory(nodes.spec_on("b"))).usable == ()


@pytest.mark.long
def test_a_snapshot_that_its_log_does_not_continue_is_not_reinstated(nodes: Nodes) -> None:
    before = nodes.newest("a")
    nodes.send([(b"new", b"value")])
    nodes.run_on("a")
    set_topic_config(nodes.servers, nodes.changelog, cleanup_policy="compact,delete")
    delete_records(nodes.servers, nodes.changelog, nodes.log_end())
    with pytest.raises(InputError, match="cannot be reinstated"):
        reinstate(nodes.spec_on("c"), before, "by a test")
    assert nodes.newest("a").generation == 0


# -- what only a copy has ---------------------------------------------------------------------------------------------


def test_a_copy_that_has_what_neither_archive_nor_log_has_is_left_and_its_task_refuses(nodes: Nodes) -> None:
    nodes.send([(b"new", b"value")])
    assert Application.run(nodes, archive=None, state_dir=nodes.disk("a")).failure is None  # without publishing
    recreate(nodes)
    nodes.send([(b"newer", b"value")])
    row = run_here(nodes.task_spec(archive=nodes.archive, state_dir=nodes.disk("a")), "run", TINY_RUN)
    assert row.failure is not None
    assert row.failure.kind == "ChangelogReplacedError"
    assert nodes.contents_on("a")[b"new"]


@pytest.mark.long
def test_a_damaged_copy_of_a_store_without_a_snapshot_is_kept_where_its_log_has_lost_its_start(nodes: Nodes) -> None:
    shutil.rmtree(nodes.directory / "archive" / "stores")
    set_topic_config(nodes.servers, nodes.changelog, cleanup_policy="compact,delete")
    delete_records(nodes.servers, nodes.changelog, 50)
    (table, *_) = sorted(nodes.spec_on("a").live.rglob("*.sst"))
    table.write_bytes(b"no table")
    nodes.send([(b"new", b"value")])
    row = run_here(nodes.task_spec(archive=nodes.archive, state_dir=nodes.disk("a")), "run", TINY_RUN)
    assert row.failure is not None
    assert "would lose data" in row.failure.message
    assert table.read_bytes() == b"no table"
    found = nodes.verify_on("b")
    assert (found.status, found.action, found.loss) == (Status.MISSING, Action.BY_HAND, "likely")


@pytest.mark.long
def test_an_empty_store_on_a_node_does_not_stand_for_the_one_in_the_archive(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    nodes = Nodes(bootstrap_servers, tmp_path)
    nodes.run_on("b")  # nothing was logged yet
    nodes.send(ROWS)
    nodes.run_on("a")
    set_topic_config(nodes.servers, nodes.changelog, cleanup_policy="compact,delete")
    delete_records(nodes.servers, nodes.changelog, 50)
    nodes.send([(b"new", b"value")])
    assert "not on this node" in brought(nodes.run_on("b"))
    assert len(nodes.contents_on("b")) == 201


@pytest.mark.long
def test_the_job_snapshot_makes_one_also_of_a_store_that_is_whole_in_the_archive(nodes: Nodes) -> None:
    before = nodes.newest("a")
    row = snapshot_from_log(SnapshotSpec(nodes.spec_on("b"), "run", TINY_RUN, nodes.directory / "scratch"))
    assert (row.failure, row.outcome, row.snapshot) == (None, "restored", str(before.name))
    assert nodes.newest("a").record.caught_up_ms > before.record.caught_up_ms


@pytest.mark.long
def test_a_definition_that_was_changed_is_refused_on_each_node(nodes: Nodes) -> None:
    nodes.send([(b"new", b"value")])
    changed = nodes.definition.stores[0].model_copy(update={"value_serde": "int64"})
    nodes.definition = nodes.definition.model_copy(update={"stores": (changed,)})
    row = run_here(nodes.task_spec(archive=nodes.archive, state_dir=nodes.disk("b")), "run", TINY_RUN)
    assert row.failure is not None
    assert row.failure.kind == "DefinitionError"


@pytest.mark.long
def test_a_store_that_another_one_replaces_while_its_task_begins_is_not_worked_on(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = nodes.newest("a")
    nodes.send([(b"new", b"value")])

    def reinstated(point: str) -> None:
        if point == "transactions initialized" and nodes.newest("a").generation == 0:
            reinstate(nodes.spec_on("c"), before, "by a test")

    monkeypatch.setattr("statestore.kill_switch.reached", reinstated)
    row = run_here(nodes.task_spec(archive=nodes.archive, state_dir=nodes.disk("a")), "run", TINY_RUN)
    assert row.failure is not None
    assert (row.failure.kind, row.failure.retriable, row.records_in) == ("SupersededError", True, 0)
    assert "generation 1 has begun" in brought(nodes.run_on("a"))


@pytest.mark.parametrize("point", ["recovered", "flushed, not committed", "before close", "snapshot, blobs uploaded"])
@pytest.mark.parametrize("diverged", [False, True])
@pytest.mark.long
def test_a_restore_on_another_node_harms_no_task_that_works(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, point: str, diverged: bool
) -> None:
    nodes.send([(b"new", b"value")])
    met: list[str] = []

    def restored(reached: str) -> None:
        if reached == point and not met:
            met.append(point)
            nodes.restore_on("b", diverged=diverged, force=True)

    monkeypatch.setattr("statestore.kill_switch.reached", restored)
    row = run_here(nodes.task_spec(archive=nodes.archive, state_dir=nodes.disk("a")), "run", TINY_RUN)
    assert met
    assert (row.failure, row.records_in) == (None, 1)
    nodes.assert_on("a")
    nodes.send([(b"newer", b"value")])
    for node in "ba":
        assert nodes.run_on(node).records_in == (1 if node == "b" else 0)
        nodes.assert_on(node)
    assert nodes.verify_on("c", "deep").status is Status.OK
    assert nodes.newest("c").generation == 0


def test_a_copy_whose_tail_was_deleted_while_its_node_was_away_is_not_used(nodes: Nodes) -> None:
    nodes.send([(b"new", b"value")])
    nodes.run_on("b")
    set_topic_config(nodes.servers, nodes.changelog, cleanup_policy="compact,delete")
    delete_records(nodes.servers, nodes.changelog, nodes.log_end())
    nodes.send([(b"newer", b"value")])
    row = nodes.run_on("a")
    assert row.records_in == 1
    assert brought(row) is not None
    assert set(nodes.contents_on("a")) == {*dict(ROWS), b"new", b"newer"}
    assert nodes.verify_on("c").status is Status.OK


def recreate(nodes: Nodes) -> None:
    """Delete the changelog, and make it anew."""
    delete_topic(nodes.servers, nodes.changelog)
    create_topic(nodes.servers, nodes.changelog, 1, CHANGELOG_CONFIG)


# -- an older archive -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reinstated", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_archive_that_was_put_back_from_a_backup_takes_no_place_of_what_is_newer(
    nodes: Nodes, reinstated: bool
) -> None:
    backup = nodes.directory / "backup"
    shutil.copytree(nodes.directory / "archive", backup)
    if reinstated:
        nodes.falsify()
        wrong = nodes.newest("a")
        nodes.restore_on("a", diverged=True)
        reinstate(nodes.spec_on("a"), wrong, "by a test")
    else:
        nodes.begin_generation_on("a")
    nodes.send([(b"later", b"1")], timestamp=T0 + 100)
    nodes.run_on("a")
    before = nodes.contents_on("a")
    assert nodes.newest("a").generation > 0
    shutil.rmtree(nodes.directory / "archive")
    shutil.copytree(backup, nodes.directory / "archive")
    nodes.send([(b"more", b"1")], timestamp=T0 + 200)
    nodes.run_on("a")
    after = nodes.contents_on("a")
    assert {key: row for key, row in after.items() if key != b"more"} == before
    made = nodes.newest("a")
    assert (made.generation > 0, made.by_hand is not None) == (True, True)
    nodes.send([(b"end", b"1")], timestamp=T0 + 300)
    nodes.run_on("b")
    assert {key: row for key, row in nodes.contents_on("b").items() if key != b"end"} == after


def test_another_node_migrates_a_snapshot_in_an_older_format(bootstrap_servers: str, tmp_path: Path) -> None:
    nodes = Nodes(bootstrap_servers, tmp_path, processor="count_plain", stores=(plain_store(),))
    nodes.send(ROWS)
    nodes.run_on("a")
    raised = nodes.definition.stores[0].model_copy(update={"format": StoreFormat.TIMESTAMPED})
    nodes.defined(processor="tests.integration.support:count", stores=(raised,))
    nodes.send(ROWS[:50], timestamp=T0 + 100)
    nodes.run_on("b")
    rows = nodes.contents_on("b")
    assert {key: row.value for key, row in rows.items()} == {
        key: b"2" if key in dict(ROWS[:50]) else b"1" for key, _ in ROWS
    }
    found = verify(nodes.spec_on("b").model_copy(update={"archive": None}), VerifyOptions(depth="deep"))
    assert (found.status, found.contents.differing) == (Status.OLD_FORMAT, 0), found
    row = restore(RestoreSpec(nodes.spec_on("c"), RestoreRequest(mode="snapshot", force=True), "restored", TINY_RUN))
    assert (row.failure, row.mode) == (None, "snapshot")


def test_a_snapshot_in_a_newer_format_is_not_used(bootstrap_servers: str, tmp_path: Path) -> None:
    nodes = Nodes(bootstrap_servers, tmp_path)
    nodes.send(ROWS)
    nodes.run_on("a")
    lowered = nodes.definition.stores[0].model_copy(update={"format": StoreFormat.PLAIN})
    nodes.defined(processor="tests.integration.support:count_plain", stores=(lowered,))
    nodes.send(ROWS[:50], timestamp=T0 + 100)
    nodes.run_on("b")
    assert set(nodes.contents_on("b").values()) == {b"1", b"2"}, "it is built from the log"
    nodes.assert_on("b")
