"""The short ways of a processor to its store: nobody can tell them from the store's own methods, but by the time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import clock
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import TaskId, TopicPartition
from statestore.stores.api import StoreContext
from statestore.stores.open import build_store
from statestore.stores.serdes import BYTES, INT64, JSON, UTF8, Serde
from statestore.stores.transaction import StagedRows
from statestore.tasks.timestamp_bounds import TimestampBounds
from statestore.tasks.topology import Topology
from tests.session.examples import examples

T0 = 1_700_000_000_000
CHANGELOG = TopicPartition("app-s-changelog", 0)
NO_BYTES = Serde("no bytes", lambda number: number, lambda raw: raw)


class Lists:
    """An output that is read by the test."""

    def __init__(self):
        self.logged = []

    def send_many(self, records):
        raise AssertionError("nothing is sent")

    def log_many(self, store, keys, values, timestamps, headers=None, count=None):
        self.logged += [*zip(keys, values, timestamps, strict=True)][:count]


def nothing(record, context):
    """Processor that the topology is made with; the tests use the store themselves."""


def opened(directory: Path, keys=BYTES, values=BYTES, store_format="timestamped"):
    """Open a store on disk as a task has it: with shortcuts."""
    store = build_store(StoreDefinition(name="s", format=store_format), keys, values)
    store.init(StoreContext("app", TaskId(0, 0), directory / "task", directory / "own", uncommitted_max_bytes=1 << 20))
    application = ApplicationDefinition.model_validate(
        {"name": "app", "input_topic": "in", "processor": f"{__name__}:nothing", "stores": [{"name": "s"}]}
    )
    output = Lists()
    topology = Topology(application, TaskId(0, 0), {"s": store}, output, TimestampBounds(after_ms=3_600_000))
    topology.start(T0)
    topology.take_writes_between_records()
    assert "get" in store.__dict__
    return store, topology, output


def outcome(call, *arguments):
    try:
        return call(*arguments)
    except Exception as error:
        return type(error), str(error)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two stores of the same serdes: one whose shortcuts are used, and one that goes the long way."""
    made = {}

    def of(keys, values):
        if (keys.name, values.name) not in made:
            short, long = (opened(tmp_path_factory.mktemp("store"), keys, values) for _ in range(2))
            for method in ("get", "put"):
                long[0].__dict__.pop(method, None)
            made[keys.name, values.name] = short, long
        return made[keys.name, values.name]

    yield of
    for both in made.values():
        for store, *_ in both:
            store.close(clean=False)


class Whole(int):
    """An int that is none of int's own."""


ODD = [
    None,
    0,
    1,
    -1,
    True,
    Whole(7),
    1.5,
    "7",
    b"7",
    bytearray(b"7"),
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63) - 1,
    {"a": 1},
]


@pytest.mark.parametrize("undoable", [False, True])
@pytest.mark.parametrize("keys", [BYTES, UTF8, INT64])
@pytest.mark.parametrize("values", [BYTES, INT64, JSON, NO_BYTES])
def test_whatever_is_written_and_read_comes_out_as_it_does_the_long_way(pair, keys, values, undoable, monkeypatch):
    monkeypatch.setattr(clock, "now_ms", lambda: T0)  # it stands in errors
    both = pair(keys, values)
    stamped = [ValueAndTimestamp(value, T0) for value in ODD] + [ValueAndTimestamp(b"v", odd) for odd in ODD]
    tried = [(key, value) for key in ("k", b"k", 7, *ODD) for value in (b"v", None, (b"v", T0), stamped[3], stamped[8])]
    tried += [(key, value) for key in ("k", b"k", 7) for value in stamped]
    found = []
    for store, topology, output in both:
        if undoable:
            topology._outgoing.begin_record()
            store.begin_record()
        done = [(outcome(store.put, *pair), outcome(store.get, pair[0])) for pair in tried]
        kept = dict(store.inner.scan(None, None))
        if undoable:
            store.undo_record()
            topology._outgoing.take_back()
        topology._outgoing.finish({})
        found.append((done, kept, dict(store.inner.scan(None, None)), list(output.logged)))
    assert found[0] == found[1]


ROW = st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 3))
STEPS = st.lists(
    st.one_of(
        ROW.map(lambda row: ("put", *row)),
        st.sampled_from(
            [("commit",), ("rollback",), ("delete_range", b"b", b"c"), ("spill",), ("undo", b"a"), ("ahead",)]
        ),
    ),
    max_size=25,
)


@settings(max_examples=examples(40), deadline=None)
@given(STEPS)
def test_rows_read_ahead_are_always_those_that_are_there(tmp_path_factory, steps):
    store, topology, _ = opened(tmp_path_factory.mktemp("ahead"), BYTES, INT64)
    committed: dict[bytes, int] = {}
    seen: dict[bytes, int] = {}
    for step, *what in steps:
        if step == "put":
            key, number = what
            store.put(key, ValueAndTimestamp(number, T0) if number else None)
            seen[key] = number
        elif step == "commit":
            store.commit({CHANGELOG: 1}, {})
            committed = dict(seen)
        elif step == "rollback":
            store.rollback()
            seen = dict(committed)
        elif step == "delete_range":
            store.delete_range(*what)
            seen = {key: number for key, number in seen.items() if not b"b" <= key <= b"c"}
        elif step == "spill":
            store._rows._transaction.spill_staged()
        elif step == "undo":
            store.begin_record()
            store.put(what[0], ValueAndTimestamp(99, T0))
            store.undo_record()
        else:
            store.read_ahead([b"a", b"b", None, b"c", b"never"])
        for key in (b"a", b"b", b"c", b"d"):
            number = seen.get(key)
            assert store.get(key) == (ValueAndTimestamp(number, T0) if number else None)
    topology._outgoing.finish({})
    store.close(clean=False)


def test_what_cannot_be_read_ahead_is_told_when_it_is_asked_for(tmp_path, monkeypatch):
    store, topology, _ = opened(tmp_path)
    store.put(b"k", ValueAndTimestamp(b"v", T0))
    store.commit({CHANGELOG: 1}, {})

    def corrupted(*_):
        raise StoreCorruptedError("a block fails its checksum")

    rows = store._rows
    assert isinstance(rows, StagedRows)
    monkeypatch.setattr(type(rows._committed), "get_many", corrupted)
    store.read_ahead([b"k"])
    assert store.get(b"k") == ValueAndTimestamp(b"v", T0)
    monkeypatch.setattr(type(rows._committed), "get", corrupted)
    with pytest.raises(StoreCorruptedError):
        store.get(b"k")
    with pytest.raises(StoreCorruptedError):  # also if user code has caught it
        topology.flush()
    store.close(clean=False)


def test_rows_that_nobody_asks_for_are_not_read_ahead_again_and_again(tmp_path):
    store, _, _ = opened(tmp_path)
    for number in range(10):
        store.put(b"%d" % number, ValueAndTimestamp(b"v", T0))
    store.commit({CHANGELOG: 1}, {})
    ahead = store._rows.ahead
    keys = [b"%d" % number for number in range(10)]
    store.read_ahead(keys)
    assert len(ahead.rows) == 10
    store.read_ahead(keys)
    assert ahead.rows == {}
    for _ in range(15):
        store.read_ahead(keys)
    assert len(ahead.rows) == 10
    store.close(clean=False)
