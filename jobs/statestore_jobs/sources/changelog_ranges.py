"""Which offsets of a topic are read, and by how many Spark partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from statestore.changelog.reader import ChangelogReader
from statestore.errors import InputError, TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange, Topics
from statestore.model import TopicPartition

#: A log with more offsets is cut, unless the user says into how many.
SPLIT_OFFSETS = 1_000_000


@dataclass
class LogPart(InputPartition):
    """The offsets from `start` to `end`, exclusive, of a partition."""

    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class Bounds:
    """Where reading starts and ends (exclusive): at an offset by partition, or at a time (ms) in all of them."""

    starts: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    start_time: int | None = None
    end_time: int | None = None


def parts_of(
    cluster: Cluster, topic: str, asked: list[int] | None, bounds: Bounds, splits: int | None
) -> list[LogPart]:
    """Return what each Spark partition is to read: at least one for each partition of the topic, in offset order.

    Parameters
    ----------
    asked
        Partitions to read; None: all.
    splits
        How many parts a partition is cut into at most; None: as many as its size asks for.

    Raises
    ------
    TopicMismatchError
        If there is no such topic or partition.
    InputError
        If records are asked for that may never come.
    """
    topics = cluster.topics
    count = topics.require(topic).partitions
    partitions = list(range(count)) if asked is None else asked
    if unknown := sorted({*partitions, *bounds.starts, *bounds.ends} - set(range(count))):
        raise TopicMismatchError(f"topic {topic} has the partitions 0 to {count - 1}, asked for: {unknown}")
    parts: list[LogPart] = []
    for log, found in topics.log_ranges(TopicPartition(topic, partition) for partition in partitions).items():
        start, end = found.start, found.last_stable
        if bounds.start_time is not None:
            start = _first_from(topics, log, found, bounds.start_time)
        if bounds.end_time is not None:
            end = _first_from(topics, log, found, bounds.end_time)
        start = max(start, bounds.starts.get(log.partition, 0))
        end = bounds.ends.get(log.partition, end)
        if end > found.last_stable:  # the reader would wait for it
            raise InputError(
                f"option ends: partition {log.partition} of {topic} is stable up to offset {found.last_stable}, "
                f"asked for records up to {end}"
            )
        parts += cut(log.partition, start, max(start, end), splits)
    return parts


def _first_from(topics: Topics, log: TopicPartition, found: LogRange, time_ms: int) -> int:
    """Offset of the first record that is not older than a time; the log's end if there is none.

    Kafka looks up a record or a marker. A marker has the time of its commit, which may be much later than the times of
    the records around it, so the log is read from there to the first record.
    """
    if time_ms <= 0:
        return found.start
    offset = topics.first_after(log, time_ms - 1)
    if offset is None or offset >= found.last_stable:
        return found.last_stable
    with ChangelogReader(topics.cluster, log) as reader:
        for batch in reader.read(max(offset, found.start), found.last_stable):
            late = batch.column("timestamp").to_numpy() >= time_ms
            if late.any():
                return int(batch.column("offset")[int(late.argmax())].as_py())
    return found.last_stable


def cut(partition: int, start: int, end: int, splits: int | None) -> list[LogPart]:
    """Return the parts in which the offsets from `start` to `end` of a partition are read: one at least."""
    wanted = -(-(end - start) // SPLIT_OFFSETS) if splits is None else splits
    count = max(min(wanted, end - start), 1)
    borders = [start + (end - start) * at // count for at in range(count + 1)]
    return [LogPart(partition, *borders[at : at + 2]) for at in range(count)]
