"""Reads a store and its changelog to compare them: their offsets, and their rows through the data sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
from pydantic import BaseModel
from pyspark.sql import DataFrame, SparkSession

from statestore.changelog.reader import ChangelogReader
from statestore.definitions.store import StoreDefinition
from statestore.errors import RebuildError, UnknownFormatError, of_os_error
from statestore.kinds.kind import by_form
from statestore.partition.archived import look_into_archive
from statestore.partition.home import Copy
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.swap import locked_task
from statestore.stores.open import opened
from statestore.verification.contents import databases
from statestore.verification.options import nobody_waits
from statestore.verification.supplied import as_stored, batches
from statestore_jobs.sources.columns import Layout, layout_of, split_values


class Reading(BaseModel):
    """What is in a store's directory: whether there is a store, how far it is, and its segments; or a problem.

    Attributes
    ----------
    segments
        Starts (ms) of a window or session store's segments; 0 for a key-value store. None of a supplier's store.
    problem
        Why it cannot be read.
    snapshot
        The snapshot that is read, of a store that lives in the archive.
    """

    present: bool
    committed: int | None = None
    segments: tuple[int, ...] = ()
    problem: str | None = None
    snapshot: str | None = None


def read_offset(spec: StorePartitionSpec) -> Reading:
    """Read the committed offset of a store partition, under the task's lock.

    Raises
    ------
    RetryError
        If the task is in use, or its directory cannot be had: that says nothing about the store.
    """
    return _READ[spec.home.copy](spec)


def _read_disk(spec: StorePartitionSpec) -> Reading:
    try:
        with locked_task(spec.paths, spec.lock_wait_s, reading=True):
            if not spec.live.is_dir():
                return Reading(present=False)
            with opened(spec.store, spec.context(read_only=True)) as store:
                committed = legacy_offsets(spec.paths).get(spec.partition)
                if committed is None:
                    committed = store.committed_offset(spec.partition)
            segments = tuple(databases(spec)) if spec.store.files_are_known else ()
            return Reading(present=True, committed=committed, segments=segments)
    except (RebuildError, UnknownFormatError) as error:
        return Reading(present=True, problem=f"{spec.store_partition}: {error}")
    except OSError as error:
        raise of_os_error(error) from error


def _read_snapshot(spec: StorePartitionSpec) -> Reading:
    ((seen, snapshot),) = look_into_archive([spec], look_at_files=False)
    if seen.trouble is not None:
        return Reading(present=True, problem=f"{spec.store_partition}: {seen.trouble.detail}")
    if snapshot is None:
        return Reading(present=False)
    directories = {Path(file.path).parent.name for file in snapshot.files}
    starts = sorted(int(name.rpartition(".")[2]) for name in directories) if spec.store.segmented else [0]
    name = str(snapshot.name)
    return Reading(present=True, committed=snapshot.committed, segments=tuple(starts), snapshot=name)


_READ = {Copy.DISK: _read_disk, Copy.SNAPSHOT: _read_snapshot}


class Tail(NamedTuple):
    """The part of a changelog that a store has not seen."""

    spec: StorePartitionSpec
    start: int
    end: int


class TailCheck(BaseModel):
    """Whether there is a record."""

    found: bool


def find_record(tail: Tail) -> TailCheck:
    """Look for a record: markers of transactions and compaction holes take offsets, too."""
    spec = tail.spec
    with ChangelogReader(spec.cluster, spec.partition) as reader:
        return TailCheck(found=next(reader.read_messages(tail.start, tail.end), None) is not None)


def kind_options(store: StoreDefinition) -> dict[str, str]:
    """Options of both data sources that say what a store is."""
    options = {"kind": store.kind, "format": store.format.value}
    if store.retention_ms is not None:
        options["retention_ms"] = str(store.retention_ms)
    if store.window_size_ms is not None:
        options["window_size_ms"] = str(store.window_size_ms)
    if store.store_kind.may_retain_duplicates:
        options["retain_duplicates"] = "true" if store.retain_duplicates else "false"
    return options


def nothing(spark: SparkSession, store: StoreDefinition) -> DataFrame:
    return spark.createDataFrame([], layout_of({}, store, with_offset=False).ddl)


def store_frame(spark: SparkSession, store: StoreDefinition, specs: Sequence[StorePartitionSpec]) -> DataFrame:
    if not specs:
        return nothing(spark, store)
    return _FRAMES[store.row_form](spark, store, specs)


def _frame_of_files(spark: SparkSession, store: StoreDefinition, specs: Sequence[StorePartitionSpec]) -> DataFrame:
    return spark.read.format("state_store").options(**store_options(specs, "locked")).load()


def _supplied_frame(spark: SparkSession, store: StoreDefinition, specs: Sequence[StorePartitionSpec]) -> DataFrame:
    """Return the rows of a supplier's store, with the columns of `state_store`: one Spark task for each partition."""
    layout = layout_of({}, store, with_offset=False)

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in numbers:
            for at in batch.column(0).to_pylist():
                yield from _supplied_rows(specs[at], layout)

    return spark.range(0, len(specs), 1, len(specs)).mapInArrow(read, layout.ddl)


_FRAMES = by_form(_frame_of_files, supplied=_supplied_frame)


def _supplied_rows(spec: StorePartitionSpec, layout: Layout) -> Iterator[pa.RecordBatch]:
    with locked_task(spec.paths, spec.lock_wait_s), opened(spec.store, spec.context(read_only=True)) as store:
        for stored in map(as_stored, batches(store, spec.store, nobody_waits)):
            values = split_values(stored.column(1), spec.store.values)
            yield layout.batch(
                spec.task.partition, stored.column(0), values.values, values.timestamps, headers=values.headers
            )


def store_options(specs: Sequence[StorePartitionSpec], read: Literal["locked", "snapshot"]) -> dict[str, str]:
    """Options of `state_store` that name partitions of a store; `read` is how they are read where they lie."""
    return _OPTIONS[specs[0].home.copy](specs, read)


def _snapshot_options(specs: Sequence[StorePartitionSpec], read: Literal["locked", "snapshot"]) -> dict[str, str]:
    store, archive = specs[0].store, specs[0].snapshot_archive
    return {
        "archive": archive.url,
        "archive_timeout_s": str(archive.timeout_s),
        "cluster": archive.cluster,
        "application": specs[0].application,
        "store": store.name,
        "snapshot": "latest",
        "partitions": _listed(specs),
        "kind": store.kind,
        "expired": "true",
    }


def _disk_options(specs: Sequence[StorePartitionSpec], read: Literal["locked", "snapshot"]) -> dict[str, str]:
    store = specs[0].store
    return {
        "state_dir": str(specs[0].state_dir),
        "application": specs[0].application,
        "store": store.name,
        "partitions": _listed(specs),
        "read": read,
        "expired": "true",  # a comparison excludes expired rows itself
        **kind_options(store),
    }


_OPTIONS = {Copy.DISK: _disk_options, Copy.SNAPSHOT: _snapshot_options}


def log_frame(spark: SparkSession, specs: Sequence[StorePartitionSpec], **options: str) -> DataFrame:
    """Rows of the changelog as the store would have them, and deletes as rows without a value."""
    given = {
        "bootstrap_servers": specs[0].cluster.servers,
        "topic": specs[0].partition.topic,
        "partitions": _listed(specs),
        "tombstones": "true",
        **kind_options(specs[0].store),
        **options,
    }
    return spark.read.format("changelog").options(**given).load().drop("offset")


def _listed(specs: Sequence[StorePartitionSpec]) -> str:
    return ",".join(str(spec.task.partition) for spec in specs)
