"""The plan of a restore of a store partition, and its cost. Nothing is changed here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from statestore.archive.manifest import Manifest
from statestore.bulk.runs import merge_passes
from statestore.changelog import brokers_clock
from statestore.changelog.reader import LogReader
from statestore.changelog.topics import Topics
from statestore.discovery.changelogs import log_ranges
from statestore.errors import (
    DiskSpaceError,
    StateStoreError,
    TopicMismatchError,
)
from statestore.partition.archived import lives_in_archive
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.as_of import point_and_target, require_free_target
from statestore.recovery.as_of_source import point_source
from statestore.recovery.catch_up import decide
from statestore.recovery.distributed_plan import builds_there
from statestore.recovery.full import Logs
from statestore.recovery.global_mode import decide_global
from statestore.recovery.mode import DecidedMode, is_made_empty
from statestore.recovery.snapshot import admissible_snapshots, named_snapshot
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Staging, next_offsets
from statestore.recovery.task_cleanup import size_of
from statestore.reports import Failure, RestorePlanRow
from statestore.statedir.seal import known_files
from statestore.statedir.swap import locked_task
from statestore.verification.check import verify

#: Rate of one Spark task that durations are estimated with; `make bench-restore` measures the machine's own.
RECORDS_PER_S = 500_000
#: Below so many offsets a range of its own does not pay for its Spark task.
_LEAST_RANGE_OFFSETS = 500_000
#: Where nodes exchange files, all of them together do two to three times the work of one task: fewer take longer.
_LEAST_RANGES_APART = 4
#: Samples of a log: how many, and offsets in each.
_SAMPLES, _SAMPLE_OFFSETS = 3, 300
#: A database without rows, and memtables on their way to disk.
_DATABASE_BYTES = 16 * 1024 * 1024
#: What a run in memory holds of each record at most besides its key and value (bulk/records.py).
_RUN_BYTES_OF_A_RECORD = 104
#: With so many bytes free for each offset, nobody asks how large the records are.
_PLENTY_PER_OFFSET = 4096


def require_partitions(store: StorePartitionSpec, tasks: int) -> None:
    """Refuse a changelog with another number of partitions than its application has tasks (conformance R10).

    Raises
    ------
    TopicMismatchError
        Saying what to do.
    """
    found = store.changelog.partitions if store.changelog else None
    if found is not None and not store.is_global and found != tasks:
        raise TopicMismatchError(
            f"changelog topic {store.partition.topic} has {found} partitions, application {store.application} has "
            f"{tasks} tasks: keys are not in the partitions of their tasks, so no store can be restored from it; "
            f"recreate the topics with their former number of partitions, or process the input again with a new "
            f"application name"
        )


def range_count(offsets: int, tasks: int, parallelism: int, *, apart: bool = False) -> int:
    """Into how many ranges a log is cut so that all Spark tasks have work. Pure.

    Parameters
    ----------
    offsets
        Of the log.
    tasks
        How many are restored at the same time: the stores of each come one after the other.
    parallelism
        Spark tasks that run at the same time.
    apart
        They do not see each other's disks.
    """
    count = min(parallelism // max(tasks, 1), offsets // _LEAST_RANGE_OFFSETS)
    return 1 if count < (_LEAST_RANGES_APART if apart else 1) else count


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
    free = free_bytes(spec.store.state_dir)
    offsets = sum(log.last_stable - log.start for log in logs.values())
    if free >= offsets * _PLENTY_PER_OFFSET + _DATABASE_BYTES + _copied_bytes(spec, mode):
        return
    staging = Staging(spec.store.paths, spec.store.store.name)
    held = staging.held_bytes
    ranges = spec.ranges if mode == "full" else 1
    needed = disk_needed(estimated_bytes(spec.store, logs), spec.run_bytes, offsets, ranges)
    needed += _copied_bytes(spec, mode) - held
    if free < needed:
        kept = f"; {held} bytes of sorted runs stay in {staging.directory} for the next attempt" if held else ""
        raise DiskSpaceError(
            f"restoring {spec.store.store_partition} needs about {needed} bytes in {spec.store.state_dir}, "
            f"{free} are free. Free some space, then run again{kept}"
        )


def rebuild_snapshots(spec: RestoreSpec, mode: str | None, logs: Logs, now_ms: int) -> Iterator[Manifest]:
    """Yield the snapshots that a rebuild begins with, the best first; none: it reads the whole log.

    Mode `auto` uses those from which fewer bytes are read than the whole log has; of a versioned store any, as it may
    have what compaction has removed from the log; and any of what a person has put in place, as the log need not give
    that. Who forces a rebuild of a store that may be whole does not trust it, and so not its snapshots.

    Parameters
    ----------
    mode
        What `choose_mode` has decided.
    now_ms
        Time of the brokers before the logs' ends were asked for, ms since the epoch.
    """
    store, request = spec.store, spec.request
    if mode == "snapshot":
        yield from admissible_snapshots(store, logs, now_ms)
    trusted = request.mode == "auto" and not (request.force or spec.diverged or spec.from_log)
    if mode != "full" or not trusted or store.archive is None or store.is_global:
        return
    if not store.store.compaction_keeps_rows:
        yield from admissible_snapshots(store, logs, now_ms)
        return
    size = None
    for snapshot in admissible_snapshots(store, logs, now_ms):
        size = estimated_bytes(store, logs) if size is None else size
        if snapshot.by_hand is None and sum(bytes_from(store, snapshot, logs, size)) >= size:
            return  # from an older one, more of the log is read
        yield snapshot


def snapshots_to_use(
    spec: RestoreSpec, decided: DecidedMode, logs: Logs, now_ms: int
) -> tuple[Iterable[Manifest], str]:
    """Return the snapshots that a rebuild may begin with, and what speaks against the one that was named.

    If the log has lost its start, they have what it has lost.

    Raises
    ------
    InputError
        As `named_snapshot`.
    """
    needs = decided.needs
    if spec.request.snapshot is None or decided.mode != "snapshot":
        found = rebuild_snapshots(spec, decided.mode, logs, now_ms)
        return (one for one in found if needs is None or needs.met_by(one.record)), ""
    snapshot, against = named_snapshot(spec, spec.request.snapshot, logs[spec.store.partition], now_ms, needs)
    return (snapshot,), against


def bytes_from(store: StorePartitionSpec, snapshot: Manifest, logs: Logs, log_bytes: int) -> tuple[int, int]:
    """Return how many bytes a restore from a snapshot fetches, and reads from the log.

    Parameters
    ----------
    log_bytes
        Of keys and values in the whole log.
    """
    log = logs[store.partition]
    tail = tail_logs(logs, snapshot.committed)[store.partition]
    tail_bytes = log_bytes * (log.last_stable - tail.start) // max(log.last_stable - log.start, 1)
    local = set(known_files(store.paths, store.store.name).values())
    return sum(file.bytes for file in snapshot.files if file.sha256 not in local), tail_bytes


def require_disk_for_snapshot(spec: RestoreSpec, snapshot: Manifest, logs: Logs) -> None:
    """Refuse to fetch a snapshot where it is not likely to fit.

    Raises
    ------
    DiskSpaceError
        With the bytes needed and free.
    """
    store, free = spec.store, free_bytes(spec.store.state_dir)
    fetched, _ = bytes_from(store, snapshot, logs, 0)
    if free < fetched + _DATABASE_BYTES:
        raise DiskSpaceError(
            f"restoring {store.store_partition} from snapshot {snapshot.name} fetches {fetched} bytes to "
            f"{store.state_dir}, {free} are free. Free some space, then run again"
        )


def estimated_bytes(store: StorePartitionSpec, logs: Logs) -> int:
    """Bytes of keys and values in logs, estimated from a few places in each."""
    total = 0.0
    for partition, log in logs.items():
        size = offsets = 0
        with LogReader(store.bootstrap_servers, partition, stall_timeout_s=store.kafka_timeout_s) as reader:
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


def plan_restore(
    spec: RestoreSpec, planned: Callable[[RestoreSpec, RestorePlanRow], RestorePlanRow] | None = None
) -> RestorePlanRow:
    """Say what `restore` would do with a store partition; why it would refuse becomes part of the row.

    Parameters
    ----------
    planned
        Plans it in another way; None: by its changelog.
    """
    store = spec.store
    row = RestorePlanRow(application=store.application, store=store.store.name, task=str(store.task))
    try:
        return (planned or _planned)(spec, row)
    except (StateStoreError, OSError) as error:
        return row.model_copy(update={"failure": Failure.of(error)})


def _planned(spec: RestoreSpec, row: RestorePlanRow) -> RestorePlanRow:
    store = spec.store
    mode: Literal["tail", "snapshot", "full", "as-of"] = "as-of"
    committed = None
    if spec.request.mode == "as-of":
        as_of, target = point_and_target(spec)
        logs, snapshot, _ = point_source(spec)
        require_free_target(target, store.state_dir, as_of)
        reason = f"as of {spec.request.as_of}"
    elif store.is_global:
        whole, found = decide_global(spec)
        row = row.model_copy(update={"status": found.status})
        if whole:
            return row.model_copy(update={"reason": found.detail or "intact"})
        mode, reason, snapshot, logs = "full", found.detail or "asked for", None, store_logs(store)
    else:
        found = verify(store)
        row = row.model_copy(update={"status": found.status})
        with locked_task(store.paths, store.lock_wait_s, reading=True):
            decided, _ = decide(spec, found)
        committed = decided.found.committed
        if decided.mode is None:
            return row.model_copy(update={"reason": found.detail or "intact"})
        mode, reason = decided.mode, found.detail or "asked for"
        if is_made_empty(store, found):
            reason += ", but Kafka Streams needs the empty store"
        asked_ms = brokers_clock.now_ms(store)
        logs = store_logs(store)
        candidates, against = snapshots_to_use(spec, decided, logs, asked_ms)
        snapshot, reason = next(iter(candidates), None), against or reason
        mode = mode if mode == "tail" else "full" if snapshot is None else "snapshot"
    if mode in ("tail", "snapshot"):
        logs = tail_logs(logs, committed if snapshot is None else snapshot.committed)
    start = min(log.start for log in logs.values())
    offsets = sum(log.last_stable - log.start for log in logs.values())
    size, free = estimated_bytes(store, logs), free_bytes(spec.request.target or store.state_dir)
    ranges = 1 if mode in ("tail", "snapshot") else spec.ranges
    each = disk_of_parts(size, spec.run_bytes, offsets, ranges) if mode == "full" and is_distributed(spec) else 0
    if each:
        needed = max(disk_to_put_together(size), each)
    else:
        needed = disk_needed(size, spec.run_bytes, offsets, ranges) + _copied_bytes(spec, mode)
    needed += 0 if snapshot is None else snapshot.bytes
    short = f"needs about {needed} bytes, {free} are free"
    return row.model_copy(
        update={
            "mode": mode,
            "reason": reason,
            "start": start,
            "end": start + offsets,
            "resumable": _resumable(spec, logs) if mode == "full" else 0,
            "ranges": spec.ranges if mode == "full" else 1,
            "log_bytes": size,
            "snapshot": None if snapshot is None else str(snapshot.name),
            "fetched": 0 if snapshot is None else snapshot.bytes,
            "disk_needed": needed,
            "disk_each": each,
            "disk_free": free,
            "seconds": round(offsets / RECORDS_PER_S, 1),
            "failure": Failure(kind=DiskSpaceError.__name__, message=short) if free < needed else None,
        }
    )


def tail_logs(logs: Logs, committed: int | None) -> Logs:
    """Return the parts of logs that a store which has them up to a committed offset has not seen. Pure."""
    return {
        partition: log._replace(start=log.start if committed is None else min(committed + 1, log.last_stable))
        for partition, log in logs.items()
    }


def store_logs(store: StorePartitionSpec) -> Logs:
    """Return the offsets of a store's changelog partitions.

    Raises
    ------
    TopicMismatchError
        If the changelog does not exist.
    """
    if store.changelog is None:
        raise TopicMismatchError(f"changelog topic {store.partition.topic} does not exist: nothing to restore from")
    found = log_ranges(Topics(store.bootstrap_servers, store.kafka_timeout_s), [store])
    return {partition: found[partition] for partition in store.partitions}


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


def _copied_bytes(spec: RestoreSpec, mode: str) -> int:
    """Bytes of a supplier's store that gets a tail: it is copied, while ours share their files with their copies."""
    if mode != "tail" or spec.store.store.files_are_known:
        return 0
    return size_of(spec.store.live)


def is_cut(spec: RestoreSpec) -> bool:
    """Tell whether a log is read in ranges, each by itself, if its store is rebuilt from it."""
    store = spec.store
    whole = not store.store.log_may_be_split or store.is_global  # read by one alone
    return spec.ranges > 1 and spec.request.mode in ("auto", "full") and not whole


def is_distributed(spec: RestoreSpec) -> bool:
    """Tell whether these ranges are read on machines that do not see each other's disks."""
    return is_cut(spec) and lives_in_archive(spec.store)


def _resumable(spec: RestoreSpec, logs: Logs) -> int:
    store = spec.store
    if is_distributed(spec):
        assert store.archive is not None
        found, _ = builds_there(store, store.archive.open(), logs)
        if found is None:
            return 0
        left = found.ranges_left
        return sum(part.end - part.start for part in found.plan.reading.ranges if part not in left)
    staging = Staging(store.paths, store.store.name)
    plan = staging.plan()
    return 0 if plan is None else sum(at - part.start for part, at in next_offsets(staging, plan.ranges).items())


def free_bytes(directory: Path) -> int:
    """Bytes free where the directory is, or will be."""
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free
