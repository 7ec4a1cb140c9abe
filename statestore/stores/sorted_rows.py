"""Rows in memory, which are sorted only when an order is needed.

Reads and writes by key are those of a dict. The sorted index is brought up to date by the next ordered read, so a run
of writes pays for sorting once, and an ordered read between single writes costs a few comparisons each. An ordered read
walks the rows as they lie; the first write after it was begun has it copy what it has not read yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from weakref import ReferenceType, ref

from sortedcontainers import SortedList

_PRUNE_AT = 32

#: What one row costs beyond its key and value, measured for CPython's dict, bytes and list slots.
ROW_OVERHEAD_BYTES = 190


class SortedRows:
    """A dict of rows with ordered reads.

    Attributes
    ----------
    rows
        The rows; a value may be None, which is then as much a row as any other. Read it, write through the methods; a
        row that is there can also be replaced here, while there are no `walks`.
    walks
        Ordered reads that may be under way.
    """

    __slots__ = ("_fresh", "_index", "_stale", "rows", "walks")

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes | None] = {}
        self._index: SortedList[bytes] = SortedList()
        self._fresh: list[bytes] = []
        self._stale: set[bytes] = set()
        self.walks: list[ReferenceType[_Walk]] = []

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a row."""
        if self.walks:
            self._disturb()
        rows = self.rows
        if key not in rows:
            if self._stale and key in self._stale:
                self._stale.discard(key)
            else:
                self._fresh.append(key)
        rows[key] = value

    def put_many(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Write many rows."""
        if self._stale:
            for key, value in changes.items():
                self.put(key, value)
            return
        if self.walks:
            self._disturb()
        rows = self.rows
        self._fresh += [key for key in changes if key not in rows] if rows else changes
        rows.update(changes)

    def remove(self, key: bytes) -> None:
        """Remove a row, if it is there."""
        if key in self.rows:
            if self.walks:
                self._disturb()
            del self.rows[key]
            self._stale.add(key)

    def slice(
        self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Rows with `start <= key < stop` in key order or in reverse, as of the call."""
        index = self._ordered()
        walk = _Walk(self.rows, index.irange(start, stop, inclusive=(True, False), reverse=reverse))
        if len(self.walks) >= _PRUNE_AT:
            self.walks = [known for known in self.walks if known() is not None]
        self.walks.append(ref(walk))
        return walk

    def _ordered(self) -> SortedList[bytes]:
        if len(self._stale) > len(self.rows) + 1000:
            self._index, self._fresh, self._stale = SortedList(self.rows), [], set()
        elif self._fresh:
            self._index.update(self._fresh)
            self._fresh = []
        return self._index

    def _disturb(self) -> None:
        for known in self.walks:
            walk = known()
            if walk is not None:
                walk.detach()
        self.walks = []


class _Walk:
    """An ordered read under way."""

    __slots__ = ("__weakref__", "_keys", "_rest", "_rows")

    def __init__(self, rows: dict[bytes, bytes | None], keys: Iterator[bytes]) -> None:
        self._rows = rows
        self._keys = keys
        self._rest: Iterator[tuple[bytes, bytes | None]] | None = None

    def __iter__(self) -> _Walk:
        return self

    def __next__(self) -> tuple[bytes, bytes | None]:
        if self._rest is not None:
            return next(self._rest)
        while (key := next(self._keys)) not in self._rows:  # removed, and still in the index
            pass
        return key, self._rows[key]

    def detach(self) -> None:
        """Copy what has not been read; the rows are about to change."""
        if self._rest is None:
            self._rest = iter([(key, self._rows[key]) for key in self._keys if key in self._rows])
