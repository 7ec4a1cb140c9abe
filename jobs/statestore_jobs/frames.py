"""The frames that validation compares: what a store has, and what its changelog says that it should have.

What cannot be compared is in none of them: see `jobs/statestore_jobs/frame_exclusions.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from types import MappingProxyType
from typing import Literal, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from statestore_expectations.views import compared, identity, row_key

from statestore.bulk.routing import routing_of
from statestore.changelog.topic_settings import append_time_refused
from statestore.errors import LockedError, RetryError
from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP
from statestore.kafka.topics import LogRange, Topics
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.verification.exclusions import ROUNDS, deletes_may_be_gone
from statestore_jobs.frame_exclusions import (
    differing,
    expired,
    gone_before,
    logged,
    may_be_gone,
    unexpired,
    without,
)
from statestore_jobs.parallel import run_each
from statestore_jobs.source_frames import (
    Reading,
    Tail,
    TailCheck,
    find_record,
    log_frame,
    nothing,
    read_offset,
    store_frame,
)
from statestore_jobs.version_frames import compared_versions, parts_of

_ATTEMPTS = 3
_POLL_S = 0.1
_KEYS_PER_SHUFFLE_PARTITION = 1_000_000


#: What tells the time of a row, the first that a store has.
TIMES = ("timestamp", "window_start", "session_end")


class Size(NamedTuple):
    """Rows, and the bytes of their keys and values without what the store adds.

    Attributes
    ----------
    times
        First and last time (ms) of its rows, by those columns of `TIMES` that tell one.
    """

    keys: int
    bytes: int
    times: Mapping[str, tuple[int, int]] = MappingProxyType({})


class Frames(NamedTuple):
    """What is compared: a store's rows, and those that its changelog says it should have, all from Spark's disk cache.

    Attributes
    ----------
    store, log
        Rows with the columns that the data source `state_store` gives for this kind of store.
    comparison
        Both side by side, as `statestore_expectations.views.compared` has it.
    sizes
        The store's rows and their bytes by partition, rows that are not compared among them.
    ahead
        Names the store partitions that are beyond their changelog.
    unknown
        How many rows are left out because the log does not tell what they should be.
    stream_time
        Smallest time (ms) that a partition's log has come to; None in a key-value store, and before the first record.
    """

    store: DataFrame
    log: DataFrame
    comparison: DataFrame
    sizes: dict[int, Size]
    ahead: list[str]
    unknown: int
    stream_time: int | None = None


class NoFrames(NamedTuple):
    """Why a store cannot be compared, and the verdict that follows."""

    why: str
    verdict: Literal["error", "not judged"] = "error"


@contextmanager
def compared_frames(
    spark: SparkSession, topics: Topics, specs: Sequence[StorePartitionSpec]
) -> Iterator[Frames | NoFrames]:
    """Have the frames of a store while the context lasts, or the reason why the store cannot be compared.

    The store's rows were read while the store did not change, and the log is folded up to the store's committed
    offset. Where the log goes on, compaction may have removed the records that the store has, in favour of later ones;
    such keys are in no frame.

    Raises
    ------
    RetryError
        If the store is in use all the time, or a transaction on its changelog stays open.
    """
    definition = specs[0].store
    if (why := _why_not_judged(specs[0])) is not None:
        yield NoFrames(why, "not judged")
        return
    if specs[0].changelog is None and any(spec.live.exists() for spec in specs):
        missing = f"changelog topic {specs[0].partition.topic} does not exist"
        yield NoFrames(f"{missing}: there is nothing to compare the store with")
        return
    if specs[0].changelog is not None and specs[0].changelog.log_append_time:
        yield NoFrames(append_time_refused(specs[0].changelog.topic))
        return
    if definition.engine == "in_memory":
        with ExitStack() as cache:
            yield _of_log(spark, topics, specs, cache)
        return
    for _ in range(_ATTEMPTS):
        readings = run_each(spark, specs, read_offset, Reading)
        if problems := [reading.problem for reading in readings if reading.problem]:
            yield NoFrames("; ".join(problems))
            return
        present = [spec for spec, reading in zip(specs, readings, strict=True) if reading.present]
        with ExitStack() as cache:
            store = cache.enter_context(_cached(store_frame(spark, definition, present)))
            sizes = _sizes(store)
            versions = None
            if definition.store_kind.has_history and specs[0].changelog is not None:
                versions = _versions_beside_log(spark, topics, specs, readings, cache)
            if run_each(spark, specs, read_offset, Reading) != readings:
                continue  # somebody committed meanwhile: the rows may be newer than the offsets
            at_least = max(spark.sparkContext.defaultParallelism, len(specs))
            partitions = max(at_least, sum(size.keys for size in sizes.values()) // _KEYS_PER_SHUFFLE_PARTITION)
            spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
            if versions is not None:
                yield versions._replace(sizes=sizes)
            elif specs[0].changelog is None:
                empty = nothing(spark, definition)
                yield Frames(store, empty, compared(store, empty), sizes, [], 0)
            else:
                yield _beside_log(spark, topics, specs, readings, store, cache)._replace(sizes=sizes)
            return
    raise LockedError(
        f"{specs[0].application}/{definition.name} was written to during each of {_ATTEMPTS} attempts to read it: "
        "run again when no other job writes to it"
    )


def _why_not_judged(spec: StorePartitionSpec) -> str | None:
    """Return why nothing of a store can be read; None if something can."""
    if spec.store.engine == "in_memory":
        if spec.changelog is None:
            return "it is only in memory, and has no changelog yet"
        if spec.store.store_kind.has_history:
            return "it is only in memory, and a versioned store is not the fold of its changelog's last records"
    if not spec.store.logged:
        return "it has no changelog (logged: false), so there is nothing that its rows could be compared with"
    if not spec.store.files_are_known and not spec.home.disks_are_shared:
        return "it is a custom store on nodes with their own disks: its files in the archive have an unknown format"
    return None


def _beside_log(
    spark: SparkSession,
    topics: Topics,
    specs: Sequence[StorePartitionSpec],
    readings: Sequence[Reading],
    store: DataFrame,
    cache: ExitStack,
) -> Frames:
    """Put the log beside the store's rows. What is cached for that is so as long as `cache`."""
    definition, routing = specs[0].store, routing_of(specs[0].store)
    committed, logs, ends = _logs(topics, specs, readings)
    began = time.monotonic()
    latest = cache.enter_context(_cached(log_frame(spark, specs, ends=json.dumps(ends), latest="true")))
    latest.count()  # before the rest of the log is read: what is compacted meanwhile is seen there
    reading_ms = (time.monotonic() - began) * 1000
    stream_time = None
    if routing.interval_ms is not None:
        log_has = logged(latest, definition.store_kind, routing)
        if not definition.files_are_known:
            store, latest = (unexpired(frame, log_has.stream_times, definition) for frame in (store, latest))
        here = {spec.task.partition: reading.segments for spec, reading in zip(specs, readings, strict=True)}
        of_store, of_log = expired(here, log_has, routing)
        store = without(store, of_store, definition.store_kind, routing)
        latest = without(latest, of_log, definition.store_kind, routing)
        stream_time = min(log_has.stream_times.values(), default=None)
    log = latest.where("value IS NOT NULL")
    assert specs[0].changelog is not None
    doubtful = []
    if (later := _later(spark, topics, specs, ends, cache)) is not None:
        doubtful.append(later.join(latest, row_key(latest), "left_anti").select(*identity(latest)))
        if specs[0].changelog.compacted:
            doubtful.append(differing(store, log, later))
    # Of records that are gone by now, some may have been when the log was read.
    if before := gone_before(topics, topics.log_ranges(logs), by_time=routing.interval_ms is not None):
        doubtful.append(may_be_gone(store, latest, definition, before))
    unknown = 0
    if doubtful:
        left_out = cache.enter_context(_cached(reduce(DataFrame.union, doubtful).distinct()))
        if unknown := left_out.count():
            store, log = (
                frame.join(left_out, identity(frame), "left_anti").select(*frame.columns) for frame in (store, log)
            )
    if deletes_may_be_gone(reading_ms, specs[0].changelog.delete_retention_ms):
        log = log.join(store, row_key(log), "left_semi")
    return Frames(
        store=store,
        log=log,
        comparison=cache.enter_context(_cached(compared(store, log))),
        sizes={},
        ahead=_ahead(committed, logs),
        unknown=unknown,
        stream_time=stream_time,
    )


def _of_log(spark: SparkSession, topics: Topics, specs: Sequence[StorePartitionSpec], cache: ExitStack) -> Frames:
    """Return the rows with which the next run fills an in-memory store from its changelog."""
    definition, routing = specs[0].store, routing_of(specs[0].store)
    _, _, ends = _logs(topics, specs, [Reading(present=False)] * len(specs))
    latest = cache.enter_context(_cached(log_frame(spark, specs, ends=json.dumps(ends), latest="true")))
    stream_time = None
    if routing.interval_ms is not None:
        log_has = logged(latest, definition.store_kind, routing)
        _, of_log = expired({}, log_has, routing)
        latest = without(latest, of_log, definition.store_kind, routing)
        stream_time = min(log_has.stream_times.values(), default=None)
    log = cache.enter_context(_cached(latest.where("value IS NOT NULL")))
    comparison = cache.enter_context(_cached(compared(log, log)))
    return Frames(log, log, comparison, _sizes(log), [], 0, stream_time)


def _versions_beside_log(
    spark: SparkSession,
    topics: Topics,
    specs: Sequence[StorePartitionSpec],
    readings: Sequence[Reading],
    cache: ExitStack,
) -> Frames:
    """Put the log beside a versioned store, of which a row has several records. It has been read when this returns."""
    committed, logs, ends = _logs(topics, specs, readings)
    present = [spec for spec, reading in zip(specs, readings, strict=True) if reading.present]
    found = parts_of(cache.enter_context(_cached(compared_versions(spark, specs, present, ends, logs))))
    unknown = found.not_judged.count()
    return Frames(found.store, found.log, found.comparison, {}, _ahead(committed, logs), unknown)


def _logs(
    topics: Topics, specs: Sequence[StorePartitionSpec], readings: Sequence[Reading]
) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, LogRange], dict[int, int]]:
    """Return what the stores have committed, their logs, and by partition where these end for them."""
    committed = {spec.partition: reading.committed for spec, reading in zip(specs, readings, strict=True)}
    logs = _stable_logs(topics, committed)
    return committed, logs, {log.partition: log_end(committed[log], found) for log, found in logs.items()}


def _ahead(committed: Mapping[TopicPartition, int | None], logs: Mapping[TopicPartition, LogRange]) -> list[str]:
    return [
        f"committed offset {committed[log]} of {log} is below the changelog's end {found.high_watermark}"
        for log, found in logs.items()
        if _is_ahead(committed[log], found)
    ]


def _later(
    spark: SparkSession,
    topics: Topics,
    specs: Sequence[StorePartitionSpec],
    ends: Mapping[int, int],
    cache: ExitStack,
) -> DataFrame | None:
    """Row keys that the log has changed from these offsets on; None if there are none.

    Where it ends is asked only now, and again when that was read: what was logged while the store's part was read may
    have had the broker remove records from it, as in deep verification (`statestore/verification/contents.py`).
    """
    later: list[DataFrame] = []
    for _ in range(ROUNDS):
        now = topics.log_ranges(spec.partition for spec in specs)
        until = {log.partition: found.last_stable for log, found in now.items()}
        tails = [Tail(spec, ends[at], until[at]) for spec in specs if until[at := spec.task.partition] > ends[at]]
        if not tails:
            break
        if any(tail.found for tail in run_each(spark, tails, find_record, TailCheck)):
            found = log_frame(spark, specs, starts=json.dumps(ends), ends=json.dumps(until), values="false")
            later.append(cache.enter_context(_cached(found.select(*row_key(found)).distinct())))
            later[-1].count()  # read before the end is asked for again
        ends = until
    return reduce(DataFrame.union, later) if later else None


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    # In memory Spark would build a whole partition first: of some million rows that is more than a heap of 1 GiB.
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def is_known(time: str) -> Column:
    """Tell whether a row has a time of this name."""
    return F.col(time).isNotNull() & (F.col(time) != UNKNOWN_TIMESTAMP)


def _sizes(store: DataFrame) -> dict[int, Size]:
    times = [name for name in TIMES if name in store.columns]
    known = {name: F.when(is_known(name), F.col(name)) for name in times}
    found = store.groupBy("partition").agg(
        F.count("*").alias("keys"),
        # Null where a plain store's key or value would be, which no store has.
        F.sum(F.octet_length("key") + F.octet_length("value")).alias("bytes"),
        *(F.min(time).alias(f"first {name}") for name, time in known.items()),
        *(F.max(time).alias(f"last {name}") for name, time in known.items()),
    )
    sizes = {}
    for row in found.collect():
        spans = {name: (row[f"first {name}"], row[f"last {name}"]) for name in times}
        spans = {name: span for name, span in spans.items() if None not in span}
        sizes[row.partition] = Size(row["keys"], row["bytes"] or 0, spans)
    return sizes


def _stable_logs(topics: Topics, committed: dict[TopicPartition, int | None]) -> dict[TopicPartition, LogRange]:
    """Return the logs' ends once all that the stores have committed can be read.

    Kafka confirms a commit before the transaction's markers are in the log, so the last stable offset may follow a
    little later than the store.
    """
    deadline = time.monotonic() + topics.cluster.timeout_s
    while True:
        logs = topics.log_ranges(committed)
        pending = [log for log, found in logs.items() if _is_pending(committed[log], found)]
        if not pending:
            return logs
        if time.monotonic() > deadline:
            raise RetryError(
                f"{pending[0]} is stable up to offset {logs[pending[0]].last_stable}, the store has offset "
                f"{committed[pending[0]]}: a transaction is still open; run again when it has ended"
            )
        time.sleep(_POLL_S)  # nothing tells when a log becomes stable


def log_end(committed: int | None, log: LogRange) -> int:
    """Where the log that a store is compared with ends, exclusive.

    A store without a committed offset must have all of the log: one that is missing is not excused by that.
    """
    return log.last_stable if committed is None else min(committed + 1, log.last_stable)


def _is_pending(committed: int | None, log: LogRange) -> bool:
    return committed is not None and log.last_stable <= committed < log.high_watermark


def _is_ahead(committed: int | None, log: LogRange) -> bool:
    return committed is not None and committed >= log.high_watermark
