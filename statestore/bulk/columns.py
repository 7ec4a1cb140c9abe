"""Batches of a log as addresses of their buffers, and batches made of buffers that a loop has filled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.changelog.reader import SCHEMA

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
UInt64s = npt.NDArray[np.uint64]
UInt32s = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]
_NO_BYTES = np.zeros(8, np.uint8)


class Address(NamedTuple):
    """Where a batch with `changelog.reader.SCHEMA` lies in memory; valid while the batch lives.

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


class Buffers(NamedTuple):
    """Room for a batch: what a loop fills."""

    key_ends: Int32s
    keys: Bytes
    value_ends: Int32s
    values: Bytes
    timestamps: Int64s
    offsets: Int64s
    nulls: npt.NDArray[np.bool_]

    def batch(self, *, with_nulls: bool) -> pa.RecordBatch:
        """Return what was filled as a batch with `changelog.reader.SCHEMA`; `nulls` are rows without a value."""
        rows = len(self.timestamps)
        valid = pa.py_buffer(np.packbits(~self.nulls, bitorder="little")) if with_nulls and self.nulls.any() else None

        def binary(ends: Any, data: Any, bitmap: Any) -> pa.Array:
            return pa.Array.from_buffers(pa.binary(), rows, [bitmap, pa.py_buffer(ends), pa.py_buffer(data)])

        return pa.RecordBatch.from_arrays(
            [
                binary(self.key_ends, self.keys, None),
                binary(self.value_ends, self.values, valid),
                pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(self.timestamps)]),
                pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(self.offsets)]),
            ],
            schema=SCHEMA,
        )


def buffers(rows: int, key_bytes: int, value_bytes: int) -> Buffers:
    """Return room for a batch."""
    return Buffers(
        np.zeros(rows + 1, np.int32),
        np.empty(key_bytes, np.uint8),
        np.zeros(rows + 1, np.int32),
        np.empty(value_bytes, np.uint8),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.zeros(rows, np.bool_),
    )
