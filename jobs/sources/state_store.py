"""The data source `state_store`: the rows of a store as a DataFrame, one Spark partition for each store partition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from jobs.sources.options import flag, partition_list, required
from statestore.errors import InputError, UnknownStoreError
from statestore.model import StoreDefinition, StoreFormat, StorePartition, TaskId, check_name
from statestore.statedir.lock import locked
from statestore.statedir.paths import TaskPaths, paths_of
from statestore.stores.open import AnyKeyValueStore, open_key_value_store

SCHEMA_DDL = "partition INT, key BINARY, value BINARY, timestamp LONG"

# Spark takes batches as they are: names, order and types must be those of the DDL.
_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64()),
    ]
)
_BATCH_ROWS = 16_384
_BATCH_BYTES = 8 * 1024 * 1024
_LOCK_WAIT_S = 30.0


class StateStoreDataSource(DataSource):
    """
    Reads a key-value store from its state directory.

    The short name is `state_store` (`statestore` and `state-metadata` are Spark's own).

    Options
    -------
    state_dir : str
        Kafka Streams' `state.dir`.
    application : str
        Name of the application (`application.id`).
    store : str
        Name of the store.
    format : str, optional
        `timestamped` (the default) or `plain`.
    partitions : str, optional
        Partitions to read, comma separated. Without it all tasks `0_*` that have a directory are read, and each must
        have the store.
    values : str, optional
        `false` leaves the values out: the column is null. The default is `true`.

    Notes
    -----
    Reads key-value stores on disk.

    Columns: `partition` int, `key` binary, `value` binary, `timestamp` long (ms; null in a plain store, -1 where the
    store does not know it). Each Spark task holds the lock of the store's task while it reads.

    Examples
    --------
    >>> from jobs.sources.register import register
    >>> register(spark)
    >>> reader = spark.read.format("state_store").option("state_dir", "state")
    >>> reader.option("application", "flight-delays").option("store", "aircraft").load().count()
    4044
    """

    @classmethod
    def name(cls) -> str:
        """Short name of the source."""
        return "state_store"

    def schema(self) -> str:
        """Columns, as a DDL string."""
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> StateStoreReader:
        """Check the options and return the reader."""
        return StateStoreReader(dict(self.options))


@dataclass
class _StorePartition(InputPartition):
    partition: int


class StateStoreReader(DataSourceReader):
    """Reads the store partitions that the options name."""

    def __init__(self, options: dict[str, str]) -> None:
        self._state_dir = Path(required(options, "state_dir"))
        store_format = options.get("format", StoreFormat.TIMESTAMPED.value)
        if store_format not in list(StoreFormat):
            raise InputError(
                f"option format: expected one of {[str(one) for one in StoreFormat]}, found {store_format!r}"
            )
        try:
            self._application = check_name(required(options, "application"))
            self._store = check_name(required(options, "store"))
        except ValueError as error:
            raise InputError(str(error)) from error
        self._definition = StoreDefinition(name=self._store, format=StoreFormat(store_format))
        self._asked = partition_list(options)
        self._values = flag(options, "values", True)

    def partitions(self) -> list[InputPartition]:
        """One Spark partition for each store partition, all of which must be there."""
        found = self._asked if self._asked is not None else self._task_partitions()
        for partition in found:
            directory = self._paths(partition).store(self._store)
            if not directory.is_dir():
                raise UnknownStoreError(
                    f"no store {self._store} of application {self._application} for partition {partition} at "
                    f"{directory}: correct the name, restore the store, or name the partitions to read"
                )
        return [_StorePartition(partition) for partition in found]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one store partition in key order."""
        assert isinstance(partition, _StorePartition)
        with opened(self._definition, self._paths(partition.partition)) as store:
            keys: list[bytes] = []
            values: list[bytes | None] = []
            timestamps: list[int | None] = []
            size = 0
            for key, row in store.range():
                # A plain store's rows are the values themselves.
                value, timestamp = (row, None) if isinstance(row, bytes) else row
                keys.append(key)
                values.append(value if self._values else None)
                timestamps.append(timestamp)
                size += len(key) + len(value)
                if len(keys) == _BATCH_ROWS or size >= _BATCH_BYTES:
                    yield _batch(partition.partition, keys, values, timestamps)
                    keys, values, timestamps, size = [], [], [], 0
            if keys:
                yield _batch(partition.partition, keys, values, timestamps)

    def _task_partitions(self) -> list[int]:
        prefix = f"{self._subtopology}_"
        application_dir = self._state_dir / self._application
        names = [path.name for path in application_dir.glob(f"{prefix}*") if path.is_dir()]
        found = sorted(int(name[len(prefix) :]) for name in names if re.fullmatch(prefix + r"\d+", name))
        if not found:
            raise UnknownStoreError(
                f"no task directory {prefix}* in {application_dir}: correct state_dir or application"
            )
        return found

    @property
    def _subtopology(self) -> int:
        """Which tasks have the store, as their directories tell; 0 if none has it."""
        found = (self._state_dir / self._application).glob(f"*_*/rocksdb/{self._store}")
        names = sorted(path.parent.parent.name for path in found)
        return next((TaskId.parse(name).subtopology for name in names if re.fullmatch(r"\d+_\d+", name)), 0)

    def _paths(self, partition: int) -> TaskPaths:
        task = TaskId(self._subtopology, partition)
        return paths_of(self._state_dir, StorePartition(self._application, self._store, task))


@contextmanager
def opened(definition: StoreDefinition, paths: TaskPaths) -> Iterator[AnyKeyValueStore]:
    """Open the task's store for reading, under the task's lock, and close it whatever happens.

    A store left open would keep its files in a Python worker that Spark uses again.
    """
    with locked(paths, _LOCK_WAIT_S):
        store = open_key_value_store(definition, paths.store(definition.name), read_only=True)
        try:
            yield store
        finally:
            store.close(clean=False)


def _batch(partition: int, keys: list[Any], values: list[Any], timestamps: list[Any]) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array([partition] * len(keys), pa.int32()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(timestamps, pa.int64()),
        ],
        schema=_SCHEMA,
    )
