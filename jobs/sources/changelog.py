"""The data source `changelog`: a Kafka log as a DataFrame, whole or folded to the latest record of each key."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from jobs.sources.options import flag, offsets_by_partition, partition_list, required
from statestore.changelog.reader import LogReader
from statestore.changelog.topics import Topics
from statestore.errors import InputError, TopicMismatchError
from statestore.model import TopicPartition

SCHEMA_DDL = "partition INT, offset LONG, timestamp LONG, key BINARY, value BINARY"

# Spark takes batches as they are: names, order and types must be those of the DDL.
_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
_BATCH_ROWS = 16_384

#: The latest record of a key: offset, timestamp, value.
_Latest = tuple[int, int, bytes | None]


class ChangelogDataSource(DataSource):
    """
    Reads the committed records of a topic.

    The short name is `changelog`.

    Options
    -------
    bootstrap_servers : str
        Kafka brokers.
    topic : str
        The topic, for a store `<application>-<store>-changelog`.
    partitions : str, optional
        Partitions to read, comma separated; all by default.
    starts : str, optional
        JSON object of partition to the offset at which to start. A partition that is not named, or that no longer has
        the offset, is read from the start of its log.
    ends : str, optional
        JSON object of partition to the offset at which to stop, exclusive. A partition that is not named is read to
        its last stable offset, which no end may exceed.
    latest : str, optional
        `true` returns only the last record of each key, and no record without a key: what a restore of the store would
        see. The default is `false`.
    tombstones : str, optional
        Whether to return records without a value, which delete their key. By default only without `latest`.

    Notes
    -----
    Columns: `partition` int, `offset` long, `timestamp` long (ms), `key` binary, `value` binary. With `latest` a Spark
    task holds the latest record of each key of its partition in memory.

    Examples
    --------
    >>> from jobs.sources.register import register
    >>> register(spark)
    >>> reader = spark.read.format("changelog").option("bootstrap_servers", "localhost:9092")
    >>> reader.option("topic", "flight-delays-aircraft-changelog").option("latest", "true").load().count()
    4044
    """

    @classmethod
    def name(cls) -> str:
        """Short name of the source."""
        return "changelog"

    def schema(self) -> str:
        """Columns, as a DDL string."""
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> ChangelogReader:
        """Check the options and return the reader."""
        return ChangelogReader(dict(self.options))


@dataclass
class _LogRange(InputPartition):
    partition: int
    start: int
    end: int


class ChangelogReader(DataSourceReader):
    """Reads the log ranges that the options name."""

    def __init__(self, options: dict[str, str]) -> None:
        self._servers = required(options, "bootstrap_servers")
        self._topic = required(options, "topic")
        self._asked = partition_list(options)
        self._starts = offsets_by_partition(options, "starts")
        self._ends = offsets_by_partition(options, "ends")
        self._latest = flag(options, "latest", False)
        self._tombstones = flag(options, "tombstones", not self._latest)

    def partitions(self) -> list[InputPartition]:
        """One Spark partition for each partition of the topic."""
        topics = Topics(self._servers)
        count = topics.require(self._topic).partitions
        asked = list(range(count)) if self._asked is None else self._asked
        if unknown := sorted({*asked, *self._starts, *self._ends} - set(range(count))):
            raise TopicMismatchError(f"topic {self._topic} has the partitions 0 to {count - 1}, asked for: {unknown}")
        ranges = topics.log_ranges(TopicPartition(self._topic, partition) for partition in asked)
        result: list[InputPartition] = []
        for (_, partition), found in ranges.items():
            end = self._ends.get(partition, found.last_stable)
            if end > found.last_stable:
                # The reader would wait for records that may never come.
                raise InputError(
                    f"option ends: partition {partition} of {self._topic} is stable up to offset {found.last_stable}, "
                    f"asked for records up to {end}"
                )
            result.append(_LogRange(partition, max(found.start, self._starts.get(partition, 0)), end))
        return result

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition, in offset order unless folded."""
        assert isinstance(partition, _LogRange)
        batches = self._fold(partition) if self._latest else self._records(partition)
        for batch in batches:
            yield batch if self._tombstones else batch.filter(batch.column("value").is_valid())

    def _records(self, log: _LogRange) -> Iterator[pa.RecordBatch]:
        with LogReader(self._servers, TopicPartition(self._topic, log.partition)) as reader:
            for batch in reader.read(log.start, log.end):
                columns = [batch.column(name) for name in _SCHEMA.names[1:]]
                yield pa.record_batch([_constant(log.partition, len(batch)), *columns], schema=_SCHEMA)

    def _fold(self, log: _LogRange) -> Iterator[pa.RecordBatch]:
        latest: dict[bytes, _Latest] = {}
        with _no_cyclic_gc(), LogReader(self._servers, TopicPartition(self._topic, log.partition)) as reader:
            for messages in reader.read_messages(log.start, log.end):
                for message in messages:
                    key = message.key()
                    if key is not None:
                        latest[key] = (message.offset(), message.timestamp()[1], message.value())
        keys = list(latest)
        for first in range(0, len(keys), _BATCH_ROWS):
            some = keys[first : first + _BATCH_ROWS]
            offsets, timestamps, values = zip(*(latest[key] for key in some), strict=True)
            columns = [
                pa.array(offsets, pa.int64()),
                pa.array(timestamps, pa.int64()),
                pa.array(some, pa.binary()),
                pa.array(values, pa.binary()),
            ]
            yield pa.record_batch([_constant(log.partition, len(some)), *columns], schema=_SCHEMA)


def _constant(partition: int, count: int) -> pa.Array:
    return pa.array([partition] * count, pa.int32())


@contextmanager
def _no_cyclic_gc() -> Iterator[None]:
    """Keep the cyclic garbage collector from walking a growing dict of tuples, which is four times slower."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
