"""Stores that Kafka Streams' DSL makes with the times of a row in front of its key (`formats/time_ordered_key.py`).

Windows and sessions that are emitted when they close (`EmitStrategy.onWindowClose`, KIP-825), and the buffer of a
stream-table join with a grace period (KIP-923). Only their rows are laid out otherwise: the keys in the changelogs of
windows and sessions are the ordinary ones, and everything that is done by these keys is done as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from statestore.formats import time_ordered_key
from statestore.formats.value_format import TIME_ORDERED_SESSION_HEADERS, TIME_ORDERED_WINDOW_HEADERS, ValueFormat
from statestore.kinds.kind import RowLayout, StoreKind
from statestore.kinds.session import SessionKind
from statestore.kinds.window import WindowKind
from statestore.model import StoreFormat, check_name

_BUFFER_SEGMENT = 0


class TimeOrderedWindowKind(WindowKind):
    """Tumbling and hopping windows that are emitted when they close."""

    name = "time-ordered-window"
    storage = "statestore.stores.time_ordered:WINDOW"
    may_retain_duplicates = False
    only_format = StoreFormat.TIMESTAMPED_IN_DEFAULT
    formats: ClassVar[tuple[StoreFormat, ...]] = (StoreFormat.TIMESTAMPED_IN_DEFAULT,)
    layout = RowLayout(time_ordered_key.WINDOW, indexed=False)
    ordinary_kin = "window"


class IndexedTimeOrderedWindowKind(TimeOrderedWindowKind):
    """Windows that are emitted when they close and have an index by key: sliding ones, and all that keep headers."""

    name = "indexed-time-ordered-window"
    storage = "statestore.stores.time_ordered:INDEXED_WINDOW"
    formats = (StoreFormat.TIMESTAMPED_IN_DEFAULT, StoreFormat.HEADERS)
    layout = RowLayout(time_ordered_key.WINDOW, indexed=True)

    def value_format(self, store_format: StoreFormat) -> ValueFormat:
        """Headers have a column family of their own."""
        return (
            TIME_ORDERED_WINDOW_HEADERS if store_format is StoreFormat.HEADERS else super().value_format(store_format)
        )


class TimeOrderedSessionKind(SessionKind):
    """Sessions that are emitted when they close; they have an index by key.

    Kafka Streams 4.3.1 keeps no headers of theirs, also where it is told to: only the column family is another one.
    """

    name = "time-ordered-session"
    formats = (StoreFormat.PLAIN, StoreFormat.HEADERS)
    storage = "statestore.stores.time_ordered:SESSION"
    layout = RowLayout(time_ordered_key.SESSION, indexed=True)
    ordinary_kin = "session"

    def value_format(self, store_format: StoreFormat) -> ValueFormat:
        """Where headers would be kept, plain values are."""
        return (
            TIME_ORDERED_SESSION_HEADERS if store_format is StoreFormat.HEADERS else super().value_format(store_format)
        )


class TimeOrderedBufferKind(StoreKind):
    """Records that a join holds back for its grace period: one segment, which never expires.

    0           1        9                  n - 4        n
    +-----------+--------+------------------+------------+
    | 00        | time   | key bytes        | number     |      the row key; the key in the changelog is the same
    +-----------+--------+------------------+------------+

    A value in the changelog has eight zeros more than in the store (`logged_values_end_with`).
    """

    name = "time-ordered-buffer"
    storage = "statestore.stores.time_ordered:BUFFER"
    only_format = StoreFormat.PLAIN
    formats = (StoreFormat.PLAIN,)
    suite = "key_value"
    ordinary_kin = "key-value"
    logged_values_end_with = bytes(8)
    offsets_are_beside = True

    @property
    def segmented(self) -> bool:
        """True: its database lies where the first segment of a window store does."""
        return True

    def directory(self, task_directory: Path, store: str) -> Path:
        """Directory of the only segment's directory."""
        return task_directory / check_name(store)

    def row_time(self, row_key: bytes) -> int:
        """All rows are in one segment."""
        return _BUFFER_SEGMENT

    def row_times(self, row_keys: Sequence[bytes]) -> Sequence[int]:
        """`row_time` of many rows at once."""
        return [_BUFFER_SEGMENT] * len(row_keys)

    def may_be_in_segment(self, start_ms: int, time_to: int) -> bool:
        """All rows are in one segment."""
        return True


TIME_ORDERED_WINDOW = TimeOrderedWindowKind()
INDEXED_TIME_ORDERED_WINDOW = IndexedTimeOrderedWindowKind()
TIME_ORDERED_SESSION = TimeOrderedSessionKind()
TIME_ORDERED_BUFFER = TimeOrderedBufferKind()
