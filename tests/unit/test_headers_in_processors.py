"""Processors that read and write headers with the values of their stores (KIP-1271), and aggregations there."""

from __future__ import annotations

import pytest

from statestore.stores.api import Windowed
from statestore.tasks import BYTES, AggregationWithHeaders, ProcessorContext, Record, ValueTimestampHeaders, reduce_by
from statestore.testing import TopologyTestDriver

NOTES = (("trace", b"1"), ("trace", None), ("größe", b""))
STORES = [
    {"name": "noted", "format": "headers"},
    {"name": "noted-windows", "kind": "window", "format": "headers", "retention_ms": 60_000, "window_size_ms": 100},
    {"name": "noted-sessions", "kind": "session", "format": "headers", "retention_ms": 60_000},
]
LONGEST = reduce_by(lambda one, other: max(one, other, key=len), value=BYTES)
ENGINES = ["in_memory", "rocksDB", "txn_rocksDB"]


def keep(record: Record, context: ProcessorContext) -> None:
    """Keep a record in each store, or forget it; forward the headers that were kept before."""
    store, windows = context.state_store("noted"), context.state_store("noted-windows")
    sessions, session = context.state_store("noted-sessions"), Windowed(record.key, 0, 5)
    before = store.get(record.key)
    assert context.headers == record.headers
    if before is not None:
        context.forward(record.key, before.value, headers=before.headers)
    if record.value is None:
        store.delete(record.key)
        windows.put(record.key, None, 0)
        sessions.remove(session)
        return
    value = ValueTimestampHeaders(record.value, record.timestamp, record.headers)
    store.put(record.key, value)
    windows.put(record.key, value, 0)
    sessions.put(session, AggregationWithHeaders(record.value, record.headers))


def made(engine: str) -> TopologyTestDriver:
    definition = {
        "name": "notes",
        "input_topic": "in",
        "output_topics": ["out"],
        "processor": f"{__name__}:keep",
        "stores": STORES,
    }
    return TopologyTestDriver(definition, engine=engine)


@pytest.mark.behaviour("H4")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_processor_reads_the_headers_that_it_wrote_and_the_changelog_has_them_as_the_records(engine: str) -> None:
    with made(engine) as driver:
        driver.pipe(b"k", b"v", timestamp=1_000, headers=NOTES)
        driver.pipe(b"k", None, timestamp=1_001, headers=(("why", b"gone"),))
        assert driver.read("out") == [(b"k", b"v", 1_001, NOTES)]
        for store in STORES:
            [kept, gone] = driver.read(f"notes-{store['name']}-changelog")
            assert (kept.value, kept.timestamp, kept.headers) == (b"v", 1_000, NOTES)
            assert (gone.value, gone.timestamp, gone.headers) == (None, 1_001, (("why", b"gone"),))


@pytest.mark.short_for("txn_rocksDB")
@pytest.mark.behaviour("H5")
@pytest.mark.parametrize("engine", ENGINES)
def test_headers_are_there_again_after_a_crash_and_a_replay(engine: str) -> None:
    with made(engine) as driver:
        driver.pipe(b"k", b"v", timestamp=1_000, headers=NOTES)
        driver.pipe(b"none", b"v", timestamp=1_000)
        driver.restart(crash=True)
        assert driver.store("noted").get(b"k") == ValueTimestampHeaders(b"v", 1_000, NOTES)
        assert driver.store("noted").get(b"none") == ValueTimestampHeaders(b"v", 1_000)
        assert driver.store("noted-windows").fetch(b"k", 0) == ValueTimestampHeaders(b"v", 1_000, NOTES)
        assert driver.store("noted-sessions").fetch_session(b"k", 0, 5) == AggregationWithHeaders(b"v", NOTES)


@pytest.mark.short_for(every=5)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["key-value", "window", "session"])
@pytest.mark.parametrize("aggregate", ["count", f"{__name__}:LONGEST"])
def test_an_aggregation_writes_no_headers(engine: str, kind: str, aggregate: str) -> None:
    divided: dict[str, dict[str, object]] = {
        "key-value": {},
        "window": {"windows": {"size_ms": 100}},
        "session": {"sessions": {"gap_ms": 100}},
    }
    times = {"window": {"retention_ms": 60_000, "window_size_ms": 100}, "session": {"retention_ms": 60_000}}
    definition = {
        "name": "folded",
        "input_topic": "in",
        "stores": [{"name": "s", "kind": kind, "format": "headers", **times.get(kind, {})}],
        "aggregations": [{"store": "s", "aggregate": aggregate, **divided[kind]}],
    }
    with TopologyTestDriver(definition, engine=engine) as driver:
        for value in (b"long", b"v"):
            driver.pipe(b"k", value, timestamp=1_000, headers=NOTES)
        driver.restart()
        driver.pipe(b"k", b"longest", timestamp=1_001, headers=NOTES)
        expected = (3).to_bytes(8, "big") if aggregate == "count" else b"longest"
        [(_, found)] = driver.store("s").all()
        assert (found[0], found.headers) == (expected, ())
        assert kind == "session" or found.timestamp == 1_001
        assert {record.headers for record in driver.read("folded-s-changelog")} == {()}
