"""Segments of a windowed store: one database for each stretch of time, dropped as a whole when it has expired.

    <task directory>/<store>/<store>.<segment start ms>/

A segment's start is its timestamps' floor to the interval, which is max(retention / 2, 60 s). A row is accepted as
long as its segment is live: its start's interval is not wholly older than stream time - retention. Stream time is the
largest timestamp written; it lives in memory only.

Each segment has offsets of its own and reaches the disk in its own time, so the store's committed offset is the
smallest of them: nothing up to there is missing anywhere. For that no segment may be without one. A new segment starts
with the store's committed offset, on disk; idle segments are put on disk from time to time, so that the smallest moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from statestore import kill_switch
from statestore.model import TopicPartition
from statestore.stores.abilities import NO_STREAM_TIME
from statestore.stores.database import Database, merged
from statestore.stores.segment_homes import Kept, SegmentHome

MIN_INTERVAL_MS = 60_000
#: After so many bytes all segments are put on disk. It bounds what is replayed after a crash for an idle segment.
_SYNC_BYTES = 16 * 1024 * 1024


def segment_interval_ms(retention_ms: int) -> int:
    """Length of a segment, Kafka Streams' default."""
    return max(retention_ms // 2, MIN_INTERVAL_MS)


class Segments:
    """The open segments of one store.

    Attributes
    ----------
    stream_time
        Largest timestamp (ms) written, uncommitted rows included; -1 before the first.
    """

    def __init__(self, home: SegmentHome, retention_ms: int) -> None:
        self.retention_ms = retention_ms
        self.interval_ms = segment_interval_ms(retention_ms)
        self.stream_time = NO_STREAM_TIME
        self._committed_stream_time = NO_STREAM_TIME
        self._home = home
        self._segments: dict[int, Database] = {}
        self._homeless = Kept()
        self._written_bytes = 0
        self._unanchored = False
        self._some_committed = False
        self.closed = False
        try:
            self._segments = home.open_all()
            self._homeless = Kept() if self._segments else home.load()
        except BaseException:
            self.close(clean=False)
            raise

    # -- rows -----------------------------------------------------------------------------------------------------

    def advance(self, timestamp: int, *, committed: bool = False) -> None:
        """Let stream time reach a timestamp; a committed one is not taken back by a rollback."""
        self.stream_time = max(self.stream_time, timestamp)
        if committed:
            self._committed_stream_time = max(self._committed_stream_time, timestamp)

    def for_write(self, timestamp: int, size: int) -> Database | None:
        """Return the segment for a row with this timestamp and size in bytes; None if it has expired."""
        self.advance(timestamp)
        start = timestamp - timestamp % self.interval_ms
        if start < self._oldest_live():
            return None
        self._written_bytes += size
        return self._segments.get(start) or self._create(start)

    def for_read(self, timestamp: int) -> Database | None:
        """Return the segment that a row with this timestamp is in, if there is one."""
        return self._segments.get(timestamp - timestamp % self.interval_ms)

    def between(self, time_from: int, time_to: int, *, reverse: bool = False) -> Iterator[Database]:
        """Segments that may hold rows with a timestamp in the range, in order of time or in reverse."""
        starts = sorted(self._segments, reverse=reverse)
        return iter([self._segments[at] for at in starts if at + self.interval_ms > time_from and at <= time_to])

    def oldest_visible(self, *, committed: bool = False) -> int:
        """Smallest timestamp that retention still shows to readers; uncommitted rows hide no committed ones."""
        return (self._committed_stream_time if committed else self.stream_time) - self.retention_ms + 1

    def _oldest_live(self) -> int:
        oldest = max(self.stream_time - self.retention_ms, 0)
        return oldest - oldest % self.interval_ms

    def _create(self, start: int) -> Database:
        kept = Kept(self._common_offsets(), self.position())
        segment = self._segments[start] = self._home.make(start, kept)
        if not kept.offsets:
            self._unanchored = True
        return segment

    # -- offsets --------------------------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Commit every segment with the same offsets, then drop those that have expired."""
        for segment in self._segments.values():
            segment.commit(offsets, position)
            self._some_committed = True
            kill_switch.reached("segment committed")
        self._some_committed = False
        self._committed_stream_time = self.stream_time
        if self._unanchored or self._written_bytes >= _SYNC_BYTES:
            self.sync()
        self._drop_expired()
        if not self._segments and (offsets or position):
            moved = {} if position is None else merged(self._homeless.position, position)
            self._keep({**self._homeless.offsets, **offsets}, moved)

    def _drop_expired(self) -> None:
        oldest = self._oldest_live()
        # One that somebody reads goes at a later commit.
        expired = sorted(start for start, found in self._segments.items() if start < oldest and not found.being_read)
        if not expired:
            return
        if len(expired) == len(self._segments):  # the last ones go: their offsets stay behind
            self._keep(self._common_offsets(), self.position())
        for start in expired:
            self._segments.pop(start).close(clean=False)
            kill_switch.reached("expired segment closed")
            self._home.drop(start)
            kill_switch.reached("expired segment gone")

    def _keep(self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int]) -> None:
        self._home.save(Kept(offsets, position))
        self._homeless = self._home.load()

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Smallest offset that every segment has; None if one of them has none."""
        if not self._segments:
            return self._homeless.offsets.get(topic_partition)
        offsets = [segment.committed_offset(topic_partition) for segment in self._segments.values()]
        known = [offset for offset in offsets if offset is not None]
        return min(known) if len(known) == len(offsets) else None

    def clear_offsets(self) -> None:
        """Forget offsets and position everywhere."""
        for segment in self._segments.values():
            segment.clear_offsets()
        self._keep({}, {})

    def position(self) -> dict[TopicPartition, int]:
        """Input offsets committed: the smallest of the segments', which after a crash may differ.

        A segment whose position is unknown makes that of the store unknown.
        """
        if not self._segments:
            return dict(self._homeless.position)
        first, *others = (segment.position() for segment in self._segments.values())
        return {
            partition: min(offset, *(other[partition] for other in others)) if others else offset
            for partition, offset in first.items()
            if all(partition in other for other in others)
        }

    def _common_offsets(self) -> dict[TopicPartition, int]:
        if not self._segments:
            return dict(self._homeless.offsets)
        partitions = {partition for segment in self._segments.values() for partition in segment.offset_partitions()}
        found = {partition: self.committed_offset(partition) for partition in partitions}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    # -- life -----------------------------------------------------------------------------------------------------

    @property
    def databases(self) -> list[Database]:
        """Open segments in order of time."""
        return [self._segments[start] for start in sorted(self._segments)]

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted rows."""
        return sum(segment.staged_bytes for segment in self._segments.values())

    @property
    def half_committed(self) -> bool:
        """True after a commit that failed half way: it can be repeated, and not rolled back."""
        return self._some_committed or any(segment.half_committed for segment in self._segments.values())

    def rollback(self) -> None:
        """Forget what was not committed; stream time goes back with it."""
        for segment in self._segments.values():
            segment.rollback()
        self.stream_time = self._committed_stream_time

    def sync(self) -> None:
        """Wait until all that was committed is on disk."""
        for segment in self._segments.values():
            segment.sync()
        self._unanchored = False
        self._written_bytes = 0

    def close(self, *, clean: bool) -> None:
        """Close every segment, also if one of them fails; the first failure is raised."""
        self.closed = True
        clean = clean and not self.half_committed
        first: BaseException | None = None
        for segment in self._segments.values():
            try:
                segment.close(clean=clean)
            except Exception as error:  # the others still hold RocksDB's locks
                first = first or error
        if first is not None:
            raise first
        if clean and not self._segments:
            self._home.leave_empty(self._homeless)
