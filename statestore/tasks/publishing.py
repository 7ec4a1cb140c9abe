"""Publishing snapshots of a task's stores once they are closed and sealed."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Thread

from statestore.archive.grown_from import read_grown_from
from statestore.archive.layout import SnapshotName, seen, snapshot_name
from statestore.errors import (
    ArchiveAccessError,
    ArchiveUnavailableError,
    SnapshotError,
    StateStoreError,
    StoreCorruptedError,
)
from statestore.partition.generations import replaced_with, snapshot_directory
from statestore.partition.snapshots import publish_row
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import SnapshotRow
from statestore.statedir.seal import check_seal
from statestore.tasks.spec import TaskSpec

#: Stores of a task that are published side by side: nearly all of it is waiting for the archive.
_AT_ONCE = 4
_log = logging.getLogger(__name__)


def publish_stores(spec: TaskSpec, *, idle: bool = False) -> tuple[SnapshotRow, ...]:
    """Publish what a task has committed; the caller holds its lock.

    At least once, another writer's records may lie between ours, so such stores are not published by their task. One
    that is to begin a generation is: it is not what its log gives, and nobody else has it.

    Parameters
    ----------
    idle
        Nothing was processed: only stores of which the archive has not all are published.
    """
    stores = [
        store
        for store in map(spec.store_partition, (store.name for store in spec.subtopology.stores))
        if store.home.offers_snapshots and store.store.engine != "in_memory" and (spec.exactly_once or _begins(store))
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(partial(_published, idle), stores))


def open_archive_soon(spec: TaskSpec) -> None:
    """Connect to the archive while the task works: a process's first connection takes as long as publishing a store.

    If that fails, publishing says so.
    """
    stores = [store for store in spec.stores_on_disk if store.home.offers_snapshots]
    if not stores or not spec.exactly_once:
        return

    def connect() -> None:
        with suppress(StateStoreError):
            stores[0].snapshot_archive.open()

    Thread(target=connect, name="open-archive").start()


def _published(idle: bool, store: StorePartitionSpec) -> SnapshotRow:
    if idle and (published := _published_before(store)) is not None:
        return SnapshotRow(store=store.store.name, current=str(published))
    row = publish_row(store, "process")
    if row.failure is None:
        return row.model_copy(update={"current": current_snapshot(store)})
    _log.warning("process: %s/%s: no snapshot: %s", store.application, store.task, row.failure.message)
    return row


def _published_before(store: StorePartitionSpec) -> SnapshotName | None:
    """Return the snapshot that has all of a closed store; None if it is not in the archive.

    The archive may have been out of reach, or publishing been killed.
    """
    try:
        name = _current(store)
    except SnapshotError:  # publishing says so
        return None
    if name is None:
        return None
    try:
        place = snapshot_directory(store).snapshot(name)
        there = store.snapshot_archive.open().stat(place) is not None
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        unknown = "process: %s/%s: cannot tell whether its snapshot exists: %s"
        _log.warning(unknown, store.application, store.task, error)
        there = True
    return name if there else None


def _begins(store: StorePartitionSpec) -> bool:
    try:
        return replaced_with(store) is not None
    except SnapshotError:  # publishing says so
        return True


def current_snapshot(store: StorePartitionSpec) -> str | None:
    """Return the snapshot that has all that a closed store has; None if there is none, or that is not certain.

    The store grew from it, and has applied its changelog up to the same offset.
    """
    found = _current(store)
    return None if found is None else str(found)


def _current(store: StorePartitionSpec) -> SnapshotName | None:
    grown, archive = read_grown_from(store.paths, store.store.name), store.snapshot_archive
    if grown is None or grown.begins is not None or (grown.url, grown.cluster) != (archive.url, archive.cluster):
        return None
    name = None if grown.snapshot is None else snapshot_name(f"{grown.snapshot}.json")
    try:
        sealed = check_seal(store.paths, store.store.name, store.store.store_kind)
    except StoreCorruptedError:
        return None
    if name is None or sealed is None:
        return None
    return name if name.offset == seen(sealed.committed) else None
