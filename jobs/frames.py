"""The two frames that validation compares: what a store has, and what its changelog says that it should have."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pydantic import BaseModel
from pyspark.sql import DataFrame, SparkSession

from jobs.parallel import run_each
from jobs.sources.state_store import SCHEMA_DDL, opened
from statestore.changelog.reader import LogReader
from statestore.changelog.topics import LogRange, Topics
from statestore.errors import LockedError, RebuildError, RetryError, UnknownFormatError, of_os_error
from statestore.model import TopicPartition
from statestore.statedir.lock import locked
from statestore.statedir.swap import finish_swaps
from statestore.tasks.spec import StorePartitionSpec

_ATTEMPTS = 3
_POLL_S = 0.1
_KEY = ["partition", "key"]
_KEYS_PER_SHUFFLE_PARTITION = 1_000_000


class Reading(BaseModel):
    """What is in a store's directory: whether there is a store, and its committed offset, or why it cannot be read."""

    present: bool
    committed: int | None = None
    problem: str | None = None


def read_offset(spec: StorePartitionSpec) -> Reading:
    """Read the committed offset of a store partition, under the task's lock.

    Raises
    ------
    RetryError
        If the task is in use, or its directory cannot be had: that says nothing about the store.
    """
    try:
        with locked(spec.paths, spec.lock_wait_s):
            finish_swaps(spec.paths)
            if not spec.live.is_dir():
                return Reading(present=False)
        with opened(spec.store, spec.paths) as store:
            return Reading(present=True, committed=store.committed_offset(spec.partition))
    except (RebuildError, UnknownFormatError) as error:
        return Reading(present=True, problem=f"{spec.store_partition}: {error}")
    except OSError as error:
        raise of_os_error(error) from error


class Tail(NamedTuple):
    """The part of a changelog that a store has not seen."""

    spec: StorePartitionSpec
    start: int
    end: int


class Found(BaseModel):
    """Whether there is a record."""

    found: bool


def find_record(tail: Tail) -> Found:
    """Look for a record: markers of transactions and compaction holes take offsets, too."""
    spec = tail.spec
    with LogReader(spec.bootstrap_servers, spec.partition, stall_timeout_s=spec.kafka_timeout_s) as reader:
        return Found(found=next(reader.read_messages(tail.start, tail.end), None) is not None)


class Frames(NamedTuple):
    """What is compared: a store's rows, and those that its changelog says it should have.

    `keys` counts the store's rows by partition, `ahead` names the store partitions beyond their changelog, and
    `unknown` counts keys that are left out because the log does not tell what they were (see `compared_frames`).
    """

    store: DataFrame
    log: DataFrame
    keys: dict[int, int]
    ahead: list[str]
    unknown: int


@contextmanager
def compared_frames(spark: SparkSession, topics: Topics, specs: list[StorePartitionSpec]) -> Iterator[Frames | str]:
    """Have both frames of a store in Spark's cache while the context lasts; a text if the store cannot be compared.

    The store's rows were read while the store did not change, and the log is folded up to the store's committed
    offset. Where the log goes on, compaction may have removed the records that the store has, in favour of later ones;
    such keys are in neither frame.

    Raises
    ------
    RetryError
        If the store is in use all the time, or a transaction on its changelog stays open.
    """
    if specs[0].changelog is None and any(spec.live.exists() for spec in specs):
        yield f"changelog topic {specs[0].partition.topic} does not exist: there is nothing to compare the store with"
        return
    for _ in range(_ATTEMPTS):
        readings = run_each(spark, specs, read_offset, Reading)
        if problems := [reading.problem for reading in readings if reading.problem]:
            yield "; ".join(problems)
            return
        present = [spec for spec, reading in zip(specs, readings, strict=True) if reading.present]
        with _cached(_store_frame(spark, present)) as store:
            keys = {row.partition: row["count"] for row in store.groupBy("partition").count().collect()}
            if run_each(spark, specs, read_offset, Reading) != readings:
                continue  # somebody committed meanwhile: the rows may be newer than the offsets
            at_least = max(spark.sparkContext.defaultParallelism, len(specs))
            partitions = max(at_least, sum(keys.values()) // _KEYS_PER_SHUFFLE_PARTITION)
            spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
            if specs[0].changelog is None:
                yield Frames(store, spark.createDataFrame([], SCHEMA_DDL), keys, [], 0)
                return
            committed = {spec.partition: reading.committed for spec, reading in zip(specs, readings, strict=True)}
            with _beside_log(spark, topics, specs, committed, Frames(store, store, keys, [], 0)) as frames:
                yield frames
            return
    raise LockedError(
        f"{specs[0].application}/{specs[0].store.name} was written to during each of {_ATTEMPTS} attempts to read it: "
        "run again when no other job writes to it"
    )


@contextmanager
def _beside_log(
    spark: SparkSession,
    topics: Topics,
    specs: list[StorePartitionSpec],
    committed: dict[TopicPartition, int | None],
    frames: Frames,
) -> Iterator[Frames]:
    """Fill in the log's side."""
    logs = _stable_logs(topics, committed, specs[0].kafka_timeout_s)
    ahead = [
        f"committed offset {committed[log]} of {log} is below the changelog's end {found.high_watermark}"
        for log, found in logs.items()
        if _is_ahead(committed[log], found)
    ]
    ends = {log.partition: log_end(committed[log], found) for log, found in logs.items()}
    with _cached(_folded(spark, specs, "ends", ends)) as latest:
        frames = frames._replace(log=latest.where("value IS NOT NULL"), ahead=ahead)
        tails = [Tail(spec, ends[spec.task.partition], logs[spec.partition].last_stable) for spec in specs]
        if not any(tail.found for tail in run_each(spark, tails, find_record, Found)):
            yield frames
            return
        latest.count()  # before the rest of the log is read: what is compacted meanwhile is seen there
        later = _folded(spark, specs, "starts", ends)
        with _cached(later.join(latest, _KEY, "left_anti").select(*_KEY)) as unknown:
            known = frames.store.join(unknown, _KEY, "left_anti").select(*frames.store.columns)
            yield frames._replace(store=known, unknown=unknown.count())


@contextmanager
def _cached(frame: DataFrame) -> Iterator[DataFrame]:
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def _store_frame(spark: SparkSession, specs: list[StorePartitionSpec]) -> DataFrame:
    if not specs:
        return spark.createDataFrame([], SCHEMA_DDL)
    options = {
        "state_dir": str(specs[0].state_dir),
        "application": specs[0].application,
        "store": specs[0].store.name,
        "format": specs[0].store.format.value,
        "partitions": _listed(specs),
    }
    return spark.read.format("state_store").options(**options).load()


def _folded(spark: SparkSession, specs: list[StorePartitionSpec], bound: str, offsets: dict[int, int]) -> DataFrame:
    """The latest record of each key, deletes included, up to (`ends`) or from (`starts`) these offsets."""
    options = {
        "bootstrap_servers": specs[0].bootstrap_servers,
        "topic": specs[0].partition.topic,
        "partitions": _listed(specs),
        bound: json.dumps(offsets),
        "latest": "true",
        "tombstones": "true",
    }
    return spark.read.format("changelog").options(**options).load()


def _stable_logs(
    topics: Topics, committed: dict[TopicPartition, int | None], timeout_s: float
) -> dict[TopicPartition, LogRange]:
    """Return the logs' ends once all that the stores have committed can be read.

    Kafka confirms a commit before the transaction's markers are in the log, so the last stable offset may follow a
    little later than the store.
    """
    deadline = time.monotonic() + timeout_s
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


def _listed(specs: list[StorePartitionSpec]) -> str:
    return ",".join(str(spec.task.partition) for spec in specs)
