"""Disk space that a restore needs, and what it would read; a restore that is not likely to fit is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from statestore.archive.manifest import Manifest
from statestore.bulk.runs import merge_passes
from statestore.changelog.reader import ChangelogReader
from statestore.errors import DiskSpaceError
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Logs
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Staging
from statestore.recovery.task_cleanup import size_of
from statestore.reports import RestorePlanRow
from statestore.statedir.seal import known_files

#: Samples of a log: how many, and offsets in each.
_SAMPLES, _SAMPLE_OFFSETS = 3, 300
#: A database without rows, and memtables on their way to disk.
_DATABASE_BYTES = 16 * 1024 * 1024
#: What a run in memory holds of each record at most besides its key and value (bulk/records.py).
_RUN_BYTES_OF_A_RECORD = 104
#: With so many bytes free for each offset, nobody asks how large the records are.
_PLENTY_PER_OFFSET = 4096


def disk_needed(log_bytes: int, run_bytes: int, offsets: int = 0, ranges: int = 1) -> int:
    """Return the bytes of disk that a restore needs at most for what it reads of a log. Pure.

    It needs the new store, the sorted runs that do not fit into memory, and a copy of them if there are too many to be
    merged at once: while they are merged further, the runs, what was merged from them, and what becomes of that.

    Parameters
    ----------
    log_bytes, offsets
        Of what is read: the log, or its tail.
    run_bytes
        Bound of a sorted run in memory.
    ranges
        Into how many ranges that is cut; a tail is not.
    """
    in_memory = log_bytes + offsets * _RUN_BYTES_OF_A_RECORD
    if ranges == 1 and log_bytes <= run_bytes and in_memory <= run_bytes:
        return log_bytes + _DATABASE_BYTES
    copies = 2 if merge_passes(-(-in_memory // run_bytes) + ranges - 1) else 1
    return log_bytes * (1 + copies) + _DATABASE_BYTES


def disk_to_merge(fetched_bytes: int, row_bytes: int, pieces: int) -> int:
    """Return the bytes of disk that merging one range of keys needs at most. Pure.

    Parameters
    ----------
    fetched_bytes, row_bytes
        Of the pieces' files, and of the keys and values in them.
    pieces
        How many there are; if they are too many to be merged at once, they become fewer first.
    """
    return fetched_bytes + row_bytes * (1 + min(merge_passes(pieces), 2)) + _DATABASE_BYTES


def disk_to_put_together(file_bytes: int) -> int:
    """Return the bytes of disk that a store needs which is made of SST files of so many bytes. Pure."""
    return file_bytes + _DATABASE_BYTES


def disk_of_parts(log_bytes: int, run_bytes: int, offsets: int, ranges: int) -> int:
    """Return the bytes of disk that each Spark task needs at most which builds a part of a store. Pure.

    Parameters
    ----------
    log_bytes, offsets
        Of the log.
    run_bytes
        Bound of a sorted run in memory.
    ranges
        Into how many ranges it is cut, and its keys are.
    """
    part = -(-log_bytes // ranges)
    return max(disk_needed(part, run_bytes, -(-offsets // ranges)), disk_to_merge(part, part, ranges))


def require_room(store: StorePartitionSpec, needed: int, what: str) -> None:
    """Refuse a piece of work that is not likely to fit on this machine's disk.

    Raises
    ------
    DiskSpaceError
        With the bytes needed and free.
    """
    if (free := free_bytes(store.state_dir)) < needed:
        raise DiskSpaceError(
            f"restoring {store.store_partition}: {what} needs about {needed} bytes in {store.state_dir}, {free} are "
            f"free. Free some space, then run again"
        )


def require_disk(spec: RestoreSpec, mode: str, logs: Logs) -> None:
    """Refuse to begin where the replacement is not likely to fit.

    Raises
    ------
    DiskSpaceError
        With the bytes needed and free.
    """
    free = spare_bytes(spec)
    offsets = sum(log.last_stable - log.start for log in logs.values())
    if free >= offsets * _PLENTY_PER_OFFSET + _DATABASE_BYTES + copied_bytes(spec, mode):
        return
    staging = Staging(spec.store.paths, spec.store.store.name)
    held = staging.held_bytes
    ranges = spec.ranges if mode == "full" else 1
    needed = disk_needed(estimated_bytes(spec.store, logs), spec.run_bytes, offsets, ranges)
    needed += copied_bytes(spec, mode) - held
    if free < needed:
        kept = f"; {held} bytes of sorted runs stay in {staging.directory} for the next attempt" if held else ""
        raise DiskSpaceError(
            f"restoring {spec.store.store_partition} needs about {needed} bytes in {spec.store.state_dir}, "
            f"{free} are free{_kept_free(spec)}. Free some space, then run again{kept}"
        )


def bytes_from(store: StorePartitionSpec, snapshot: Manifest) -> int:
    """Return how many bytes of a snapshot's files are not on this disk."""
    local = set(known_files(store.paths, store.store.name).values())
    return sum(file.bytes for file in snapshot.files if file.sha256 not in local)


def require_disk_for_snapshot(spec: RestoreSpec, snapshot: Manifest) -> None:
    """Refuse to fetch a snapshot where it is not likely to fit.

    Raises
    ------
    DiskSpaceError
        With the bytes needed and free.
    """
    store, free = spec.store, spare_bytes(spec)
    fetched = bytes_from(store, snapshot)
    if free < fetched + _DATABASE_BYTES:
        raise DiskSpaceError(
            f"restoring {store.store_partition} from snapshot {snapshot.name} fetches {fetched} bytes to "
            f"{store.state_dir}, {free} are free{_kept_free(spec)}. Free some space, then run again"
        )


def spare_bytes(spec: RestoreSpec) -> int:
    """Return the bytes that a restore may use on its disk."""
    return free_bytes(spec.store.state_dir) - spec.keep_free


def require_spare_bytes(spec: RestoreSpec) -> None:
    """End a restore that uses what must stay free.

    Raises
    ------
    DiskSpaceError
        With the bytes that are free, and that must be.
    """
    if (spare := spare_bytes(spec)) < 0:
        raise DiskSpaceError(
            f"restoring {spec.store.store_partition} in {spec.store.state_dir} was stopped: {spare + spec.keep_free} "
            f"bytes are free, and {spec.keep_free} must stay free. Use another disk, or free some space"
        )


def _kept_free(spec: RestoreSpec) -> str:
    return f" besides the {spec.keep_free} that must stay free" if spec.keep_free else ""


def estimated_bytes(store: StorePartitionSpec, logs: Logs) -> int:
    """Bytes of keys and values in logs, estimated from a few places in each."""
    total = 0.0
    for partition, log in logs.items():
        size = offsets = 0
        with ChangelogReader(store.cluster, partition) as reader:
            for start, end in sample_places(log.start, log.last_stable):
                offsets += end - start
                size += sum(batch.column(0).nbytes + batch.column(1).nbytes for batch in reader.read(start, end))
        total += size / offsets * (log.last_stable - log.start) if offsets else 0
    return int(total)


def sample_places(start: int, end: int, samples: int = _SAMPLES) -> Iterator[tuple[int, int]]:
    """Ranges of offsets, spread evenly; all of a log that is not much longer than they are. Pure."""
    if end - start <= 2 * samples * _SAMPLE_OFFSETS:
        if start < end:
            yield start, end
        return
    for number in range(samples):
        middle = start + (end - start) * (2 * number + 1) // (2 * samples)
        yield middle, middle + _SAMPLE_OFFSETS


def require_disk_for_all(rows: Sequence[RestorePlanRow]) -> None:
    """Refuse a plan whose parts fit each by itself, but not together.

    Raises
    ------
    DiskSpaceError
        With the bytes needed and free.
    """
    asked = [row for row in rows if row.mode is not None and row.failure is None]
    needed = sum(row.disk_needed for row in asked)
    free = min((row.disk_free for row in asked), default=0)
    if needed > free:
        raise DiskSpaceError(
            f"restoring {len(asked)} store partitions needs about {needed} bytes, {free} are free. Free some space, "
            f"or restore fewer at a time"
        )


def copied_bytes(spec: RestoreSpec, mode: str) -> int:
    """Bytes of a supplier's store that gets a tail: it is copied, while ours share their files with their copies."""
    if mode != "tail" or spec.store.store.files_are_known:
        return 0
    return size_of(spec.store.live)


def free_bytes(directory: Path) -> int:
    """Bytes free where the directory is, or will be."""
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def is_cut(spec: RestoreSpec) -> bool:
    """Tell whether a log is read in ranges, each by itself, if its store is rebuilt from it."""
    store = spec.store
    may_be_split = store.store.log_may_be_split and store.origin.log_may_be_split
    return spec.ranges > 1 and spec.request.mode in ("auto", "full") and may_be_split
