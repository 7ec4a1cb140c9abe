"""The data source `state_store_metadata`: facts about store partitions on disk, one row each."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from statestore.archive.manifest import Manifest
from statestore.discovery.kind_and_format import format_of, kind_without_retention
from statestore.discovery.opening import Opened, close_all, open_databases
from statestore.discovery.shape import shape_of
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import StateStoreError, StoreCorruptedError
from statestore.formats import checkpoint_file
from statestore.formats.database_files import has_rows
from statestore.formats.offsets import STATUS_CLOSED, STATUS_OPEN
from statestore.formats.value_format import COLUMN_FAMILIES, ValueFormat
from statestore.kinds.known import BUILT_IN
from statestore.model import TopicPartition
from statestore.statedir.legacy import legacy_offsets_of
from statestore.statedir.paths import TaskPaths
from statestore.statedir.seal import check_seal
from statestore_jobs.sources.importers import forget_importers
from statestore_jobs.sources.options import refuse_unknown
from statestore_jobs.sources.snapshots import SNAPSHOT_OPTIONS, refuse_without_snapshot, snapshots_of
from statestore_jobs.sources.stores import DIRECTORY_OPTIONS, directories_of

SCHEMA_DDL = (
    "application STRING, store STRING, task STRING, partition INT, kind STRING, format STRING, "
    "committed MAP<STRING, LONG>, position MAP<STRING, LONG>, open STRING, estimated_keys LONG, bytes LONG, "
    "files INT, segments INT, sealed STRING, problem STRING, snapshot STRING"
)
_OFFSETS = pa.map_(pa.string(), pa.int64())
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("application", "store", "task")),
        ("partition", pa.int32()),
        *((name, pa.string()) for name in ("kind", "format")),
        *((name, _OFFSETS) for name in ("committed", "position")),
        ("open", pa.string()),
        *((name, pa.int64()) for name in ("estimated_keys", "bytes")),
        *((name, pa.int32()) for name in ("files", "segments")),
        *((name, pa.string()) for name in ("sealed", "problem", "snapshot")),
    ]
)


class _AnyFormat(ValueFormat):
    """Opens a store of every format that we know; its rows are not looked at."""

    column_families = COLUMN_FAMILIES


_ANY = _AnyFormat()
# struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid; zero length is the whole file.
_LOCK = struct.Struct("hhqqi4x")


class StateStoreMetadataDataSource(DataSource):
    """
    Reads facts about store partitions on disk, or about their snapshots: one row each.

    The short name is `state_store_metadata`.

    Options
    -------
    path : str
        Directory of an application, `<state_dir>/<application>`, or of one store partition. Either this or
        `application`.
    application : str
        Name of the application (`application.id`).
    state_dir : str, optional
        Kafka Streams' `state.dir`, with `application`. The default is `STATESTORE_STATE_DIR` of the driver.
    store : str, optional
        Name of the store; all stores by default.
    partitions : str, optional
        Partitions to read, comma separated; all by default.
    snapshot, archive, archive_timeout_s, cluster : str, optional
        Snapshots in the archive instead of directories, as in `state_store`. Their files are not read.

    Notes
    -----
    A read locks nothing and changes nothing. Columns:

    - `application` string, `store` string, `task` string, `partition` int.
    - `kind` string (`key-value`, `window`, `session`, `versioned`) and `format` string (`plain`, `timestamped`), as
      shown by its files; null if they do not show it.
    - `committed` map<string, long>: offset of the last changelog record in the store, by `<topic>-<partition>`. For a
      store from before KIP-1035, the offsets in its task's checkpoint file.
    - `position` map<string, long>: input offsets that the rows of the store reflect.
    - `open` string (`open`, `closed`): the state that the store records. If it is `open` and no process uses the store,
      a crash left it open. Null in a store from before KIP-1035.
    - `estimated_keys` long: rows minus deletes in its SST files. `bytes` long and `files` int: size and number of its
      SST files.
    - `segments` int: number of segments of a window or session store.
    - `sealed` string: `sealed`, `unsealed` (no seal covers its files), `broken` (a file has changed since the store was
      closed), or `in use`; null if the store is not live in a state directory.
    - `problem` string: why the store cannot be read, or not without an option; null if it can.
    - `snapshot` string: name of the snapshot; null for a directory. For a snapshot, `position`, `open`, `sealed`, and
      `problem` are null, and so is `estimated_keys` unless its rows were counted.

    Examples
    --------
    >>> from statestore_jobs.sources.register import register
    >>> register(spark)
    >>> reader = spark.read.format("state_store_metadata").option("path", "state/flight-delays")
    >>> reader.load().select("store", "partition", "estimated_keys", "sealed").show()  # doctest: +SKIP
    """

    @classmethod
    def name(cls) -> str:
        """Short name of the source."""
        return "state_store_metadata"

    def schema(self) -> str:
        """Columns, as a DDL string."""
        forget_importers()
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> StateStoreMetadataReader:
        """Check the options and return the reader."""
        forget_importers()
        return StateStoreMetadataReader(dict(self.options))


@dataclass
class Snapshots(InputPartition):
    """Snapshots that the driver chose."""

    manifests: Sequence[Manifest]


@dataclass
class StoresOfTask(InputPartition):
    """Store partitions of one task."""

    stores: Sequence[StoreDirectory]


class StateStoreMetadataReader(DataSourceReader):
    """Reads facts about the store partitions that the options name."""

    def __init__(self, options: dict[str, str]) -> None:
        refuse_unknown(options, (*DIRECTORY_OPTIONS, *SNAPSHOT_OPTIONS), "state_store_metadata")
        self._stores: Sequence[StoreDirectory] = ()
        self._snapshots: list[Manifest] = []
        if "snapshot" in options:
            self._snapshots = [found.manifest for found in snapshots_of(options)]
        else:
            refuse_without_snapshot(options)
            self._stores = directories_of(options)

    def partitions(self) -> list[InputPartition]:
        """One Spark partition for each task."""
        if self._snapshots:
            return [Snapshots(self._snapshots)]
        # Spark asks for one at least.
        tasks = [list(stores) for _, stores in groupby(self._stores, key=lambda store: store.task)]
        return [StoresOfTask(stores) for stores in tasks or [[]]]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield a row for each store of a task."""
        forget_importers()
        if isinstance(partition, Snapshots):
            yield pa.RecordBatch.from_pylist([_snapshot_row(found) for found in partition.manifests], schema=_SCHEMA)
            return
        assert isinstance(partition, StoresOfTask)
        yield pa.RecordBatch.from_pylist([_row(store) for store in partition.stores], schema=_SCHEMA)


def _snapshot_row(found: Manifest) -> dict[str, Any]:
    application, store, task = found.store_partition
    tables = [file for file in found.files if has_rows(file.path)]
    segments = {file.path.partition("/")[0] for file in found.files if "/" in file.path}
    log = str(TopicPartition(found.topic, found.partition))
    return {
        "application": application,
        "store": store,
        "task": str(task),
        "partition": task.partition,
        "kind": found.definition.kind,
        "format": found.definition.format.value,
        "committed": {} if found.committed is None else {log: found.committed},
        "estimated_keys": found.rows,
        "bytes": sum(file.bytes for file in tables),
        "files": len(tables),
        "segments": len(segments) if segments else None,
        "snapshot": str(found.name),
    }


def _row(store: StoreDirectory) -> dict[str, Any]:
    row: dict[str, Any] = {
        "application": store.application,
        "store": store.name,
        "task": None if store.task is None else str(store.task),
        "partition": store.partition,
        "kind": None if store.segmented else "key-value",
    }
    try:
        row["sealed"] = None if store.paths is None else _sealed(store, store.paths)
        shape = shape_of(store)
        row["format"] = shape.format.value if shape.families else None
        row["segments"] = len(shape.starts) if store.segmented else None
        databases = open_databases(store, _ANY)
        try:
            row |= _contents(store, databases)
        finally:
            close_all(databases)
        row["kind"] = kind_without_retention(store, shape, None, _remedy)
        if shape.families:
            row["format"] = format_of(row["kind"], shape, None, _remedy).value
    except (StateStoreError, OSError) as error:
        row["problem"] = str(error)
    return row


def _remedy(setting: str, values: Sequence[str]) -> str:
    return f"say it when you read it, with .option({setting!r}, ...)"


def _contents(store: StoreDirectory, databases: Sequence[Opened]) -> dict[str, Any]:
    tables = [opened.database for opened in databases]
    statuses = {table.status() for table in tables}
    committed: list[Mapping[TopicPartition, int | None]]
    committed = [{log: table.committed_offset(log) for log in table.offset_partitions()} for table in tables]
    positions: list[Mapping[TopicPartition, int | None]] = [table.position() for table in tables]
    files = [file for table in tables for file in table.live_files()]
    if store.paths is not None and store.segmented and not databases:
        kept = store.paths.segments(store.name)
        committed, positions = [_kept(kept / "offsets")], [_kept(kept / "position")]
    known = _least(committed)
    if store.paths is not None and not known:
        known = _least([legacy_offsets_of(store.paths, store.name)])
    return {
        "committed": known,
        # A position speaks of more inputs in one segment than in another.
        "position": _least(positions, everywhere=False),
        "open": "open" if STATUS_OPEN in statuses else "closed" if statuses == {STATUS_CLOSED} else None,
        "estimated_keys": sum(table.row_count(family) for table in tables for family in COLUMN_FAMILIES),
        "bytes": sum(file["size"] for file in files),
        "files": len(files),
    }


def _least(found: Sequence[Mapping[TopicPartition, int | None]], *, everywhere: bool = True) -> dict[str, int]:
    """Smallest offset of each partition over all databases; for `everywhere`, of those that all of them have."""
    partitions = sorted({partition for offsets in found for partition in offsets})
    result = {}
    for partition in partitions:
        offsets = [offsets.get(partition) for offsets in found]
        known = [offset for offset in offsets if offset is not None]
        if known and (len(known) == len(offsets) or not everywhere):
            result[str(partition)] = min(known)
    return result


def _kept(path: Path) -> dict[TopicPartition, int | None]:
    """Offsets that we keep of a store while it has no segment."""
    return checkpoint_file.read(path) if path.exists() else {}


def _sealed(store: StoreDirectory, paths: TaskPaths) -> str:
    if _in_use(paths):
        return "in use"
    try:
        # Which kind of segments does not matter to the seal.
        seal = check_seal(paths, store.name, BUILT_IN["window" if store.segmented else "key-value"])
    except StoreCorruptedError:
        # It may have been opened meanwhile.
        return "in use" if _in_use(paths) else "broken"
    return "unsealed" if seal is None else "sealed"


def _in_use(paths: TaskPaths) -> bool:
    """Whether somebody holds the locks of `statedir.lock`; asked without taking them, so nobody is kept waiting."""
    return _is_held(paths.application_dir / ".lock", fcntl.F_RDLCK) or _is_held(paths.own_dir / "lock", fcntl.F_WRLCK)


def _is_held(path: Path, kind: int) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        asked = _LOCK.pack(kind, os.SEEK_SET, 0, 0, 0)
        return bool(_LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)
