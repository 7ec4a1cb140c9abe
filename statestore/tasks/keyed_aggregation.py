"""Aggregations with one result a key, or a key and window, folded key by key with the user's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, repeat
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.definitions.aggregation import TimeWindows
from statestore.formats import window_key
from statestore.stores.sorted_rows import ROW_OVERHEAD_BYTES
from statestore.tasks.aggregates import Aggregate
from statestore.tasks.folding import Folder, Poison, Result, stored_result
from statestore.tasks.grouping import Records, groups, joined, place, usable
from statestore.tasks.results import Results

#: Start of a window (0 without windows), row key and result.
Change = tuple[int, bytes, Result]
_ONE_ROW = (0,)


class RowAggregation:
    """The common part of aggregations by key and by window: their input."""

    def __init__(self, windows: TimeWindows | None, aggregate: Aggregate, results: Results, poison: Poison) -> None:
        self.late_records = 0
        self.dropped_records = 0
        self._late = self._dropped = 0
        self._windows = windows
        self._aggregate = aggregate
        self._results = results
        self._poison = poison
        self._folder = Folder(aggregate, results.store.name)
        self._pending: list[Records] = []

    @property
    def pending_bytes(self) -> int:
        """Memory that the next flush takes, about."""
        return sum(part.nbytes + ROW_OVERHEAD_BYTES * int(part.windows.sum()) for part in self._pending)

    def add(self, batch: pa.RecordBatch, stream_time: int) -> None:
        """Take records in."""
        if not batch.num_rows:
            return
        found, dropped = usable(batch, stream_time)
        records = found if self._windows is None else place(found, self._windows)
        self._dropped += dropped
        self._late += len(found) - len(records)
        if len(records):
            self._take(records)

    def flush(self) -> None:
        """Fold what was taken in into the store."""
        self._fold()
        self.late_records += self._late
        self.dropped_records += self._dropped
        self.discard()

    def discard(self) -> None:
        """Forget what was taken in since the last flush."""
        self._pending = []
        self._late = self._dropped = 0

    def _take(self, records: Records) -> None:
        self._pending.append(records)

    def _fold(self) -> None:
        raise NotImplementedError

    def _fold_keys(self, records: Records, fold: Callable[..., dict[int, Result]]) -> list[Change]:
        """Fold key by key; tell poison in the order of offsets."""
        keys, members, borders = groups(records.keys)
        rows = self._rows_of(records)
        spans = list(pairwise(borders))
        rows_of_keys: Iterable[Iterable[int]] = repeat(_ONE_ROW)
        if self._windows is not None:
            rows_of_keys = [dict.fromkeys(row for at in members[slice(*span)] for row in rows[at]) for span in spans]
        pairs = [(key, row) for key, found in zip(keys, rows_of_keys, strict=False) for row in found]
        stored = iter(self._results.store.get_rows([self._row_key(*pair) for pair in pairs]))
        offsets, timestamps, values = records.offsets.tolist(), records.timestamps.tolist(), records.values.to_pylist()
        poison: list[tuple[int, Exception]] = []
        changes: list[Change] = []
        for key, (first, after), found in zip(keys, spans, rows_of_keys, strict=False):
            before = {row: stored_result(next(stored), self._results.layout) for row in found}
            inputs = [(offsets[at], timestamps[at], values[at], rows[at]) for at in members[first:after]]
            folded = fold(key, inputs, before, lambda *what: poison.append(what))
            changes += [(row, self._row_key(key, row), result) for row, result in folded.items()]
        for offset, error in sorted(poison, key=itemgetter(0)):
            self._poison(offset, error)
        return changes

    def _rows_of(self, records: Records) -> Sequence[Iterable[int]]:
        if self._windows is None:
            return [_ONE_ROW] * len(records)
        step = self._windows.step_ms
        columns = records.starts.tolist(), records.windows.tolist()
        return [range(start, start + step * count, step) for start, count in zip(*columns, strict=True)]

    def _row_key(self, key: bytes, row: int) -> bytes:
        return key if self._windows is None else window_key.encode(key, row)

    def _write(self, changes: list[Change]) -> None:
        if self._windows is not None:  # what expires in the store must not depend on the order of keys
            changes.sort(key=itemgetter(0))
        results = [result for _, _, result in changes]
        self._results.write(
            [row_key for _, row_key, _ in changes],
            [result.value for result in results],
            [result.timestamp for result in results],
            [result.last for result in results],
        )


class FoldedRows(RowAggregation):
    """Folds with any functions: `reduce_by` and `aggregate`."""

    def _fold(self) -> None:
        if self._pending:
            self._write(self._fold_keys(joined(self._pending), self._folder.fold))


def with_keys(records: Records, keys: list[bytes]) -> Records:
    """Return the records that have one of these keys."""
    return records.filter(np.asarray(pc.is_in(records.keys, value_set=pa.array(keys, pa.binary()))))
