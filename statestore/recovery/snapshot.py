"""Building a store from a snapshot of the archive, and the rest of its log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from statestore import kill_switch
from statestore.archive.fetch import fetch, has_bytes
from statestore.archive.manifest import Manifest
from statestore.archive.objects import ObjectStore
from statestore.archive.snapshots import history, mark_suspect, read_snapshot
from statestore.durable import write_durably
from statestore.errors import InputError, SnapshotError, StoreCorruptedError
from statestore.partition.snapshots import compared_end, inadmissible, snapshot_directory
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Built, Logs
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.tail import building, replay_staged
from statestore.statedir.seal import known_files

_log = logging.getLogger(__name__)


def admissible_snapshots(store: StorePartitionSpec, logs: Logs, now_ms: int) -> Iterator[Manifest]:
    """Yield the snapshots that a store may be restored from, the best first; why others are left out is logged.

    Parameters
    ----------
    now_ms
        Wall clock time before the logs' ends were asked for, ms since the epoch.

    Raises
    ------
    InputError
        If there is no archive, or the store is a global one, which has several logs.
    """
    if store.archive is None:
        raise InputError(
            f"{store.store_partition} cannot be restored from a snapshot: there is no archive; set STATESTORE_ARCHIVE"
        )
    if store.is_global:
        raise InputError(f"{store.store_partition} is a global store, of which there are no snapshots; use mode full")
    objects, directory = store.archive.open(), snapshot_directory(store, store.archive)
    for found in history(objects, directory).usable:
        try:
            snapshot = read_snapshot(objects, found)
            log = logs[store.partition]
            why = inadmissible(store, snapshot, log, compared_end(store, snapshot), now_ms)
        except SnapshotError as error:
            why = str(error)
        if why is None:
            yield snapshot
        else:
            _log.warning("restore: %s: snapshot %s is not used: %s", store.store_partition, found.name, why)


def build_from_snapshot(
    spec: RestoreSpec, snapshot: Manifest, logs: Logs, progress: RestoreProgressWriter, asked_ms: int
) -> tuple[Built, int]:
    """Make the store of a snapshot in the staging directory, bring it to the end of its changelog, and check it.

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
        If the store cannot be used. If its files are as they were published, the snapshot becomes suspect.
    """
    store = spec.store
    assert store.archive is not None
    objects = store.archive.open()
    with building(store) as staged:
        progress.fetching(snapshot.bytes)
        _lay(store, objects, snapshot, staged, progress)
        kill_switch.reached("restore, snapshot fetched")
        whole_ms = snapshot.record.whole_ms(snapshot.committed, asked_ms)
        try:
            built = replay_staged(spec, logs, snapshot.committed, progress, asked_ms, whole_ms)
            progress.phase("checking")
            keys = check_staged(store, built, spec.request.check)
        except StoreCorruptedError as error:
            if _is_as_published(snapshot, staged):
                mark_suspect(objects, snapshot.directory, snapshot.name, str(error))
            raise
    before = snapshot.record.stream_time
    if before is None and snapshot.committed is not None:  # it was never recorded, and is not known by now
        return built._replace(stream_time=None), keys
    times = (time for time in (built.stream_time, before) if time is not None)
    return built._replace(stream_time=max(times, default=None)), keys


def _is_as_published(snapshot: Manifest, staged: Path) -> bool:
    """Tell whether the SST files that are left of a snapshot have its bytes still: then it was published damaged."""
    left = [(staged / file.path, file) for file in snapshot.files if file.path.endswith(".sst")]
    return all(has_bytes(path, file) for path, file in left if path.exists())


def _lay(
    store: StorePartitionSpec, objects: ObjectStore, snapshot: Manifest, staged: Path, progress: RestoreProgressWriter
) -> None:
    name = store.store.name
    known = {} if store.store.supplied else known_files(store.paths, name)  # a supplier may change its files in place
    local = {sha256: store.live / path for path, sha256 in known.items()}
    fetch(objects, snapshot, staged, local, progress.fetched)
    for path, text in snapshot.own.items():
        kind, _, file = path.partition("/")
        target = store.paths.staged_offsets(name) if kind == "offsets" else store.paths.staged_segments(name) / file
        write_durably(target, text)
