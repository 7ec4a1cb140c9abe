"""The application whose features meet, and what it must leave: a count by key, and one by key and window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from statestore.definitions.store import StoreDefinition
from statestore.errors import InvalidStateError
from statestore.formats import window_key
from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp
from tests.integration.broker import Logged

#: Of one sequence.
STEPS = 67
COUNTS, HOURLY = "counts", "hourly"
WINDOW_MS = 10_000
#: Segments are half as long.
RETENTION_MS = 120_000
STORES = (
    StoreDefinition(name=COUNTS),
    StoreDefinition(name=HOURLY, kind="window", window_size_ms=WINDOW_MS, retention_ms=RETENTION_MS),
)
DEFINED = {store.name: store for store in STORES}
#: Row keys as in the changelog; values with their timestamps.
Rows = dict[bytes, tuple[bytes, int]]
#: Key of records that write nothing. At least once, what a processor has written before it fails stays in the log.
NOTHING = b"-"
#: Methods of a store that belong to the task, with their arguments. A processor calls one if its name is the input
#: value, after a `!`, or after a `?` to catch the error.
REFUSED: dict[str, tuple[Any, ...]] = {"commit": ({}, {}), "sync": (), "rollback": (), "recover": (None,), "close": ()}


def count(record: Record, context: ProcessorContext) -> None:
    """Count; a null value forgets the key's count."""
    counts, hourly = context.state_store(COUNTS), context.state_store(HOURLY)
    if record.value is None:
        counts.delete(record.key)
        return
    if record.value[:1] in (b"!", b"?"):
        _misbehave(record, counts)
        return
    counts.put(record.key, ValueAndTimestamp(_next(counts.get(record.key)), record.timestamp))
    start = record.timestamp - record.timestamp % WINDOW_MS
    hourly.put(record.key, ValueAndTimestamp(_next(hourly.fetch(record.key, start)), record.timestamp), start)


def _misbehave(record: Record, counts: Any) -> None:
    """Write a row, and call a method that belongs to the task; then fail, or return normally."""
    assert record.value is not None
    name, caught = record.value[1:].decode(), record.value.startswith(b"?")
    if record.key != NOTHING:
        counts.put(record.key, ValueAndTimestamp(b"1000", record.timestamp))
    try:
        getattr(counts, name)(*REFUSED[name])
    except InvalidStateError:
        if not caught:
            raise
        return
    raise ValueError(f"the record fails after {name}")


def _next(found: ValueAndTimestamp[bytes] | None) -> bytes:
    return b"%d" % (1 if found is None else int(found.value) + 1)


def counted(store: str, rows: Mapping[bytes, tuple[bytes, int]], inputs: Iterable[Logged]) -> Rows:
    """Return what a store has after it had these rows, computed in plain Python."""
    found = dict(rows)
    for record in inputs:
        assert record.key is not None
        key = record.key
        if store == HOURLY:
            key = window_key.encode(key, record.timestamp - record.timestamp % WINDOW_MS)
        if record.value is not None:
            before = int(found[key][0]) if key in found else 0
            found[key] = b"%d" % (before + 1), record.timestamp
        elif store == COUNTS:
            found.pop(key, None)
    return found
