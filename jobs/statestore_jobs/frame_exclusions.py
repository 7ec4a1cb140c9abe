"""The rules of `statestore/verification/exclusions.py` on Spark's DataFrames: rows that validation does not compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from statestore_expectations.views import compared, identity

from statestore.bulk.routing import Routing
from statestore.changelog import brokers_clock
from statestore.definitions.store import StoreDefinition
from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP
from statestore.kafka.topics import LogRange, Topics
from statestore.kinds.kind import StoreKind
from statestore.model import TopicPartition
from statestore.verification.exclusions import gone_before_ms, live_segments


class Segment(NamedTuple):
    """A segment of one store partition, by its start (ms)."""

    partition: int
    start: int


class LogSegments(NamedTuple):
    """What a log has: its segments, and the largest time (ms) of each partition's rows, deletes among them."""

    segments: frozenset[Segment]
    stream_times: Mapping[int, int]


def logged(latest: DataFrame, kind: StoreKind, routing: Routing) -> LogSegments:
    """Look which segments a log has rows or deletes of; it must be that of a window or session store."""
    time_of = F.col(kind.segment_time)
    found = (
        latest.groupBy("partition", _segment(kind, routing).alias("segment"))
        .agg(F.max(time_of).alias("last"))
        .collect()
    )
    stream_times: dict[int, int] = {}
    for row in found:
        stream_times[row.partition] = max(row["last"], stream_times.get(row.partition, -1))
    return LogSegments(frozenset(Segment(row.partition, row.segment) for row in found), stream_times)


def expired(
    here: Mapping[int, Sequence[int]], log: LogSegments, routing: Routing
) -> tuple[frozenset[Segment], frozenset[Segment]]:
    """Say which segments of a store, and which of its log, have expired for the other side. Pure.

    Parameters
    ----------
    here
        By partition, starts (ms) of the segments that the store has.
    """
    of_store: set[Segment] = set()
    of_log: set[Segment] = set()
    for partition in {*here, *log.stream_times}:
        starts = set(here.get(partition, ()))
        live = live_segments(starts, log.stream_times.get(partition, -1), routing)
        of_store |= {Segment(partition, start) for start in starts if live.excludes_stored(start)}
        of_log |= {
            found
            for found in log.segments
            if found.partition == partition and live.excludes_logged(found.start, stored=found.start in starts)
        }
    return frozenset(of_store), frozenset(of_log)


def without(frame: DataFrame, segments: Iterable[Segment], kind: StoreKind, routing: Routing) -> DataFrame:
    """Leave out the rows of some segments."""
    if not (gone := sorted(segments)):
        return frame
    left_out = F.broadcast(frame.sparkSession.createDataFrame(gone, "partition INT, segment LONG"))
    numbered = frame.withColumn("segment", _segment(kind, routing))
    return numbered.join(left_out, ["partition", "segment"], "left_anti").select(*frame.columns)


def unexpired(frame: DataFrame, stream_times: Mapping[int, int], definition: StoreDefinition) -> DataFrame:
    """Leave out each row that has expired by itself, which a supplier's store may have dropped before its segment.

    Parameters
    ----------
    stream_times
        By partition, the largest time (ms) of the log's rows.
    """
    if not stream_times:
        return frame
    oldest = [(partition, time - (definition.retention_ms or 0) + 1) for partition, time in stream_times.items()]
    bounds = F.broadcast(frame.sparkSession.createDataFrame(oldest, "partition INT, oldest LONG"))
    time_of = F.col(definition.store_kind.segment_time)
    return frame.join(bounds, "partition").where(time_of >= F.col("oldest")).select(*frame.columns)


def _segment(kind: StoreKind, routing: Routing) -> Column:
    time_of = F.col(kind.segment_time)
    return time_of - time_of % F.lit(routing.interval_ms)


def differing(store: DataFrame, log: DataFrame, keys: DataFrame) -> DataFrame:
    """Identities of those of some rows that store and log do not have alike.

    Compaction may have removed the last record of such a key when one before it had been read.
    """
    on = identity(store)
    both = compared(*(frame.join(keys, on, "left_semi") for frame in (store, log)))
    same_time = F.col("store_timestamp").eqNullSafe(F.col("log_timestamp"))
    unknown_time = F.col("store_timestamp").eqNullSafe(F.lit(UNKNOWN_TIMESTAMP))
    same = F.col("in_store") & F.col("in_log") & F.col("store_value").eqNullSafe(F.col("log_value"))
    return both.where(~(same & (same_time | unknown_time))).select(*on)


def gone_before(topics: Topics, logs: Mapping[TopicPartition, LogRange], *, by_time: bool) -> dict[int, int]:
    """By partition, the time (ms) before which records may be gone from the log; partitions that have all are left out.

    Parameters
    ----------
    by_time
        Whether the store's row keys tell how old a record can be.
    """
    cut = {partition: log.start for partition, log in logs.items() if log.start > 0}
    if not cut:
        return {}
    [topic] = {partition.topic for partition in cut}
    config, now_ms = topics.topic_configs([topic])[topic], brokers_clock.now_ms(topics.cluster)
    return {
        partition.partition: gone_before_ms(start, config, by_time=by_time, now_ms=now_ms)
        for partition, start in cut.items()
    }


def may_be_gone(
    store: DataFrame, latest: DataFrame, definition: StoreDefinition, before: Mapping[int, int]
) -> DataFrame:
    """Identities of a store's rows that the log has nothing of, and need not have any more.

    Where windows retain duplicates these are all windows of that age: rows of one window are numbered differently.

    Parameters
    ----------
    latest
        Last records of the log, deletes among them.
    before
        See `gone_before`.
    """
    bounds = F.broadcast(store.sparkSession.createDataFrame(list(before.items()), "partition INT, before LONG"))
    old = F.lit(True)
    if definition.segmented:
        # A record may be older than its window.
        known = F.when(F.col("timestamp") != UNKNOWN_TIMESTAMP, F.col("timestamp"))
        old = F.least(F.col(definition.store_kind.first_time), known) < F.col("before")
    found = store.join(bounds, "partition").where(old).select(*identity(store))
    return found if definition.retain_duplicates else found.join(latest, identity(store), "left_anti")
