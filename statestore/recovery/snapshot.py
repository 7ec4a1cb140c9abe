"""Building a store from a snapshot of the archive, and the rest of its log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from statestore import kill_switch
from statestore.archive.fetch import has_bytes
from statestore.archive.manifest import Manifest
from statestore.archive.snapshots import History, Listed, history, mark_suspect
from statestore.errors import (
    InputError,
    StoreCorruptedError,
)
from statestore.formats.database_files import has_rows
from statestore.objects.store import ObjectStore
from statestore.partition.archived import lay
from statestore.partition.generations import snapshot_directory
from statestore.partition.inspection import damaged_file
from statestore.partition.needed_offsets import latest
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Built, Logs
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.tail import building, replay_staged
from statestore.statedir.seal import install_digests, known_files, seal

_log = logging.getLogger(__name__)


class FoundSnapshot(NamedTuple):
    """A snapshot that was named, and the newest generation of its store partition."""

    objects: ObjectStore
    listed: Listed
    generation: int


def find_snapshot(store: StorePartitionSpec, name: str, listed: History | None = None) -> FoundSnapshot:
    """Find a snapshot of a store partition by its name.

    Parameters
    ----------
    listed
        Its snapshots; None to list them.

    Raises
    ------
    InputError
        If there is no archive, or none of that name in it.
    """
    if not store.home.offers_snapshots:
        raise InputError(f"snapshot {name}: there is no archive; set STATESTORE_ARCHIVE")
    objects = store.snapshot_archive.open()
    found = listed or history(objects, snapshot_directory(store))
    for one in found.snapshots:
        if str(one.name) == name:
            return FoundSnapshot(objects, one, found.generation)
    raise InputError(
        f"{store.store_partition} has no snapshot {name} in {objects.url}; `statestore snapshot list` lists them. A "
        f"snapshot is of one store partition: name that, too"
    )


def build_from_snapshot(
    spec: RestoreSpec,
    snapshot: Manifest,
    logs: Logs,
    progress: RestoreProgressWriter,
    asked_ms: int,
    *,
    by_hand: bool = False,
) -> tuple[Built, int]:
    """Make the store of a snapshot in the staging directory, bring it to the end of its changelog, and check it.

    Parameters
    ----------
    by_hand
        It does not matter whether deletes behind the snapshot are gone from the log.

    Returns
    -------
    Built
        What was built.
    int
        Its rows.

    Raises
    ------
    SnapshotError
        If one of its files is missing from the archive, or has other bytes.
    StoreBehindLogStartError
        If it took so long that deletes behind the snapshot may be gone from the log.
    StoreCorruptedError
        If the store cannot be used. If the damaged file is as it was published, the snapshot becomes suspect.
    """
    store = spec.store
    objects = store.snapshot_archive.open()
    with building(store) as staged:
        progress.fetching(snapshot.bytes)
        lay_snapshot(store, objects, snapshot, staged, progress)
        kill_switch.reached("restore, snapshot fetched")
        whole_ms = None if by_hand else snapshot.record.whole_ms(snapshot.committed, asked_ms)
        try:
            reached = store.store.store_kind.replayed_from(snapshot.record.stream_time)
            built = replay_staged(spec, logs, snapshot.committed, progress, asked_ms, whole_ms, stream_time=reached)
            progress.phase("checking")
            keys = check_staged(store, built, spec.request.check)
        except StoreCorruptedError as error:
            if _was_published_damaged(snapshot, staged, error):
                mark_suspect(objects, snapshot.directory, snapshot.name, str(error))
            raise
    before = snapshot.record.stream_time
    if before is None and snapshot.committed is not None:  # it was never recorded, and is not known by now
        return built._replace(stream_time=None), keys
    return built._replace(stream_time=latest(built.stream_time, before)), keys


def _was_published_damaged(snapshot: Manifest, staged: Path, error: StoreCorruptedError) -> bool:
    """Tell whether an error names a file of a snapshot, and all of its files have their bytes still: no disk did it."""
    damaged = damaged_file(error, staged)
    files = [file for file in snapshot.files if has_rows(file.path)]
    if damaged is None or Path(damaged) not in {staged / file.path for file in files}:
        return False
    try:
        return all(has_bytes(staged / file.path, file) for file in files)
    except OSError:
        return False


def lay_snapshot(
    store: StorePartitionSpec, objects: ObjectStore, snapshot: Manifest, staged: Path, progress: RestoreProgressWriter
) -> None:
    """Fetch the files of a snapshot into the staging directory, or link those that are here."""
    name = store.store.name
    # A supplier may change its files in place.
    known = known_files(store.paths, name) if store.store.files_are_known else {}
    local = {sha256: store.live / path for path, sha256 in known.items()}
    offsets, segments = store.paths.staged_offsets(name), store.paths.staged_segments(name)
    lay(objects, snapshot, staged, offsets, segments, local, progress.fetched)


def seal_new(store: StorePartitionSpec, snapshot: Manifest | None) -> None:
    """Seal a store that was put in place; the digests of the files of a snapshot are known."""
    kill_switch.reached("restore, swapped, not sealed")
    definition = store.store
    if snapshot is not None and definition.files_are_known:
        sst = {file.path: file.sha256 for file in snapshot.files if has_rows(file.path)}
        install_digests(store.paths, definition.name, definition.store_kind, sst)
    seal(store.paths, definition.name, definition.store_kind, supplied=not definition.files_are_known)
