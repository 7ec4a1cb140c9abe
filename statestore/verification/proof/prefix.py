"""The offsets at which a log, folded up to there, gives the rows of a store. Pure.

A key's row equals the log within intervals: each begins at a record that the row equals, or before the first record of
a key that the store lacks, and ends before the next required record that differs. The store is a prefix of its log if
an interval of every key contains the same offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from statestore.compiled.batches import Bools, Int64s
from statestore.verification.proof.kernels import (
    BY_OPTIONAL,
    FIRST,
    FOLLOWING,
    LAST,
    NO_RECORD,
    OPEN,
    PRINT,
    SEGMENT,
    STORED,
    UNEXPLAINED,
    Facts,
    Intervals,
)
from statestore.verification.proof.unproven import NO_DOUBTS, Doubts, next_missing


class Range(NamedTuple):
    """Offsets `first` to `last`, both included."""

    first: int
    last: int

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.first <= offset <= self.last


class KeyFacts(NamedTuple):
    """Facts about keys (`kernels.py`): one row for each key, and earlier intervals of keys that have several."""

    facts: Facts
    intervals: Intervals


class Prefix(NamedTuple):
    """The position of a database in its log, as its rows show it.

    Attributes
    ----------
    offsets
        Ranges of offsets at which the log gives these rows, in order; empty if it never does.
    replay_from
        First offset of the shortest tail of the log whose replay corrects all rows except orphans.
    unexplained
        Rows that no record of the log explains.
    by_optional
        Rows that only a record of an aborted or open transaction explains.
    orphans
        Number of rows whose keys have no committed record. A replay does not correct them.
    doubts
        At which of these offsets compaction leaves keys unproven.
    """

    offsets: tuple[Range, ...]
    replay_from: int
    unexplained: int
    by_optional: int
    orphans: int
    doubts: Doubts = NO_DOUBTS

    @property
    def is_prefix(self) -> bool:
        """True if the rows are those of the log at some offset."""
        return bool(self.offsets) and not self.unexplained

    def equals_at(self, offset: int) -> bool:
        """True if the log gives these rows at an offset."""
        return not self.unexplained and any(offset in found for found in self.offsets)


def common_ranges(several: Iterable[tuple[Range, ...]]) -> tuple[Range, ...]:
    """Return the offsets that are in every tuple of ranges; all offsets without a tuple."""
    common: tuple[Range, ...] = (Range(-1, OPEN),)
    for ranges in several:
        both = (Range(max(a.first, b.first), min(a.last, b.last)) for a in common for b in ranges)
        common = tuple(found for found in both if found.first <= found.last)
    return common


def merged(one: Prefix, other: Prefix) -> Prefix:
    """Return the prefix of a database from two parts of its keys."""
    return Prefix(
        offsets=common_ranges((one.offsets, other.offsets)),
        replay_from=min(one.replay_from, other.replay_from),
        unexplained=one.unexplained + other.unexplained,
        by_optional=one.by_optional + other.by_optional,
        orphans=one.orphans + other.orphans,
        doubts=one.doubts.merged(other.doubts),
    )


def find_prefix(table: KeyFacts, end: int, segment: int = 0, missing: Int64s | None = None) -> Prefix:
    """Find the offsets at which the log gives the rows of a database.

    Parameters
    ----------
    table
        With all rows of the store and all records of its log.
    end
        Offset after the last record of the log.
    segment
        Start (ms) of the database's segment; 0 if the store has one database.
    missing
        Missing offsets of the log (`unproven.py`); None if it has no gaps.
    """
    facts = table.facts
    own = facts[:, SEGMENT] == segment
    first, following, last, flags = (facts[:, column] for column in (FIRST, FOLLOWING, LAST, PRINT))
    explained = own & (first != UNEXPLAINED)
    by_optional = own & (flags & BY_OPTIONAL != 0)
    final = explained & (following == OPEN) & ~by_optional
    recorded = own & (last != NO_RECORD)
    offsets = _common(table, explained, np.minimum(following - 1, end - 1), end)
    return Prefix(
        offsets=offsets,
        replay_from=int(last[recorded & ~final].min(initial=end)),
        unexplained=int((own & ~explained).sum()),
        by_optional=int(by_optional.sum()),
        orphans=int((own & ~recorded & (flags & STORED != 0)).sum()),
        doubts=_doubts(table, explained, offsets, missing),
    )


def _common(table: KeyFacts, explained: Bools, stop: Int64s, end: int) -> tuple[Range, ...]:
    """Return the offsets that lie in an interval of each of these keys."""
    first, earlier = table.facts[:, FIRST], table.intervals
    several = np.zeros(len(first), np.bool_)
    several[earlier[0]] = True
    once, several = explained & ~several, explained & several
    lowest, highest = int(first[once].max(initial=-1)), int(stop[once].min(initial=end - 1))
    if lowest > highest:
        return ()
    if not several.any():
        return (Range(lowest, highest),)
    chosen = several[earlier[0]]
    begins = np.concatenate([first[several], earlier[1][chosen]]).clip(min=lowest)
    stops = np.concatenate([stop[several], earlier[2][chosen] - 1]).clip(max=highest)
    reached = begins <= stops
    begins, stops = np.sort(begins[reached]), np.sort(stops[reached])
    candidates = np.unique(begins)
    # Intervals of one key do not overlap, so each key adds at most one here.
    covering = np.searchsorted(begins, candidates, "right") - np.searchsorted(stops, candidates, "left")
    whole = candidates[covering == int(several.sum())]
    ends = stops[np.searchsorted(stops, whole, "left")]
    return tuple(Range(*found) for found in zip(whole.tolist(), ends.tolist(), strict=True))


def _doubts(table: KeyFacts, explained: Bools, offsets: tuple[Range, ...], missing: Int64s | None) -> Doubts:
    """Return at which of some offsets keys are unproven."""
    if missing is None or not len(missing) or not offsets:
        return NO_DOUBTS
    facts = table.facts
    chosen = explained & (facts[:, LAST] > offsets[0].first)  # from its last record on, a key is proven
    numbers, first, following = table.intervals
    some = chosen[numbers]
    begins = next_missing(missing, np.concatenate([facts[chosen, FIRST], first[some]]))
    return Doubts.between(begins, np.concatenate([facts[chosen, LAST], following[some]]) - 1)
