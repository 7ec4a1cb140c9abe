"""Changes of rows as they are stored and logged, whatever their types: many at once, and the undoing of one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add
from typing import Any, Generic, TypeVar

import numpy as np

from statestore.formats.value_format import AnyFormat, Logged, value_format
from statestore.stores.api import BytesStore, StateStore
from statestore.stores.watched import Watched

T = TypeVar("T")
Inner = TypeVar("Inner", bound=BytesStore)

#: Called for each change with store key, plain value (None deletes) and the value's timestamp (ms; None: the record's);
#: where headers are kept, with those of a value, too.
ChangeLog = Callable[..., None]
#: Called for many changes at once: store keys, plain values (None deletes) and timestamps (ms), of equal length.
ChangeLogMany = Callable[[Sequence[bytes], Sequence[bytes | None], Sequence[int]], None]
#: Called with a change before it is written, as `ChangeLog` is after it; raises if the change cannot be logged.
CheckChange = Callable[..., None]


@dataclass
class _Undo:
    """Rows and counters that one record's writes replaced."""

    rows: list[tuple[bytes, bytes | None]]
    expired_records: int
    stream_time: int


class RowChanges(Watched, StateStore, Generic[Inner]):
    """A store whose changes are logged.

    Attributes
    ----------
    inner
        The store of bytes.
    expired_records
        Changes dropped because their window or session had expired.
    being_undone
        What the record being processed has replaced, with row keys and stored values; None: it will not be undone.
    """

    def __init__(self, inner: Inner, store_format: AnyFormat) -> None:
        self.inner: Inner = inner
        self.layout = value_format(store_format)
        self.format = self.layout.name
        self.expired_records = 0
        self._log: ChangeLog | None = None
        self._log_many: ChangeLogMany | None = None
        self._check: CheckChange | None = None
        self._undo: _Undo | None = None
        self.being_undone: list[tuple[bytes, bytes | None]] | None = None

    def log_changes_to(
        self, log: ChangeLog, log_many: ChangeLogMany | None = None, check: CheckChange | None = None
    ) -> None:
        """Report every later change.

        Parameters
        ----------
        log_many
            Called for the changes of `put_rows`, all at once.
        check
            Called before a change is written. If it raises, nothing is written.
        """
        self._log = log
        self._log_many = log_many
        self._check = check

    def check(self, row_key: bytes, plain: bytes | None, timestamp: int | None) -> None:
        """Raise if a change cannot be logged."""
        if self._check is not None:
            self._check(row_key, plain, timestamp)

    def _checked_change(self, row_key: bytes, stored: bytes | None) -> Logged:
        """Return what the log is told of a change. Raise if it cannot be logged."""
        change = self.layout.logged(stored)
        if self._check is not None:
            self._check(row_key, *change)
        return change

    def _logged(self, row_key: bytes, *change: Any) -> None:
        if self._log is not None:
            self._log(row_key, *change)

    # -- many rows at once ----------------------------------------------------------------------------------------

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read rows by their keys in the changelog, in their order; values are in the store's layout."""
        return self.inner.get_rows(row_keys)

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]) -> None:
        """Write many rows and log them at once; a row that has expired is dropped, counted and not logged.

        Rows of a windowed store are given by ascending time: what expires by them then depends on nothing else.

        Parameters
        ----------
        row_keys
            Keys as in the changelog, each once.
        values
            Plain values, serialized; None deletes. They have no headers, as what Kafka Streams aggregates.
        timestamps
            Those of the values in a timestamped store, and of the changelog records in any (ms).
        """
        if self._undo is not None:
            for row_key in row_keys:
                self._remember(row_key)
        stored: Sequence[bytes | None] = values
        if self.layout.timestamp_in_front:
            stored = _with_timestamps(values, timestamps)
        elif self.layout.keeps_headers:
            lay_out = self.layout.stored
            stored = [
                None if value is None else lay_out(value, timestamp)
                for value, timestamp in zip(values, timestamps, strict=True)
            ]
        expired = self.inner.put_rows(row_keys, stored)
        if expired:
            self.expired_records += len(expired)
            row_keys, values = _without(expired, row_keys), _without(expired, values)
            timestamps = _without(expired, timestamps)
        if self._log_many is not None:
            self._log_many(row_keys, values, timestamps)
        elif self._log is not None:
            for change in zip(row_keys, values, timestamps, strict=True):
                self._log(*change)

    # -- undoing one record ---------------------------------------------------------------------------------------

    def begin_record(self) -> None:
        """Remember from now on what every write replaces, until `undo_record` or `end_record`."""
        self.being_undone = []
        self._undo = _Undo(self.being_undone, self.expired_records, self.inner.stream_time)

    def undo_record(self) -> None:
        """Put back everything that was written since `begin_record`; nothing of it is logged."""
        undo, self._undo, self.being_undone = self._undo, None, None
        if undo is None:
            return
        for row_key, value in reversed(undo.rows):
            self.inner.set_back_stream_time(undo.stream_time)  # else what the record made expire would not be put back
            self.inner.put_back(row_key, value)
        self.inner.set_back_stream_time(undo.stream_time)
        self.expired_records = undo.expired_records

    def end_record(self) -> None:
        """Keep what was written since `begin_record`."""
        self._undo = self.being_undone = None

    def _remember(self, row_key: bytes) -> None:
        assert self._undo is not None
        self._undo.rows.append((row_key, self.inner.stored_row(row_key)))


def _with_timestamps(values: Sequence[bytes | None], timestamps: Sequence[int]) -> list[bytes | None]:
    in_front = np.array(timestamps, ">i8").view("V8").tolist()
    if None not in values:
        return list(map(add, in_front, values))
    return [None if value is None else timestamp + value for timestamp, value in zip(in_front, values, strict=True)]


def _without(indexes: Sequence[int], column: Sequence[T]) -> list[T]:
    left_out = set(indexes)
    return [entry for index, entry in enumerate(column) if index not in left_out]
