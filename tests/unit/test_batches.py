"""`process_batch`: many records at once, in columns of Arrow, with the guarantees of a processor."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError, InputError, ProcessingError
from statestore.kafka.record_headers import with_headers
from statestore.model import TaskId, TopicPartition
from statestore.stores.api import StoreContext
from statestore.stores.arrow import ArrowStore
from statestore.stores.open import build_store
from statestore.stores.serdes import BYTES, INT64, UTF8, load_serde
from statestore.tasks import ValueAndTimestamp
from statestore.tasks.input_records import InputRecords
from statestore.tasks.processor import load_processor
from statestore.tasks.topology import Topology
from statestore.testing import TopologyTestDriver
from tests.unit.outputs import Lists

T0 = 1_700_000_000_000
ENGINES = ["txn_rocksDB", "rocksDB", "in_memory"]
DEFINITION = {
    "name": "app",
    "input_topic": "in",
    "output_topics": ["out"],
    "processor": f"{__name__}:Counting",
    "stores": [{"name": "counts", "key_serde": "utf8", "value_serde": "int64"}],
}
#: Offsets that each call of `Counting` was given.
given: list[list[int]] = []


class Counting:
    """Counts by key, forwards the counts, and fails on a poison value after it has written everything."""

    def process_batch(self, batch, context):
        given.append(batch.offsets.tolist())
        store = context.arrow_store("counts")
        table = pa.table({"key": batch.columns["key"].cast(pa.string()), "at": batch.columns["timestamp"]})
        counted = table.group_by("key", use_threads=False).aggregate([([], "count_all"), ("at", "max")])
        totals = pc.add(store.get_many(counted["key"]).values.fill_null(0), counted["count_all"].combine_chunks())
        store.put_many(counted["key"], totals, counted["at_max"])
        texts = totals.cast(pa.string()).cast(pa.binary())
        context.forward_many(counted["key"].cast(pa.binary()), texts, counted["at_max"])
        if b"poison" in batch.columns["value"].to_pylist():
            raise ValueError("it is poison")


class OneByOne:
    """The same through a store as it is for a processor of records."""

    def process(self, record, context):
        store = context.state_store("counts")
        found = store.get(record.key.decode())
        store.put(record.key.decode(), ValueAndTimestamp(1 + (found.value if found else 0), record.timestamp))


class Both(OneByOne, Counting):
    """Has one method too many."""


class Punctuating:
    def init(self, context):
        self.context = context
        context.schedule(1_000, self.punctuate)

    def punctuate(self, stream_time):
        self.context.forward(b"%d" % stream_time, b"")

    def process_batch(self, batch, context):
        context.forward(b"seen", json.dumps([record.value.decode() for record in batch.records]).encode())
        assert batch.topic == "in"
        assert [dict(headers) for headers in batch.headers] == [{"n": record.value} for record in batch.records]


def ask(context, what):
    """Use a store in a way that it refuses."""
    store = context.arrow_store("counts")
    keys, numbers, times = pa.array(["k"]), pa.array([1]), pa.array([T0])
    if what == "columns that differ in length":
        store.put_many(keys, pa.array([1, 2]), times)
    elif what == "a key that is null":
        store.put_many(pa.array([None], pa.string()), numbers, times)
    elif what == "keys of another type":
        store.get_many(pa.array([b"k"]))
    elif what == "values of another type":
        store.put_many(keys, pa.array(["1"]), times)
    elif what == "no array":
        store.get_many(["k"])
    elif what == "a timestamp that is null":
        store.put_many(keys, numbers, pa.array([None], pa.int64()))
    elif what == "a timestamp of 0":
        store.put_many(keys, numbers, pa.array([0]))


class Refused:
    def process_batch(self, batch, context):
        ask(context, batch.records[0].value.decode())


def make(dead_letter_topic=None, engine="in_memory", **changes):
    definition = {**DEFINITION, "dead_letter_topic": dead_letter_topic, **changes}
    return TopologyTestDriver(definition, commit_every=None, engine=engine)


def pipe(driver, *rows):
    for at, (key, value) in enumerate(rows):
        driver.pipe(key, value, timestamp=T0 + at, headers=[("n", value)])


ROWS = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_batches_count_is_what_records_count_and_a_commit_ends_a_batch(engine):
    def counts(processor, commit_every):
        given.clear()
        definition = {**DEFINITION, "processor": f"{__name__}:{processor}"}
        with TopologyTestDriver(definition, commit_every=commit_every, engine=engine) as driver:
            pipe(driver, *ROWS, *ROWS)
            driver.commit()
            return list(driver.store("counts").all())

    expected = counts("OneByOne", None)
    assert counts("Counting", None) == expected
    assert given == [list(range(8))]
    assert counts("Counting", 3) == expected
    assert given == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [value.value for _, value in expected] == [4, 2, 2]


def test_each_row_is_logged_with_its_timestamp_and_forwarded():
    with make() as driver:
        pipe(driver, *ROWS)
        assert driver.read("app-counts-changelog") == []
        driver.commit()
        logged = driver.read("app-counts-changelog", key_serde=UTF8, value_serde=INT64)
        assert logged == [("a", 2, T0 + 2, ()), ("b", 1, T0 + 1, ()), ("c", 1, T0 + 3, ())]
        assert [(key, value) for key, value, *_ in driver.read("out")] == [(b"a", b"2"), (b"b", b"1"), (b"c", b"1")]
        assert (driver.counts.records_in, driver.counts.records_out, driver.counts.changelog_records) == (4, 3, 3)


def test_a_run_that_ends_without_a_commit_has_processed_nothing():
    with make() as driver:
        pipe(driver, *ROWS)
        driver.restart(crash=True)
        driver.commit()
        assert driver.store("counts").get("a").value == 2
        assert len(driver.read("app-counts-changelog")) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_poison_is_found_by_halves_and_all_others_are_processed_once(engine):
    rows = [(b"k%d" % (number % 3), b"poison" if number in (2, 11) else b"fine") for number in range(13)]
    with make(dead_letter_topic="dead", engine=engine) as driver:
        pipe(driver, *rows)
        driver.commit()
        letters = driver.read("dead")
        assert [dict(letter.headers)["__streams.errors.offset"] for letter in letters] == [b"2", b"11"]
        assert [dict(letter.headers)["n"] for letter in letters] == [b"poison", b"poison"]
        assert {key: value.value for key, value in driver.store("counts").all()} == {"k0": 5, "k1": 4, "k2": 2}
        last = {key: value for key, value, *_ in driver.read("app-counts-changelog", value_serde=INT64)}
        assert last == {b"k0": 5, b"k1": 4, b"k2": 2}
        assert last == {key: int(value) for key, value, *_ in driver.read("out")}
        assert (driver.counts.poison, driver.counts.records_in) == (2, 13)


def test_without_dead_letters_poison_ends_the_task_with_the_batch_and_the_line():
    with make() as driver:
        pipe(driver, *ROWS, (b"a", b"poison"))
        with pytest.raises(
            ProcessingError, match=r"a record of in-0@0 to 4: ValueError: it is poison \(.*test_batches"
        ):
            driver.commit()


def test_a_punctuation_comes_after_the_batch_that_moved_stream_time():
    with make(processor=f"{__name__}:Punctuating") as driver:
        driver.pipe(b"k", b"1", timestamp=T0 + 10, headers=[("n", b"1")])
        driver.pipe(b"k", b"2", timestamp=T0 + 1_500, headers=[("n", b"2")])
        driver.commit()
        sent = [(key, value) for key, value, *_ in driver.read("out")]
        assert sent == [(b"seen", b'["1", "2"]'), (b"%d" % (T0 + 1_500), b"")]
        assert driver.stream_time() == T0 + 1_500


@pytest.mark.parametrize(
    "what",
    [
        "columns that differ in length",
        "a key that is null",
        "keys of another type",
        "values of another type",
        "no array",
        "a timestamp that is null",
        "a timestamp of 0",
    ],
)
def test_what_a_store_refuses_is_the_record_s_fault_and_changes_nothing(what):
    with make(dead_letter_topic="dead", processor=f"{__name__}:Refused") as driver:
        driver.pipe(b"k", what.encode(), timestamp=T0)
        driver.commit()
        assert len(driver.read("dead")) == 1
        assert list(driver.store("counts").all()) == []


@pytest.mark.parametrize(
    "store", [{"name": "counts", "format": "headers"}, {"name": "counts", "kind": "session", "retention_ms": 120_000}]
)
def test_only_key_value_stores_without_headers_come_in_columns(store):
    with make(stores=[{"name": "counts", **store}], processor=f"{__name__}:Refused") as driver:
        driver.pipe(b"k", b"no array", timestamp=T0)
        with pytest.raises(InputError, match="store counts cannot be read or written as Arrow columns"):
            driver.commit()


def test_a_processor_has_one_of_both_methods():
    with pytest.raises(DefinitionError, match="has both `process` and `process_batch`"):
        load_processor(f"{__name__}:Both")
    assert load_processor(f"{__name__}:Counting").process is None


COLUMNS = {
    "int64": pa.array([1, None, -7]),
    "utf8": pa.array(["a", None, "ü"]),
    "bytes": pa.array([b"", None, b"\0"]),
    "json": pa.array([b"{}", None, b"1"]),
}


@pytest.mark.parametrize("store_format", ["plain", "timestamped"])
@pytest.mark.parametrize("serde", COLUMNS)
def test_columns_have_the_types_of_the_serdes(serde, store_format, tmp_path):
    store = build_store(StoreDefinition(name="s", format=store_format), BYTES, load_serde(serde))
    store.init(StoreContext("app", TaskId(0, 0), tmp_path / "task", tmp_path / "own"))
    column, times = COLUMNS[serde], pa.array([T0, T0 + 1, T0 + 2])
    values = column.to_pylist()
    arrow = ArrowStore(store)
    arrow.put_many(pa.array([b"z", b"y", b"x"]), column, times)
    found = arrow.get_many(pa.chunked_array([pa.array([b"x", b"y"]), pa.array([b"z", b"never"])]))
    assert found.values.type == column.type
    assert found.values.to_pylist() == [values[2], None, values[0], None]
    if store_format == "timestamped":
        assert found.timestamps.to_pylist() == [T0 + 2, None, T0, None]
    else:
        assert found.timestamps is None
    store.close(clean=False)


@pytest.mark.parametrize("read_before", [False, True])
def test_rows_are_logged_in_the_order_of_keys_and_the_last_of_a_key_holds(read_before, tmp_path):
    store = build_store(StoreDefinition(name="s"), BYTES, INT64)
    store.init(StoreContext("app", TaskId(0, 0), tmp_path / "task", tmp_path / "own"))
    logged = []
    store.log_changes_to(lambda *change: logged.append(change))
    arrow, keys = ArrowStore(store), pa.array([b"b", b"a", b"b", b"c"])
    if read_before:
        arrow.get_many(keys)
    arrow.put_many(keys, pa.array([1, 2, 3, None]), pa.array([T0, T0 + 1, T0 + 2, T0 + 3]))
    one, two, three = (INT64.serialize(number) for number in (1, 2, 3))
    assert logged == [(b"a", two, T0 + 1), (b"b", one, T0), (b"b", three, T0 + 2), (b"c", None, T0 + 3)]
    assert arrow.get_many(keys).values.to_pylist() == [3, 2, 3, None]
    arrow.put_many(keys.slice(1, 1), pa.array([5]), pa.array([T0]))
    assert arrow.get_many(keys).values.to_pylist() == [3, 5, 3, None]
    store.close(clean=False)


# -- what is taken and what is handed on


def topology_of(tmp_path, **definition):
    """A topology, its stores and its output, without a task."""
    application = ApplicationDefinition.model_validate({**DEFINITION, **definition})
    stores = {
        store.name: build_store(store, load_serde(store.key_serde), load_serde(store.value_serde))
        for store in application.subtopologies[0].stores
    }
    for store in stores.values():
        store.init(StoreContext("app", TaskId(0, 0), tmp_path / "task", tmp_path / "own"))
    output = Lists()
    topology = Topology(application, TaskId(0, 0), stores, output)
    topology.start(-1)
    return topology, stores, output


def arrived(count, value=b"v"):
    messages = [
        Message(topic="in", partition=0, offset=at, key=b"k", value=value, timestamp=(TIMESTAMP_CREATE_TIME, T0 + at))
        for at in range(count)
    ]
    return InputRecords(TopicPartition("in", 0), *with_headers(messages))


def by_value(record):
    return record.value


def test_a_batch_beside_a_group_by_has_only_the_records_that_were_taken_before_a_commit(tmp_path):
    grouped = {"store": "grouped", "aggregate": "count", "group_by": f"{__name__}:by_value"}
    topology, stores, output = topology_of(tmp_path, aggregations=[grouped])
    due, left, taken = iter([True, *[False] * 100]), arrived(20), []
    given.clear()
    while len(left):
        taken.append(topology.process(left, lambda: next(due)))
        left = left.part(taken[-1])
        topology.flush()
    assert taken == [8, 12]
    assert given == [list(range(8)), list(range(8, 20))]
    assert stores["counts"].get("k").value == 20
    assert len([record for record in output.sent if record.topic.endswith("-repartition")]) == 20


class ReusesItsHeaders:
    def __init__(self):
        self._headers = []

    def process(self, record, context):
        self._headers[:] = [("n", record.value)]
        context.forward(record.key, record.value, headers=self._headers)


def test_headers_that_are_changed_after_they_were_forwarded_go_out_as_they_were(tmp_path):
    topology, _, output = topology_of(tmp_path, processor=f"{__name__}:ReusesItsHeaders")
    for at in range(3):
        topology.process(arrived(3, b"%d" % at).part(at, at + 1), lambda: False)
    topology.process(InputRecords.joined([arrived(2, b"3").part(0, 1), arrived(2, b"4").part(1)]), lambda: False)
    assert [(record.value, list(record.headers)) for record in output.sent] == [
        (b"%d" % at, [("n", b"%d" % at)]) for at in range(5)
    ]


class FailsAtTheFifth:
    def process(self, record, context):
        context.state_store("counts").put(f"{record.offset}", ValueAndTimestamp(1, record.timestamp))
        if record.offset == 4:
            raise ValueError("the fifth")


@pytest.mark.parametrize(("guarantee", "logged"), [("at_least_once", 5), ("exactly_once_v2", 0)])
def test_at_least_once_what_a_store_has_is_logged_also_where_the_task_fails(tmp_path, guarantee, logged):
    topology, _, output = topology_of(tmp_path, processor=f"{__name__}:FailsAtTheFifth", processing_guarantee=guarantee)
    with pytest.raises(ProcessingError, match="the fifth"):
        topology.process(arrived(9), lambda: False)
    assert len(output.logged) == logged
