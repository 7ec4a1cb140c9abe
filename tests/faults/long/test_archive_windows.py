"""The crash windows of snapshots: killed in each of them, or woken up after a successor, what the archive has is true.

Those of one store's restore and of its task's publication are in tests/integration/test_snapshots.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from statestore import kill_switch
from statestore.archive.archive import ArchiveSpec
from statestore.archive.cleanup import Retention
from statestore.archive.contents import check_archive
from statestore.archive.snapshots import histories, read_generation
from statestore.partition import snapshots
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import RestoreSpec
from statestore.reports import RestoreRow
from statestore.requests.restore import RestoreRequest
from tests.faults import oracle
from tests.faults.archive_oracle import RUN_BYTES, ArchiveOracle
from tests.faults.children import Child, CleanUp, FromLog, Kill
from tests.faults.damage.stores import files_of
from tests.faults.hooks import file_by_file
from tests.faults.made import STORES, processor_subject
from tests.faults.subject import Subject


class Archived:
    """An application whose stores have snapshots, and further input that waits."""

    def __init__(self, servers: str, directory: Path) -> None:
        self.subject: Subject = processor_subject(servers, directory, archive=f"file://{directory}/archive")
        self.subject.begin(processed=40, waiting=20)
        self.oracle = ArchiveOracle(self.subject)
        self.first = {store: self._newest(store) for store in STORES}
        self._number = 0

    def _newest(self, store: str) -> str:
        return str(self.oracle.snapshots(store)[0].name)

    @property
    def archive(self) -> ArchiveSpec:
        (spec,) = self.subject.specs()
        assert spec.archive is not None
        return spec.archive

    def store(self, name: str, state_dir: Path | None = None) -> StorePartitionSpec:
        (spec,) = self.subject.specs(state_dir=state_dir)
        return spec.store_partition(name)

    def child(self, *work: Any, at: str | None = None) -> Child:
        self._number += 1
        directory = self.subject.directory / f"child-{self._number}"
        return Child(work, directory, kill=None if at is None else Kill(*_point(at)), hooks=[file_by_file])

    def restores(self, mode: str, state_dir: Path | None = None, **how: Any) -> list[RestoreSpec]:
        request = RestoreRequest.read({"mode": mode, **how})
        return [RestoreSpec(self.store(name, state_dir), request, "run", RUN_BYTES) for name in STORES]

    def restored(self, mode: str, state_dir: Path | None = None, **how: Any) -> Sequence[RestoreRow]:
        rows = self.child(*self.restores(mode, state_dir, **how)).restored()
        assert [row.failure for row in rows] == [None] * len(rows)
        return rows

    def check(self) -> None:
        """All that is in the archive is true, gives the stores again, and nothing is left of the kill."""
        self.oracle.check(("snapshot", "auto"))
        oracle.check(self.subject)


def _point(text: str) -> tuple[str, int]:
    point, _, number = text.partition(":")
    return point, int(number or 1)


@pytest.fixture
def archived(bootstrap_servers: str, tmp_path: Path) -> Archived:
    return Archived(bootstrap_servers, tmp_path)


@pytest.mark.share_for("restore, file fetched:2", why="a download that is half done")
@pytest.mark.parametrize(
    "point",
    ["restore, file fetched:2", "restore, snapshot fetched:3", "restore, tail replayed:2", "snapshot, file uploaded"],
)
def test_a_restore_of_all_stores_that_is_killed_is_done_by_the_next_and_leaves_what_lives(
    archived: Archived, point: str
) -> None:
    archived.subject.run()
    files = {name: files_of(archived.store(name).live) for name in STORES}
    archived.child(*archived.restores("snapshot", force=True), at=point).killed()
    if point == "restore, file fetched:2":
        assert {name: files_of(archived.store(name).live) for name in STORES} == files
    shutil.rmtree(archived.store("hourly").live)
    archived.restored("snapshot")
    archived.subject.run()
    archived.check()


@pytest.mark.parametrize(
    "point",
    [
        "snapshot, file uploaded:3",
        "snapshot, blobs uploaded",
        "snapshot, manifest written:2",
        "restore, file fetched",
        "restore, built, not swapped:2",
        "restore, swapped, not sealed",
    ],
)
def test_a_snapshot_from_the_log_that_is_killed_leaves_the_application_alone_and_is_made_by_the_next(
    archived: Archived, tmp_path: Path, point: str
) -> None:
    spec, *_ = archived.subject.specs()
    archived.child(spec.model_copy(update={"archive": None})).rows()  # what came since is in the logs alone
    files = files_of(archived.subject.state_dir)
    (tmp_path / "scratch").mkdir()
    work = [FromLog(archived.store(name), "log", tmp_path / "scratch") for name in STORES]
    archived.child(*work, at=point).killed()
    archived.oracle.check()
    rows = archived.child(*work).restored()
    assert [(row.failure, row.mode) for row in rows] == [(None, "snapshot")] * len(STORES)
    assert files_of(archived.subject.state_dir) == files
    archived.subject.run()
    archived.check()


@pytest.mark.share_for(every=2, why="between mark and delete")
@pytest.mark.parametrize("point", ["clean-up, manifest in trash and live:2", "clean-up, blobs deleted"])
def test_a_clean_up_that_is_killed_is_done_by_the_next(archived: Archived, point: str) -> None:
    archived.subject.run()
    work = CleanUp(archived.archive, archived.subject.servers, Retention(1, 0, 0))
    archived.child(work, at=point).killed()
    archived.check()
    for _ in range(2):  # what the first marks, goes with the second
        archived.child(work).ended()
    found = check_archive(archived.oracle.objects)
    assert (found.snapshots, found.broken, found.orphans) == (len(STORES), {}, 0)
    assert list(archived.oracle.objects.entries("trash")) == []
    archived.check()


@pytest.mark.parametrize("point", ["Kafka committed, stores not", "stores committed", "store recorded, not sealed:3"])
def test_a_node_that_is_lost_between_its_commit_and_its_snapshots_loses_nothing(archived: Archived, point: str) -> None:
    archived.child(*archived.subject.specs(), at=point).killed()
    shutil.rmtree(archived.subject.state_dir)
    rows = archived.restored("snapshot")
    assert {row.store: row.snapshot for row in rows} == archived.first
    assert min(row.records for row in rows) > 0
    archived.subject.run()
    archived.check()


@pytest.mark.share_for(every=3, why="one point")
@pytest.mark.parametrize(
    "point", ["snapshot, file uploaded", "snapshot, blobs uploaded:2", "snapshot, manifest written:3"]
)
def test_a_zombie_that_publishes_after_its_successor_tells_the_truth_and_the_successor_counts(
    archived: Archived, tmp_path: Path, point: str
) -> None:
    subject = archived.subject
    zombie = Child(subject.specs(), tmp_path / "zombie", pause=Kill(*_point(point)), hooks=[file_by_file])
    try:
        zombie.paused()
        elsewhere, subject.state_dir = subject.state_dir, tmp_path / "successor"
        archived.restored("snapshot")
        subject.produce(20)
        subject.run()
        newest = {store: archived._newest(store) for store in STORES}
        zombie.wake()
        (row,) = zombie.rows()
    finally:
        zombie.end()
    assert (row.failure, [one.failure for one in row.snapshots]) == (None, [None] * len(STORES))
    assert {one.snapshot for one in row.snapshots} <= {
        str(one.name) for store in STORES for one in archived.oracle.snapshots(store)
    }
    assert {store: archived._newest(store) for store in STORES} == newest
    archived.check()
    subject.state_dir = elsewhere  # its node goes on, behind the other one
    subject.run()
    archived.check()


def test_a_task_on_two_nodes_at_once_is_fenced_on_one_and_publishes_nothing_that_was_not_committed(
    archived: Archived, tmp_path: Path
) -> None:
    subject = archived.subject
    first = Child(subject.specs(), tmp_path / "first", pause=Kill("flushed, not committed"), hooks=[])
    try:
        first.paused()
        elsewhere, subject.state_dir = subject.state_dir, tmp_path / "second"
        archived.restored("snapshot")
        subject.run()
        first.wake()
        (row,) = first.rows()
    finally:
        first.end()
    assert row.failure is not None
    assert row.failure.kind == "FencedError"
    archived.check()
    subject.state_dir = elsewhere
    subject.run()
    archived.check()


def _generation_begun(*_: object) -> None:
    """Have the kill switch reached between the begin of a generation and the store's own note of it."""
    write = snapshots.write_grown_from

    def write_later(*arguments: Any) -> None:
        kill_switch.reached("generation begun")
        write(*arguments)

    snapshots.write_grown_from = write_later


@pytest.mark.parametrize("point", ["snapshot, manifest written:1", "generation begun"])
def test_a_generation_that_was_begun_by_a_killed_task_is_never_without_a_snapshot(
    archived: Archived, point: str
) -> None:
    archived.subject.run()
    archived.restored("full", force=True)
    back = roll_back(RollbackSpec(archived.store("counts"), "back"))
    assert back.failure is None
    archived.subject.produce(10)
    Child(
        archived.subject.specs(),
        archived.subject.directory / "run",
        kill=Kill(*_point(point)),
        hooks=[_generation_begun],
    ).killed()
    archived.oracle.check()
    archived.subject.run()
    archived.subject.produce(10)
    archived.subject.run()
    (found,) = [
        found
        for place, found in histories(archived.oracle.objects, archived.archive.cluster, archived.subject.name).items()
        if place.store_partition.store == "counts"
    ]
    assert found.generation == 1
    first = read_generation(archived.oracle.objects, found.directory, 1).snapshot
    assert first in {str(one.name) for one in found.usable}
    archived.check()
