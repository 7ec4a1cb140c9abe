"""Our window store of bytes: rows by key and window start, in segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from statestore.formats import window_key
from statestore.formats.value_format import AnyFormat
from statestore.kinds.window import WINDOW
from statestore.stores.api import WindowBytesStore
from statestore.stores.readers import WindowReader
from statestore.stores.segmented import SegmentedBytes


class WindowBytes(SegmentedBytes, WindowBytesStore):
    """A window store in one format.

    Results come segment by segment, in each by key bytes and then by time, as from Kafka Streams' RocksDB store. Rows
    older than the retention are not shown, also while their segment is still there.
    """

    kind = WINDOW

    def __init__(
        self,
        name: str,
        store_format: AnyFormat,
        retention_ms: int,
        window_size_ms: int,
        *,
        retain_duplicates: bool,
        persistent: bool,
        transactional: bool,
    ) -> None:
        super().__init__(name, store_format, retention_ms, persistent=persistent, transactional=transactional)
        self.window_size_ms = window_size_ms
        self.retain_duplicates = retain_duplicates
        self.sequence = 0

    def put(self, key: bytes, value: bytes | None, window_start: int) -> bool:
        """Write a window's value, None deletes; with retained duplicates each value is added and None is ignored."""
        if self.retain_duplicates:
            if value is None:
                return True
            self.sequence = self._unused_sequence(key, window_start)
        return self.put_row(window_key.encode(key, window_start, self.sequence), window_start, value)

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[int]:
        """Write many rows; None deletes, and is ignored if duplicates are retained; see `SegmentedBytes.put_rows`."""
        if not self.retain_duplicates or None not in values:
            return super().put_rows(row_keys, values)
        kept = [index for index, value in enumerate(values) if value is not None]
        expired = super().put_rows([row_keys[index] for index in kept], [values[index] for index in kept])
        return [kept[index] for index in expired]

    def restore(self, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Apply changelog rows; with retained duplicates, a null only advances stream time."""
        batch = list(rows)
        if self.retain_duplicates and batch:
            self.opened.advance(max(self.kind.row_times([row_key for row_key, _ in batch])))
            batch = [row for row in batch if row[1] is not None]
        return super().restore(batch)

    def put_back(self, row_key: bytes, value: bytes | None) -> None:
        """Undo a write: put a row back as it was stored; None deletes it, also a duplicate."""
        if self.retain_duplicates:
            self.put_row(row_key, self.kind.row_time(row_key), value)
        else:
            self.restore([(row_key, value)])

    def _unused_sequence(self, key: bytes, window_start: int) -> int:
        # Numbers start anew with each opening; Kafka Streams would write over the duplicates of the run before.
        segment = self.opened.for_read(window_start)
        number = self.sequence
        while True:
            number = (number + 1) & window_key.MAX_SEQUENCE
            if segment is None or segment.unmigrated.get(window_key.encode(key, window_start, number)) is None:
                return number

    def fetch(self, key: bytes, window_start: int, *, committed: bool = False) -> bytes | None:
        """Read one window's value; of retained duplicates, the one with the largest number."""
        if self.retain_duplicates:
            found = self.fetch_range(key, key, window_start, window_start, reverse=True, committed=committed)
            return next((value for _, _, value in found), None)
        return self.get_row(window_key.encode(key, window_start), window_start, committed=committed)

    def committed(self) -> WindowReader:
        """Where to read without what is not committed; reading migrates nothing."""
        return _CommittedWindows(self)

    def fetch_range(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        time_from: int,
        time_to: int,
        *,
        reverse: bool = False,
        committed: bool = False,
    ) -> Iterator[tuple[bytes, int, bytes]]:
        """(key, window start, value) for keys and window starts in the ranges, both ends inclusive; None is open."""
        segments = self.opened
        time_from = max(time_from, segments.oldest_visible(committed=committed), 0)
        if key_from is not None and key_from == key_to:
            bounds: tuple[bytes | None, bytes | None] = self.kind.key_bounds(key_from, time_from, time_to)
        else:
            bounds = self.kind.range_bounds(key_from, key_to)
        scans = [
            (segment.committed if committed else segment.rows).scan(*bounds, reverse=reverse)
            for segment in segments.between(time_from, time_to, reverse=reverse)
        ]
        return _windows(scans, key_from, key_to, time_from, time_to)


class _CommittedWindows:
    def __init__(self, store: WindowBytes) -> None:
        self.window_size_ms = store.window_size_ms
        self.fetch = partial(store.fetch, committed=True)
        self.fetch_range = partial(store.fetch_range, committed=True)


def _windows(
    scans: list[Iterator[tuple[bytes, bytes]]],
    key_from: bytes | None,
    key_to: bytes | None,
    time_from: int,
    time_to: int,
) -> Iterator[tuple[bytes, int, bytes]]:
    for scan in scans:
        for row_key, value in scan:
            key, start, _ = window_key.decode(row_key)
            if (
                time_from <= start <= time_to
                and (key_from is None or key >= key_from)
                and (key_to is None or key <= key_to)
            ):
                yield key, start, value
