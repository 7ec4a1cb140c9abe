"""Starts of segments, by which they are named and expire."""

from __future__ import annotations

from collections.abc import Iterable

MIN_INTERVAL_MS = 60_000


def segment_interval_ms(retention_ms: int) -> int:
    """Length of a segment, Kafka Streams' default."""
    return max(retention_ms // 2, MIN_INTERVAL_MS)


def left_over_segments(starts: Iterable[int], interval_ms: int) -> list[int]:
    """Return the segments (by their starts in ms) that Kafka Streams no longer uses with this length of a segment.

    If an application changes the retention of a store, Kafka Streams does not remove segments of the old length. Those
    that start between two of the new length stay in the directory, and are neither read nor deleted. If all segments
    start so, the length is not the store's, and none is returned.
    """
    found = list(starts)
    odd = [start for start in found if start % interval_ms]
    return odd if len(odd) < len(found) else []
