"""Arguments of compiled loops: typed arrays, and addresses of the buffers of Arrow batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
_NO_BYTES = np.zeros(8, np.uint8)


class Address(NamedTuple):
    """Where a batch of a log (`changelog.reader.SCHEMA`) lies in memory; valid while the batch lives.

    Arrow's offsets of keys and values (int32), their bytes, the bitmaps of what is not null (0: nothing is), and
    timestamps and offsets (int64). `shift` is the bit of a bitmap that the first row has.
    """

    rows: int
    key_ends: int
    keys: int
    keys_valid: int
    keys_shift: int
    value_ends: int
    values: int
    values_valid: int
    values_shift: int
    timestamps: int
    offsets: int


def address_of(batch: pa.RecordBatch) -> Address:
    """Return where a batch lies."""
    keys, values, timestamps, offsets = batch.columns
    return Address(
        batch.num_rows, *_binary(keys), *_binary(values), *(_numbers(column) for column in (timestamps, offsets))
    )


def lengths(column: pa.Array) -> Int64s:
    """Return the bytes of each value of a binary column; of a null, 0."""
    if not len(column):
        return np.zeros(0, np.int64)
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    found: Int64s = np.diff(ends).astype(np.int64)
    return found


def int64_column(numbers: Int64s) -> pa.Array:
    """Return numbers as an Arrow column; `pa.array` would import pandas, which takes longer than much that is done."""
    data = pa.py_buffer(np.ascontiguousarray(numbers, np.int64))
    return pa.Int64Array.from_buffers(pa.int64(), len(numbers), [None, data])


def big_endian(numbers: Int64s, size: int) -> pa.Array:
    """Return numbers as a binary column of signed big-endian numbers of a size in bytes."""
    data = pa.py_buffer(np.ascontiguousarray(numbers).astype(f">i{size}").tobytes())
    return pa.Array.from_buffers(pa.binary(size), len(numbers), [None, data]).cast(pa.binary())


def _binary(array: pa.Array) -> tuple[int, int, int, int]:
    valid, ends, data = array.buffers()
    has_nulls = array.null_count > 0
    return (
        0 if ends is None else ends.address + 4 * array.offset,
        _NO_BYTES.ctypes.data if data is None else data.address,
        valid.address if has_nulls else 0,
        array.offset if has_nulls else 0,
    )


def _numbers(array: pa.Array) -> int:
    data = array.buffers()[1]
    return 0 if data is None else data.address + 8 * array.offset
