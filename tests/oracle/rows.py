"""What a store must hold after records: the fold of its changelog, without the rows that have expired."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from statestore.definitions.store import StoreDefinition
from statestore.formats import session_key, window_key
from statestore.formats.timestamped_value import ValueAndTimestamp

Row = TypeVar("Row")


def fold(
    records: Iterable[tuple[Any, ...]], rows: Mapping[bytes, tuple[bytes, int]] | None = None
) -> dict[bytes, ValueAndTimestamp[bytes]]:
    """Last write per key, over rows that were there; null deletes, a null key is nothing (conformance O1, R1).

    Parameters
    ----------
    records
        Each ends with key, value and timestamp (ms).
    """
    found = {key: ValueAndTimestamp(*row) for key, row in (rows or {}).items()}
    for *_, key, value, timestamp in records:
        if key is None:
            continue
        if value is None:
            found.pop(key, None)
        else:
            found[key] = ValueAndTimestamp(value, timestamp)
    return found


def time_of(store: StoreDefinition, row_key: bytes) -> int:
    """Time (ms) by which a row expires; 0 if it never does."""
    if store.kind == "key-value":
        return 0
    return window_key.decode(row_key)[1] if store.kind == "window" else session_key.decode(row_key)[2]


def unexpired(store: StoreDefinition, rows: Mapping[bytes, Row], stream_time: int) -> dict[bytes, Row]:
    """Leave out what is past the store's retention at a stream time (ms)."""
    if store.kind == "key-value":
        return dict(rows)
    assert store.retention_ms is not None
    return {key: row for key, row in rows.items() if time_of(store, key) > stream_time - store.retention_ms}
