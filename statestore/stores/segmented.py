"""The common part of the built-in window and session stores: their segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import ClassVar

from statestore.formats.value_format import AnyFormat
from statestore.kinds.kind import StoreKind
from statestore.stores.api import StoreContext
from statestore.stores.built_in import BuiltInBytes
from statestore.stores.commit_log import CommitLog
from statestore.stores.database import Database, DatabaseSpec
from statestore.stores.last_use import commits_directory
from statestore.stores.segment_homes import DiskHome, MemoryHome, SegmentHome
from statestore.stores.segment_starts import segment_interval_ms
from statestore.stores.segments import Segments

_LIVE_SEGMENTS = 4


class SegmentedBytes(BuiltInBytes[Segments]):
    """A store with time segments, on disk or in memory, with or without transactions."""

    #: What its row keys are.
    kind: ClassVar[StoreKind]

    def __init__(
        self, name: str, store_format: AnyFormat, retention_ms: int, *, persistent: bool, transactional: bool
    ) -> None:
        super().__init__(name, store_format, persistent=persistent, transactional=transactional)
        self.retention_ms = retention_ms

    def _open(self, context: StoreContext, spec: DatabaseSpec) -> Segments:
        # Retention spans three segments, and a new one may come before the oldest goes: each has its part of the bound.
        share = spec.uncommitted_max_bytes // _LIVE_SEGMENTS
        spec = replace(spec, uncommitted_max_bytes=share, layout=self.kind.layout)
        home: SegmentHome = MemoryHome(spec)
        if self.persistent:
            home = DiskHome(
                spec,
                context.directory_of(self.name, self.kind),
                context.own_directory / "segments" / self.name,
                segment_interval_ms(self.retention_ms),
                CommitLog(commits_directory(context.own_directory, self.name), only_copy=not spec.logged),
                without_left_over=context.without_left_over_segments,
                opening=lambda: context.about_to_open(self.name),
                read_only=context.read_only,
            )
        return Segments(home, self.retention_ms)

    def database_at(self, segment: int, size: int) -> Database | None:
        """Return the database for rows of a segment (its start in ms) and their size in bytes; None if it has expired.

        It is created if it does not exist.
        """
        return self.opened.for_write(segment, size)

    def put_row(self, row_key: bytes, timestamp: int, value: bytes | None) -> bool:
        """Write a row into the segment of its timestamp; return False if that has expired."""
        size = len(row_key) + (0 if value is None else len(value))
        segment = self.opened.for_write(timestamp, size)
        if segment is None:
            return False
        segment.rows.put(row_key, value)
        return True

    def get_row(self, row_key: bytes, timestamp: int, *, committed: bool) -> bytes | None:
        """Read a row, or the committed row. A row older than the retention is not returned."""
        segments = self.opened
        segment = segments.for_read(timestamp)
        if segment is None or timestamp < segments.oldest_visible(committed=committed):
            return None
        return (segment.committed if committed else segment.rows).get(row_key)

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows by their keys in the changelog. Rows older than the retention are not returned."""
        segments = self.opened
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
        """Write many rows in their order; None deletes. Return the indexes of those that had expired.

        Consecutive rows of one segment are written at once: they expire together or not at all.
        """
        expired: list[int] = []
        interval_ms = self.opened.interval_ms
        timestamps = self.kind.row_times(row_keys)
        first = 0
        for _, run in groupby([timestamp // interval_ms for timestamp in timestamps]):
            after = first + len(list(run))
            changes = dict(zip(row_keys[first:after], values[first:after], strict=True))
            size = sum(map(len, changes)) + sum(len(value) for value in changes.values() if value is not None)
            segment = self.opened.for_write(max(timestamps[first:after]), size)
            if segment is None:
                expired += range(first, after)
            else:
                segment.rows.put_many(changes)
            first = after
        return expired

    def stored_row(self, row_key: bytes) -> bytes | None:
        """Read a row as it is stored, even if it is older than the retention. Nothing is migrated."""
        segment = self.opened.for_read(self.kind.row_time(row_key))
        return None if segment is None else segment.unmigrated.get(row_key)

    def restore(self, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Apply changelog rows in the store's layout; return how many had expired.

        Stream time first advances to the largest timestamp of the batch, so that rows that expire within the batch are
        not written (conformance S3).
        """
        batch = list(rows)
        timestamps = self.kind.row_times([row_key for row_key, _ in batch])
        if batch:
            self.opened.advance(max(timestamps))
        return sum(
            not self.put_row(row_key, timestamp, value)
            for (row_key, value), timestamp in zip(batch, timestamps, strict=True)
        )

    @property
    def stream_time(self) -> int:
        """Largest timestamp (ms) written since the store was opened; -1 before the first."""
        return self.opened.stream_time

    def set_back_stream_time(self, timestamp: int) -> None:
        """Set stream time back to its value before writes that are undone."""
        self.opened.stream_time = timestamp

    def advance_stream_time(self, timestamp: int) -> None:
        """Advance stream time to a timestamp from another source, such as the application's. A rollback keeps it."""
        self.opened.advance(timestamp, committed=True)
