"""Aggregation by session: records of a key that are at most a gap apart.

As Kafka Streams does: each record is merged with the sessions that it finds within the gap, in the order of their ends;
what came of it has closed if it ends before stream time - grace - gap, and the record is late then. A session that
ended at stream time - retention or before is not found any more. Kafka Streams takes the store's own stream time for
that, which begins anew with each restart; here it is the task's before the record.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from statestore.definitions.aggregation import Sessions
from statestore.errors import StateStoreError
from statestore.formats import session_key
from statestore.stores.sorted_rows import ROW_OVERHEAD_BYTES
from statestore.tasks.aggregates import Aggregate
from statestore.tasks.folding import Folder, Poison, Result, stored_result
from statestore.tasks.grouping import Records, groups, joined, usable
from statestore.tasks.results import Results


class _Record(NamedTuple):
    offset: int
    timestamp: int
    value: bytes
    stream_time: int


class _Session(NamedTuple):
    """A session and its accumulator: an object, or bytes where records are folded one by one."""

    end: int
    start: int
    accumulator: Any
    newest: int
    last: int


class _Merged(NamedTuple):
    """The session that a record makes, and those that become part of it."""

    end: int
    start: int
    parts: list[_Session]


#: End and start of a session (ms).
_Span = tuple[int, int]
_span = itemgetter(0, 1)
_Found = dict[_Span, Result]
#: Offset of a poison record, and why.
_Failed = tuple[int, Exception]
#: Session end, row key and result.
_Change = tuple[int, bytes, Result]


class _Folded(NamedTuple):
    results: dict[_Span, Result]
    late: int


class SessionAggregation:
    """Folds records into sessions, key by key."""

    def __init__(self, sessions: Sessions, aggregate: Aggregate, results: Results, poison: Poison) -> None:
        self.late_records = 0
        self.dropped_records = 0
        self._dropped = 0
        self._gap_ms = sessions.gap_ms
        self._kept_ms = sessions.gap_ms + sessions.grace_ms
        self._retention_ms: int = results.store.inner.retention_ms
        self._aggregate = aggregate
        self._results = results
        self._poison = poison
        self._folder = Folder(aggregate, results.store.name)
        self._pending: list[Records] = []

    @property
    def pending_bytes(self) -> int:
        """Memory that the next flush takes, about."""
        return sum(part.nbytes + ROW_OVERHEAD_BYTES * len(part) for part in self._pending)

    def add(self, batch: pa.RecordBatch, stream_time: int) -> None:
        """Take records in."""
        if batch.num_rows:
            records, dropped = usable(batch, stream_time)
            self._dropped += dropped
            if len(records):
                self._pending.append(records)

    def discard(self) -> None:
        """Forget what was taken in since the last flush."""
        self._pending = []
        self._dropped = 0

    def flush(self) -> None:
        """Fold what was taken in into the store."""
        late = 0
        poison: list[_Failed] = []
        changes: list[_Change] = []
        for key, records in self._by_key():
            before = self._find(key, records)
            folded = self._fold(key, records, before, poison)
            late += folded.late
            changes += [
                (end, session_key.encode(key, start, end), result) for (end, start), result in folded.results.items()
            ]
        for offset, error in sorted(poison, key=itemgetter(0)):
            self._poison(offset, error)
        changes.sort(key=itemgetter(0))  # what expires in the store must not depend on the order of keys
        results = [result for _, _, result in changes]
        self._results.write(
            [row_key for _, row_key, _ in changes],
            [result.value for result in results],
            [result.timestamp for result in results],
            [result.last for result in results],
            [end for end, _, _ in changes],  # as Kafka Streams forwards them
        )
        self.late_records += late
        self.dropped_records += self._dropped
        self.discard()

    def _by_key(self) -> list[tuple[bytes, list[_Record]]]:
        if not self._pending:
            return []
        found = joined(self._pending)
        columns = (found.offsets.tolist(), found.timestamps.tolist(), found.values.to_pylist())
        records = [_Record(*parts) for parts in zip(*columns, found.stream_times.tolist(), strict=True)]
        keys, members, borders = groups(found.keys)
        return [
            (key, [records[at] for at in members[first:after]])
            for key, (first, after) in zip(keys, pairwise(borders), strict=True)
        ]

    def _find(self, key: bytes, records: Sequence[_Record]) -> _Found:
        """Sessions by end and start that any of the records may be merged with."""
        earliest = min(record.timestamp for record in records) - self._gap_ms
        latest = min(max(record.timestamp for record in records) + self._gap_ms, session_key.MAX_TIME)
        found = self._results.store.inner.find_sessions(key, key, earliest, latest)
        return {(session.end, session.start): stored_result(value, self._results.layout) for session, value in found}

    def _fold(self, key: bytes, records: Sequence[_Record], before: _Found, poison: list[_Failed]) -> _Folded:
        try:
            return self._fold_at_once(key, records, before)
        except StateStoreError:
            raise
        except Exception:  # the user's code may raise anything; which record it was is found out now
            return self._fold_one_by_one(key, records, before, poison)

    def _fold_at_once(self, key: bytes, records: Sequence[_Record], before: _Found) -> _Folded:
        """Fold through accumulators as they are."""
        read = self._folder.read
        line = _Line(_Session(*span, read(found.value or b""), *found[1:]) for span, found in before.items())
        late = 0
        for record in records:
            merged = self._merged(line, record)
            if merged is None:
                late += 1
                continue
            accumulator = self._accumulate(key, record, [session.accumulator for session in merged.parts])
            line.replace(merged, accumulator, record.timestamp)
        write = self._folder.write
        return _Folded(line.results(before, write), late)

    def _fold_one_by_one(
        self, key: bytes, records: Sequence[_Record], before: _Found, poison: list[_Failed]
    ) -> _Folded:
        """Fold through the serde after each record; a poison record changes nothing."""
        read, write = self._folder.read, self._folder.write
        line = _Line(_Session(*span, found.value, *found[1:]) for span, found in before.items())
        late = 0
        for record in records:
            merged = self._merged(line, record)
            if merged is None:
                late += 1
                continue
            parts = [read(session.accumulator) for session in merged.parts]
            try:
                accumulator = write(self._accumulate(key, record, parts))
            except StateStoreError:
                raise
            except Exception as error:  # the user's code may raise anything
                poison.append((record.offset, error))
            else:
                line.replace(merged, accumulator, record.timestamp)
        return _Folded(line.results(before, lambda value: value), late)

    def _merged(self, line: _Line, record: _Record) -> _Merged | None:
        """Return what a record is merged with; None if that has closed."""
        at, horizon = record.timestamp, record.stream_time - self._retention_ms
        parts = line.between(max(at - self._gap_ms, horizon + 1), at + self._gap_ms)
        end = start = at
        for part in parts:
            end, start = max(end, part.end), min(start, part.start)
        closed = max(record.stream_time, at) - self._kept_ms
        return None if end < closed else _Merged(end, start, parts)

    def _accumulate(self, key: bytes, record: _Record, parts: Sequence[Any]) -> Any:
        merger = self._aggregate.merger
        assert merger is not None, "the factory refuses sessions without"
        accumulator = self._aggregate.initializer()
        for part in parts:
            accumulator = merger(key, accumulator, part)
        return self._aggregate.aggregator(key, self._folder.read_value(record.value), accumulator)


class _Line:
    """Sessions of one key in the order of their ends, then starts."""

    def __init__(self, sessions: Iterable[_Session]) -> None:
        self._sessions = sorted(sessions, key=_span)
        self._written: set[_Span] = set()
        self._merged: dict[_Span, int] = {}
        self._deleted: dict[_Span, int] = {}

    def between(self, earliest_end: int, latest_start: int) -> list[_Session]:
        """Sessions that end and start within these times (ms, inclusive)."""
        first = bisect_left(self._sessions, earliest_end, key=itemgetter(0))
        return [session for session in self._sessions[first:] if session.start <= latest_start]

    def replace(self, merged: _Merged, accumulator: Any, timestamp: int) -> None:
        """Put one session in the place of those merged; None as its accumulator leaves none."""
        for part in merged.parts:
            self._remove((part.end, part.start), timestamp)
        span = merged.end, merged.start
        self._remove(span, timestamp)  # one that is not found any more may still be there
        if accumulator is None:
            self._deleted[span] = timestamp
        else:
            newest = max([timestamp, *(part.newest for part in merged.parts)]) if merged.parts else timestamp
            insort(self._sessions, _Session(*span, accumulator, newest, timestamp), key=_span)
            self._written.add(span)

    def _remove(self, span: _Span, timestamp: int) -> None:
        at = bisect_left(self._sessions, span, key=_span)
        if at < len(self._sessions) and _span(self._sessions[at]) == span:
            del self._sessions[at]
            self._written.discard(span)
            self._merged[span] = timestamp

    def results(self, before: _Found, write: Callable[[Any], bytes | None]) -> dict[_Span, Result]:
        """Sessions that changed, as they are to be stored; those that are gone have no value.

        One that came and was merged within the batch leaves no trace. One that was deleted does: it moves the store's
        stream time, as if it had been stored.
        """
        gone = {span: timestamp for span, timestamp in self._merged.items() if span in before} | self._deleted
        found = {span: Result(None, timestamp, timestamp) for span, timestamp in gone.items()}
        for end, start, accumulator, newest, last in self._sessions:
            if (end, start) in self._written:
                found[end, start] = Result(write(accumulator), newest, last)
        return found
