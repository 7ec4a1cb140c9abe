"""Building a store from a snapshot of the archive, and the rest of its log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from statestore import kill_switch
from statestore.archive.fetch import has_bytes
from statestore.archive.manifest import Manifest
from statestore.archive.server_time import server_time_ms
from statestore.archive.snapshots import Listed, history, mark_suspect, read_snapshot
from statestore.changelog import brokers_clock
from statestore.changelog.topics import LogRange
from statestore.errors import (
    ArchiveAccessError,
    ArchiveUnavailableError,
    InputError,
    SnapshotError,
    StoreCorruptedError,
)
from statestore.formats.database_files import has_rows
from statestore.objects.store import ObjectStore
from statestore.partition.archived import lay
from statestore.partition.generations import snapshot_directory
from statestore.partition.inspection import damaged_file
from statestore.partition.restore_points import judged_snapshots
from statestore.partition.snapshots import Needs, compared_end, inadmissible, unlike
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
        Time of the brokers before the logs' ends were asked for, ms since the epoch.

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
        raise InputError(f"{store.store_partition} is a global store, and these have no snapshots; use mode full")
    objects, directory = store.archive.open(), snapshot_directory(store, store.archive)
    found = history(objects, directory)
    now_ms = _no_earlier(store, objects, now_ms)
    for listed, snapshot, why in judged_snapshots(store, objects, found, logs[store.partition], now_ms):
        if snapshot is not None and why is None:
            yield snapshot
        else:
            _log.warning("restore: %s: snapshot %s is not used: %s", store.store_partition, listed.name, why)


def _no_earlier(store: StorePartitionSpec, objects: ObjectStore, now_ms: int) -> int:
    """Return the brokers' time, or the object store's if that is later and the brokers' is only an estimate."""
    if brokers_clock.is_exact(store):
        return now_ms
    try:
        return max(now_ms, server_time_ms(objects))
    except (ArchiveAccessError, ArchiveUnavailableError, SnapshotError) as error:
        _log.warning("restore: %s: the object store's clock cannot be read: %s", store.store_partition, error)
        return now_ms


def named_snapshot(
    spec: RestoreSpec, name: str, log: LogRange, now_ms: int, needs: Needs | None
) -> tuple[Manifest, str]:
    """Return a snapshot that a person has named, and what speaks against it; empty: nothing.

    Parameters
    ----------
    log
        The changelog partition's offsets.
    now_ms
        Time of the brokers before they were asked for, ms since the epoch.
    needs
        What it must have so that nothing is lost, if the log has lost its start.

    Raises
    ------
    InputError
        If there is none of that name, or it is of another store or another log; or if something speaks against it and
        the loss was not accepted.
    """
    store = spec.store
    found = find_snapshot(store, name)
    snapshot = read_found(found)
    if differing := unlike(store, snapshot):
        raise InputError(f"{store.store_partition}: snapshot {name} is {differing}")
    against = inadmissible(store, snapshot, log, compared_end(store, snapshot), now_ms)
    if snapshot.committed is not None and snapshot.committed >= log.high_watermark:
        elsewhere = f"it has offsets up to {snapshot.committed}, and the log ends at {log.high_watermark}"
    elif store.changelog is None or snapshot.record.topic_id != store.changelog.topic_id:
        elsewhere = f"its changelog was topic {snapshot.record.topic_id}, which no longer exists"
    else:
        elsewhere = ""
    if elsewhere:
        raise InputError(
            f"{store.store_partition}: snapshot {name} cannot be put in place: {elsewhere}. The changelog would never "
            "give its rows again. Build the store elsewhere with mode as-of and the same snapshot"
        )
    if against is None and needs is not None and not needs.met_by(snapshot.record):
        against = "it lacks some of what the log has lost"
    if found.listed.suspect:
        against = "it is marked as suspect: it may hold wrong rows"
    elif found.listed.name.generation != found.generation:
        own = found.listed.name.generation
        against = f"it belongs to generation {own}, but generation {found.generation} has begun"
    if against and not spec.request.accept_loss:
        raise InputError(
            f"{store.store_partition}: snapshot {name} is not used: {against}. To begin with it anyway, and keep "
            "the present store in quarantine, add --accept-loss"
        )
    return snapshot, against or ""


class FoundSnapshot(NamedTuple):
    """A snapshot that was named, and the newest generation of its store partition."""

    objects: ObjectStore
    listed: Listed
    generation: int


def find_snapshot(store: StorePartitionSpec, name: str) -> FoundSnapshot:
    """Find a snapshot of a store partition by its name.

    Raises
    ------
    InputError
        If there is no archive, or none of that name in it.
    """
    if store.archive is None:
        raise InputError(f"snapshot {name}: there is no archive; set STATESTORE_ARCHIVE")
    objects = store.archive.open()
    found = history(objects, snapshot_directory(store, store.archive))
    for listed in found.snapshots:
        if str(listed.name) == name:
            return FoundSnapshot(objects, listed, found.generation)
    raise InputError(
        f"{store.store_partition} has no snapshot {name} in {store.archive.url}; `statestore snapshot list` lists "
        f"them. A snapshot is of one store partition: name that, too"
    )


def read_found(found: FoundSnapshot) -> Manifest:
    """Read the manifest of a snapshot that was named."""
    return read_snapshot(found.objects, found.listed)


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
    assert store.archive is not None
    objects = store.archive.open()
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
    times = (time for time in (built.stream_time, before) if time is not None)
    return built._replace(stream_time=max(times, default=None)), keys


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
