"""The last record of every key in memory, within a bound: what becomes a sorted run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore.bulk.records import (
    ADDRESSABLE_BYTES,
    AHEAD,
    DEAD,
    DONE,
    FULL,
    KEYS,
    LAST_OFFSET,
    NEEDED,
    RECORDS,
    SHORT_KEY,
    SKIPPED,
    STATES,
    STREAM_TIME,
    TABLE_FULL,
    USED,
    collect,
    compact,
    resized,
    take,
)
from statestore.bulk.routing import Routing
from statestore.compiled.batches import Address, Int64s, UInt64s, address_of
from statestore.errors import StoreCorruptedError

_SMALLEST_TABLE = 64
_LARGEST_FIRST_TABLE = 1 << 16


class Facts(NamedTuple):
    """Input of a run; see `Runs`."""

    records: int
    skipped: int
    last_offset: int | None
    stream_time: int


class LastRecords:
    """The last record of every key, as far as `limit` bytes of memory hold them.

    Attributes
    ----------
    memory, table
        The records, and what finds them by their keys (records.py).
    """

    def __init__(self, routing: Routing, limit: int) -> None:
        self._routing = routing
        self._limit = min(limit, ADDRESSABLE_BYTES)
        self._state = np.zeros(STATES, np.int64)
        self._first_table = min(max(1 << (limit // 1024).bit_length(), _SMALLEST_TABLE), _LARGEST_FIRST_TABLE)
        self._hashes = np.zeros(AHEAD, np.uint64)
        self.clear()

    def clear(self) -> None:
        """Begin a new run."""
        self.memory = np.empty(self._limit + 8, np.uint8)  # taken from the system as it is written to
        self.table = np.zeros(self._first_table, np.uint64)
        self._state[:] = 0
        self._state[[LAST_OFFSET, STREAM_TIME]] = -1

    def add(self, batch: pa.RecordBatch, first: int) -> int:
        """Take records from row `first` on; return the row behind the last that fitted.

        Raises
        ------
        StoreCorruptedError
            If a key is too short for its kind of store.
        """
        place = address_of(batch)
        while True:
            # The sort needs 16 bytes for each key, for which there are two slots of 8 bytes.
            first, stop = self._take(place, first, self._limit - 2 * self.table.nbytes)
            if stop == DONE:
                return first
            if stop == SHORT_KEY:
                offset, found = batch.column(3)[first].as_py(), len(batch.column(0)[first].as_py())
                raise StoreCorruptedError(
                    f"the record at offset {offset} has a key of {found} bytes, expected at least "
                    f"{self._routing.suffix_bytes}: the changelog is of another kind of store; check the definition"
                )
            if stop == TABLE_FULL and self.used + 4 * self.table.nbytes <= self._limit:
                self.table = resized(self.table, 2 * len(self.table))
            elif stop == FULL and not self.keys:  # one record beyond the bound
                needed = int(self._state[NEEDED])
                if needed + 8 > len(self.memory):
                    self.memory = np.empty(needed + 8, np.uint8)
                first, _ = self._take(place._replace(rows=first + 1), first, needed)
            elif 2 * int(self._state[DEAD]) >= self.used:
                compact(self.memory.ctypes.data, self.table, self._state)
            else:
                return first

    def _take(self, place: Address, first: int, limit: int) -> tuple[int, int]:
        row, stop = take(
            place,
            first,
            self.memory.ctypes.data,
            limit,
            self.table,
            self._hashes,
            self._state,
            self._routing.suffix_bytes,
            self._routing.ignores_deletes,
        )
        return int(row), int(stop)

    @property
    def used(self) -> int:
        """Bytes of memory that records take."""
        return int(self._state[USED])

    @property
    def free_share(self) -> float:
        """Share of the bound that is not used."""
        return 1 - self.used / self._limit

    @property
    def keys(self) -> int:
        """Keys in this run."""
        return int(self._state[KEYS])

    @property
    def last_offset(self) -> int | None:
        """Offset of the last record of this run; None before the first."""
        return int(self._state[LAST_OFFSET]) if self._state[LAST_OFFSET] >= 0 else None

    @property
    def facts(self) -> Facts:
        """Input of this run."""
        records, skipped, stream_time = (int(self._state[at]) for at in (RECORDS, SKIPPED, STREAM_TIME))
        return Facts(records, skipped, self.last_offset, stream_time)

    def give_table(self) -> UInt64s:
        """Give the table's memory away, two slots for each key: no record can be added or found any more."""
        table, self.table = self.table, np.zeros(1, np.uint64)
        return table

    def places(self) -> Int64s:
        """Addresses of the records of this run, in the order that their keys came in."""
        found = np.empty(self.keys, np.int64)
        collect(self.memory.ctypes.data, self.used, found)
        return found
