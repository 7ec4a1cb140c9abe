"""Which rows of a store are read: bounds that RocksDB seeks, segments that are left out, and what is left to filter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from statestore.kinds.kind import StoreKind
from statestore.stores.segment_starts import segment_interval_ms

_LARGEST_TIME = (1 << 63) - 1


class RowRange(NamedTuple):
    """Rows with `key_from <= key < key_to`, and with a time in the range; None is an open end.

    Attributes
    ----------
    key
        The only key, if one is asked for.
    time_from, time_to
        In ms, `time_to` exclusive: windows that start in between, sessions that were active in between, versions that
        were valid in between.
    """

    kind: StoreKind
    key: bytes | None = None
    key_from: bytes | None = None
    key_to: bytes | None = None
    time_from: int | None = None
    time_to: int | None = None

    def has_segment(self, start: int, following: int | None) -> bool:
        """Whether a segment may hold such rows.

        Parameters
        ----------
        start, following
            Start (ms) of the segment and of the one behind it, from which on it has no rows. How long segments are is
            not asked: an application may choose it.
        """
        if not self.kind.segmented:
            return True
        if self.time_from is not None and following is not None and following <= self.time_from:
            return False
        return self.time_to is None or self.kind.may_be_in_segment(start, self.time_to)

    def bounds(self) -> tuple[bytes | None, bytes | None]:
        """Row keys `start <= row key < stop` between which all such rows lie."""
        if self.key is None:
            return self.kind.range_bounds(self.key_from, self.key_to)
        latest = _LARGEST_TIME if self.time_to is None else self.time_to - 1
        return self.kind.key_bounds(self.key, self.time_from or 0, latest)

    def keys(self) -> tuple[bytes, bytes | None]:
        """Keys `start <= key < stop` between which those of the range lie."""
        if self.key is not None:
            return self.key, self.key + b"\0"
        return self.key_from or b"", self.key_to

    def has_key(self, key: bytes) -> bool:
        """Whether a key is in the range: bounds of row keys take in other keys, too."""
        if self.key is not None:
            return key == self.key
        return (self.key_from or b"") <= key and (self.key_to is None or key < self.key_to)

    def has_times(self, numbers: Mapping[str, int]) -> bool:
        """Whether a row of a kind with segments is of a time in the range, by the numbers behind its key."""
        if self.time_from is not None and numbers[self.kind.last_time] < self.time_from:
            return False
        return self.time_to is None or numbers[self.kind.first_time] < self.time_to

    def has_version(self, valid_from: int, valid_to: int | None) -> bool:
        """Whether a version was valid at a time of the range; `valid_to` is None for one that still is."""
        if self.time_from is not None and valid_to is not None and valid_to <= self.time_from:
            return False
        return self.time_to is None or valid_from < self.time_to


def shown_segments(
    starts: Iterable[int],
    wanted: RowRange,
    retention_ms: int | None,
    left_over: Collection[int] = (),
    *,
    expired: bool = False,
) -> Callable[[int, int | None], bool]:
    """Return a function of a segment's start and the start of the next one: whether rows of the segment are shown.

    As in Kafka Streams, rows are not shown once their whole segment has expired, and rows of left-over segments never
    are. The newest segment's start is a lower bound of the stream time, so no row is hidden that Kafka Streams shows.

    Parameters
    ----------
    starts
        Starts (ms) of all segments.
    retention_ms
        Retention of the store; None: unknown, so no segment counts as expired.
    left_over
        Segments that the application no longer uses, after a change of the retention.
    expired
        Show expired and left-over segments, too.
    """
    used = sorted({*starts}.difference(left_over))
    following = dict(pairwise(used))
    gone: set[int] = set()
    if retention_ms is not None and used:
        # A segment has expired if it ends at or before stream time - retention.
        last_expired_ms = used[-1] - retention_ms - segment_interval_ms(retention_ms)
        gone = {start for start in used if start <= last_expired_ms}

    def is_shown(start: int, after: int | None) -> bool:
        if start in gone or start in left_over:
            return expired and wanted.has_segment(start, following.get(start))
        return wanted.has_segment(start, following.get(start) if start in used else after)

    return is_shown
