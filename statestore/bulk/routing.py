"""Which database of a store a row belongs to, and how rows of all of them are ordered.

Rows are ordered by (segment start, row key); of a key-value store every row is in segment 0.
"""

from __future__ import annotations

from typing import NamedTuple

from statestore.definitions.store import StoreDefinition
from statestore.stores.segment_starts import segment_interval_ms


class Routing(NamedTuple):
    """Which database of a store a row belongs to: the only one, or the segment of its time.

    Attributes
    ----------
    suffix_bytes
        Bytes behind the user's key, of which the first eight are the row's time: 0 in a key-value store, 12 in a window
        store, 16 in a session store (`StoreKind.suffix_bytes`).
    interval_ms, retention_ms
        Length of a segment, and how long rows are kept; None in a key-value store.
    ignores_deletes
        True where duplicates are retained: a null value is no delete there.
    keeps_headers
        True where the values are as they are stored, with their headers. It makes runs of such values others.
    """

    suffix_bytes: int = 0
    interval_ms: int | None = None
    retention_ms: int | None = None
    ignores_deletes: bool = False
    keeps_headers: bool = False

    def oldest_live(self, stream_time: int) -> int:
        """Start (ms) of the oldest segment that is live at a stream time; rows of older ones have expired."""
        if self.interval_ms is None or self.retention_ms is None:
            return 0
        oldest = max(stream_time - self.retention_ms, 0)
        return oldest - oldest % self.interval_ms

    def place(self, key: bytes) -> tuple[int, bytes]:
        """Return what a row key is ordered by: the start (ms) of its segment, and the key."""
        if self.interval_ms is None:
            return 0, key
        at = len(key) - self.suffix_bytes
        time = int.from_bytes(key[at : at + 8], "big", signed=True)
        return time - time % self.interval_ms, key


def routing_of(store: StoreDefinition) -> Routing:
    """Return where the rows of a store belong."""
    keeps_headers = store.values.keeps_headers
    if not store.store_kind.numbers:
        return Routing(keeps_headers=keeps_headers)
    retention_ms = store.retention_ms or 0
    return Routing(
        store.store_kind.suffix_bytes,
        segment_interval_ms(retention_ms),
        retention_ms,
        store.retain_duplicates,
        keeps_headers,
    )
