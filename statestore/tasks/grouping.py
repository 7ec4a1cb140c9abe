"""Records that wait to be aggregated, as columns, and the rows of a store that they belong to.

Stream time runs along with the records, those that are left out included, so that where a batch ends changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.definitions.aggregation import TimeWindows
from statestore.formats import window_key

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """Records with a key and a value.

    Attributes
    ----------
    timestamps, offsets
        Of the records (ms).
    stream_times
        Stream time before each record (ms); -1 is unknown.
    starts, windows
        Start (ms) of the first window that a record belongs to, and how many there are; 0 and 1 without windows.
    """

    keys: Any
    values: Any
    timestamps: Int64s
    offsets: Int64s
    stream_times: Int64s
    starts: Int64s
    windows: Int64s

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return int(self.keys.nbytes + self.values.nbytes) + 5 * 8 * len(self)

    def filter(self, mask: npt.NDArray[np.bool_]) -> Records:
        """Those that the mask has."""
        chosen = pa.array(mask)
        return Records(
            self.keys.filter(chosen),
            self.values.filter(chosen),
            *(column[mask] for column in (self.timestamps, self.offsets, self.stream_times, self.starts, self.windows)),
        )


def usable(batch: pa.RecordBatch, stream_time: int) -> tuple[Records, int]:
    """Take the records that have a key and a value; return them and how many have not."""
    keys, values = batch.column("key"), batch.column("value")
    timestamps = batch.column("timestamp").to_numpy()
    before = np.maximum.accumulate(np.concatenate(([stream_time], timestamps[:-1])))
    records = Records(
        keys,
        values,
        timestamps,
        batch.column("offset").to_numpy(),
        before,
        np.zeros(len(timestamps), np.int64),
        np.ones(len(timestamps), np.int64),
    )
    if not keys.null_count and not values.null_count:
        return records, 0
    mask = pc.and_(keys.is_valid(), values.is_valid()).to_numpy(zero_copy_only=False)
    return records.filter(mask), len(mask) - int(mask.sum())


def joined(parts: Sequence[Records]) -> Records:
    """All records in their order."""
    if len(parts) == 1:
        return parts[0]
    return Records(
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("timestamps", "offsets", "stream_times", "starts", "windows")
        ),
    )


def place(records: Records, windows: TimeWindows) -> Records:
    """Give records their windows that are still open; records without any are left out: they came late.

    A window is open while its end is after stream time less the grace period, the record's own timestamp included.
    """
    size, step = windows.size_ms, windows.step_ms
    timestamps = records.timestamps
    first = np.maximum(timestamps - (size - step), 0) // step * step
    closed = np.maximum(records.stream_times, timestamps) - (size + windows.grace_ms)
    first = np.maximum(first, (closed // step + 1) * step)
    found = np.maximum((timestamps - first) // step + 1, 0)
    placed = replace(records, starts=first, windows=found)
    open_ones = found > 0
    return placed if open_ones.all() else placed.filter(open_ones)


def window_rows(records: Records, step_ms: int) -> tuple[Int64s | None, Int64s]:
    """(record, window start) of every row that the records belong to; no records: each has one row."""
    if (records.windows == 1).all():
        return None, records.starts
    index = np.repeat(np.arange(len(records)), records.windows)
    before = np.cumsum(records.windows) - records.windows
    return index, records.starts[index] + step_ms * (np.arange(len(index)) - before[index])


def window_row_keys(keys: Any, starts: Int64s) -> Any:
    """Row keys of windows, as `formats/window_key.py` has them."""
    suffixes = np.zeros((len(starts), window_key.SUFFIX_BYTES), np.uint8)
    suffixes[:, :8] = starts.astype(">i8").view(np.uint8).reshape(-1, 8)
    width = pa.binary(window_key.SUFFIX_BYTES)
    column = pa.FixedSizeBinaryArray.from_buffers(width, len(starts), [None, pa.py_buffer(suffixes)])
    return pc.binary_join_element_wise(keys, column.cast(pa.binary()), b"")


def groups(keys: Any) -> tuple[list[bytes], list[int], list[int]]:
    """Group records by key.

    Returns
    -------
    keys
        The distinct ones in order: RocksDB reads and writes ordered keys in half the time.
    records
        Indexes of the records, key by key, in their order.
    borders
        Where in them each key's begin; one more than there are keys.
    """
    encoded = keys.dictionary_encode()
    in_order = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(in_order), np.int64)
    rank[in_order.to_numpy()] = np.arange(len(in_order))
    codes = rank[encoded.indices.to_numpy()]
    borders = np.concatenate(([0], np.cumsum(np.bincount(codes))))
    return encoded.dictionary.take(in_order).to_pylist(), np.argsort(codes, kind="stable").tolist(), borders.tolist()
