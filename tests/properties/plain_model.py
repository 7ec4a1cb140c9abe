"""What a store should hold, in plain dicts: rows by their changelog key, the changelog, and every commit.

Offsets of a changelog have gaps, as Kafka's have: a transaction's marker takes one, and what is rolled back is never
read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

#: Values as the store's user sees them, by the key of their changelog record.
Rows = dict[bytes, Any]
MIN_INTERVAL_MS = 60_000


class Record(NamedTuple):
    """A record of the changelog; None deletes."""

    offset: int
    key: bytes
    value: Any


class Commit(NamedTuple):
    """A state that the store may be at after a crash; a commit that spilled may also be there in part."""

    offset: int | None
    rows: Rows
    position: int | None
    spilled: bool


class Model:
    """Rows with commit and rollback."""

    def __init__(self, transactional: bool) -> None:
        self.transactional = transactional
        self.rows: Rows = {}
        self.committed: Rows = {}
        self.log: list[Record] = []
        self.next_offset = 0
        self.offset: int | None = None
        self.position: int | None = None
        #: States that a crash may lead back to: from the last one that is known to be on disk.
        self.history = [Commit(None, {}, None, False)]
        self._committed_records = 0

    # -- changes

    def record(self, key: bytes, value: Any) -> None:
        self.log.append(Record(self.next_offset, key, value))
        self.next_offset += 1

    def write(self, key: bytes, value: Any) -> None:
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value

    @property
    def last_offset(self) -> int | None:
        return self.log[-1].offset if self.log else None

    def commit(self, offset: int | None, position: int | None, *, spilled: bool = False) -> None:
        """None: offset or position is not part of this commit. An offset without a position makes it unknown."""
        if position is not None or offset is not None:
            self.position = position
        self.offset = self.offset if offset is None else offset
        self.committed = dict(self.rows)
        self.history.append(Commit(self.offset, self.committed, self.position, spilled))
        self.next_offset += 1
        self._committed_records = len(self.log)

    def rollback(self) -> None:
        """Only a transactional store forgets."""
        if self.transactional:
            self.discard()

    def discard(self) -> None:
        """Back to the last commit, rows and changelog: the Kafka transaction was aborted."""
        self.rows = dict(self.committed)
        del self.log[self._committed_records :]

    # -- what a crash may leave

    def fold(self, offset: int | None) -> Rows:
        """What the changelog makes of nothing, up to an offset."""
        rows: Rows = {}
        for record in self.log:
            if offset is not None and record.offset <= offset:
                if record.value is None:
                    rows.pop(record.key, None)
                else:
                    rows[record.key] = record.value
        return rows

    def tail(self, offset: int | None) -> list[Record]:
        return [record for record in self.log if offset is None or record.offset > offset]

    def is_a_commit(self, offset: int | None, rows: Rows, position: int | None) -> bool:
        return any((commit.offset, commit.rows, commit.position) == (offset, rows, position) for commit in self.history)

    def may_be_partial(self, offset: int | None) -> bool:
        """True if the commit that follows one with this offset had spilled, so that its rows come before its offset."""
        following = zip(self.history, self.history[1:], strict=False)
        return any(commit.offset == offset and after.spilled for commit, after in following)

    def assert_not_behind_nor_invented(self, offset: int | None, rows: Rows) -> None:
        """Each row is as the changelog has it at the offset, or as a later record made it (T3, K14)."""
        allowed: dict[bytes, list[Any]] = {key: [value] for key, value in self.fold(offset).items()}
        for record in self.tail(offset):
            allowed.setdefault(record.key, [None]).append(record.value)
        assert rows.keys() <= allowed.keys()
        for key, values in allowed.items():
            assert rows.get(key) in values or (key not in rows and self.may_be_dropped(key))

    def may_be_dropped(self, key: bytes) -> bool:
        """True if a row may be gone without a delete."""
        return False


class SegmentedModel(Model):
    """Rows that expire.

    Parameters
    ----------
    time_of
        Timestamp (ms) of a row that decides on its segment.
    """

    def __init__(self, transactional: bool, retention_ms: int, time_of: Callable[[bytes], int]) -> None:
        super().__init__(transactional)
        self.retention_ms = retention_ms
        self.interval_ms = max(retention_ms // 2, MIN_INTERVAL_MS)
        self.time_of = time_of
        self.stream_time = self.committed_stream_time = -1
        self.segments: set[int] = set()

    def segment(self, timestamp: int) -> int:
        return timestamp - timestamp % self.interval_ms

    def is_live(self, timestamp: int) -> bool:
        return self.segment(timestamp) >= self.segment(max(self.stream_time - self.retention_ms, 0))

    def advance(self, timestamp: int) -> bool:
        """Let stream time reach a timestamp; return whether a row of that time is still accepted."""
        self.stream_time = max(self.stream_time, timestamp)
        if self.is_live(timestamp):
            self.segments.add(self.segment(timestamp))
        return self.is_live(timestamp)

    def commit(self, offset: int | None, position: int | None, *, spilled: bool = False) -> None:
        self.committed_stream_time = self.stream_time
        self.drop_expired()
        super().commit(offset, position, spilled=spilled)

    def drop_expired(self) -> None:
        self.rows = {key: value for key, value in self.rows.items() if self.is_live(self.time_of(key))}
        self.segments = {segment for segment in self.segments if self.is_live(segment)}

    def discard(self) -> None:
        super().discard()
        self.stream_time = self.committed_stream_time

    def may_be_dropped(self, key: bytes) -> bool:
        return not self.is_live(self.time_of(key))

    def visible(self, rows: Rows, stream_time: int) -> list[tuple[bytes, Any]]:
        """Rows that retention still shows, in the order of a store: by segment, then by the bytes of their key."""
        shown = [item for item in rows.items() if self.time_of(item[0]) > stream_time - self.retention_ms]
        return sorted(shown, key=lambda item: (self.segment(self.time_of(item[0])), item[0]))
