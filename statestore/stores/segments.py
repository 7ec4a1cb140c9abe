"""Segments of a windowed store: one database for each stretch of time, dropped as a whole when it has expired.

    <task directory>/<store>/<store>.<segment start ms>/

A segment's start is its timestamps' floor to the interval, which is max(retention / 2, 60 s). A row is accepted as
long as its segment is live: its start's interval is not wholly older than stream time - retention. Stream time is the
largest timestamp written; it lives in memory only.

Each segment has offsets of its own and reaches the disk in its own time, so the store's committed offset is the
smallest of them: nothing up to there is missing anywhere. For that no segment may be without one: a new segment starts
with the store's committed offset, on disk.

RocksDB decides when a segment reaches the disk. With transactions, a commit is written to a file first
(`commit_log.py`), from which it is repeated in all segments after a crash, with its offsets. The file goes once RocksDB
has put all of its rows on disk; the last one stays, so that idle segments get its offsets. Only a segment that holds
back many files, or files of many megabytes, is put on disk, as RocksDB does with column families that hold back its
write-ahead log. Without transactions, so is a segment whose offset is as far behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from statestore import kill_switch
from statestore.model import TopicPartition
from statestore.stores.abilities import NO_STREAM_TIME
from statestore.stores.database import HELD_BACK_BYTES, HELD_BACK_COMMITS, Database, merged
from statestore.stores.segment_homes import Kept, SegmentHome
from statestore.stores.segment_starts import segment_interval_ms


class _Commit(NamedTuple):
    """A commit that may not be on disk in all segments.

    Attributes
    ----------
    number
        Its number, which grows from commit to commit.
    size_bytes
        Bytes of its rows.
    segments
        Starts of the segments (ms) that it has written to.
    """

    number: int
    size_bytes: int
    segments: frozenset[int]


@dataclass
class _Flushes:
    """How far a segment is on disk.

    Attributes
    ----------
    entries
        Entries in the memtable after the last commit.
    out_of_memtable, on_disk
        The last commit without rows in the present memtable, and the last commit whose rows are all on disk.
    """

    entries: int = 0
    out_of_memtable: int = 0
    on_disk: int = 0


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
        self._commits: deque[_Commit] = deque()
        self._commits_bytes = 0
        self._flushes: dict[int, _Flushes] = {}
        self._last_commit = self._last_noted = 0
        self._unanchored = False
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
        of_committed = committed and not self.half_committed  # a decided commit counts
        return (self._committed_stream_time if of_committed else self.stream_time) - self.retention_ms + 1

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
        self._write_ahead(offsets, position)
        for segment in self._segments.values():
            segment.commit(offsets, position)
            self._decide(True)
            kill_switch.reached("segment committed")
        self._decide(False)
        self._committed_stream_time = self.stream_time
        if self._unanchored and self._home.commits is None:
            self.sync()
        self._note_flushes(grown=bool(offsets or position))
        self._forget_flushed()
        self._drop_expired()
        if not self._segments and (offsets or position):
            moved = {} if position is None else merged(self._homeless.position, position)
            self._keep({**self._homeless.offsets, **offsets}, moved)

    def _write_ahead(
        self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None
    ) -> None:
        """Write the commit to its file, if its rows are staged, and remember what must reach the disk."""
        commits, size = self._home.commits, self._written_bytes
        changed = frozenset(self._segments) if size else frozenset()
        if commits is not None:
            changed = frozenset(start for start, segment in self._segments.items() if segment.has_changes)
        if not changed:
            return
        number = self._last_commit + 1
        if commits is not None and commits.only_copy:
            if not commits.is_prepared:
                self.prepare(0, offsets, position)
            self._decide(True)
            number, size = commits.promote()
        elif commits is not None:
            pieces = {self._home.name(start): segment.pieces() for start, segment in self._segments.items()}
            number, size = commits.add(pieces, offsets, position)
            self._decide(True)
        self._last_commit, self._written_bytes = number, 0
        self._commits.append(_Commit(number, size, changed))
        self._commits_bytes += size

    def prepare(
        self, number: int, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None
    ) -> None:
        """Write what is staged to a file, durably, so that the next `commit` can be completed after a crash.

        Only for a store without a changelog. See `CommitLog.prepare`.
        """
        assert self._home.commits is not None, "only a transactional store on disk is without a changelog"
        pieces = {self._home.name(start): segment.pieces() for start, segment in self._segments.items()}
        after = {self._home.name(start): segment.last_change for start, segment in self._segments.items()}
        self._home.commits.prepare(number, pieces, offsets, position, after)

    def decide(self, committed: int | None) -> None:
        """Complete or discard a commit that was prepared when the process was killed (`CommitLog.decide`)."""
        assert self._home.commits is not None, "only a transactional store on disk is without a changelog"
        self._home.commits.decide({self._home.name(start): one for start, one in self._segments.items()}, committed)

    @property
    def has_changes(self) -> bool:
        """True if anything is staged."""
        return any(segment.has_changes for segment in self._segments.values())

    def _decide(self, decided: bool) -> None:
        """Note in every segment whether a commit is decided and may be incomplete."""
        for segment in self._segments.values():
            segment.is_decided = decided

    def _note_flushes(self, *, grown: bool) -> None:
        """Note which segments RocksDB has put on disk, right after a commit; `grown` if it wrote to each memtable."""
        for start, segment in self._segments.items():
            seen = self._flushes.setdefault(start, _Flushes())
            entries, full = segment.memtables
            if entries < seen.entries + grown:  # RocksDB has begun a new memtable since the commit before
                seen.out_of_memtable = self._last_noted
            if not full:
                seen.on_disk = seen.out_of_memtable
            seen.entries = entries
        self._last_noted = self._last_commit

    def _forget_flushed(self) -> None:
        """Remove the files of commits that are on disk, and put on disk what holds back too many."""
        self._remove_flushed()
        while self._holds_back_too_many:
            for start in self._held_back_by(self._commits[0]):
                self._sync(start)
            self._remove_flushed()

    @property
    def _holds_back_too_many(self) -> bool:
        count = len(self._commits) - 1
        return count > HELD_BACK_COMMITS or (
            count > 0 and self._commits_bytes - self._commits[-1].size_bytes > HELD_BACK_BYTES
        )

    def _held_back_by(self, commit: _Commit) -> list[int]:
        """Segments that do not have all of a commit on disk."""
        found = (start for start in commit.segments if start in self._segments)
        return [start for start in found if self._flushes.setdefault(start, _Flushes()).on_disk < commit.number]

    def _remove_flushed(self) -> None:
        while len(self._commits) > 1 and not self._held_back_by(self._commits[0]):
            commit = self._commits.popleft()
            self._commits_bytes -= commit.size_bytes
            if self._home.commits is not None:
                self._home.commits.remove(commit.number)

    def _sync(self, start: int) -> None:
        self._segments[start].sync()
        self._flushes[start] = _Flushes(0, self._last_commit, self._last_commit)

    def _drop_expired(self) -> None:
        oldest = self._oldest_live()
        # One that somebody reads goes at a later commit.
        expired = sorted(start for start, found in self._segments.items() if start < oldest and not found.being_read)
        if not expired:
            return
        if len(expired) == len(self._segments):  # the last ones go: their offsets stay behind
            self._keep(self._common_offsets(), self.position())
        for start in expired:
            self._flushes.pop(start, None)
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
        if self._home.commits is not None:
            self.sync()
            self._home.commits.clear()
            self._commits.clear()
            self._commits_bytes = 0
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
        return any(segment.half_committed for segment in self._segments.values())

    def rollback(self) -> None:
        """Forget what was not committed; stream time goes back with it."""
        for segment in self._segments.values():
            segment.rollback()
        self.stream_time = self._committed_stream_time

    def sync(self) -> None:
        """Wait until all that was committed is on disk."""
        for start in self._segments:
            self._sync(start)
        self._remove_flushed()
        self._unanchored = False

    def close(self, *, clean: bool) -> None:
        """Close every segment, also if one of them fails; the first failure is raised."""
        self.closed = True
        undecided = self._home.commits is not None and self._home.commits.is_prepared
        clean = clean and not self.half_committed and not undecided
        first: BaseException | None = None
        for segment in self._segments.values():
            try:
                segment.close(clean=clean)
            except Exception as error:  # the others still hold RocksDB's locks
                first = first or error
        if first is not None:
            raise first
        if clean and self._home.commits is not None:
            self._home.commits.clear()
        if clean and not self._segments:
            self._home.leave_empty(self._homeless)
