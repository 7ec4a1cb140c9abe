"""Columns of records, built from fetched batches by compiled loops, or from single messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from statestore.errors import StateStoreError
from statestore.kafka.compression import Bytes
from statestore.kafka.record_batch import SLACK, Batch, damaged, records_of
from statestore.model import TopicPartition

#: Columns of every batch; timestamps are milliseconds since the epoch, a null value is a delete.
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
    ]
)
#: Compressed batches are decoded together until they have so many bytes. A fetch is about as large.
_GROUP_BYTES = 8 * 1024 * 1024
_LARGEST_COLUMN = np.iinfo(np.int32).max


class DecodedRecords(NamedTuple):
    """Records as columns, and where the headers of those that have some lie in the bytes that they came from.

    Attributes
    ----------
    headers
        Of each record that has headers: where they begin and end, how many they are, and its row in the columns.
    committed
        False if their transaction was aborted.
    """

    columns: pa.RecordBatch
    data: Bytes
    headers: Any
    committed: bool = True


def decode(
    batches: Iterable[Batch], fetched: Bytes, start: int, end: int, partition: TopicPartition
) -> Iterator[DecodedRecords]:
    """Yield the records with `start <= offset < end`.

    Parameters
    ----------
    batches
        In offset order.
    fetched
        What they lie in, with `SLACK` bytes behind it.
    partition
        Whose they are, for errors.

    Raises
    ------
    LogCorruptedError
        If a batch does not have the records that it says.
    """
    for compressed, group in groupby(batches, lambda batch: batch.compressed):
        if compressed:
            for some, data, ends in _decompressed(group, partition):
                yield from _decode(some, data, [0, *ends[:-1]], ends, start, end, partition)
        else:
            some = list(group)
            begins = [batch.at for batch in some]
            ends = [batch.at + len(batch.body) for batch in some]
            yield from _decode(some, fetched, begins, ends, start, end, partition)


def _decompressed(
    batches: Iterable[Batch], partition: TopicPartition
) -> Iterator[tuple[list[Batch], Bytes, list[int]]]:
    """Yield batches with the bytes of their records one behind the other, and where each one's end."""
    some: list[Batch] = []
    bodies: list[Bytes] = []
    ends: list[int] = []
    for batch in batches:
        some.append(batch)
        bodies.append(records_of(batch, partition))
        ends.append((ends[-1] if ends else 0) + len(bodies[-1]))
        if ends[-1] >= _GROUP_BYTES:
            yield some, np.concatenate([*bodies, np.zeros(SLACK, np.uint8)]), ends
            some, bodies, ends = [], [], []
    if some:
        yield some, np.concatenate([*bodies, np.zeros(SLACK, np.uint8)]), ends


def _decode(
    batches: list[Batch],
    data: Bytes,
    begins: list[int],
    ends: list[int],
    start: int,
    end: int,
    partition: TopicPartition,
) -> Iterator[DecodedRecords]:
    from statestore.kafka import record_kernels  # numba's import takes as long as reading some 100,000 records

    rows = sum(batch.record_count for batch in batches)
    size = sum(ends) - sum(begins)
    if not rows:  # compaction has removed them
        return
    if size > _LARGEST_COLUMN:
        raise StateStoreError(
            f"{partition} at offset {batches[0].base_offset}: a record batch of {size} bytes, decompressed; "
            f"expected {_LARGEST_COLUMN} or less"
        )
    table = np.empty((len(batches), 6), np.int64)
    for row, batch in enumerate(batches):
        place = begins[row], ends[row], batch.record_count
        table[row] = *place, batch.base_offset, batch.base_timestamp, batch.append_time
    keys, values = _BinaryColumn(rows, size), _BinaryColumn(rows, size)
    timestamps, offsets = (pa.allocate_buffer(8 * rows, resizable=True) for _ in range(2))
    headers = np.empty((rows, 4), np.int64)
    found, null_keys, null_values, with_headers, malformed = record_kernels.decode(
        data,
        table,
        start,
        end,
        keys.to_fill(),
        values.to_fill(),
        np.frombuffer(timestamps, np.int64),
        np.frombuffer(offsets, np.int64),
        headers,
    )
    if malformed >= 0:
        wrong = batches[malformed]
        raise damaged(partition, wrong.base_offset, f"it does not have the {wrong.record_count} records that it says")
    if found:
        arrays = [
            keys.array(found, null_keys),
            values.array(found, null_values),
            pa.Array.from_buffers(pa.int64(), found, [None, timestamps], 0),
            pa.Array.from_buffers(pa.int64(), found, [None, offsets], 0),
        ]
        yield DecodedRecords(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), data, headers[:with_headers])


class _BinaryColumn:
    """Buffers of a binary column, as large as it can become."""

    def __init__(self, rows: int, size: int) -> None:
        self._bytes = pa.allocate_buffer(size, resizable=True)
        self._ends = pa.allocate_buffer(4 * (rows + 1), resizable=True)
        self._valid = pa.allocate_buffer((rows + 7) // 8, resizable=True)

    def to_fill(self) -> tuple[Any, Any, Any]:
        ends, valid = np.frombuffer(self._ends, np.int32), np.frombuffer(self._valid, np.uint8)
        ends[0] = 0
        valid[:] = 0
        return np.frombuffer(self._bytes, np.uint8), ends, valid

    def array(self, rows: int, nulls: int) -> pa.Array:
        used = int(np.frombuffer(self._ends, np.int32)[rows])
        if used < self._bytes.size // 2:  # else it would be held for as long as the batch
            self._bytes.resize(used, shrink_to_fit=True)
        return pa.Array.from_buffers(
            pa.binary(), rows, [self._valid if nulls else None, self._ends, self._bytes], nulls
        )


def to_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    """Return messages as a batch with `SCHEMA`."""
    return batch_with_values(messages, [message.value() for message in messages])


def batch_with_values(messages: Sequence[Message], values: Sequence[bytes | None]) -> pa.RecordBatch:
    """Return messages as a batch with `SCHEMA`, with these values in the place of their own."""
    return batch_of(
        [message.key() for message in messages],
        values,
        [message.timestamp()[1] for message in messages],
        [message.offset() for message in messages],
    )


def batch_of(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], timestamps: Sequence[int], offsets: Sequence[int]
) -> pa.RecordBatch:
    """Return a batch with `SCHEMA`.

    It is made from buffers, in half the time that lists take: for these pyarrow also imports pandas, which costs each
    process some tenths of a second and 25 MiB.
    """
    return pa.record_batch([_binary(keys), _binary(values), _int64(timestamps), _int64(offsets)], schema=SCHEMA)


def _binary(values: Sequence[bytes | None]) -> pa.Array:
    lengths = np.fromiter((-1 if value is None else len(value) for value in values), np.int64, len(values))
    valid = lengths >= 0
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.where(valid, lengths, 0), out=offsets[1:])
    if offsets[-1] > _LARGEST_COLUMN:
        return pa.array(values, pa.binary())
    whole = bool(valid.all())
    data = b"".join(values if whole else (value or b"" for value in values))  # type: ignore[arg-type]
    bitmap = None if whole else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(values), [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )


def _int64(values: Sequence[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.array(values, np.int64))])
