"""Compares a store's rows with those of its log, both in key order, batch by batch.

Two rows with one key are the same if their values are, and in the timestamped format their timestamps, unless the
store's is unknown (-1). Where windows keep duplicates, what counts is which values each window has (duplicates.py).
What the log can no longer tell is counted and not judged (exclusions.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.digest import Digest
from statestore.compiled.batches import Bytes, Int32s, UInt64s
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, UNKNOWN_TIMESTAMP
from statestore.formats.value_format import AnyFormat, value_format
from statestore.formats.window_key import SEQUENCE_BYTES
from statestore.kafka.record_columns import SCHEMA
from statestore.reports import Contents, DifferingKey
from statestore.stores.scan import STORED_SCHEMA
from statestore.verification.duplicates import OneSided, Window, Windows
from statestore.verification.exclusions import FOREVER
from statestore.verification.kernels import (
    NO_TIMES,
    ONLY_IN_LOG,
    ONLY_IN_STORE,
    OTHER_VALUE,
    column,
    hashes_of,
    merge_rows,
    numbers,
    numbers_in,
    stored_times,
    times_of,
)

Flags = npt.NDArray[np.bool_]
_NAMES: dict[int, Literal["only in store", "only in log", "other value"]] = {
    OTHER_VALUE: "other value",
    ONLY_IN_STORE: "only in store",
    ONLY_IN_LOG: "only in log",
}


@dataclass(frozen=True)
class Allowances:
    """Allowed differences.

    Attributes
    ----------
    changed_since
        Sorted hashes of the keys that the log has changed behind the store's committed offset: compaction may have
        removed the record that the store has. Where windows keep duplicates these are keys without their numbers.
    gone_before_ms
        See `exclusions.gone_before_ms`.
    deleted
        Sorted hashes of the keys that what is left of the log deletes: the store must not have them.
    time_back
        Where a row key has the earliest time (ms) that its record can have: bytes from its end; 0: nowhere.
    deletes_are_gone
        See `exclusions.deletes_may_be_gone`.
    """

    changed_since: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64))
    gone_before_ms: int = 0
    deleted: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64))
    time_back: int = 0
    deletes_are_gone: bool = False

    def excused(self, kinds: Bytes, keys: pa.Array, stored: pa.Array, *, times: int) -> Flags:
        """Say for each row that differs whether it may; `stored` is null where the store has no such row."""
        excused = self.changed(keys)
        excused |= (kinds == ONLY_IN_STORE) & self.may_be_gone(keys, stored, times=times)
        if self.deletes_are_gone:
            excused |= kinds == ONLY_IN_LOG
        return excused

    def changed(self, keys: pa.Array, *, cut: int = 0) -> Flags:
        """Say for each row key, without so many bytes of its end, whether the log has changed it since."""
        if not len(self.changed_since):
            return np.zeros(len(keys), np.bool_)
        return np.isin(hashes_of(keys, cut=cut), self.changed_since)

    def may_be_gone(self, keys: pa.Array, stored: pa.Array, *, times: int) -> Flags:
        """Say for each row of the store whether its record may be gone from the log."""
        gone = self._may_be_gone(keys, stored, times=times)
        return gone & ~np.isin(hashes_of(keys), self.deleted) if len(self.deleted) else gone

    def _may_be_gone(self, keys: pa.Array, stored: pa.Array, *, times: int) -> Flags:
        if not self.gone_before_ms or self.gone_before_ms == FOREVER:
            return np.full(len(keys), self.gone_before_ms == FOREVER)
        if not self.time_back:
            return np.ones(len(keys), np.bool_)
        earliest = numbers_in(keys, back=self.time_back)
        if times != NO_TIMES:  # a record may be older than its window
            logged = stored_times(stored, times)
            earliest = np.minimum(earliest, np.where(logged == UNKNOWN_TIMESTAMP, FOREVER, logged))
        return earliest < self.gone_before_ms


class RowComparison:
    """Compares one store partition's rows with its log's.

    Parameters
    ----------
    first
        How many of the keys that differ are told.
    name_keys
        Whether these keys are told as they are, besides their digests.
    numbered
        Whether row keys end in the numbers of duplicates in a window. Only the values of each window are compared then.
    """

    def __init__(
        self, store_format: AnyFormat, allowances: Allowances, *, first: int, name_keys: bool, numbered: bool = False
    ) -> None:
        self._layout = layout = value_format(store_format)
        self._times = times_of(layout)
        self._allowances = allowances
        self._first = first
        self._name_keys = name_keys
        self._counts = dict.fromkeys(_NAMES, 0)
        self._same = self._excused = 0
        self._told: list[DifferingKey] = []
        self._windows = Windows() if numbered else None
        self._digests = Digest(layout), Digest(layout)

    def compare(self, stored: Iterable[pa.RecordBatch], logged: Iterable[pa.RecordBatch]) -> None:
        """Compare the rows of one database, each side in key order.

        Parameters
        ----------
        stored
            Batches of `scan.STORED_SCHEMA`.
        logged
            Batches of `changelog.reader.SCHEMA`, as `bulk.runs.merged` gives them.
        """
        store, log = Side(stored, STORED_SCHEMA), Side(logged, SCHEMA)
        for found in merged_sides(store, log, self._times):
            self._same += found.same
            if len(found.kinds):
                self._note(found)
            if (done := store.done()) is not None:
                self._digests[0].add_stored(done.column(0), done.column(1))
            if (done := log.done()) is not None:
                self._digests[1].add(done)
        if self._windows is not None:
            self._judge(self._windows.end())

    def _note(self, found: Merged) -> None:
        """Count rows that differ, and tell the first of them."""
        kinds, (rows_at, batch_at) = found.kinds, (pa.array(at, mask=at < 0) for at in found.at)
        stored_keys, stored = (found.rows[0].column(at).take(rows_at) for at in range(2))
        logged_keys, logged, times = (found.rows[1].column(at).take(batch_at) for at in range(3))
        keys = pc.coalesce(stored_keys, logged_keys)
        if self._windows is not None:
            self._note_duplicates(self._windows, keys, stored, logged, times)
            return
        excused = self._allowances.excused(kinds, keys, stored, times=self._times)
        self._excused += int(excused.sum())
        for kind in _NAMES:
            self._counts[kind] += int((~excused & (kinds == kind)).sum())
        for at in np.flatnonzero(~excused)[: self._first - len(self._told)].tolist():
            value, row = logged[at].as_py(), stored[at].as_py()
            self._tell(
                int(kinds[at]),
                keys[at].as_py(),
                None if row is None else sha256(row).hexdigest(),
                None if value is None else self._logged_digest(value, times[at].as_py()),
            )

    def _note_duplicates(
        self, windows: Windows, keys: pa.Array, stored: pa.Array, logged: pa.Array, times: pa.Array
    ) -> None:
        """Add rows that differ to their windows, and judge the windows that are over."""
        changed = self._allowances.changed(keys, cut=SEQUENCE_BYTES).tolist()
        gone = self._allowances.may_be_gone(keys, stored, times=self._times).tolist()
        rows = (found.to_pylist() for found in (keys, stored, logged, times))
        for key, mine, its, time, has_changed, may_be_gone in zip(*rows, changed, gone, strict=True):
            self._judge(windows.over(key))
            window = windows.of(key)
            window.changed |= has_changed
            window.may_be_gone |= may_be_gone
            if mine is not None:
                window.add_stored(OneSided(key, self._value_digest(mine), sha256(mine).hexdigest()))
            if its is not None:
                digest = self._value_digest(self._layout.stored_as_read(its, time))
                window.add_logged(OneSided(key, digest, self._logged_digest(its, time)))

    def _judge(self, windows: Iterable[Window]) -> None:
        """Count what differs in windows that are over, and tell the first of it."""
        for window in windows:
            self._same += window.pairs
            for kind, rows, excused in (
                (ONLY_IN_STORE, window.only_stored, window.may_be_gone),
                (ONLY_IN_LOG, window.only_logged, self._allowances.deletes_are_gone),
            ):
                if excused or window.changed:
                    self._excused += len(rows)
                    continue
                self._counts[kind] += len(rows)
                for row in rows[: self._first - len(self._told)]:
                    in_store = kind == ONLY_IN_STORE
                    self._tell(kind, row.key, row.told if in_store else None, None if in_store else row.told)

    def _logged_digest(self, value: bytes, timestamp: int) -> str:
        return sha256(self._layout.stored_as_read(value, timestamp)).hexdigest()

    def _value_digest(self, stored: bytes) -> bytes:
        """Digest of what counts of a duplicate: all but its timestamp."""
        if not self._layout.timestamped:
            return sha256(stored).digest()
        at = self._layout.timestamp_at(stored)
        return sha256(stored[:at] + stored[at + TIMESTAMP_BYTES :]).digest()

    def _tell(self, kind: int, key: bytes, store_sha256: str | None, log_sha256: str | None) -> None:
        told = DifferingKey(
            found=_NAMES[kind],
            key=key.hex() if self._name_keys else None,
            key_sha256=sha256(key).hexdigest(),
            store_sha256=store_sha256,
            log_sha256=log_sha256,
        )
        self._told.append(told)

    def contents(self, sample: float | None) -> Contents:
        """Result of the comparison."""
        store, log = self._digests
        return Contents(
            store_rows=store.rows,
            log_rows=log.rows,
            equal=self._same,
            other_value=self._counts[OTHER_VALUE],
            only_in_store=self._counts[ONLY_IN_STORE],
            only_in_log=self._counts[ONLY_IN_LOG],
            not_judged=self._excused,
            store_digest=store.hexdigest(),
            log_digest=log.hexdigest(),
            sample=sample,
            first=tuple(self._told),
        )


class Side:
    """One side of a comparison: the batch that is at hand, and how far it is compared."""

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = iter(batches)
        self._none = pa.RecordBatch.from_pylist([], schema=schema)
        self._batch = self._none
        self.at = 0
        self.ended = False

    def current(self) -> pa.RecordBatch:
        """Return the batch with the next row; one without rows where there are no more."""
        while not self.ended and self.at >= self._batch.num_rows:
            found = next(self._batches, None)
            self._batch, self.at, self.ended = (self._none if found is None else found), 0, found is None
        return self._batch

    def done(self) -> pa.RecordBatch | None:
        """Return the batch if all of its rows were compared."""
        return self._batch if not self.ended and self.at >= self._batch.num_rows else None


class Merged(NamedTuple):
    """Rows of two batches, one of each side, that were compared.

    Attributes
    ----------
    same
        How many rows both sides have.
    kinds, at
        How each differing row differs, and its place on each side; -1 if a side lacks it.
    """

    rows: tuple[pa.RecordBatch, pa.RecordBatch]
    same: int
    kinds: Bytes
    at: tuple[Int32s, Int32s]


def merged_sides(one: Side, other: Side, times: int) -> Iterator[Merged]:
    """Yield the rows of two sides, batch by batch; `times` says where the values of the first have their timestamps."""
    while True:
        mine, its = one.current(), other.current()
        if not mine.num_rows and not its.num_rows:
            return
        size = mine.num_rows + its.num_rows
        kinds = np.empty(size, np.uint8)
        at = np.empty(size, np.int32), np.empty(size, np.int32)
        logged_times = numbers(its.column(2)) if its.num_columns > 2 else 0
        one.at, other.at, same, differing = merge_rows(
            column(mine.column(0)), column(mine.column(1)), one.at, mine.num_rows,
            column(its.column(0)), column(its.column(1)), logged_times, other.at, its.num_rows,
            one.ended, other.ended, times, kinds, *at,
        )  # fmt: skip
        yield Merged((mine, its), same, kinds[:differing], (at[0][:differing], at[1][:differing]))
