"""Our versioned store of bytes (KIP-889): every value that a key had within its history, in one database.

What a put changes is what it changes in Kafka Streams (`formats/versioned_put.py`). Three things differ. Segments on
disk are known from the opening on, so history can be read, and written into, at once. Kafka Streams knows a segment
only after it has written to it: until then a reopened store shows nothing of it. Stream time can be taken over from an
earlier run. And what one record wrote can be undone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from statestore.errors import InvalidStateError, StoreCorruptedError
from statestore.formats import versioned_row as layout
from statestore.formats.key_bounds import after_prefix
from statestore.formats.versioned_put import PUT_RETURN_CODE_NOT_PUT, put
from statestore.formats.versioned_row import LATEST, SegmentRow, Version, row_key, segment_of
from statestore.model import StoreFormat
from statestore.stores.abilities import NO_STREAM_TIME
from statestore.stores.api import Offsets, StoreContext
from statestore.stores.key_value import KeyValueBytes
from statestore.stores.table import Rows

T = TypeVar("T")


class RawVersion(NamedTuple):
    """A version of a key: its value, None for a delete, and from when until before when (ms) it is valid.

    `valid_to` is None for the latest version.
    """

    value: bytes | None
    valid_from: int
    valid_to: int | None


class VersionedBytes(KeyValueBytes):
    """Versions of keys, on disk or in memory, transactional or not.

    Attributes
    ----------
    retention_ms
        Kafka Streams' history retention, and the grace period of a put.
    interval_ms
        Length of a segment.
    segments
        Those that may have rows, in their order.
    """

    def __init__(
        self,
        name: str,
        store_format: StoreFormat,
        retention_ms: int,
        segment_interval_ms: int | None = None,
        *,
        persistent: bool,
        transactional: bool,
    ) -> None:
        super().__init__(name, store_format, persistent=persistent, transactional=transactional)
        self.retention_ms = retention_ms
        self.interval_ms = segment_interval_ms or layout.default_segment_interval_ms(retention_ms)
        self._stream_time = self._committed_stream_time = NO_STREAM_TIME
        self.segments: list[int] = []
        self._expired: list[int] = []  # since the last commit, whose rows are still those that are committed
        self._replaced: list[tuple[bytes, bytes | None]] | None = None

    # -- opening and committing ---------------------------------------------------------------------------------------

    def init(self, context: StoreContext) -> None:
        """Open the store; see `BuiltInBytes.init`.

        Raises
        ------
        InvalidStateError
            If its segments have another length than this store's.
        """
        super().init(context)
        self._stream_time = self._committed_stream_time = NO_STREAM_TIME
        self._replaced = None
        self.find_segments()
        self._require_own_segments()

    def _require_own_segments(self) -> None:
        """Refuse rows that were written with another retention: their numbers would be taken for other times.

        All of them would expire at once, or never.
        """
        if self.segments and not any(map(self._may_be_own, self.segments)):
            self.close(clean=True)  # nothing was written
            raise InvalidStateError(
                f"store {self.name} has rows, but no segment of {self.interval_ms} ms, which its history retention of "
                f"{self.retention_ms} ms makes: open it with the retention and the segment interval that it was "
                "written with, or restore it into an empty directory"
            )

    def _may_be_own(self, segment: int) -> bool:
        _, raw = next(self.opened.rows.scan(row_key(segment, b""), _behind(segment)))
        try:
            ended, _ = layout.bounds(raw)
        except StoreCorruptedError:  # whoever reads it is told
            return True
        return segment_of(ended, self.interval_ms) == segment

    def commit(self, offsets: Offsets, position: Offsets | None = None) -> None:
        """Commit everything written, with its changelog offsets."""
        super().commit(offsets, position)
        self._committed_stream_time = self._stream_time
        self._expired = []

    def rollback(self) -> None:
        """Discard what was written since the last commit, and the stream time that it brought."""
        super().rollback()
        if self.transactional:
            self._stream_time = self._committed_stream_time
            self._replaced = None
            self.find_segments()

    def find_segments(self) -> None:
        """Look which segments have rows, as somebody else has written some."""
        self.segments = segments_in(self.opened.rows)
        self._expired = []

    @property
    def stream_time(self) -> int:
        """Largest timestamp (ms) put since the store was opened, or taken over; -1 before the first."""
        return self._stream_time

    def advance_stream_time(self, timestamp: int) -> None:
        """Let stream time reach a timestamp known from elsewhere; a rollback keeps it."""
        self._stream_time = max(self._stream_time, timestamp)
        self._committed_stream_time = max(self._committed_stream_time, timestamp)

    def set_back_stream_time(self, timestamp: int) -> None:
        """Set stream time back to its value before writes that are undone."""
        self._stream_time = timestamp

    # -- rows that are records: not here ------------------------------------------------------------------------------

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Refuse: one row of it has several versions."""
        raise self._no_rows()

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[int]:
        """Refuse: a put needs a timestamp."""
        raise self._no_rows()

    def restore(self, rows: object) -> int:
        """Refuse: see `apply`."""
        raise self._no_rows()

    def _no_rows(self) -> InvalidStateError:
        return InvalidStateError(
            f"store {self.name} is versioned: its rows are not its records; put each with its timestamp"
        )

    # -- writing ------------------------------------------------------------------------------------------------------

    def put_version(self, key: bytes, value: bytes | None, timestamp: int) -> int:
        """Write a value that is valid from a timestamp (ms); None deletes.

        Returns
        -------
        int
            Until when (ms) it is valid; PUT_RETURN_CODE_VALID_TO_UNDEFINED if it is the latest, and
            PUT_RETURN_CODE_NOT_PUT if it is older than stream time less the grace period, or than all that is kept.
        """
        if timestamp < self._stream_time - self.retention_ms:
            return PUT_RETURN_CODE_NOT_PUT
        self._stream_time = max(self._stream_time, timestamp)
        if self._replaced is None:  # what may have to be undone does not expire yet
            self._expire()
        oldest = self._stream_time - self.retention_ms
        return put(_RowsOfKey(self, key), Version(timestamp, value), self.interval_ms, self._live_from, oldest)

    def apply(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]) -> int:
        """Put changelog records in their order; return how many were older than the grace period."""
        codes = map(self.put_version, keys, values, timestamps)
        return sum(code == PUT_RETURN_CODE_NOT_PUT for code in codes)

    def write(self, raw_key: bytes, raw: bytes | None) -> None:
        """Write a row as it is stored."""
        if self._replaced is not None:
            self._replaced.append((raw_key, self.rows.get(raw_key)))
        self.rows.put(raw_key, raw)

    @property
    def _live_from(self) -> int:
        """The first segment that has not expired."""
        return segment_of(self._stream_time - self.retention_ms, self.interval_ms)

    def _expire(self) -> None:
        while self.segments and self.segments[0] < self._live_from:
            segment = self.segments.pop(0)
            self._expired.append(segment)
            self.rows.delete_range(row_key(segment, b""), _behind(segment))

    # -- undoing one record -------------------------------------------------------------------------------------------

    def begin_undo(self) -> None:
        """Remember from now on what is replaced, until `undo` or `end_undo`."""
        self._replaced = []

    def undo(self) -> None:
        """Put back what was replaced since `begin_undo`."""
        replaced, self._replaced = self._replaced, None
        for raw_key, raw in reversed(replaced or ()):
            self.rows.put(raw_key, raw)

    def end_undo(self) -> None:
        """Keep what was written since `begin_undo`, and let expire what it has made expire."""
        written, self._replaced = self._replaced, None
        if written:
            self._expire()

    # -- reading ------------------------------------------------------------------------------------------------------

    def get_version(self, key: bytes, as_of: int | None = None, *, committed: bool = False) -> RawVersion | None:
        """Return what a key has now, or had at a time (ms); None if nothing, or if that was before its history."""
        rows = self.opened.committed if committed else self.rows
        if (raw := rows.get(row_key(LATEST, key))) is not None:
            valid_from, value = self.decoded(layout.decode_latest, raw, key)
            if as_of is None or valid_from <= as_of:
                return RawVersion(value, valid_from, None)
        if as_of is None or as_of < self._seen(committed) - self.retention_ms:
            return None
        segments = self._segments(committed)
        for segment in reversed(segments[bisect_left(segments, segment_of(as_of, self.interval_ms)) :]):
            if (raw := rows.get(row_key(segment, key))) is None:
                continue
            next_timestamp, min_timestamp = self.decoded(layout.bounds, raw, key)
            if next_timestamp <= as_of:
                return None
            if min_timestamp <= as_of:
                found = intervals(self.decoded(layout.decode_segment_row, raw, key))
                version = next(version for version in found if version.valid_from <= as_of)
                return version if version.value is not None else None
        return None

    def history(
        self, key: bytes, time_from: int, time_to: int, *, descending: bool = True, committed: bool = False
    ) -> list[RawVersion]:
        """Values that a key had at some time within bounds (ms, both inclusive), by the times at which they began."""
        rows = self.opened.committed if committed else self.rows
        found: list[RawVersion] = []
        if (raw := rows.get(row_key(LATEST, key))) is not None:
            valid_from, value = self.decoded(layout.decode_latest, raw, key)
            if valid_from <= time_to:
                found.append(RawVersion(value, valid_from, None))
        if time_to >= self._seen(committed) - self.retention_ms:
            for segment in reversed(self._segments(committed)):
                if (raw := rows.get(row_key(segment, key))) is not None:
                    found += intervals(self.decoded(layout.decode_segment_row, raw, key))
        shown = [
            version
            for version in found
            if version.value is not None
            and version.valid_from <= time_to
            and (version.valid_to is None or version.valid_to > time_from)
        ]
        return shown if descending else shown[::-1]

    def committed(self) -> Any:
        """Where to read without what is not committed."""
        return _CommittedVersions(self)

    def versions(self, *, committed: bool = False) -> Iterator[tuple[bytes, list[RawVersion]]]:
        """Keys in their order, with all that is stored of each, oldest first; deletes among it.

        Raises
        ------
        StoreCorruptedError
            If a row cannot be read.
        """
        return versions_in(self.opened.committed if committed else self.rows)

    def _seen(self, committed: bool) -> int:
        return self._committed_stream_time if committed else self._stream_time

    def _segments(self, committed: bool) -> list[int]:
        return [*self._expired, *self.segments] if committed and self._expired else self.segments

    def decoded(self, decode: Callable[[bytes], T], raw: bytes, key: bytes) -> T:
        """Read a row; one that cannot be read raises StoreCorruptedError with the name of the store and the key."""
        try:
            return decode(raw)
        except StoreCorruptedError as error:
            raise StoreCorruptedError(f"store {self.name}, key {key!r:.80}: {error}") from error


class _CommittedVersions:
    def __init__(self, store: VersionedBytes) -> None:
        self.get_version = partial(store.get_version, committed=True)
        self.history = partial(store.history, committed=True)
        self.versions = partial(store.versions, committed=True)


class _RowsOfKey:
    """Where `versioned_put` finds the rows of a key: in the database."""

    def __init__(self, store: VersionedBytes, key: bytes) -> None:
        self._store = store
        self._key = key
        self._at_latest = row_key(LATEST, key)

    def latest(self) -> Version | None:
        raw = self._store.rows.get(self._at_latest)
        return None if raw is None else Version(*self._store.decoded(layout.decode_latest, raw, self._key))

    def set_latest(self, version: Version) -> None:
        value = version.value
        self._store.write(self._at_latest, None if value is None else layout.encode_latest(value, version.timestamp))

    def segments_from(self, segment: int) -> Iterable[int]:
        segments = self._store.segments
        return reversed(segments[bisect_left(segments, segment) :])

    def bounds(self, segment: int) -> tuple[int, int] | None:
        raw = self._store.rows.get(row_key(segment, self._key))
        return None if raw is None else self._store.decoded(layout.bounds, raw, self._key)

    def row(self, segment: int) -> SegmentRow | None:
        raw = self._store.rows.get(row_key(segment, self._key))
        return None if raw is None else self._store.decoded(layout.decode_segment_row, raw, self._key)

    def set_row(self, segment: int, row: SegmentRow) -> None:
        segments = self._store.segments
        if (at := bisect_left(segments, segment)) == len(segments) or segments[at] != segment:
            segments.insert(at, segment)
        self._store.write(row_key(segment, self._key), layout.encode_segment_row(row))


def segments_in(rows: Rows) -> list[int]:
    """Segments that a database has rows of, but for the latest values', in their order."""
    found: list[int] = []
    start: bytes | None = row_key(0, b"")
    while (row := next(rows.scan(start, row_key(LATEST, b"")), None)) is not None:
        segment, _ = layout.decode_row_key(row[0])
        found.append(segment)
        start = after_prefix(row_key(segment, b""))
    return found


def newest_time_in(rows: Rows) -> int:
    """Largest timestamp (ms) that the rows of a database tell; -1 if there is none.

    It is the stream time that its owner has seen, or an earlier one if what was put then has left nothing.
    """
    newest = NO_STREAM_TIME
    for _, raw in rows.scan(row_key(LATEST, b"")):
        newest = max(newest, layout.decode_latest(raw)[0])
    for segment in segments_in(rows)[-1:]:
        for _, raw in rows.scan(row_key(segment, b""), _behind(segment)):
            newest = max(newest, layout.bounds(raw)[0])
    return newest


def versions_in(
    rows: Rows, key_from: bytes = b"", key_to: bytes | None = None
) -> Iterator[tuple[bytes, list[RawVersion]]]:
    """Keys of a database in their order, with all versions of each, oldest first; deletes among them.

    Parameters
    ----------
    key_from, key_to
        The first key, and the one before which it ends; None: at the last.

    Raises
    ------
    StoreCorruptedError
        If a row cannot be read, naming its key.
    """
    parts = [*segments_in(rows), LATEST]
    scans = [_of_segment(rows, segment, place, key_from, key_to) for place, segment in enumerate(parts)]
    for key, group in groupby(merge(*scans), key=lambda row: row[0]):
        found: list[RawVersion] = []
        for _, place, raw in group:
            try:
                if parts[place] == LATEST:
                    valid_from, value = layout.decode_latest(raw)
                    found.append(RawVersion(value, valid_from, None))
                else:
                    found += reversed(list(intervals(layout.decode_segment_row(raw))))
            except StoreCorruptedError as error:
                raise StoreCorruptedError(f"key {key!r:.80}, segment {parts[place]}: {error}") from error
        yield key, found


def _of_segment(
    rows: Rows, segment: int, place: int, key_from: bytes, key_to: bytes | None
) -> Iterator[tuple[bytes, int, bytes]]:
    stop = None if segment == LATEST else _behind(segment)
    if key_to is not None:
        stop = row_key(segment, key_to)
    for raw_key, raw in rows.scan(row_key(segment, key_from), stop):
        yield raw_key[layout.SEGMENT_BYTES :], place, raw


def _behind(segment: int) -> bytes:
    stop = after_prefix(row_key(segment, b""))
    assert stop is not None, "the latest values lie behind every segment"
    return stop


def intervals(row: SegmentRow) -> Iterator[RawVersion]:
    """Versions of a row with the times until which they are valid, newest first."""
    valid_to = row.next_timestamp
    for timestamp, value in row.versions:
        yield RawVersion(value, timestamp, valid_to)
        valid_to = timestamp
