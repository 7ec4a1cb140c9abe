"""The data source `changelog`: a Kafka log as a DataFrame, whole or folded to the latest record of each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from statestore.changelog.reader import ChangelogReader
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, StoreCorruptedError, TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition
from statestore_jobs.sources.changelog_ranges import Bounds, LogPart, parts_of
from statestore_jobs.sources.changelog_stream import STREAM_OPTIONS, ChangelogStreamReader
from statestore_jobs.sources.columns import Layout, layout_of, split_values
from statestore_jobs.sources.decoding import DECODING_OPTIONS
from statestore_jobs.sources.importers import forget_importers
from statestore_jobs.sources.options import (
    STORE_OPTIONS,
    described_store,
    flag,
    number,
    offsets_by_partition,
    partition_list,
    refuse_unknown,
    required,
    time_ms,
)

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
_OF_BOTH = (
    *("bootstrap_servers", "topic", "partitions", "splits", "tombstones"),
    *STORE_OPTIONS,
    *DECODING_OPTIONS,
)
_OPTIONS = (*_OF_BOTH, "starts", "ends", "start_time", "end_time", "latest", "run_bytes")
_RUN_BYTES = 96 * 1024 * 1024
_LEAST_RUN_BYTES = 4096


class ChangelogDataSource(DataSource):
    """
    Reads the committed records of a topic.

    The short name is `changelog`.

    Options
    -------
    bootstrap_servers : str
        Kafka brokers.
    topic : str
        The topic; for a store, usually `<application>-<store>-changelog`.
    partitions : str, optional
        Partitions to read, comma separated; all by default.
    starts : str, optional
        JSON object that maps a partition to its start offset. A partition that is not named, or that no longer has the
        offset, is read from the start of its log.
    ends : str, optional
        JSON object that maps a partition to its end offset, exclusive. A partition that is not named is read to its
        last stable offset. No end can exceed it.
    start_time, end_time : str, optional
        Start at the first record at or after `start_time`, and stop before the first record at or after `end_time`; ms
        since the epoch, or ISO 8601. All records between these two are read, even if their times are not in order.
    splits : str, optional
        Maximum number of Spark partitions for a Kafka partition. By default, one for each million offsets; with
        `latest`, one.
    latest : str, optional
        `true` returns only the last record of each key, as a restore of the store would. Records without a key are not
        returned. The default is `false`.
    tombstones : str, optional
        Whether to return records without a value, which delete their key. By default, only without `latest`.
    run_bytes : str, optional
        Memory in which `latest` sorts the records of a partition, 96 MiB by default. The rest is sorted in a temporary
        directory (`TMPDIR`).
    values : str, optional
        `false` omits the values: the column is null. The default is `true`.
    kind : str, optional
        `key-value`, `window`, or `session`: returns the rows of a store of this kind, as `state_store` does, and omits
        records without a key. With `latest`, expired windows and sessions are also omitted.
    format, window_size_ms, retention_ms, retain_duplicates : str, optional
        Settings of the store; only with `kind`. A window store needs `window_size_ms` and `retention_ms`, a session
        store needs `retention_ms`.
    key_serde, value_serde, value_schema, undecodable, schema_registry_url : str, optional
        How keys and values are decoded, as in `state_store`; only with `kind`.

    startingOffsets : str, optional
        Streams only, like the next three options: where a query without a checkpoint starts. `earliest` (the default),
        `latest`, or a JSON object that maps partitions to offsets. A partition that is not named starts at its earliest
        offset.
    endingOffsets : str, optional
        Where a stream ends: `latest`, the ends of the logs when the query started, or a JSON object that maps
        partitions to offsets, exclusive. Other partitions are not read. By default, a stream has no end.
    maxOffsetsPerTrigger : str, optional
        Maximum number of offsets in a batch, over all partitions. Transaction markers and gaps also count.
    failOnDataLoss : str, optional
        `false` continues if records that the stream has not read were removed, or if the topic was recreated. The
        default, `true`, ends the query.

    Notes
    -----
    A stream (`spark.readStream`) returns new committed records in batches. Offsets are in the query's checkpoint.
    Options that limit or fold a batch read (`starts`, `ends`, times, `latest`) are refused. New partitions are read
    from their first record. `Trigger.AvailableNow` runs one batch with all available records, because PySpark 4.1
    cannot request several batches from a Python source. With `maxOffsetsPerTrigger`, that one batch is limited. To read
    all available records in several batches, set `endingOffsets=latest`, and wait with `query.processAllAvailable()`.

    Columns: `partition` int, `offset` long, `timestamp` long (ms), `key` binary, `value` binary. With `kind`: the
    columns of `state_store`, with `offset` after `partition`.

    Examples
    --------
    >>> from statestore_jobs.sources.register import register
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
        forget_importers()
        options = _named(self.options)
        store = _store(options)
        return SCHEMA_DDL if store is None else layout_of(options, store, with_offset=True).ddl

    def reader(self, schema: StructType) -> ChangelogSourceReader:
        """Check the options and return the reader."""
        forget_importers()
        options = _named(self.options)
        refuse_unknown(options, _OPTIONS, "changelog")
        return ChangelogSourceReader(options, schema)

    def streamReader(self, schema: StructType) -> ChangelogStreamReader:
        """Check the options and return the reader of a stream."""
        forget_importers()
        options = _named(self.options)
        refuse_unknown(options, (*_OF_BOTH, *STREAM_OPTIONS), "changelog as a stream")
        records = {name: value for name, value in options.items() if name not in STREAM_OPTIONS}
        return ChangelogStreamReader(options, ChangelogSourceReader(records, schema))


class ChangelogSourceReader(DataSourceReader):
    """Reads the parts of a log that the options name."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._cluster = Cluster(required(options, "bootstrap_servers"))
        self._topic = required(options, "topic")
        self._asked = partition_list(options)
        self._bounds = _bounds(options)
        self._latest = flag(options, "latest", False)
        self._tombstones = flag(options, "tombstones", not self._latest)
        self._values = flag(options, "values", True)
        self._run_bytes = number(options, "run_bytes", _LEAST_RUN_BYTES) or _RUN_BYTES
        self._splits = number(options, "splits", 1)
        if self._latest:
            if (self._splits or 1) > 1:
                raise InputError(
                    f"option splits: latest needs all records of a partition in one Spark partition, found "
                    f"{self._splits}: leave one of the two out"
                )
            self._splits = 1
        elif "run_bytes" in options:
            raise InputError("option run_bytes applies only to latest, which is not set: leave it out")
        self._store = _store(options)
        self._layout = None if self._store is None else layout_of(options, self._store, with_offset=True, schema=schema)

    def partitions(self) -> list[InputPartition]:
        """At least one Spark partition for each partition of the topic."""
        return [*parts_of(self._cluster, self._topic, self._asked, self._bounds, self._splits)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the records of one part, in offset order unless folded."""
        forget_importers()
        assert isinstance(partition, LogPart)
        log = TopicPartition(self._topic, partition.partition)
        with ChangelogReader(self._cluster, log) as reader:
            values = None if self._store is None else self._store.values
            records = reader.read(partition.start, partition.end, values)
            for batch in self._folded(records, log, partition) if self._latest else records:
                wanted = batch if self._tombstones else _without_nulls(batch, "value")
                yield _raw(wanted, log, self._values) if self._layout is None else _shown(wanted, log, self._layout)

    def _folded(
        self, records: Iterator[pa.RecordBatch], log: TopicPartition, part: LogPart
    ) -> Iterator[pa.RecordBatch]:
        # Only here: it brings numba, which takes longer to load than many a log to be planned or read.
        from statestore_jobs.sources.changelog_fold import folded, routing_for

        if not self._values:
            records = map(_with_empty_values, records)
        return folded(
            records, log, part.start, part.end, routing_for(self._store), self._run_bytes, deletes=self._tombstones
        )


def _named(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by the names that they have here: Spark turns names into small letters."""
    names = {name.lower(): name for name in STREAM_OPTIONS}
    return {names.get(name.lower(), name): value for name, value in options.items()}


def _bounds(options: Mapping[str, str]) -> Bounds:
    for offsets, time in (("starts", "start_time"), ("ends", "end_time")):
        if offsets in options and time in options:
            raise InputError(f"options {offsets} and {time}: expected {offsets} or {time}, found both")
    return Bounds(
        offsets_by_partition(options, "starts"),
        offsets_by_partition(options, "ends"),
        time_ms(options, "start_time"),
        time_ms(options, "end_time"),
    )


def _store(options: Mapping[str, str]) -> StoreDefinition | None:
    """Return the store whose rows are shown; None: records are shown as they are logged."""
    refuse_unknown(options, (*_OPTIONS, *STREAM_OPTIONS), "changelog")
    store = described_store(options, "changelog")
    if store is None and (given := [name for name in DECODING_OPTIONS if name != "values" and name in options]):
        raise InputError(f"option {given[0]} is for rows of a store: add option kind, too")
    if store is not None and store.store_kind.has_history:
        raise InputError(
            f"option kind: rows of a {store.kind} store are not records of its changelog. Read the changelog without "
            "kind: a record's timestamp is the time from which its value is valid"
        )
    return store


def _without_nulls(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    column = batch.column(name)
    return batch.filter(column.is_valid()) if column.null_count else batch


def _with_empty_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave values out where only whether there is one matters."""
    values = pc.if_else(batch.column("value").is_valid(), pa.scalar(b""), pa.scalar(None, pa.binary()))
    return batch.set_column(batch.schema.get_field_index("value"), batch.schema.field("value"), values)


def _raw(batch: pa.RecordBatch, log: TopicPartition, values: bool) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["partition"] = pa.repeat(pa.scalar(log.partition, pa.int32()), batch.num_rows)
    if not values:
        columns["value"] = pa.nulls(batch.num_rows, pa.binary())
    return pa.record_batch([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)


def _shown(batch: pa.RecordBatch, log: TopicPartition, layout: Layout) -> pa.RecordBatch:
    batch = _without_nulls(batch, "key")
    keys, values, timestamps, offsets = batch.columns
    stored_as, headers = layout.store.values, None
    if not stored_as.timestamped:  # the store does not keep them
        timestamps = pa.nulls(batch.num_rows, pa.int64())
    try:
        if stored_as.keeps_headers and layout.decoding.values:
            values, _, headers = split_values(values, stored_as)
        shown = values if layout.decoding.values else None
        return layout.batch(log.partition, keys, shown, timestamps, offsets, headers)
    except InputError as error:
        raise InputError(f"{log}: {error}") from error
    except StoreCorruptedError as error:  # a key that is none of this kind; no store is damaged
        raise TopicMismatchError(f"{log}: {error}") from error
