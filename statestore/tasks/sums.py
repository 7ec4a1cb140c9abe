"""Adds up integers by row, in columns: the basis of counts and sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.definitions.aggregation import TimeWindows
from statestore.stores.serdes import INT64
from statestore.tasks.aggregates import Aggregate, the_value, whole_number
from statestore.tasks.grouping import Int64s, Records, window_row_keys, window_rows

#: Sums of absolute values are kept as floats; up to here they are surely within an int64.
SAFE = float(1 << 62)


@dataclass(frozen=True)
class Sums:
    """Numbers to add to rows.

    Attributes
    ----------
    row_keys
        Keys of the rows.
    starts
        Starts of their windows (ms); 0 without windows.
    totals
        What is added to each.
    newest, last
        Largest timestamp of the records in it, and that of the last one (ms).
    """

    row_keys: Any
    starts: Int64s
    totals: Int64s
    newest: Int64s
    last: Int64s

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return int(self.row_keys.nbytes) + 4 * 8 * len(self)


def rows_of(records: Records, windows: TimeWindows | None, amounts: Int64s) -> tuple[Sums, Int64s | None]:
    """Rows that are not yet added up, and which record each is of (None: one of each, in order)."""
    if windows is None:
        return Sums(records.keys, records.starts, amounts, records.timestamps, records.timestamps), None
    index, starts = window_rows(records, windows.step_ms)
    keys, timestamps = records.keys, records.timestamps
    if index is not None:
        keys, timestamps, amounts = keys.take(pa.array(index)), timestamps[index], amounts[index]
    return Sums(window_row_keys(keys, starts), starts, amounts, timestamps, timestamps), index


def joined(parts: Sequence[Sums]) -> Sums:
    """All of them in their order; a row may be there more than once."""
    if len(parts) == 1:
        return parts[0]
    return Sums(
        pa.concat_arrays([part.row_keys for part in parts]),
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "totals", "newest", "last")),
    )


def by_row(sums: Sums) -> tuple[Sums, Int64s]:
    """Add up what belongs to one row; return the sums, and the index of the row for each entry."""
    encoded = sums.row_keys.dictionary_encode()
    codes = encoded.indices.to_numpy()
    starts, totals, newest, last = (np.zeros(len(encoded.dictionary), np.int64) for _ in range(4))
    starts[codes] = sums.starts
    np.add.at(totals, codes, sums.totals)
    order = np.argsort(sums.newest, kind="stable")  # of those assigned to one place, the last one stays
    newest[codes[order]] = sums.newest[order]
    last[codes] = sums.last
    return Sums(encoded.dictionary, starts, totals, newest, last), codes


def in_order(added: Sums, codes: Int64s) -> tuple[Sums, Int64s]:
    """Order rows by time, so that what expires in the store does not depend on keys, then by key.

    RocksDB reads and writes ordered keys in half the time.
    """
    order = pc.sort_indices(added.row_keys).to_numpy()
    if added.starts.any():
        order = order[np.argsort(added.starts[order], kind="stable")]
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    columns = (column[order] for column in (added.starts, added.totals, added.newest, added.last))
    return Sums(added.row_keys.take(pa.array(order)), *columns), rank[codes]


def amounts(aggregate: Aggregate, values: Any) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """The number that each record adds, and the records that must be checked one by one."""
    if aggregate.value is INT64 and aggregate.amount is the_value:
        return _of_bytes(values)
    assert aggregate.value is not None
    assert aggregate.amount is not None
    read, amount = aggregate.value.deserialize, aggregate.amount
    found = np.zeros(len(values), np.int64)
    unknown = np.zeros(len(values), np.bool_)
    for index, value in enumerate(values.to_pylist()):
        try:
            found[index] = whole_number(amount(read(value)))
        except Exception:  # the user's code may raise anything; it is called again where that is dealt with
            unknown[index] = True
    return found, unknown


def _of_bytes(values: Any) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    unknown = np.diff(offsets) != 8
    if unknown.any():
        known = pa.array(
            [b"\0" * 8 if bad else value for bad, value in zip(unknown, values.to_pylist(), strict=True)], pa.binary()
        )
        return _of_bytes(known)[0], unknown
    data = values.buffers()[2]
    if data is None or not len(values):
        return np.zeros(0, np.int64), unknown
    raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return raw.view(">i8").astype(np.int64), unknown
