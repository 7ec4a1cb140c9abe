"""Publishing snapshots of a task's stores once they are closed and sealed."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Thread

from statestore.archive.archive import ArchiveSpec
from statestore.archive.grown_from import read_grown_from
from statestore.archive.layout import SnapshotName, seen, snapshot_name
from statestore.definitions.store import StoreDefinition
from statestore.errors import (
    ArchiveAccessError,
    ArchiveUnavailableError,
    SnapshotError,
    StateStoreError,
    StoreCorruptedError,
)
from statestore.partition.generations import replaced_with, snapshot_directory
from statestore.partition.snapshots import publish_row
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
    if spec.archive is None:
        return ()
    stores = [
        store
        for store in spec.subtopology.stores
        if store.engine != "in_memory" and (spec.exactly_once or _begins(spec, store))
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(partial(_published, spec, spec.archive, idle), stores))


def open_archive_soon(spec: TaskSpec) -> None:
    """Connect to the archive while the task works: a process's first connection takes as long as publishing a store.

    If that fails, publishing says so.
    """
    archive = spec.archive
    if archive is None or not spec.exactly_once:
        return

    def connect() -> None:
        with suppress(StateStoreError):
            archive.open()

    Thread(target=connect, name="open-archive").start()


def _published(spec: TaskSpec, archive: ArchiveSpec, idle: bool, store: StoreDefinition) -> SnapshotRow:
    if idle and (published := _published_before(spec, store, archive)) is not None:
        return SnapshotRow(store=store.name, current=str(published))
    row = publish_row(spec.store_partition(store.name), archive, "process")
    if row.failure is None:
        return row.model_copy(update={"current": current_snapshot(spec, store, archive)})
    _log.warning("process: %s/%s: no snapshot: %s", spec.application.name, spec.task, row.failure.message)
    return row


def _published_before(spec: TaskSpec, store: StoreDefinition, archive: ArchiveSpec) -> SnapshotName | None:
    """Return the snapshot that has all of a closed store; None if it is not in the archive.

    The archive may have been out of reach, or publishing been killed.
    """
    try:
        name = _current(spec, store, archive)
    except SnapshotError:  # publishing says so
        return None
    if name is None:
        return None
    try:
        place = snapshot_directory(spec.store_partition(store.name), archive)
        there = archive.open().stat(place.snapshot(name)) is not None
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        _log.warning(
            "process: %s/%s: cannot tell whether its snapshot exists: %s", spec.application.name, spec.task, error
        )
        there = True
    return name if there else None


def _begins(spec: TaskSpec, store: StoreDefinition) -> bool:
    try:
        return replaced_with(spec.store_partition(store.name)) is not None
    except SnapshotError:  # publishing says so
        return True


def current_snapshot(spec: TaskSpec, store: StoreDefinition, archive: ArchiveSpec) -> str | None:
    """Return the snapshot that has all that a closed store has; None if there is none, or that is not certain.

    The store grew from it, and has applied its changelog up to the same offset.
    """
    found = _current(spec, store, archive)
    return None if found is None else str(found)


def _current(spec: TaskSpec, store: StoreDefinition, archive: ArchiveSpec) -> SnapshotName | None:
    grown = read_grown_from(spec.paths, store.name)
    if grown is None or grown.begins is not None or (grown.url, grown.cluster) != (archive.url, archive.cluster):
        return None
    name = None if grown.snapshot is None else snapshot_name(f"{grown.snapshot}.json")
    try:
        sealed = check_seal(spec.paths, store.name, store.store_kind)
    except StoreCorruptedError:
        return None
    if name is None or sealed is None:
        return None
    return name if name.offset == seen(sealed.committed) else None
