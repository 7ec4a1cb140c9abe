"""Batches of a log, built from buffers that a loop has filled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.compiled.batches import Bytes, Int32s, Int64s
from statestore.kafka.record_columns import SCHEMA


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
