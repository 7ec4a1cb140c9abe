"""Compares a versioned store with its changelog by the rules of deep verification, in one Spark task per partition.

Rows and records are not alike, so there is no join: both sides are folded key by key, and what is compared of each key
becomes rows of one frame, told apart by `side`:

| side       | what a row is                                                     |
|------------|-------------------------------------------------------------------|
| store      | a version in the store                                            |
| changelog  | a version that the changelog gives                                |
| both       | a change of a key's value, a delete among them, beside the other's |
| not judged | a change of which the changelog no longer tells what it should be |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from statestore.errors import StoreCorruptedError
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.stores.versioned import RawVersion
from statestore_jobs.source_frames import store_options
from statestore_jobs.sources.snapshots import StoreInArchive
from statestore_jobs.sources.state_store import StoreOnDisk, stores_at

_DDL = (
    "side STRING, partition INT, key BINARY, valid_from LONG, valid_to LONG, store_value BINARY, log_value BINARY, "
    "in_store BOOLEAN, in_log BOOLEAN"
)
_SCHEMA = pa.schema(
    [
        pa.field("side", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("valid_from", pa.int64()),
        pa.field("valid_to", pa.int64()),
        pa.field("store_value", pa.binary()),
        pa.field("log_value", pa.binary()),
        pa.field("in_store", pa.bool_()),
        pa.field("in_log", pa.bool_()),
    ]
)
_BATCH_ROWS = 4096
_STORE, _CHANGELOG, _BOTH, _NOT_JUDGED = "store", "changelog", "both", "not judged"
_Row = tuple[str, int, bytes, int, int | None, bytes | None, bytes | None, bool, bool]


class Piece(NamedTuple):
    """A store partition and its log.

    Attributes
    ----------
    store
        Where its rows are; None: nowhere.
    committed
        Offset of the last changelog record in the store.
    """

    spec: StorePartitionSpec
    store: StoreOnDisk | StoreInArchive | None
    committed: int
    log: LogRange


class ComparedVersions(NamedTuple):
    """Parts of the frame: versions of the store, those of its changelog, both side by side, and what is not judged."""

    store: DataFrame
    log: DataFrame
    comparison: DataFrame
    not_judged: DataFrame


def compared_versions(
    spark: SparkSession,
    specs: Sequence[StorePartitionSpec],
    present: Sequence[StorePartitionSpec],
    ends: Mapping[int, int],
    logs: Mapping[TopicPartition, LogRange],
) -> DataFrame:
    """Return the frame. It reads stores and logs each time: persist it.

    Parameters
    ----------
    present
        Those of the store partitions that have a store.
    ends
        By partition, the offset before which its log is compared.
    """
    stores = {store.number: store for store in (stores_at(store_options(present, "snapshot"))[0] if present else ())}
    pieces = [Piece(spec, stores.get(at := spec.task.partition), ends[at] - 1, logs[spec.partition]) for spec in specs]

    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batches(pieces[number])

    return spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(compare, _DDL)


def parts_of(frame: DataFrame) -> ComparedVersions:
    """Split the frame; each part but the last has the columns that its view has (docs/validation.md)."""

    def side(name: str) -> DataFrame:
        return frame.where(F.col("side") == name)

    def versions(name: str, value: str) -> DataFrame:
        columns = ("partition", "key", "valid_from", "valid_to", F.col(value).alias("value"))
        return side(name).select(*columns, F.col("valid_from").alias("timestamp"))

    return ComparedVersions(
        versions(_STORE, "store_value"),
        versions(_CHANGELOG, "log_value"),
        side(_BOTH).select(
            *("partition", "key", "valid_from", "store_value", "log_value"),
            *(F.when(F.col(f"in_{one}"), F.col("valid_from")).alias(f"{one}_timestamp") for one in ("store", "log")),
            *("in_store", "in_log"),
        ),
        side(_NOT_JUDGED),
    )


def _batches(piece: Piece) -> Iterator[pa.RecordBatch]:
    rows = _rows(piece)
    while some := list(islice(rows, _BATCH_ROWS)):
        columns = zip(*some, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _rows(piece: Piece) -> Iterator[_Row]:
    # Only here: it brings numba, which the driver and other tasks do without.
    from statestore.verification.contents import compare_versions

    spec, partition = piece.spec, piece.spec.task.partition
    topics = spec.cluster.topics
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="statestore-versions-")))
        stored: Iterator[tuple[bytes, list[RawVersion]]] = iter(())
        if piece.store is not None:
            (opened,) = stack.enter_context(piece.store.opened(_every_segment))
            stored = opened.versions()
        try:
            for found in compare_versions(spec, stored, piece.committed, piece.log, topics, scratch):
                for value, valid_from, valid_to in found.stored:
                    yield _STORE, partition, found.key, valid_from, valid_to, value, None, True, False
                for value, valid_from, valid_to in found.logged:
                    yield _CHANGELOG, partition, found.key, valid_from, valid_to, None, value, False, True
                for timestamp, mine, its, excused in found.changes:
                    side = _NOT_JUDGED if excused else _BOTH
                    values = (None if mine is None else mine.value, None if its is None else its.value)
                    yield side, partition, found.key, timestamp, None, *values, mine is not None, its is not None
        except StoreCorruptedError as error:
            raise StoreCorruptedError(f"{spec.store_partition}: {error}") from error


def _every_segment(start: int, following: int | None) -> bool:
    return True
