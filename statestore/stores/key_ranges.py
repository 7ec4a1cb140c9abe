"""Ranges of keys that a transaction has deleted: disjoint, in order, asked for by key."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from statestore.stores.table import DeletedRange


class KeyRanges:
    """A set of half-open ranges; ranges that touch are joined."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[bytes] = []
        self._stops: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, key: bytes) -> bool:
        at = bisect_right(self._starts, key)
        return at > 0 and key < self._stops[at - 1]

    def add(self, start: bytes, stop: bytes) -> None:
        """Add the keys with `start <= key < stop`."""
        if start >= stop:
            return
        first = bisect_left(self._stops, start)
        last = bisect_right(self._starts, stop)
        if first < last:
            start = min(start, self._starts[first])
            stop = max(stop, self._stops[last - 1])
        self._starts[first:last] = [start]
        self._stops[first:last] = [stop]

    def ranges(self) -> list[DeletedRange]:
        """The ranges in key order."""
        return [DeletedRange(*pair) for pair in zip(self._starts, self._stops, strict=True)]

    def copy(self) -> KeyRanges:
        """Return a copy that later additions leave alone."""
        result = KeyRanges()
        result._starts, result._stops = self._starts.copy(), self._stops.copy()
        return result
