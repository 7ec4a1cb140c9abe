"""Keys that compaction leaves unproven: it can have removed a record that their rows should equal.

Compaction removes a record only if its key has a later one. So if an offset is missing between the record that a row
equals and the key's last record, the missing one can be the key's, and the row can be that of an earlier offset. Up to
the missing offset, and from the key's last record on, the row is proven. A missing offset has neither a record nor a
transaction's marker. Records of aborted transactions are there.

The cleaner can run while the log is read. A record that it removes before it is read is missing, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from statestore.compiled.batches import Int64s

_NONE = np.empty(0, np.int64)


class MissingOffsets:
    """Collects the offsets that are missing in a log, as it is read in order.

    Parameters
    ----------
    start
        First offset of the log.
    """

    def __init__(self, start: int) -> None:
        self._next = start
        self._begins: list[Int64s] = []
        self._stops: list[Int64s] = []

    def add(self, offsets: Int64s) -> None:
        """Add the offsets of the next records."""
        if not len(offsets):
            return
        expected = np.concatenate([[self._next], offsets[:-1] + 1])
        gaps = np.flatnonzero(offsets > expected)
        if len(gaps):
            self._begins.append(expected[gaps])
            self._stops.append(offsets[gaps])
        self._next = int(offsets[-1]) + 1

    def found(self, markers: Sequence[int]) -> Int64s:
        """Return the first missing offset of each gap that has one, in order.

        Parameters
        ----------
        markers
            Offsets of the transaction markers that were read, in order.
        """
        if not self._begins:
            return _NONE
        begins, stops = np.concatenate(self._begins), np.concatenate(self._stops)
        known = np.asarray(markers, np.int64)
        taken = np.searchsorted(known, stops) - np.searchsorted(known, begins)
        holes = taken < stops - begins
        first, stops = begins[holes], stops[holes]
        while (marked := np.isin(first, known)).any():
            first[marked] += 1
        return first


class Doubts(NamedTuple):
    """The offsets at which keys are unproven: each from one of `begins` to one of `ends`, both included and sorted."""

    begins: Int64s
    ends: Int64s

    @classmethod
    def between(cls, begins: Int64s, ends: Int64s) -> Doubts:
        """Return those of some keys; empty intervals are left out."""
        some = begins <= ends
        return cls(np.sort(begins[some]), np.sort(ends[some]))

    def count_at(self, offset: int) -> int:
        """Return how many keys are unproven if the store is at an offset."""
        return int(np.searchsorted(self.begins, offset, "right") - np.searchsorted(self.ends, offset, "left"))

    def merged(self, other: Doubts) -> Doubts:
        """Return those of two parts of the keys."""
        return Doubts(*(np.sort(np.concatenate(each)) for each in zip(self, other, strict=True)))


NO_DOUBTS = Doubts(_NONE, _NONE)
#: Later than any offset.
NEVER = (1 << 63) - 1


def next_missing(missing: Int64s, offsets: Int64s) -> Int64s:
    """Return for each offset of a record the first missing offset after it, or `NEVER`."""
    return np.append(missing, NEVER)[np.searchsorted(missing, offsets, "right")]


def unproven_keys(count: int) -> str:
    """Return a sentence about so many unproven keys; empty for 0."""
    return f"{count} keys are unproven: compaction may have removed a record that their rows should equal" * bool(count)
