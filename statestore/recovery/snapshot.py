"""Building a store from a snapshot of the archive, and the rest of its log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from statestore import kill_switch
from statestore.archive.fetch import fetch
from statestore.archive.manifest import Manifest
from statestore.archive.objects import ObjectStore
from statestore.archive.snapshots import history, read_manifest
from statestore.durable import write_durably
from statestore.errors import InputError, SnapshotError
from statestore.partition.snapshots import compared_end, inadmissible, snapshot_directory
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Built, Logs
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
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
            snapshot = read_manifest(objects, directory, found.name)
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
) -> Built:
    """Make the store of a snapshot in the staging directory, and bring it to the end of its changelog.

    Raises
    ------
    SnapshotError
        If one of its files is missing from the archive, or has other bytes.
    StoreBehindLogStartError
        If it took so long that deletes behind the snapshot may be gone from the log.
    """
    store = spec.store
    assert store.archive is not None
    with building(store) as staged:
        progress.phase("fetching")
        _lay(store, store.archive.open(), snapshot, staged)
        kill_switch.reached("restore, snapshot fetched")
        whole_ms = snapshot.record.whole_ms(snapshot.committed, asked_ms)
        built = replay_staged(spec, logs, snapshot.committed, progress, asked_ms, whole_ms)
    before = snapshot.record.stream_time
    if before is None and snapshot.committed is not None:  # it was never recorded, and is not known by now
        return built._replace(stream_time=None)
    times = (time for time in (built.stream_time, before) if time is not None)
    return built._replace(stream_time=max(times, default=None))


def _lay(store: StorePartitionSpec, objects: ObjectStore, snapshot: Manifest, staged: Path) -> None:
    name = store.store.name
    known = {} if store.store.supplied else known_files(store.paths, name)  # a supplier may change its files in place
    local = {sha256: store.live / path for path, sha256 in known.items()}
    fetch(objects, snapshot, staged, local)
    for path, text in snapshot.own.items():
        kind, _, file = path.partition("/")
        target = store.paths.staged_offsets(name) if kind == "offsets" else store.paths.staged_segments(name) / file
        write_durably(target, text)
