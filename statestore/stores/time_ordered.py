"""Our stores of bytes over what Kafka Streams' DSL makes (`kinds/time_ordered.py`), for reading and for restores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from statestore.errors import StoreCorruptedError
from statestore.kinds.time_ordered import (
    INDEXED_TIME_ORDERED_WINDOW,
    TIME_ORDERED_BUFFER,
    TIME_ORDERED_SESSION,
    TIME_ORDERED_WINDOW,
)
from statestore.model import StoreFormat
from statestore.stores.segmented import SegmentedBytes
from statestore.stores.session import SessionBytes
from statestore.stores.storage import SESSION as ORDINARY_SESSION
from statestore.stores.storage import WINDOW as ORDINARY_WINDOW
from statestore.stores.storage import Storage
from statestore.stores.table import Row
from statestore.stores.typed import SessionStore, TypedStore, WindowStore
from statestore.stores.window import WindowBytes

#: All rows of a buffer are of time 0 here, so that its only segment never expires, however short it is.
_SHORTEST_MS = 0


class _Windows(WindowBytes):
    def __init__(self, name: str, store_format: StoreFormat, **settings: Any) -> None:
        super().__init__(name, store_format, retain_duplicates=False, **settings)


class TimeOrderedWindowBytes(_Windows):
    """Windows without an index."""

    kind = TIME_ORDERED_WINDOW


class IndexedTimeOrderedWindowBytes(_Windows):
    """Windows with an index."""

    kind = INDEXED_TIME_ORDERED_WINDOW


class TimeOrderedSessionBytes(SessionBytes):
    """Sessions with an index."""

    kind = TIME_ORDERED_SESSION


class BufferBytes(SegmentedBytes):
    """The buffer of a join: rows by time, key and number, all in one segment."""

    kind = TIME_ORDERED_BUFFER

    def __init__(self, name: str, store_format: StoreFormat, *, persistent: bool, transactional: bool) -> None:
        super().__init__(name, store_format, _SHORTEST_MS, persistent=persistent, transactional=transactional)

    def restore(self, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Apply changelog rows; nothing expires."""
        return super().restore((key, None if value is None else _as_stored(value)) for key, value in rows)

    def scan(self) -> Iterator[Row]:
        """All rows in order."""
        for database in self.opened.databases:
            yield from database.rows.scan()


def _as_stored(value: bytes) -> bytes:
    end = TIME_ORDERED_BUFFER.logged_values_end_with
    if not value.endswith(end):
        raise StoreCorruptedError(f"a buffered value in the changelog ends with {len(end)} zeros, found {value[-8:]!r}")
    return value[: -len(end)]


class BufferStore(TypedStore[Any, Any, Any]):
    """The part of a buffer that a restore uses."""

    scope = "-buffer"

    @property
    def is_empty(self) -> bool:
        """True if there are no rows."""
        return next(self.inner.scan(), None) is None


WINDOW = Storage(WindowStore, TimeOrderedWindowBytes, ORDINARY_WINDOW.methods, ORDINARY_WINDOW.rows)
INDEXED_WINDOW = WINDOW._replace(inner=IndexedTimeOrderedWindowBytes)
SESSION = Storage(SessionStore, TimeOrderedSessionBytes, ORDINARY_SESSION.methods, ORDINARY_SESSION.rows)
BUFFER = Storage(BufferStore, BufferBytes, ("scan",), lambda store: store.scan())
