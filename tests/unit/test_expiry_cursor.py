"""Rows older than the ttl of their store: what is deleted, when, and how much of the log is read for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.kafka.record_columns import SCHEMA
from statestore.model import StoreFormat
from statestore.statedir.record import ExpiryCursor
from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp, ValueTimestampHeaders
from statestore.tasks.driver_logs import ListReader
from statestore.tasks.expiry import is_due, pass_records, returned
from statestore.testing import TopologyTestDriver
from tests.session.examples import examples

TTL_MS = 100
MODULE = __name__
LATEST = {"aggregations": [{"store": "s", "aggregate": "latest", "output_topic": "out"}]}


def keep(record: Record, context: ProcessorContext) -> None:
    """Keep the value at the time that it names, or delete the row."""
    store = context.state_store("s")
    if record.value is None:
        store.delete(record.key)
    elif store.format == StoreFormat.HEADERS:
        store.put(record.key, ValueTimestampHeaders(record.value, int(record.value), record.headers))
    else:
        store.put(record.key, ValueAndTimestamp(record.value, int(record.value)))


def definition(ttl_ms: int | None = TTL_MS, engine: str = "in_memory", **changed: Any) -> ApplicationDefinition:
    store = {"name": "s", "ttl_ms": ttl_ms, "engine": engine, **changed.pop("store", {})}
    processing = changed or {"processor": f"{MODULE}:keep"}
    return ApplicationDefinition(name="app", input_topic="in", stores=(store,), **processing)


def rows(driver: TopologyTestDriver) -> dict[bytes, int]:
    return {key: value.timestamp for key, value in driver.store("s").all()}


# -- what is deleted ----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("F12")
@pytest.mark.parametrize("engine", ["in_memory", "txn_rocksDB", pytest.param("rocksDB", marks=pytest.mark.long)])
@pytest.mark.parametrize("store_format", ["timestamped", "headers"])
def test_an_old_row_is_deleted_by_a_logged_delete_and_one_written_again_stays(engine, store_format):
    with TopologyTestDriver(definition(engine=engine, store={"format": store_format})) as driver:
        for key, timestamp in ((b"a", 1_000), (b"b", 1_001), (b"a", 1_050)):
            driver.pipe(key, b"%d" % timestamp, timestamp=timestamp)
        driver.pipe(b"c", b"1101", timestamp=1_101)
        assert rows(driver) == {b"a": 1_050, b"b": 1_001, b"c": 1_101}  # exactly as old as the ttl is not older
        driver.pipe(b"d", b"1102", timestamp=1_102)
        assert rows(driver) == {b"a": 1_050, b"c": 1_101, b"d": 1_102}
        assert driver.read("app-s-changelog")[-1] == (b"b", None, 1_102, ())


@pytest.mark.behaviour("F12")
def test_the_result_of_an_aggregation_that_is_old_is_forwarded_as_deleted():
    with TopologyTestDriver(definition(**LATEST)) as driver:
        driver.pipe(b"a", b"1", timestamp=1_000)
        driver.pipe(b"b", b"2", timestamp=2_000)
        assert [record[:3] for record in driver.read("out")] == [
            (b"a", b"1", 1_000),
            (b"b", b"2", 2_000),
            (b"a", None, 2_000),
        ]


_INPUTS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"d", b"e"]),
        st.sampled_from([0, 0, 1, 10, 60, 99, 250]),
        st.sampled_from([0, 0, 0, 5, 90, 120, 400, -7, -1_000_000]),
        st.booleans(),
    ),
    max_size=60,
)


@pytest.mark.behaviour("F12", "F14")
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(inputs=_INPUTS, restarts=st.sets(st.integers(0, 60), max_size=4))
def test_no_row_goes_early_and_none_stays_longer_than_the_ttl_after_it_was_written(inputs, restarts):
    """A row may be late (back), or from the future (negative back). One of the future goes once it is old."""
    with TopologyTestDriver(definition()) as driver:
        clock, known = 10_000, {}
        for number, (key, forward, back, deleted) in enumerate(inputs):
            clock += forward
            time = clock - back
            driver.pipe(key, None if deleted and back == 0 else b"%d" % time, timestamp=clock)
            known.pop(key, None)
            if not (deleted and back == 0):
                known[key] = time, clock
            found, limit = rows(driver), clock - TTL_MS
            must = {key: time for key, (time, _) in known.items() if time >= limit}
            assert must.items() <= found.items(), "a row went early"
            assert found.items() <= {key: time for key, (time, _) in known.items()}.items()
            late = {
                key for key, (time, written) in known.items() if time < limit and written < limit and time <= written
            }
            assert not late & found.keys(), "a row stayed"
            if number in restarts:
                driver.restart()
        clock += TTL_MS + 1
        driver.pipe(b"z", b"%d" % clock, timestamp=clock)
        driver.pipe(b"z", b"%d" % (clock + 2 * TTL_MS), timestamp=clock + 2 * TTL_MS)
        left = {key: time for key, (time, _) in known.items() if time > clock}
        assert rows(driver) == {**left, b"z": clock + 2 * TTL_MS}


# -- how much is read ---------------------------------------------------------------------------------------------


def records(*found: tuple[int, bytes | None, bytes | None, int]) -> pa.RecordBatch:
    """Return (offset, key, value, timestamp) as they are read from a log."""
    offsets, keys, values, timestamps = zip(*found, strict=True)
    columns = zip((keys, values, timestamps, offsets), SCHEMA.types, strict=True)
    return pa.record_batch([pa.array(list(column), kind) for column, kind in columns], schema=SCHEMA)


@pytest.mark.behaviour("F14")
def test_a_cursor_stops_at_the_first_record_that_is_not_old_and_nothing_is_read_until_it_is():
    log = records(
        (3, b"a", b"1", 10), (5, b"b", None, 99), (6, b"a", b"2", 11), (8, b"c", b"1", 50), (9, b"d", b"1", 5)
    )
    cursor, keys, stopped = pass_records(ExpiryCursor(), log, 50, 150)
    assert (cursor, keys, stopped) == (ExpiryCursor(offset=8, time=50), [b"a"], True)
    assert not is_due(cursor, 50)
    assert is_due(cursor, 51)
    assert not is_due(ExpiryCursor(), 0)
    assert pass_records(cursor, log.slice(0, 0), 51, 150) == (cursor, [], False)


@pytest.mark.behaviour("F14")
def test_a_record_of_the_future_does_not_hold_up_others_and_is_returned_to_once_it_is_old():
    log = records((0, b"far", b"1", 9_000), (1, b"near", b"1", 700), (2, b"a", b"1", 10), (3, None, b"1", 60))
    cursor, keys, stopped = pass_records(ExpiryCursor(), log, 50, 150)
    assert (cursor, keys, stopped) == (ExpiryCursor(offset=4, skipped_offset=0, skipped_time=700), [b"a"], False)
    assert returned(cursor, 700) == cursor
    assert returned(cursor, 701) == ExpiryCursor()
    assert pass_records(ExpiryCursor(), log, 701, 800)[:2] == (
        ExpiryCursor(offset=4, skipped_offset=0, skipped_time=9_000),
        [b"near", b"a"],
    )


@pytest.mark.behaviour("F14")
def test_a_run_reads_a_bounded_part_and_the_next_run_continues(monkeypatch):
    monkeypatch.setattr("statestore.tasks.task_store.LEAST_RECORDS", 1)
    whole, read = ListReader.read, []

    def one_by_one(self: ListReader, *arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in whole(self, *arguments):
            for at in range(len(batch)):
                read.append(batch.column("offset")[at].as_py())
                yield batch.slice(at, 1)

    monkeypatch.setattr(ListReader, "read", one_by_one)
    with TopologyTestDriver(definition(), commit_every=None) as driver:
        for key in (b"a", b"b", b"c"):
            driver.pipe(key, b"1000", timestamp=1_000)
        driver.commit()
        read.clear()
        driver.pipe(b"d", b"5000", timestamp=5_000)
        for left in ({b"b", b"c", b"d"}, {b"c", b"d"}, {b"d"}):
            driver.commit()
            assert rows(driver).keys() == left
        assert read == [0, 1, 2]


# -- definitions --------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("F14")
@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "plain"},
        {"kind": "window", "window_size_ms": 10, "retention_ms": 100},
        {"supplier": "users:supplier"},
        {"ttl_ms": 0},
    ],
    ids=["plain", "window", "supplier", "zero"],
)
def test_a_ttl_needs_a_key_value_store_with_timestamps(wrong):
    with pytest.raises(ValidationError, match="ttl_ms"):
        StoreDefinition(**{"name": "s", "ttl_ms": 10, **wrong})


def test_a_definition_without_a_ttl_is_written_as_before():
    assert "ttl_ms" not in StoreDefinition(name="s").model_dump()
    assert StoreDefinition(name="s", ttl_ms=7).model_dump()["ttl_ms"] == 7
