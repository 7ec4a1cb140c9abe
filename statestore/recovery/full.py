"""Building a store anew from its whole changelog: ranges of the log become sorted runs, and these its databases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from statestore import kill_switch
from statestore.bulk.databases import write_databases
from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, RunWriter
from statestore.bulk.versions import RecordFold, fold_of
from statestore.changelog import brokers_clock
from statestore.changelog.epochs import LogEnd, compare_ends, log_ends
from statestore.changelog.reader import ChangelogReader
from statestore.discovery.changelogs import log_ranges
from statestore.durable import remove_tree, write_durably
from statestore.errors import DiskSpaceError, StoreBehindLogStartError, StoreCorruptedError, TopicMismatchError
from statestore.formats.offsets import UNKNOWN_OFFSET
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.partition.facts import cut_at
from statestore.partition.replacement import clear_built, require_tombstones
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import BuildPlan, OffsetRange, Staging, cut, misfit, next_offsets
from statestore.recovery.unknown_headers import require_no_headers
from statestore.stores.segment_starts import segment_interval_ms

Logs = Mapping[TopicPartition, LogRange]


class Built(NamedTuple):
    """A store in the staging directory.

    Attributes
    ----------
    records, skipped
        Records applied, and those without a key.
    resumed
        Of `records`, those that an earlier attempt had read.
    rows
        Rows written; None if only a count can tell.
    committed
        By changelog partition, the offset of the last record in the store; None if there was none. Of a global store,
        the next offset to read, of those partitions that were read.
    digest
        Of the rows written; None after a tail.
    since_ms
        Time of the brokers. Records that were logged later are still in the log.
    stream_time
        Largest timestamp (ms) of the rows of a window or session store; None: it has none, or it was not found out.
    first
        First offset of its log that was to be read; None after a tail.
    uploaded
        SHA-256 of its SST files that are in the archive already.
    """

    records: int
    skipped: int
    resumed: int
    rows: int | None
    committed: dict[TopicPartition, int | None]
    digest: str | None
    since_ms: int
    stream_time: int | None = None
    first: int | None = None
    uploaded: frozenset[str] = frozenset()

    @property
    def committed_offset(self) -> int | None:
        """Offset in the only changelog partition; of a global store's several the first's."""
        return next(iter(self.committed.values()), None)


def plan_build(spec: RestoreSpec, staging: Staging, logs: Logs, asked_ms: int) -> BuildPlan:
    """Return what is to be read: the plan of an earlier attempt if it still fits, with the log's growth, or a new one.

    The caller holds the runs alone. Runs that do not fit are removed. The plan is kept with the first run.

    Parameters
    ----------
    asked_ms
        Time of the brokers before the logs' ends were asked for; with it a new plan starts.
    """
    store = spec.store
    kept = staging.plan() if store.store.store_kind.log_may_be_split else None  # only a whole log tells late versions
    if (plan := kept) is not None and reading_unfit(store, plan, next_offsets(staging, plan.ranges), logs) is None:
        ends = {partition.partition: log.last_stable for partition, log in logs.items()}
        plan = plan.extended(ends, _ends_seen(store, logs))
    else:
        staging.clear()
        plan = new_plan(spec, logs, asked_ms)
    staging.begin_with_a_run(plan)
    return plan


def reading_unfit(
    store: StorePartitionSpec, plan: BuildPlan, read: Mapping[OffsetRange, int], logs: Logs
) -> str | None:
    """Say why what an earlier attempt has read cannot be used for the log of now; None if it can.

    Parameters
    ----------
    read
        By range, the offset before which its records were read.

    Raises
    ------
    KafkaUnavailableError
        If Kafka does not answer.
    """
    changelog = _changelog(store)
    why = misfit(
        plan,
        read,
        logs,
        topic_id=changelog.topic_id,
        routing=routing_of(store.store),
        delete_retention_ms=changelog.delete_retention_ms,
        now_ms=brokers_clock.now_ms(store.cluster),
    )
    if why is not None or not plan.ends:
        return why
    seen = {store.partition._replace(partition=number): end for number, end in plan.ends.items()}
    for partition, comparison in compare_ends(store.cluster, seen).items():
        if (at := cut_at(comparison)) is not None:
            return f"{partition} has since been cut at offset {at}, and has other records from there on"
    return None


def _ends_seen(store: StorePartitionSpec, logs: Logs) -> dict[int, LogEnd]:
    found = log_ends(store.cluster, logs)
    return {partition.partition: end for partition, end in found.items()}


def new_plan(spec: RestoreSpec, logs: Logs, asked_ms: int) -> BuildPlan:
    """Return what is to be read where nothing was read before; `asked_ms` as of `plan_build`."""
    store = spec.store
    changelog = _changelog(store)
    pieces = spec.ranges if store.store.store_kind.log_may_be_split else 1
    ranges = [
        part for partition, log in logs.items() for part in cut(partition.partition, log.start, log.last_stable, pieces)
    ]
    return BuildPlan(
        topic=changelog.topic,
        topic_id=changelog.topic_id,
        routing=routing_of(store.store),
        started_ms=asked_ms,
        ranges=tuple(ranges),
        ends=_ends_seen(store, logs),
    )


def _changelog(store: StorePartitionSpec) -> ChangelogSpec:
    if store.changelog is None:
        raise missing_changelog(store)
    return store.changelog


def missing_changelog(store: StorePartitionSpec) -> TopicMismatchError:
    """Return the error for a store whose changelog does not exist."""
    return TopicMismatchError(f"changelog topic {store.partition.topic} does not exist: nothing to restore from")


def store_logs(store: StorePartitionSpec) -> Logs:
    """Return the offsets of a store's changelog partitions.

    Raises
    ------
    TopicMismatchError
        If the changelog does not exist.
    """
    _changelog(store)
    found = log_ranges(store.cluster.topics, [store])
    return {partition: found[partition] for partition in store.partitions}


def read_range(
    spec: RestoreSpec,
    staging: Staging,
    part: OffsetRange,
    progress: RestoreProgressWriter,
    fold: RecordFold,
    *,
    keep_in_memory: bool,
) -> tuple[list[Runs], int]:
    """Turn a range of the log into sorted runs, going on behind those that are there.

    Returns
    -------
    tuple
        The runs, and how many of their records had been read before.
    """
    store = spec.store
    runs = staging.found(part)
    resumed = sum(found.records for found in runs)
    position = runs[-1].position if runs else part.start
    progress.resumed(position - part.start)
    if position >= part.end:
        return runs, resumed
    directory = staging.runs_directory(part.partition, position)
    remove_tree(directory)
    writer = RunWriter(
        directory,
        routing_of(store.store),
        spec.run_bytes,
        start=position,
        keep_in_memory=keep_in_memory,
        before_a_file=staging.before_a_run,
    )
    source = store.partition._replace(partition=part.partition)
    with ChangelogReader(store.cluster, source, watch_headers=store.logs_no_headers) as reader:
        at = position
        for batch in reader.read(position, part.end, store.store.values):
            require_no_headers(store, reader)
            writer.add(fold.of(batch))
            last = batch.column(3)[-1].as_py()
            progress.read(last + 1 - at, batch.num_rows)
            at = last + 1
            kill_switch.reached("restore, batch read")
        if at > position:
            staging.keep_position(part.partition, position, reader.position)
    progress.read(part.end - at, 0)
    runs.append(writer.finish(part.end))
    kill_switch.reached("restore, range read")
    return runs, resumed


def build_full(
    spec: RestoreSpec,
    staging: Staging,
    logs: Logs,
    progress: RestoreProgressWriter,
    asked_ms: int,
    position: Mapping[TopicPartition, int] | None = None,
) -> Built:
    """Build the store from its log into the staging directory; the caller holds the runs alone.

    Where runs of an earlier attempt cannot be read, the log is read once more. If the log does not have it any more,
    the caller must judge anew what a rebuild would lose.

    Parameters
    ----------
    asked_ms
        Time of the brokers before the logs' ends were asked for.
    position
        Input offsets that belong to what the log gives, where its records name none; None: they are not known.

    Raises
    ------
    StoreBehindLogStartError
        If the log lost records before they could be read, or reading took longer than it keeps tombstones.
    StoreCorruptedError
        If what was built or read before is damaged.
    """
    resumes = staging.has_runs
    try:
        return _build(spec, staging, plan_build(spec, staging, logs, asked_ms), progress, position)
    except StoreBehindLogStartError:
        staging.clear()
        raise
    except (DiskSpaceError, OSError):
        # What was built is of no more use; the runs are what the next attempt goes on from.
        clear_built(spec.store.paths, spec.store.store.name)
        staging.clear_unfinished()
        raise
    except (pa.ArrowException, StoreCorruptedError) as error:
        staging.clear()
        if resumes:
            return build_full(spec, staging, logs, progress, asked_ms, position)
        if isinstance(error, StoreCorruptedError):
            raise
        raise StoreCorruptedError(
            f"sorted runs of {spec.store.store_partition} cannot be read: {error}; the live store is untouched, run "
            "the restore again"
        ) from error


def _build(
    spec: RestoreSpec,
    staging: Staging,
    plan: BuildPlan,
    progress: RestoreProgressWriter,
    position: Mapping[TopicPartition, int] | None,
) -> Built:
    store = spec.store
    runs: list[Runs] = []
    resumed = 0
    last: dict[TopicPartition, int | None] = dict.fromkeys(store.partitions)
    first = plan.ranges[0].start if plan.ranges else 0
    progress.reading(first, first + sum(part.end - part.start for part in plan.ranges))
    fold = fold_of(store.store)
    for part in plan.ranges:
        # One run at most is in memory, so that the bound holds for any number of ranges.
        last_one = part == plan.ranges[-1]
        more, before = read_range(spec, staging, part, progress, fold, keep_in_memory=last_one)
        resumed += before
        runs += more
        found = [run.last_offset for run in more if run.last_offset is not None]
        if found:
            last[store.partition._replace(partition=part.partition)] = found[-1]
    if store.origin.next_offsets_are_kept:
        last = {store.partition._replace(partition=part.partition): part.end for part in plan.ranges}
    require_tombstones(
        store,
        plan.started_ms,
        brokers_clock.now_ms(store.cluster),
        "read it with more ranges at a time, or raise its delete.retention.ms, then run the restore again",
    )
    progress.phase("building")
    kill_switch.reached("restore, before the databases")
    staged = store.paths.staging(store.store.name)
    clear_built(store.paths, store.store.name)
    staged.parent.mkdir(parents=True, exist_ok=True)
    offsets = {partition: UNKNOWN_OFFSET if offset is None else offset for partition, offset in last.items()}
    rows = fold.rows(runs, _laid_out_in(spec), spec.run_bytes)
    # A log is cut where there are fewer logs than cores.
    ahead = len(plan.ranges) > len(store.partitions)
    written = write_databases(rows, store.store, staged, offsets, staging.position() or position, ahead=ahead)
    remove_tree(_laid_out_in(spec))
    keep_interval(store)
    kill_switch.reached("restore, databases written")
    return Built(
        records=sum(found.records for found in runs),
        skipped=sum(found.skipped for found in runs),
        resumed=resumed,
        rows=written.rows,
        committed=last,
        digest=written.digest,
        since_ms=plan.started_ms,
        stream_time=fold.reached(runs),
        first=min((part.start for part in plan.ranges), default=None),
    )


def _laid_out_in(spec: RestoreSpec) -> Path:
    staged = spec.store.paths.staging(spec.store.store.name)
    return staged.with_name(f".{staged.name}.versions")  # no store can have such a name


def keep_interval(store: StorePartitionSpec) -> None:
    """Write down how long the segments of a staged store are, if it has any."""
    if store.store.segmented:
        interval = segment_interval_ms(store.store.retention_ms or 0)
        write_durably(store.paths.staged_segments(store.store.name) / "interval", str(interval))
