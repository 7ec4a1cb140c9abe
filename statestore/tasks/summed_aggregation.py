"""Counts and sums by key, or by key and window: added up in columns, without Python for each record.

A key whose sum may leave 64 bits, or that has a record which cannot be added, is folded record by record instead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from statestore.definitions.aggregation import TimeWindows
from statestore.errors import DefinitionError
from statestore.formats import window_key
from statestore.formats.headers_value import headers_end
from statestore.stores.int64_columns import stored_int64s, to_bytes
from statestore.stores.sorted_rows import ROW_OVERHEAD_BYTES
from statestore.tasks import grouping, sums
from statestore.tasks.aggregates import Aggregate
from statestore.tasks.folding import Poison, Result
from statestore.tasks.grouping import Int64s, Records
from statestore.tasks.keyed_aggregation import RowAggregation, with_keys
from statestore.tasks.results import Results
from statestore.tasks.sums import Sums

#: Where so many rows wait, those of one key are added up.
_COMPACT_ROWS = 1 << 17


class _Columns(RowAggregation):
    """Adding sums to those of the store."""

    def _stored(self, row_keys: list[bytes]) -> tuple[Int64s, Int64s]:
        try:
            stored = self._results.store.get_rows(row_keys)
            if self._results.layout.keeps_headers:
                stored = [None if value is None else value[headers_end(value) :] for value in stored]
            return stored_int64s(stored, self._results.timestamped)
        except ValueError as error:
            raise DefinitionError(
                f"store {self._results.store.name} holds values other than sums ({error}): another aggregate wrote "
                "it; restore the definition that it was written with, or reset the application"
            ) from error

    def _write_sums(self, row_keys: list[bytes], added: Sums, before: tuple[Int64s, Int64s]) -> None:
        """Write the rows, each with what is stored already."""
        totals, newest = added.totals + before[0], np.maximum(added.newest, before[1])
        self._results.write(row_keys, to_bytes(totals), newest.tolist(), added.last.tolist())


class CountedRows(_Columns):
    """Counts: what waits is one number for each row, so it stays small however many records there are."""

    def __init__(self, windows: TimeWindows | None, aggregate: Aggregate, results: Results, poison: Poison) -> None:
        super().__init__(windows, aggregate, results, poison)
        #: The first may be added up already; the others are as they came.
        self._parts: list[Sums] = []
        #: How many of them are rows of their own, as far as the last adding up has shown.
        self._share_new = 1.0

    @property
    def pending_bytes(self) -> int:
        """Memory that the next flush takes, about."""
        if not self._parts:
            return 0
        rows = len(self._parts[0]) + self._share_new * sum(map(len, self._parts[1:]))
        return sum(part.nbytes for part in self._parts) + int(ROW_OVERHEAD_BYTES * rows)

    def discard(self) -> None:
        """Forget what was taken in since the last flush."""
        super().discard()
        self._parts = []

    def _take(self, records: Records) -> None:
        self._parts.append(sums.rows_of(records, self._windows, np.ones(len(records), np.int64))[0])
        first, others = len(self._parts[0]), sum(map(len, self._parts[1:]))
        if others > max(_COMPACT_ROWS, first):
            self._parts = [sums.by_row(sums.joined(self._parts))[0]]
            self._share_new = max(len(self._parts[0]) - first, 0) / others

    def _fold(self) -> None:
        if self._parts:
            added, _ = sums.in_order(*sums.by_row(sums.joined(self._parts)))
            row_keys = added.row_keys.to_pylist()
            self._write_sums(row_keys, added, self._stored(row_keys))


class SummedRows(_Columns):
    """Sums of numbers in the records' values."""

    def _fold(self) -> None:
        if not self._pending:
            return
        records = grouping.joined(self._pending)
        amounts, unknown = sums.amounts(self._aggregate, records.values)
        rows, index = sums.rows_of(records, self._windows, amounts)
        added, codes = sums.in_order(*sums.by_row(rows))
        row_keys = added.row_keys.to_pylist()
        before = self._stored(row_keys)
        reach = np.bincount(codes, np.abs(rows.totals.astype(float))) + np.abs(before[0].astype(float))
        doubtful = reach > sums.SAFE
        doubtful[codes[unknown if index is None else unknown[index]]] = True
        if doubtful.any():
            self._write_in_doubt(records, row_keys, added, before, doubtful)
        else:
            self._write_sums(row_keys, added, before)

    def _write_in_doubt(
        self,
        records: Records,
        row_keys: list[bytes],
        added: Sums,
        before: tuple[Int64s, Int64s],
        doubtful: npt.NDArray[np.bool_],
    ) -> None:
        """Write all rows; those of keys that have a doubtful one are folded record by record."""
        keys = [row_key if self._windows is None else row_key[: -window_key.SUFFIX_BYTES] for row_key in row_keys]
        in_doubt = {keys[row] for row in np.flatnonzero(doubtful).tolist()}
        changes = self._fold_keys(with_keys(records, list(in_doubt)), self._folder.fold_one_by_one)
        values = to_bytes(added.totals + before[0])
        newest = np.maximum(added.newest, before[1])
        columns = (added.starts.tolist(), row_keys, keys, values, newest.tolist(), added.last.tolist())
        changes += [
            (start, row_key, Result(value, *timestamps))
            for start, row_key, key, value, *timestamps in zip(*columns, strict=True)
            if key not in in_doubt
        ]
        self._write(changes)
