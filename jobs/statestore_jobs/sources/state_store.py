"""The data source `state_store`: the rows of a store as a DataFrame, one Spark partition for each store partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from statestore.definitions.store import StoreDefinition
from statestore.discovery.opening import Opened, Wanted
from statestore.discovery.row_range import RowRange, shown_segments
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import InputError, StoreCorruptedError, of_os_error
from statestore.formats.time_ordered_key import ROWS_WITHOUT_INDEX
from statestore.formats.value_format import AnyFormat
from statestore.kinds.kind import by_form
from statestore.stores.segment_starts import left_over_segments, segment_interval_ms
from statestore_jobs.sources.columns import Layout, layout_of, split_values
from statestore_jobs.sources.decoding import DECODING_OPTIONS
from statestore_jobs.sources.importers import forget_importers
from statestore_jobs.sources.opening import Mode, reading
from statestore_jobs.sources.options import STORE_OPTIONS, choice, flag, number, refuse_unknown, required
from statestore_jobs.sources.ranges import RANGE_OPTIONS, in_range, range_of
from statestore_jobs.sources.snapshots import (
    SNAPSHOT_OPTIONS,
    StoreInArchive,
    definition_in,
    refuse_without_snapshot,
    snapshots_of,
)
from statestore_jobs.sources.stores import DEFINITION_OPTIONS, DIRECTORY_OPTIONS, definition_of, directories_of
from statestore_jobs.sources.versions import version_batches

#: Columns of a key-value store of bytes.
SCHEMA_DDL = "partition INT, key BINARY, value BINARY, timestamp LONG"

_OPTIONS = (
    *DIRECTORY_OPTIONS,
    *DEFINITION_OPTIONS,
    *STORE_OPTIONS,
    *RANGE_OPTIONS,
    *DECODING_OPTIONS,
    "read",
    "lock_wait_s",
    "expired",
    *SNAPSHOT_OPTIONS,
)
_BATCH_ROWS = 16_384
_BATCH_BYTES = 8 * 1024 * 1024
_LOCK_WAIT_S = 30


class StateStoreDataSource(DataSource):
    """
    Reads a store of any kind from its directory, written by this project or by Kafka Streams. Writes a store of the
    catalogue.

    The short name is `state_store` (`statestore` and `state-metadata` are Spark's own).

    Options
    -------
    path : str
        Directory of one store partition (a RocksDB database, or a directory of segments) in any place, or of an
        application, `<state_dir>/<application>`. Either this or `application`.
    application : str
        Name of the application (`application.id`).
    state_dir : str, optional
        Kafka Streams' `state.dir`, with `application`. The default is `STATESTORE_STATE_DIR` of the driver.
    store : str
        Name of the store, unless the path is a store.
    partitions : str, optional
        Partitions to read, comma separated. By default, all tasks of the store's subtopology that have a directory are
        read, and each must have the store.
    kind : str, optional
        `key-value`, `window`, `session`, or `versioned`; for stores that only Kafka Streams' DSL creates,
        `time-ordered-window`, `indexed-time-ordered-window`, `time-ordered-session`, or `time-ordered-buffer`. The
        default of this and the next four options comes from the store's definition, or else from its files.
    format : str, optional
        `plain`, `timestamped`, or `headers`.
    window_size_ms : str, optional
        Length of a window. The store's files do not show it.
    retain_duplicates : str, optional
        Whether a window store keeps several values for a window.
    retention_ms : str, optional
        Retention of a window or session store. Rows of expired segments are hidden only if the retention is known.
    definitions : str, optional
        YAML file, or directory of such files, with the application's definition.
    bootstrap_servers : str, optional
        Kafka brokers, to look up the definition in the catalogue. `service_id` names the catalogue (by default,
        `STATESTORE_SERVICE_ID` of the driver, or `default`).
    key : str, optional
        The only key to read, written in the form of its serde: bytes in hexadecimal digits, a number, JSON, or text.
    key_from, key_to : str, optional
        Range of keys in the order of their bytes; `key_to` is exclusive.
    time_from, time_to : str, optional
        In ms since the epoch or in ISO 8601; `time_to` is exclusive. Reads windows that start in this range, sessions
        that were active in it, or versions that were valid in it. Segments outside the range are not opened.
    expired : str, optional
        `true` also reads expired segments of a window or session store, and segments that are left over from another
        retention. The default is `false`, as in Kafka Streams.
    values : str, optional
        `false` omits the values: the column is null. The default is `true`.
    key_serde, value_serde : str, optional
        `bytes` (the default), `utf8`, `int32`, `int64`, or `double` (big-endian), `delimited`, `json`, as text that is
        checked to be JSON, or `avro`, `protobuf`, or `json-schema` of a Schema Registry, as JSON text.
    value_schema : str, optional
        Fields of JSON values, and of those of a Schema Registry, as DDL: the column is a struct. A missing field is
        null; nothing is converted to another type.
    undecodable : str, optional
        `fail`, or `keep`: if a key or value cannot be decoded, its column is null, and separate columns have the bytes
        and the reason. The default is `keep` with a serde of a Schema Registry, otherwise `fail`.
    schema_registry_url : str, optional
        Address of the Schema Registry. The default is that of the driver's environment. Sign-in and TLS are in the file
        of `STATESTORE_SCHEMA_REGISTRY_CONFIG`, on the driver and on the executors.
    read : str, optional
        `live` (the default): read-only and without changes, even while the store is in use. `locked`: under the lock of
        the store's task, so that no process writes to it. `snapshot`: opened under that lock, read without it.
    lock_wait_s : str, optional
        How long to wait for the lock, in seconds. The default is 30.
    snapshot : str, optional
        Read snapshots from the archive instead of a state directory: `latest`, the newest usable snapshot of each store
        partition; a changelog offset, the newest usable snapshot of each at or below it; the name of a snapshot, which
        contains one store partition; or the name of a set. The first two need `application` and `store`. Suspect
        snapshots, and those of older generations, are read only by their names. The archive describes the store, so
        only the options for rows and decoding are allowed with it.
    archive : str, optional
        With `snapshot`: URL of the archive. The default is `STATESTORE_ARCHIVE` of the driver. Credentials come from
        the environment of the driver and of the executors.
    archive_timeout_s : str, optional
        Deadline of one request to the archive, in seconds. The default is `STATESTORE_ARCHIVE_TIMEOUT_S`, or 60.
    cluster : str, optional
        Id of the Kafka cluster, if the archive has the application from several clusters.

    run_bytes : str, optional
        Writing only: maximum size of a sorted run in memory. The default is `STATESTORE_RESTORE_RUN_BYTES`.
    transaction_bytes : str, optional
        Mode `append` only: maximum bytes of keys and values in the transaction of a partition, 268435456 by default.
    reports_dir, data_docs_dir : str, optional
        Writing only. The defaults are `STATESTORE_REPORTS_DIR` and `STATESTORE_DATA_DOCS_DIR` of the driver.

    Notes
    -----
    A write accepts the columns of a read, and of these options only `application`, `store`, `state_dir`,
    `bootstrap_servers`, `service_id`, and the options for writing. Mode `overwrite` replaces all rows, with a new
    changelog. Mode `append` puts single rows of a key-value store, and deletes rows without a value. The documentation
    lists what is refused.

    Columns: `partition` int; `key` binary, string, or long; of a window store `window_start` long, `window_end` long,
    and `sequence` int if it retains duplicates; of a session store `session_start` long, `session_end` long
    (inclusive); of a versioned store `valid_from` long, `valid_to` long (exclusive; null: it is still valid); `value`;
    `timestamp` long (ms; null in a plain store, -1 if it is unknown, equal to `valid_from` in a versioned store); of a
    store with headers `headers`, an array of structs with `key` string and `value` binary, in their order. With
    `undecodable=keep` also `undecodable` boolean, `key_bytes` binary, `value_bytes` binary, and `reason` string, which
    are null unless the row is undecodable. All times are in ms.

    A versioned store has a row for each version of a key. Deletes are not rows: a delete is the `valid_to` of the
    previous version, at which no other version begins. Versions older than the history retention are returned as long
    as they exist.

    A read returns the rows on disk. The owner's rows reach the disk when it commits and flushes, or closes the store.
    The result includes expired rows in segments that have not expired as a whole. Each database is read as of one
    moment. If the store is being written to, its segments can be from different moments.

    Each task that reads a snapshot first fetches its files and checks their SHA-256. Until its rows are read, it needs
    disk space for the whole snapshot, in Spark's local directories (`spark.local.dir`). Segments outside `time_from`
    and `time_to` are not fetched.

    Examples
    --------
    >>> from statestore_jobs.sources.register import register
    >>> register(spark)
    >>> reader = spark.read.format("state_store").option("state_dir", "state")
    >>> reader.option("application", "flight-delays").option("store", "aircraft").load().count()
    4044
    >>> reader = spark.read.format("state_store").option("archive", "s3://bucket/prefix").option("snapshot", "latest")
    >>> reader.option("application", "flight-delays").option("store", "aircraft").load()  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        """Short name of the source."""
        return "state_store"

    def schema(self) -> str:
        """Columns, as a DDL string."""
        forget_importers()
        options = dict(self.options)
        return layout_of(options, stores_at(options)[1], with_offset=False).ddl

    def reader(self, schema: StructType) -> StateStoreReader:
        """Check the options and return the reader."""
        forget_importers()
        return StateStoreReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Check the options and the columns, and return the writer."""
        forget_importers()
        # Only here: it brings Kafka's clients, which readers do not need.
        from statestore_jobs.sources.state_store_writer import StateStoreWriter

        return StateStoreWriter(dict(self.options), schema, overwrite=overwrite)


@dataclass
class StoreOnDisk(InputPartition):
    """One store partition in a state directory, and how it is read."""

    store: StoreDirectory
    store_format: AnyFormat
    mode: Mode
    lock_wait_s: int

    @property
    def label(self) -> str:
        """Name of the store partition in errors."""
        return str(self.store.directory)

    @property
    def number(self) -> int | None:
        """Partition of its task; None if its directory does not show it."""
        return self.store.partition

    def segments(self) -> list[int]:
        """Return the starts (ms) of its segments."""
        return list(self.store.databases())

    def opened(self, wanted: Wanted) -> AbstractContextManager[list[Opened]]:
        """Keep the databases open during the context."""
        return reading(self.store, self.store_format, self.mode, self.lock_wait_s, wanted)


def stores_at(options: dict[str, str]) -> tuple[Sequence[StoreOnDisk | StoreInArchive], StoreDefinition]:
    """Find the partitions and the description of the store that the options name."""
    refuse_unknown(options, _OPTIONS, "state_store")
    try:
        if "snapshot" in options:
            snapshots = snapshots_of(options, (*RANGE_OPTIONS, *DECODING_OPTIONS, "expired"))
            return snapshots, definition_in(snapshots, options)
        refuse_without_snapshot(options)
        if "application" in options:
            required(options, "store")
        stores = directories_of(options)
        if len({store.name for store in stores}) != 1:
            required(options, "store")
        mode = cast(Mode, choice(options, "read", ("live", "locked", "snapshot"), "live"))
        wait_s = number(options, "lock_wait_s")
        definition, wait_s = definition_of(options, stores), _LOCK_WAIT_S if wait_s is None else wait_s
        return [StoreOnDisk(store, definition.values, mode, wait_s) for store in stores], definition
    except OSError as error:
        raise of_os_error(error) from error


class StateStoreReader(DataSourceReader):
    """Reads the store partitions that the options name.

    Parameters
    ----------
    schema
        The columns as parsed by Spark.
    """

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._stores, store = stores_at(options)
        self._layout: Layout = layout_of(options, store, with_offset=False, schema=schema)
        self._range: RowRange = range_of(options, store.store_kind, self._layout.decoding.key_serde)
        self._expired = flag(options, "expired", False)
        # Kafka Streams leaves segments of another retention, and our own engine does not.
        self._may_leave_segments = not {*DEFINITION_OPTIONS[:2], "snapshot"} & {*options}
        known = not self._may_leave_segments or "retention_ms" in options
        self._retention_ms = store.retention_ms if known else None

    def partitions(self) -> Sequence[InputPartition]:
        """One Spark partition for each store partition."""
        return self._stores

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one store partition, by segment and in key order; versions by key, then time."""
        forget_importers()
        assert isinstance(partition, StoreOnDisk | StoreInArchive)
        try:
            with partition.opened(self._shown_segments(partition)) as parts:
                yield from _READERS[self._layout.store.store_kind.row_form](self, partition, parts)
        except OSError as error:
            raise of_os_error(error) from error

    def _shown_segments(self, partition: StoreOnDisk | StoreInArchive) -> Wanted:
        if not self._layout.store.segmented:
            return self._range.has_segment
        starts, left_over = partition.segments(), list[int]()
        if self._may_leave_segments and self._retention_ms is not None:
            left_over = left_over_segments(starts, segment_interval_ms(self._retention_ms))
        return shown_segments(starts, self._range, self._retention_ms, left_over, expired=self._expired)

    def records(self, store: StoreOnDisk | StoreInArchive, parts: Sequence[Opened]) -> Iterator[pa.RecordBatch]:
        """Yield rows, each of one record."""
        return self._selected(store, (batch for part in parts for batch in part.rows(*self._range.bounds())))

    def time_ordered(self, store: StoreOnDisk | StoreInArchive, parts: Sequence[Opened]) -> Iterator[pa.RecordBatch]:
        """Yield rows whose keys begin with their times."""
        from statestore.bulk.time_ordered import by_ordinary_keys  # only here: it brings numba

        layout = self._layout.store.store_kind.layout
        assert layout is not None, "time-ordered rows have a layout"
        stored = (batch for part in parts for batch in part.rows(*ROWS_WITHOUT_INDEX))
        return self._selected(store, (by_ordinary_keys(batch, layout.key).rows for batch in stored))

    def _selected(
        self, store: StoreOnDisk | StoreInArchive, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        for batch in _gathered(in_range(batch, self._range) for batch in batches):
            yield self._shown(store, batch)

    def _shown(self, store: StoreOnDisk | StoreInArchive, stored: pa.RecordBatch) -> pa.RecordBatch:
        keys, values = stored.columns
        try:
            found = split_values(values, self._layout.store.values)
            return self._layout.batch(store.number, keys, found.values, found.timestamps, headers=found.headers)
        except (InputError, StoreCorruptedError) as error:
            raise type(error)(f"{store.label}: {error}") from error

    def versions(self, store: StoreOnDisk | StoreInArchive, parts: Sequence[Opened]) -> Iterator[pa.RecordBatch]:
        """Yield the versions of each key."""
        try:
            for versions in version_batches(parts, self._range):
                keys, values, valid_from, valid_to = versions.columns
                times = {"valid_from": valid_from, "valid_to": valid_to}
                yield self._layout.batch(store.number, keys, values, valid_from, numbers=times)
        except (InputError, StoreCorruptedError) as error:
            raise type(error)(f"{store.label}: {error}") from error


_READERS = by_form(
    StateStoreReader.records, time_ordered=StateStoreReader.time_ordered, versions=StateStoreReader.versions
)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together: each costs Spark and Arrow some time, however small."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if held and (rows + batch.num_rows > _BATCH_ROWS or size + batch.nbytes > _BATCH_BYTES):
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if held:
        yield pa.concat_batches(held)
