"""Applications that are killed: one processor with a store of each kind, and ready-made aggregations of each kind.

What they must leave is computed a second time in `model.py`, in plain Python.
"""

from __future__ import annotations

from typing import Any

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.fields import Engine, Guarantee
from statestore.definitions.store import StoreDefinition
from statestore.model import StoreFormat
from statestore.stores.api import Windowed
from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp

WINDOW_MS = 10_000
GAP_MS = 5_000
GRACE_MS = 20_000
#: Segments are half as long.
RETENTION_MS = 120_000
#: Of the topic that regrouped records go through.
GROUPS = 2


def process(record: Record, context: ProcessorContext) -> None:
    """Count by key, by window and by session, and keep the latest value; a null value forgets key and value."""
    counts, latest = context.state_store("counts"), context.state_store("latest")
    if record.value is None:
        counts.delete(record.key)
        latest.delete(record.key)
        context.forward(record.key, None)
        return
    total = b"%d" % (1 + _number(counts, counts.get(record.key)))
    counts.put(record.key, _stored(counts, total, record.timestamp))
    latest.put(record.key, _stored(latest, record.value, record.timestamp))
    context.forward(record.key, total)
    _count_window(record, context)
    _count_session(record, context)


def _count_window(record: Record, context: ProcessorContext) -> None:
    store = context.state_store("hourly")
    start = record.timestamp - record.timestamp % WINDOW_MS
    total = b"%d" % (1 + _number(store, store.fetch(record.key, start)))
    store.put(record.key, _stored(store, total, record.timestamp), start)
    context.forward(b"window of " + record.key, total)


def _count_session(record: Record, context: ProcessorContext) -> None:
    store, at = context.state_store("visits"), record.timestamp
    start, end, total = at, at, 1
    for session, value in list(store.find_sessions(record.key, max(at - GAP_MS, 0), at + GAP_MS)):
        start, end = min(start, session.start), max(end, session.end)
        total += _number(store, value)
        store.remove(session)
    value = b"%d" % total
    store.put(Windowed(record.key, start, end), _stored(store, value, at))
    context.forward(b"session of " + record.key, value)


def _number(store: Any, found: Any) -> int:
    if found is None:
        return 0
    return int(found.value if store.format is StoreFormat.TIMESTAMPED else found)


def _stored(store: Any, value: bytes, timestamp: int) -> Any:
    return ValueAndTimestamp(value, timestamp) if store.format is StoreFormat.TIMESTAMPED else value


def group_of(record: Record) -> bytes:
    """Group by the first letter of the value."""
    return (record.value or b"")[:1]


def with_processor(
    name: str,
    engines: dict[str, Engine],
    formats: dict[str, StoreFormat],
    guarantee: Guarantee = "exactly_once_v2",
    **settings: Any,
) -> ApplicationDefinition:
    """Define the application with the processor."""
    kinds: dict[str, dict[str, Any]] = {
        "counts": {"kind": "key-value"},
        "latest": {"kind": "key-value"},
        "hourly": {"kind": "window", "retention_ms": RETENTION_MS, "window_size_ms": WINDOW_MS},
        "visits": {"kind": "session", "retention_ms": RETENTION_MS},
    }
    return ApplicationDefinition(
        name=name,
        input_topic=f"{name}-in",
        output_topics=(f"{name}-out",),
        processor=f"{__name__}:process",
        processing_guarantee=guarantee,
        stores=tuple(
            StoreDefinition(name=store, engine=engines[store], format=formats[store], **kind)
            for store, kind in kinds.items()
        ),
        **settings,
    )


def with_aggregations(
    name: str,
    engines: dict[str, Engine],
    guarantee: Guarantee = "exactly_once_v2",
    **settings: Any,
) -> ApplicationDefinition:
    """Define the application with aggregations, one of them in a subtopology of its own."""
    aggregations: list[dict[str, Any]] = [
        {"store": "counts", "output_topic": f"{name}-out"},
        {"store": "hourly", "windows": {"size_ms": WINDOW_MS, "grace_ms": GRACE_MS}},
        {"store": "visits", "sessions": {"gap_ms": GAP_MS, "grace_ms": GRACE_MS}},
        {
            "store": "grouped",
            "group_by": f"{__name__}:group_of",
            "partitions": GROUPS,
        },
    ]
    kinds: dict[str, dict[str, Any]] = {
        "counts": {},
        "grouped": {},
        "hourly": {"kind": "window", "retention_ms": RETENTION_MS, "window_size_ms": WINDOW_MS},
        "visits": {"kind": "session", "retention_ms": RETENTION_MS},
    }
    return ApplicationDefinition.model_validate(
        {
            "name": name,
            "input_topic": f"{name}-in",
            "aggregations": aggregations,
            "processing_guarantee": guarantee,
            "stores": [{"name": store, "engine": engines[store], **kind} for store, kind in kinds.items()],
            **settings,
        }
    )
