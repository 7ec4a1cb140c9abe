"""Facts about each key, from the rows of a store and the records of its log, in about 85 bytes for each key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.bulk.routing import Routing
from statestore.compiled.batches import Address, Bytes, Int64s, address_of, int64_column
from statestore.errors import StoreCorruptedError, TopicMismatchError
from statestore.formats.value_format import AnyFormat, value_format
from statestore.kafka.record_columns import SCHEMA
from statestore.verification.kernels import times_of
from statestore.verification.proof import kernels
from statestore.verification.proof.kernels import Facts, Intervals, Layout
from statestore.verification.proof.prefix import KeyFacts

_SMALLEST = 1024


class TooManyKeysError(Exception):
    """The store and its log have more keys than the memory allows; take fewer of them in a pass."""


class KeyTable:
    """Takes all rows of a store, then the records of its log in their order.

    Parameters
    ----------
    routing
        Which segment a row belongs to.
    store_format
        Layout of the rows.
    part, parts
        Which of so many parts of the keys it takes.
    rows
        Number of rows to come, so that the tables need not grow.
    most_keys
        Number of keys that the memory allows; None: any number.

    Attributes
    ----------
    facts, intervals
        Tables (`kernels.py`); `found` returns their filled rows.
    """

    def __init__(
        self,
        routing: Routing,
        store_format: AnyFormat,
        *,
        part: int = 0,
        parts: int = 1,
        rows: int = 0,
        most_keys: int | None = None,
    ) -> None:
        self._most_keys = most_keys
        layout = value_format(store_format)
        self._layout = Layout(
            times_of(layout), routing.suffix_bytes, routing.interval_ms or 0, routing.ignores_deletes, part, parts
        )
        self._state = np.zeros(kernels.STATES, np.int64)
        self._state[kernels.STREAM_TIME] = -1
        self._hashes = np.zeros(kernels.AHEAD, np.uint64)
        keys = max(_SMALLEST, rows // parts + rows // 16)
        self._table = np.zeros(1 << (2 * keys).bit_length(), np.uint64)
        self.facts: Facts = _empty_facts(keys)
        self.intervals = Intervals(*(np.empty(_SMALLEST, np.int64) for _ in Intervals._fields))

    @property
    def found(self) -> KeyFacts:
        """Facts about the keys so far."""
        intervals = (column[: int(self._state[kernels.INTERVALS])] for column in self.intervals)
        return KeyFacts(self.facts[: self.key_count], Intervals(*intervals))

    @property
    def key_count(self) -> int:
        """Keys of the store and of the log."""
        return int(self._state[kernels.KEYS])

    @property
    def misplaced(self) -> int:
        """Rows of the store that come twice, or lie in the segment of another time."""
        return int(self._state[kernels.MISPLACED])

    @property
    def stream_time(self) -> int:
        """Largest time (ms) in the row keys of the log; -1 before the first, or if keys have no times."""
        return int(self._state[kernels.STREAM_TIME])

    def add_rows(self, segment: int, rows: pa.RecordBatch) -> None:
        """Add rows of the store: a batch with `scan.STORED_SCHEMA`.

        Parameters
        ----------
        segment
            Start (ms) of their segment; 0 in a key-value store.

        Raises
        ------
        StoreCorruptedError
            If a key or value is too short.
        TooManyKeysError
            If there are too many.
        """
        place, row = _place_of(rows), 0
        while True:
            row, stop = kernels.add_rows(
                place, row, segment, self._layout, self.facts, self._table, self._hashes, self._state
            )
            if stop == kernels.DONE:
                return
            if stop == kernels.KEYS_FULL:
                self._grow()
            else:
                what = "key" if stop == kernels.SHORT_KEY else "value"
                raise StoreCorruptedError(f"a stored {what} is too short for its format; restore the store")

    def orphans(self, rows: pa.RecordBatch) -> Bytes:
        """Return for each row of the store whether its key has no required record (1-byte flags)."""
        marks = np.zeros(rows.num_rows, np.uint8)
        kernels.find_orphans(_place_of(rows), self.facts, self._table, marks)
        return marks

    def take(
        self,
        records: pa.RecordBatch,
        *,
        required: bool = True,
        times_count: bool = True,
        log_start: int = 0,
        home: int = 0,
    ) -> None:
        """Take records of the log: a batch with `changelog.reader.SCHEMA`.

        Parameters
        ----------
        required
            Whether their transactions are committed. Other records may explain a row, but need not be in the store.
        times_count
            Whether they have their producers' timestamps, which the rows have, too.
        log_start
            First offset of the log.
        home
            Number of the partition of a global table, from 1; 0: the store is not global.

        Raises
        ------
        TopicMismatchError
            If a key is too short for its kind of store.
        TooManyKeysError
            If there are too many.
        """
        place, row = address_of(records), 0
        while True:
            row, stop = kernels.take_records(
                place, row, log_start, home, required, times_count, self._layout, self.facts, self.intervals,
                self._table, self._hashes, self._state,
            )  # fmt: skip
            if stop == kernels.DONE:
                return
            if stop == kernels.KEYS_FULL:
                self._grow()
            elif stop == kernels.INTERVALS_FULL:
                self.intervals = Intervals(*(_doubled(column) for column in self.intervals))
            else:
                offset, found = records.column(3)[row].as_py(), len(records.column(0)[row].as_py())
                raise TopicMismatchError(
                    f"the record at offset {offset} has a key of {found} bytes, expected at least "
                    f"{self._layout.suffix_bytes}: the changelog is of another kind of store; check the definition"
                )

    def _grow(self) -> None:
        if self._most_keys is not None and self.key_count >= self._most_keys:
            raise TooManyKeysError
        if self.key_count >= len(self.facts):
            larger = _empty_facts(2 * len(self.facts))
            larger[: len(self.facts)] = self.facts
            self.facts = larger[: self._most_keys]
        if 2 * (self.key_count + 1) > len(self._table):
            self._table = np.zeros(2 * len(self._table), np.uint64)
            kernels.rebuild(self.facts, self.key_count, self._table)


def _place_of(rows: pa.RecordBatch) -> Address:
    """Return where rows of a store lie; valid while the batch lives."""
    none = int64_column(np.zeros(rows.num_rows, np.int64))
    return address_of(pa.RecordBatch.from_arrays([*rows.columns, none, none], schema=SCHEMA))


def _empty_facts(keys: int) -> Facts:
    """Return a table whose rows are one cache line each: a row over two lines would be prefetched by half."""
    memory = np.empty((keys + 1) * kernels.COLUMNS, np.int64)
    begin = -memory.ctypes.data % (8 * kernels.COLUMNS) // 8
    return memory[begin : begin + keys * kernels.COLUMNS].reshape(keys, kernels.COLUMNS)


def _doubled(column: Int64s) -> Int64s:
    larger = np.empty(2 * len(column), np.int64)
    larger[: len(column)] = column
    return larger
