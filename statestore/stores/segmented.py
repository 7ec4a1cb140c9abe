"""What our window and session stores share: segments, and everything of a state store that only concerns them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import ClassVar

from statestore.errors import InvalidStateError
from statestore.kinds.kind import StoreKind
from statestore.model import StoreFormat, TopicPartition, check_name
from statestore.stores.api import BytesStore, Offsets, StoreContext, flush_is_deprecated
from statestore.stores.database import half_a_commit
from statestore.stores.key_value import database_spec
from statestore.stores.legacy_position import migrate_position
from statestore.stores.segment_homes import DiskHome, MemoryHome, SegmentHome
from statestore.stores.segments import Segments, segment_interval_ms
from statestore.stores.spill import remove_left_spills

_LIVE_SEGMENTS = 4


class SegmentedBytes(BytesStore):
    """A store whose rows lie in segments by time, on disk or in memory, transactional or not."""

    format: StoreFormat

    def __init__(
        self, name: str, store_format: StoreFormat, retention_ms: int, *, persistent: bool, transactional: bool
    ) -> None:
        self.name = check_name(name)
        self.format = store_format
        self.retention_ms = retention_ms
        self.persistent = self.manages_offsets = persistent
        self.transactional = transactional
        self._segments: Segments | None = None

    #: What its row keys are.
    kind: ClassVar[StoreKind]

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""
        return self._segments is not None and not self._segments.closed

    def init(self, context: StoreContext) -> None:
        """Open every segment.

        Raises
        ------
        RebuildError
            If a segment cannot be used as it is; one unclean segment makes the store unclean.
        UnknownFormatError
            If something lies there that is no segment of this store; it is left alone.
        """
        spec = database_spec(context, self.name, self.format, self.transactional)
        # Retention spans three segments, and a new one may come before the oldest goes: each has its part of the bound.
        spec = replace(spec, uncommitted_max_bytes=spec.uncommitted_max_bytes // _LIVE_SEGMENTS)
        if not context.read_only:
            remove_left_spills(context.own_directory, self.name)
        home: SegmentHome = MemoryHome(spec)
        if self.persistent:
            directory = context.directory_of(self.name, segmented=True)
            own = context.own_directory / "segments" / self.name
            home = DiskHome(
                spec,
                directory,
                own,
                segment_interval_ms(self.retention_ms),
                opening=lambda: context.about_to_open(self.name),
                read_only=context.read_only,
            )
        self._segments = Segments(home, self.retention_ms)
        if self.persistent and not context.read_only:
            try:
                migrate_position(context.task_directory, self.name, self._segments.databases)
            except BaseException:
                self._segments.close(clean=False)
                raise

    def put_row(self, row_key: bytes, timestamp: int, value: bytes | None) -> bool:
        """Write a row into the segment of its timestamp; return False if that has expired."""
        size = len(row_key) + (0 if value is None else len(value))
        segment = self.segments.for_write(timestamp, size)
        if segment is None:
            return False
        segment.rows.put(row_key, value)
        return True

    def get_row(self, row_key: bytes, timestamp: int, *, committed: bool) -> bytes | None:
        """Read a row, or the committed one; one older than the retention is not shown."""
        segments = self.segments
        segment = segments.for_read(timestamp)
        if segment is None or timestamp < segments.oldest_visible(committed=committed):
            return None
        return (segment.committed if committed else segment.rows).get(row_key)

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows by their keys in the changelog; those older than the retention are not shown."""
        segments = self.segments
        oldest = segments.oldest_visible()
        found: list[bytes | None] = [None] * len(row_keys)
        by_segment: dict[int, list[int]] = {}
        for index, timestamp in enumerate(self.kind.row_times(row_keys)):
            if timestamp >= oldest:
                by_segment.setdefault(timestamp - timestamp % segments.interval_ms, []).append(index)
        for start, indexes in by_segment.items():
            segment = segments.for_read(start)
            if segment is not None:
                values = segment.rows.get_many([row_keys[index] for index in indexes])
                for index, value in zip(indexes, values, strict=True):
                    found[index] = value
        return found

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[int]:
        """Write many rows in their order, None deletes; return the indexes of those that had expired.

        Rows that follow each other into one segment are written at once: they expire together or not at all.
        """
        expired: list[int] = []
        interval_ms = self.segments.interval_ms
        timestamps = self.kind.row_times(row_keys)
        first = 0
        for _, run in groupby([timestamp // interval_ms for timestamp in timestamps]):
            after = first + len(list(run))
            changes = dict(zip(row_keys[first:after], values[first:after], strict=True))
            size = sum(map(len, changes)) + sum(len(value) for value in changes.values() if value is not None)
            segment = self.segments.for_write(max(timestamps[first:after]), size)
            if segment is None:
                expired += range(first, after)
            else:
                segment.rows.put_many(changes)
            first = after
        return expired

    def stored_row(self, row_key: bytes) -> bytes | None:
        """Read a row as it is stored, also one older than the retention; nothing is migrated."""
        segment = self.segments.for_read(self.kind.row_time(row_key))
        return None if segment is None else segment.unmigrated.get(row_key)

    def restore(self, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Apply changelog rows in the store's layout; return how many had expired.

        Stream time first reaches the largest timestamp of them all, so that rows that the batch itself makes expire are
        not written (conformance S3).
        """
        batch = list(rows)
        timestamps = self.kind.row_times([row_key for row_key, _ in batch])
        if batch:
            self.segments.advance(max(timestamps))
        return sum(
            not self.put_row(row_key, timestamp, value)
            for (row_key, value), timestamp in zip(batch, timestamps, strict=True)
        )

    @property
    def stream_time(self) -> int:
        """Largest timestamp (ms) written since the store was opened; -1 before the first."""
        return self.segments.stream_time

    def set_back_stream_time(self, timestamp: int) -> None:
        """Have stream time be what it was before writes that are undone."""
        self.segments.stream_time = timestamp

    def advance_stream_time(self, timestamp: int) -> None:
        """Let stream time reach a timestamp known from elsewhere, such as the application's; a rollback keeps it."""
        self.segments.advance(timestamp, committed=True)

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted rows."""
        return self.segments.staged_bytes

    @property
    def upgrade_pending(self) -> bool:
        """True if a segment had rows in an older format when it was opened."""
        return any(segment.upgrade_pending for segment in self.segments.databases)

    def commit(self, offsets: Offsets, position: Offsets | None = None) -> None:
        """Commit every segment with the same offsets; expired segments go."""
        self.segments.commit(offsets, position)

    def recover(self, changelog_offset: int | None) -> bool:
        """Discard what was not committed; the changelog's tail does the rest.

        False without transactions, and after a commit that failed half way.
        """
        if self.segments.half_committed:
            return False
        self.rollback()
        return self.transactional

    def rollback(self) -> None:
        """Discard what was written since the last commit, and the stream time that it brought.

        Raises
        ------
        InvalidStateError
            If a commit failed half way.
        """
        segments = self.segments
        if segments.half_committed:
            raise half_a_commit(self.name)
        if self.transactional:
            segments.rollback()

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Smallest offset that every segment has."""
        return self.segments.committed_offset(topic_partition)

    def clear_offsets(self) -> None:
        """Forget committed offsets and position; the status stays."""
        self.segments.clear_offsets()

    def flush(self) -> None:
        """Deprecated: does nothing."""
        flush_is_deprecated(self.name)

    def sync(self) -> None:
        """Wait until all that was committed is on disk."""
        self.segments.sync()

    def position(self) -> dict[TopicPartition, int]:
        """Input offsets committed."""
        return self.segments.position()

    def close(self, *, clean: bool = True) -> None:
        """Close every segment; iterators that are still open end with an error."""
        if self._segments is not None and not self._segments.closed:
            self._segments.close(clean=clean)

    @property
    def segments(self) -> Segments:
        """The open segments.

        Raises
        ------
        InvalidStateError
            If the store is closed, or was never opened.
        """
        if self._segments is None or self._segments.closed:
            raise InvalidStateError(f"store {self.name} is closed; call init to open it")
        return self._segments
