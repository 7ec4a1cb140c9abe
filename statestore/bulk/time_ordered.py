"""Rows of stores that have their times in front (formats/time_ordered_key.py), by many: to their row keys, and back.

Sorted runs, logs and comparisons have the ordinary keys of the changelog, whatever a store's row keys are. What is here
stands between those and the databases.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.compiled.batches import Bytes, Int32s
from statestore.compiled.loops import compiled
from statestore.compiled.memory import Int, copy, load_i32, load_u8
from statestore.errors import StoreCorruptedError
from statestore.formats.time_ordered_key import INDEX, PREFIX_BYTES, ROW, KeyLayout
from statestore.kafka.record_columns import SCHEMA
from statestore.stores.scan import STORED_SCHEMA


class StoredRows(NamedTuple):
    """Rows of a database by their ordinary keys.

    Attributes
    ----------
    rows
        With `scan.STORED_SCHEMA`, in the order that they were read in.
    index
        Keys of the index rows, in that order.
    """

    rows: pa.RecordBatch
    index: pa.Array


def with_times_in_front(batch: pa.RecordBatch, layout: KeyLayout) -> pa.RecordBatch:
    """Return records with `changelog.reader.SCHEMA` under the row keys of their rows."""
    keys = batch.column(0)
    ends = np.zeros(len(keys) + 1, np.int32)
    moved = np.empty(_bytes(keys) + PREFIX_BYTES * len(keys), np.uint8)
    if len(keys) and not _in_front(*_column(keys), len(keys), *layout, ends, moved):
        raise StoreCorruptedError(f"a key is shorter than the {sum(layout)} bytes of its times")
    return batch.set_column(0, SCHEMA.field(0), _binary(ends, moved))


def index_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the index rows of records with `changelog.reader.SCHEMA`: without values, deletes as deletes."""
    keys, values = batch.column(0), batch.column(1)
    ends = np.zeros(len(keys) + 1, np.int32)
    prefixed = np.empty(_bytes(keys) + PREFIX_BYTES * len(keys), np.uint8)
    if len(keys):
        _prefixed(*_column(keys), len(keys), ends, prefixed)
    empty = no_values(len(keys))
    if values.null_count:
        empty = pc.if_else(values.is_valid(), empty, pa.scalar(None, pa.binary()))
    batch = batch.set_column(0, SCHEMA.field(0), _binary(ends, prefixed))
    return batch.set_column(1, SCHEMA.field(1), empty)


def by_ordinary_keys(batch: pa.RecordBatch, layout: KeyLayout) -> StoredRows:
    """Take rows of a database, with `scan.STORED_SCHEMA`, apart.

    Raises
    ------
    StoreCorruptedError
        If a key is not one of such a store.
    """
    keys = batch.column(0)
    ends, kinds = np.zeros(len(keys) + 1, np.int32), np.empty(len(keys), np.uint8)
    moved = np.empty(_bytes(keys), np.uint8)
    if len(keys):
        wrong = int(_behind(*_column(keys), len(keys), *layout, ends, moved, kinds))
        if wrong >= 0:
            raise StoreCorruptedError(
                f"a row key of {len(keys[wrong].as_py())} bytes does not begin with {ROW:02x} and its times, nor is it "
                f"that of an index, which begins with {INDEX:02x}"
            )
    rows = pa.RecordBatch.from_arrays([_binary(ends, moved), batch.column(1)], schema=STORED_SCHEMA)
    if not kinds.any():
        return StoredRows(rows, rows.column(0).slice(0, 0))
    is_row = pa.array(kinds == ROW)
    return StoredRows(rows.filter(is_row), rows.column(0).filter(pc.invert(is_row)))


def without_end(batch: pa.RecordBatch, end: bytes) -> pa.RecordBatch:
    """Return records with `changelog.reader.SCHEMA` without what their values end with in the changelog alone.

    Raises
    ------
    StoreCorruptedError
        If a value does not end with it.
    """
    if not end:
        return batch
    values = batch.column(1)
    if not pc.all(pc.ends_with(values.cast(pa.binary()), pattern=end), min_count=0).as_py():
        raise StoreCorruptedError(f"a value in the changelog does not end with the {len(end)} bytes {end.hex(' ')}")
    return batch.set_column(1, SCHEMA.field(1), pc.binary_slice(values, 0, -len(end)))


def with_end(batch: pa.RecordBatch, end: bytes) -> pa.RecordBatch:
    """Return rows with `scan.STORED_SCHEMA` with what their values end with in the changelog."""
    if not end:
        return batch
    values = pc.binary_join_element_wise(batch.column(1), pa.scalar(end), pa.scalar(b""))
    return batch.set_column(1, STORED_SCHEMA.field(1), values)


def _bytes(keys: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(keys)).as_py() or 0)


def _column(array: pa.Array) -> tuple[int, int]:
    """Addresses of a binary array's offsets and bytes."""
    _, ends, data = array.buffers()
    return ends.address + 4 * array.offset, 0 if data is None else data.address


def _binary(ends: Int32s, data: Bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def no_values(rows: int) -> pa.Array:
    """Return so many values without a byte."""
    return _binary(np.zeros(rows + 1, np.int32), np.empty(0, np.uint8))


# -- loops, compiled --------------------------------------------------------------------------------------------------


@compiled
def _in_front(ends: Int, data: Int, rows: Int, before: Int, behind: Int, moved_ends: Int32s, moved: Bytes) -> bool:
    to = np.int64(moved.ctypes.data)
    first = to
    for at in range(rows):
        begin = np.int64(load_i32(ends + 4 * at))
        size = np.int64(load_i32(ends + 4 * at + 4)) - begin
        key_bytes = size - before - behind
        if key_bytes < 0:
            return False
        key = data + begin
        moved[to - first] = ROW
        copy(to + 1, key + key_bytes, before)
        copy(to + 1 + before, key, key_bytes)
        copy(to + 1 + before + key_bytes, key + size - behind, behind)
        to += 1 + size
        moved_ends[at + 1] = to - first
    return True


@compiled
def _prefixed(ends: Int, data: Int, rows: Int, moved_ends: Int32s, moved: Bytes) -> Any:
    to = np.int64(moved.ctypes.data)
    first = to
    for at in range(rows):
        begin = np.int64(load_i32(ends + 4 * at))
        size = np.int64(load_i32(ends + 4 * at + 4)) - begin
        moved[to - first] = INDEX
        copy(to + 1, data + begin, size)
        to += 1 + size
        moved_ends[at + 1] = to - first
    return rows


@compiled
def _behind(
    ends: Int, data: Int, rows: Int, before: Int, behind: Int, moved_ends: Int32s, moved: Bytes, kinds: Bytes
) -> Int:
    """Move the times behind the keys; return the first row that has no such key, or -1."""
    to = np.int64(moved.ctypes.data)
    first = to
    for at in range(rows):
        begin = np.int64(load_i32(ends + 4 * at))
        size = np.int64(load_i32(ends + 4 * at + 4)) - begin - 1
        key_bytes = size - before - behind
        if key_bytes < 0:
            return at
        kinds[at] = load_u8(data + begin)
        key = data + begin + 1
        if kinds[at] == ROW:
            copy(to, key + before, key_bytes)
            copy(to + key_bytes, key, before)
            copy(to + key_bytes + before, key + size - behind, behind)
        elif kinds[at] == INDEX:
            copy(to, key, size)
        else:
            return at
        to += size
        moved_ends[at + 1] = to - first
    return np.int64(-1)
