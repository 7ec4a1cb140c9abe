"""A store's rows beside those that its log gives, both in key order, batch by batch: what differs, and what may.

Two rows with one key are the same if their values are, and in the timestamped format their timestamps, unless the
store's is unknown (-1). What the log can no longer tell is counted and not judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.digest import Digest
from statestore.changelog.reader import SCHEMA
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, UNKNOWN_TIMESTAMP
from statestore.formats.window_key import SEQUENCE_BYTES
from statestore.model import StoreFormat
from statestore.reports import Contents, DifferingKey
from statestore.stores.codec import stored_value
from statestore.stores.scan import STORED_SCHEMA
from statestore.verification.kernels import (
    ONLY_IN_LOG,
    ONLY_IN_STORE,
    OTHER_VALUE,
    Bytes,
    Int32s,
    UInt64s,
    column,
    hashes_of,
    merge_rows,
    numbers,
    numbers_in,
)

Flags = npt.NDArray[np.bool_]
_NAMES: dict[int, Literal["only in store", "only in log", "other value"]] = {
    OTHER_VALUE: "other value",
    ONLY_IN_STORE: "only in store",
    ONLY_IN_LOG: "only in log",
}
_FOREVER = np.iinfo(np.int64).max
_WEIGHTS = 1 << 256


@dataclass(frozen=True)
class Allowances:
    """What may differ without a fault.

    Attributes
    ----------
    changed_since
        Sorted hashes of the keys that the log has changed behind the store's committed offset: compaction may have
        removed the record that the store has.
    gone_before_ms
        Rows older than this may be gone from the log; 0: nothing is gone.
    time_back
        Where a row key has the earliest time (ms) that its record can have: bytes from its end; 0: nowhere.
    deletes_are_gone
        Deletes may have been removed from the log while it was read, so a row that only the log has says nothing.
    """

    changed_since: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64))
    gone_before_ms: int = 0
    time_back: int = 0
    deletes_are_gone: bool = False

    def excused(self, kinds: Bytes, keys: pa.Array, stored: pa.Array, *, timestamped: bool) -> Flags:
        """Say for each row that differs whether it may; `stored` is null where the store has no such row."""
        excused = np.zeros(len(keys), np.bool_)
        if len(self.changed_since):
            excused = np.isin(hashes_of(keys), self.changed_since)
        if self.deletes_are_gone:
            excused |= kinds == ONLY_IN_LOG
        if self.gone_before_ms:
            excused |= (kinds == ONLY_IN_STORE) & self._may_be_gone(keys, stored, timestamped=timestamped)
        return excused

    def _may_be_gone(self, keys: pa.Array, stored: pa.Array, *, timestamped: bool) -> Flags:
        if not self.time_back:
            return np.ones(len(keys), np.bool_)
        earliest = numbers_in(keys, back=self.time_back)
        if timestamped:  # a record may be older than its window
            times = numbers_in(stored)
            earliest = np.minimum(earliest, np.where(times == UNKNOWN_TIMESTAMP, _FOREVER, times))
        return earliest < self.gone_before_ms


class Comparison:
    """Compares one store partition's rows with its log's.

    Parameters
    ----------
    first
        How many of the keys that differ are told.
    name_keys
        Whether these keys are told as they are, besides their digests.
    numbered
        Whether row keys end in numbers that store and log count each by itself: those of duplicates in a window.
        Kafka Streams' stores do not count nulls, their logs do. Only the values of each window are compared then.
    """

    def __init__(
        self, store_format: StoreFormat, allowances: Allowances, *, first: int, name_keys: bool, numbered: bool = False
    ) -> None:
        self._format = store_format
        self._timestamped = store_format is StoreFormat.TIMESTAMPED
        self._allowances = allowances
        self._first = first
        self._name_keys = name_keys
        self._counts = dict.fromkeys(_NAMES, 0)
        self._same = self._excused = 0
        self._told: list[DifferingKey] = []
        self._numbered = numbered
        self._balance = 0
        self._digests = Digest(store_format), Digest(store_format)

    def compare(self, stored: Iterable[pa.RecordBatch], logged: Iterable[pa.RecordBatch]) -> None:
        """Compare the rows of one database, each side in key order.

        Parameters
        ----------
        stored
            Batches of `scan.STORED_SCHEMA`.
        logged
            Batches of `changelog.reader.SCHEMA`, as `bulk.runs.merged` gives them.
        """
        store, log = _Side(stored, STORED_SCHEMA), _Side(logged, SCHEMA)
        while True:
            rows, batch = store.current(), log.current()
            if not rows.num_rows and not batch.num_rows:
                return
            size = rows.num_rows + batch.num_rows
            kinds = np.empty(size, np.uint8)
            at = np.empty(size, np.int32), np.empty(size, np.int32)
            store.at, log.at, same, differing = merge_rows(
                column(rows.column(0)), column(rows.column(1)), store.at, rows.num_rows,
                column(batch.column(0)), column(batch.column(1)), numbers(batch.column(2)), log.at, batch.num_rows,
                store.ended, log.ended, self._timestamped, kinds, *at,
            )  # fmt: skip
            self._same += same
            if differing:
                self._note(kinds[:differing], rows, at[0][:differing], batch, at[1][:differing])
            if (done := store.done()) is not None:
                self._digests[0].add_stored(done.column(0), done.column(1))
            if (done := log.done()) is not None:
                self._digests[1].add(done)

    def _note(
        self, kinds: Bytes, rows: pa.RecordBatch, rows_at: Int32s, batch: pa.RecordBatch, batch_at: Int32s
    ) -> None:
        """Count rows that differ, and tell the first of them. An index of -1 is nowhere."""
        rows_at, batch_at = (pa.array(at, mask=at < 0) for at in (rows_at, batch_at))
        stored_keys, stored = (rows.column(at).take(rows_at) for at in range(2))
        logged_keys, logged, times = (batch.column(at).take(batch_at) for at in range(3))
        keys = pc.coalesce(stored_keys, logged_keys)
        excused = self._allowances.excused(kinds, keys, stored, timestamped=self._timestamped)
        self._excused += int(excused.sum())
        for kind in _NAMES:
            self._counts[kind] += int((~excused & (kinds == kind)).sum())
        if self._numbered:
            self._weigh(
                keys.filter(pa.array(~excused)), *(found.filter(pa.array(~excused)) for found in (stored, logged))
            )
        for at in np.flatnonzero(~excused)[: self._first - len(self._told)].tolist():
            value = logged[at].as_py()
            if value is not None:
                value = stored_value(self._format, value, times[at].as_py())
            self._told.append(self._told_key(int(kinds[at]), keys[at].as_py(), stored[at].as_py(), value))

    def _weigh(self, keys: pa.Array, stored: pa.Array, logged: pa.Array) -> None:
        """Add what the store has, and take off what the log has: nothing is left where both have the same values."""
        skipped = TIMESTAMP_BYTES if self._timestamped else 0
        for key, mine, its in zip(*(found.to_pylist() for found in (keys, stored, logged)), strict=True):
            window = key[:-SEQUENCE_BYTES]
            self._balance += 0 if mine is None else _weight(window, mine[skipped:])
            self._balance -= 0 if its is None else _weight(window, its)

    def _told_key(self, kind: int, key: bytes, stored: bytes | None, logged: bytes | None) -> DifferingKey:
        return DifferingKey(
            found=_NAMES[kind],
            key=key.hex() if self._name_keys else None,
            key_sha256=sha256(key).hexdigest(),
            store_sha256=None if stored is None else sha256(stored).hexdigest(),
            log_sha256=None if logged is None else sha256(logged).hexdigest(),
        )

    def contents(self, sample: float | None) -> Contents:
        """What was found."""
        store, log = self._digests
        if self._numbered and self._balance % _WEIGHTS == 0:
            self._same += self._counts[OTHER_VALUE] + self._counts[ONLY_IN_STORE]
            self._counts = dict.fromkeys(_NAMES, 0)
            self._told.clear()
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


def _weight(window: bytes, value: bytes) -> int:
    """A number for a value in a window; the sum of many stands for all of them, in any order."""
    return int.from_bytes(sha256(b"%d:%b%b" % (len(window), window, value)).digest(), "big")


class _Side:
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
