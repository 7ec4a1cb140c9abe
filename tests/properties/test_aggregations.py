"""Aggregations executed in batches against Kafka Streams' record by record, however the input is cut."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statestore.definitions.aggregation import AggregationDefinition, Sessions, TimeWindows
from statestore.definitions.store import StoreDefinition
from statestore.formats import session_key, window_key
from statestore.kafka.record_columns import SCHEMA
from statestore.model import StoreFormat, TaskId, TopicPartition
from statestore.stores.api import StoreContext
from statestore.stores.open import build_store
from statestore.stores.serdes import INT64, JSON, UTF8
from statestore.tasks.aggregates import Aggregate, aggregate, count, latest, reduce_by, sum_of
from statestore.tasks.aggregation import Aggregation, aggregation
from tests.compositions import FORMATS
from tests.integration.broker import Logged
from tests.oracle.aggregations import COUNT, Functions, Model
from tests.session.examples import examples

CHANGELOG = TopicPartition("app-s-changelog", 0)
BIG = 1 << 62


def _collect(_key: bytes, value: Any, so_far: dict[str, Any]) -> dict[str, Any] | None:
    so_far["seen"].append(value)  # changes its accumulator, and fails afterwards
    if value == "poison":
        raise ValueError(value)
    return None if value == "delete" else so_far


def _merge(_key: bytes, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"seen": one["seen"] + ["+"] * bool(one["seen"]) + other["seen"]}


def _chain(so_far: str, value: str) -> str:
    if value == "!":
        raise ValueError(value)
    return f"({so_far}{value})"


def _int64(raw: bytes) -> int:
    return INT64.deserialize(raw)


COLLECT = Functions(json.loads, lambda: {"seen": []}, _collect, _merge, JSON.serialize, json.loads)
CHAIN = Functions(
    bytes.decode,
    lambda: None,
    lambda _key, value, so_far: value if so_far is None else _chain(so_far, value),
    lambda _key, one, other: other if one is None else _chain(one, other),
    str.encode,
    bytes.decode,
)
SUM = Functions(json.loads, int, lambda _k, v, n: n + v["n"], lambda _k, a, b: a + b, INT64.serialize, _int64)
PLAIN_SUM = Functions(_int64, int, lambda _k, v, n: n + v, lambda _k, a, b: a + b, INT64.serialize, _int64)

LATEST = Functions(bytes, lambda: None, lambda _key, value, _so_far: value, lambda *_: None, bytes, bytes, by_time=True)

#: An aggregate, what it does said otherwise, and values, of which some are poison to it.
CASES: dict[str, tuple[Aggregate, Functions, list[bytes]]] = {
    "count": (count(), COUNT, [b"1", b""]),
    "sum": (
        sum_of(lambda value: value["n"]),
        SUM,
        [b'{"n":%d}' % n for n in (1, 7, -3, BIG, -BIG, 5 * BIG)] + [b"{}", b"?", b'{"n":1.5}'],
    ),
    "plain sum": (
        sum_of(value=INT64),
        PLAIN_SUM,
        [n.to_bytes(8, "big", signed=True) for n in (1, 7, -3, BIG, -BIG)] + [b"", b"short", b"far too long"],
    ),
    "reduce": (reduce_by(_chain, value=UTF8), CHAIN, [b"a", b"b", b"c", "ü".encode(), b"!", b"\xff"]),
    "aggregate": (
        aggregate(lambda: {"seen": []}, _collect, merger=_merge, value=JSON),
        COLLECT,
        [b"1", b"2", b"[3]", b'"delete"', b'"poison"', b"?"],
    ),
}
LATEST_CASE = (latest(), LATEST, [b"a", b"b", b""])
SHAPES: dict[str, tuple[TimeWindows | None, Sessions | None]] = {
    "keys": (None, None),
    "tumbling": (TimeWindows(size_ms=20_000, grace_ms=10_000), None),
    "tumbling without grace": (TimeWindows(size_ms=60_000), None),
    "hopping": (TimeWindows(size_ms=20_000, advance_ms=7_000, grace_ms=30_000), None),
    "sessions": (None, Sessions(gap_ms=5_000, grace_ms=20_000)),
    "sessions without grace": (None, Sessions(gap_ms=30_000)),
}


def _case(name: str) -> tuple[Aggregate, Functions, list[bytes]]:
    return LATEST_CASE if name == "latest" else CASES[name]


@st.composite
def _inputs(draw: st.DrawFn, values: list[bytes]) -> list[Logged]:
    """Records of few keys whose time goes on, stands still, and falls back by little and by much."""
    clock, records, offset = draw(st.integers(1, 200_000)), [], 0
    steps = st.tuples(
        st.sampled_from([b"a", b"b", b"ab", b"", b"\xff\0", b"a", b"b", None]),
        st.sampled_from([*values, values[0], values[0], None]),
        st.sampled_from([0, 1, 1_000, 5_000, 7_000, 30_000]),
        st.sampled_from([0, 0, 0, 1, 999, 5_000, 20_000, 60_000, 500_000]),
        st.integers(1, 3),
    )
    for key, value, forward, back, skipped in draw(st.lists(steps, max_size=40)):
        clock += forward
        offset += skipped
        records.append(Logged(offset, key, value, max(clock - back, 1)))
    return records


@dataclass
class _Run:
    """An aggregation with its store, whose changelog and output follow commits."""

    aggregate: Aggregate
    definition: AggregationDefinition
    store: Any
    logged: dict[bytes, tuple[bytes | None, int]] = field(default_factory=dict)
    output: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    poison: list[int] = field(default_factory=list)
    late: int = 0
    dropped: int = 0

    def __post_init__(self) -> None:
        self.store.log_changes_to(None, self._log_many)
        self._begin()

    def _begin(self) -> None:
        self._transaction: tuple[dict, dict, list[int]] = ({}, {}, [])
        self.at_work: Aggregation = aggregation(
            self.definition, self.aggregate, self.store, self._forward, self._on_poison
        )

    def _log_many(self, keys: list[bytes], values: list[bytes | None], timestamps: list[int]) -> None:
        assert len(set(keys)) == len(keys), "one changelog record a row"
        self._transaction[0].update(zip(keys, zip(values, timestamps, strict=True), strict=True))

    def _forward(self, keys: list[bytes], values: list[bytes | None], timestamps: list[int]) -> None:
        self._transaction[1].update(zip(keys, zip(values, timestamps, strict=True), strict=True))

    def _on_poison(self, offset: int, error: Exception) -> None:
        assert isinstance(error, Exception)
        self._transaction[2].append(offset)

    def commit(self) -> None:
        self.at_work.flush()
        assert self.at_work.pending_bytes == 0
        self.store.commit({CHANGELOG: 1})
        logged, output, poison = self._transaction
        self.logged.update(logged)
        for key, (value, timestamp) in output.items():
            self.output.pop(key, None)
            if value is not None:
                self.output[key] = value, timestamp
        self.poison += poison
        self.late += self.at_work.late_records
        self.dropped += self.at_work.dropped_records
        self._begin()

    def crash(self) -> None:
        self.at_work.discard()
        self.store.rollback()
        self._begin()

    def contents(self) -> dict[bytes, tuple[bytes, int]]:
        inner = self.store.inner
        if self.definition.windows is not None:
            found = [
                (window_key.encode(key, start), value)
                for key, start, value in inner.fetch_range(None, None, 0, window_key.MAX_TIME)
            ]
        elif self.definition.sessions is not None:
            found = [
                (session_key.encode(*session), value)
                for session, value in inner.find_sessions(None, None, 0, session_key.MAX_TIME)
            ]
        else:
            found = list(inner.scan(None, None))
        split = ((key, self.store.layout.logged(value)) for key, value in found)
        return {key: (value, -1 if timestamp is None else timestamp) for key, (value, timestamp, *_) in split}


@contextmanager
def _running(case: str, shape: str, store_format: StoreFormat, engine: str, more_ms: int) -> Iterator[_Run]:
    windows, sessions = SHAPES[shape]
    definition = AggregationDefinition(store="s", windows=windows, sessions=sessions)
    kept = definition.default_store()
    if "retention_ms" in kept:
        kept["retention_ms"] += more_ms
    store = build_store(StoreDefinition(name="s", format=store_format, engine=engine, **kept))
    root = Path(tempfile.mkdtemp(prefix="aggregation-"))
    store.init(StoreContext("app", TaskId(0, 0), root / "app" / "0_0", root / "own", exactly_once=False))
    try:
        yield _Run(_case(case)[0], definition, store)
    finally:
        store.close(clean=False)
        shutil.rmtree(root)


def _batch(records: list[Logged]) -> pa.RecordBatch:
    columns = zip(*records, strict=True) if records else ((), (), (), ())
    offsets, keys, values, timestamps = (list(column) for column in columns)
    return pa.record_batch(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(timestamps, pa.int64()),
            pa.array(offsets, pa.int64()),
        ],
        schema=SCHEMA,
    )


def _check(data: st.DataObject, case: str, shape: str, store_format: StoreFormat, engine: str) -> None:
    windows, sessions = SHAPES[shape]
    records = data.draw(_inputs(_case(case)[2]))
    more_ms = data.draw(st.sampled_from([0, 25_000, 300_000]))
    with _running(case, shape, store_format, engine, more_ms) as run:
        retention_ms = getattr(run.store.inner, "retention_ms", 0)
        model = Model(_case(case)[1], windows, sessions, run.store.layout.timestamped, retention_ms)
        for record in records:
            model.process(record)
        position = committed = 0
        stream_time = committed_time = -1
        crashes = 3 if run.store.transactional else 0
        while position < len(records):
            size = data.draw(st.integers(0, len(records) - position))
            part = records[position : position + size]
            sliced = _batch([Logged(0, b"x", b"y", 9), *part]).slice(1)  # as a batch that was cut from another
            run.at_work.add(sliced, stream_time)
            position += size
            stream_time = max([stream_time, *(record.timestamp for record in part)])
            then = data.draw(st.sampled_from(["go on", "flush", "commit", "crash"]))
            if then == "flush":
                run.at_work.flush()
            elif then == "commit":
                run.commit()
                committed, committed_time = position, stream_time
            elif then == "crash" and crashes:
                crashes -= 1
                run.crash()
                position, stream_time = committed, committed_time
        run.commit()
        assert run.contents() == model.visible()
        assert run.output == model.output
        assert run.poison == model.poison
        assert (run.late, run.dropped) == (model.late, model.dropped)
        kept = {key: row for key, row in model.logged.items() if key in run.logged or row[0] is not None}
        assert run.logged == kept, "the changelog's last record of a row is that of its last change"


@pytest.mark.behaviour("F11")
@pytest.mark.short_for("hopping-timestamped")
@pytest.mark.parametrize("store_format", [StoreFormat.TIMESTAMPED, StoreFormat.HEADERS])
@pytest.mark.parametrize("shape", ["keys", "tumbling", "hopping"])
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_latest_keeps_the_record_with_the_largest_timestamp_however_cut(
    data: st.DataObject, shape: str, store_format: StoreFormat
) -> None:
    _check(data, "latest", shape, store_format, "in_memory")


@pytest.mark.short_for(every=21)
@pytest.mark.parametrize("store_format", [StoreFormat.PLAIN, StoreFormat.TIMESTAMPED])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_results_are_kafka_streams_however_the_input_is_cut(
    data: st.DataObject, case: str, shape: str, store_format: StoreFormat
) -> None:
    _check(data, case, shape, store_format, "in_memory")


@pytest.mark.short_for("keys-txn_rocksDB", "sessions-rocksDB")
@pytest.mark.parametrize("engine", ["txn_rocksDB", "rocksDB"])
@pytest.mark.parametrize("shape", ["keys", "hopping", "sessions"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), store_format=st.sampled_from(FORMATS), case=st.sampled_from(list(CASES)))
def test_every_engine_comes_to_the_same_results(
    data: st.DataObject, case: str, shape: str, store_format: StoreFormat, engine: str
) -> None:
    _check(data, case, shape, store_format, engine)
