"""User code reaches nothing of its task. If it tries, the task ends, even if user code catches the error."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import pyarrow as pa
import pytest

from statestore.errors import InvalidStateError
from statestore.stores.api import StateStore, Windowed
from statestore.stores.arrow import ArrowStore
from statestore.stores.transaction import StagedRows
from statestore.tasks import JSON, ValueAndTimestamp, ValueTimestampHeaders, aggregate
from statestore.tasks.outgoing import Outgoing
from statestore.tasks.topology import Topology
from statestore.tasks.user_writes import UserWrites
from statestore.testing import TopologyTestDriver

T0 = 1_700_000_000_000
ENGINES = ["txn_rocksDB", "rocksDB", "in_memory"]
STORES = [
    {"name": "timestamped"},
    {"name": "plain", "format": "plain"},
    {"name": "headers", "format": "headers"},
    {"name": "window", "kind": "window", "window_size_ms": 1_000, "retention_ms": 120_000},
    {"name": "session", "kind": "session", "retention_ms": 120_000},
    {"name": "versioned", "kind": "versioned", "retention_ms": 120_000},
]
NAMES = [str(store["name"]) for store in STORES]
#: Objects that a processor keeps beyond a call, as a user's module may.
KEPT: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    KEPT.clear()
    yield
    KEPT.clear()


def driver(processor: Any, *, engine: str = "in_memory", dead: str | None = "dead", **changes: Any):
    """Run a function or a class of this module as a processor."""
    definition = {
        "name": "app",
        "input_topic": "in",
        "output_topics": ["out"],
        "dead_letter_topic": dead,
        "processor": f"{__name__}:{processor.__name__}",
        "stores": STORES,
        **changes,
    }
    return TopologyTestDriver(definition, engine=engine, commit_every=None)


def is_empty(made: TopologyTestDriver) -> bool:
    return all(made.store(name).is_empty for name in NAMES)


def keep(record, context):
    """Write a row, and keep the context, the stores, two methods, and an iterator."""
    KEPT.update({name: context.state_store(name) for name in NAMES}, context=context)
    KEPT["columns"] = context.arrow_store("timestamped")
    KEPT["get"], KEPT["put"] = KEPT["timestamped"].get, KEPT["timestamped"].put
    KEPT["put"](b"row", ValueAndTimestamp(b"v", record.timestamp))
    KEPT["rows"] = KEPT["timestamped"].all()


#: Each writes with what was kept.
WRITES: dict[str, Callable[[], object]] = {
    "put": lambda: KEPT["timestamped"].put(b"k", ValueAndTimestamp(b"v", T0)),
    "kept put": lambda: KEPT["put"](b"k", ValueAndTimestamp(b"v", T0)),
    "put_all": lambda: KEPT["plain"].put_all([(b"k", b"v")]),
    "delete": lambda: KEPT["timestamped"].delete(b"k"),
    "delete_range": lambda: KEPT["timestamped"].delete_range(),
    "headers": lambda: KEPT["headers"].put(b"k", ValueTimestampHeaders(b"v", T0, ())),
    "window": lambda: KEPT["window"].put(b"k", ValueAndTimestamp(b"v", T0), T0),
    "session": lambda: KEPT["session"].put(Windowed(b"k", T0, T0), b"v"),
    "versioned": lambda: KEPT["versioned"].put(b"k", b"v", T0),
    "columns": lambda: KEPT["columns"].put_many(pa.array([b"k"]), pa.array([b"v"]), pa.array([T0])),
    "forward": lambda: KEPT["context"].forward(b"k", b"v"),
}


def assert_refused(write: Callable[[], object], why: str) -> None:
    with pytest.raises(InvalidStateError, match=why):
        write()


# -- what can be reached ------------------------------------------------------------------------------------------


def reached_from(thing: object) -> Iterator[object]:
    """Yield what the attributes of an object lead to, also private ones, but not what functions close over."""
    seen, left = set(), [thing]
    while left:
        found = left.pop()
        if id(found) in seen or isinstance(found, type):
            continue
        seen.add(id(found))
        yield found
        if isinstance(found, dict):
            left += found.values()
        elif isinstance(found, list | tuple):
            left += found
        elif isinstance(found, MethodType):
            left.append(found.__self__)
        elif type(found).__module__ != "builtins" and not isinstance(found, FunctionType | BuiltinFunctionType):
            for name in {*dir(found), *getattr(found, "__dict__", ())}:
                if not name.startswith("__"):
                    with contextlib.suppress(InvalidStateError, AttributeError):
                        left.append(getattr(found, name))


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_that_a_processor_gets_leads_to_the_engine(engine):
    with driver(keep, engine=engine) as made:
        made.pipe(b"k", b"v", timestamp=T0)
        reached = list(reached_from(KEPT))
        assert KEPT["context"] in reached
        assert KEPT["versioned"] in reached
        of_the_task = (StateStore, StagedRows, ArrowStore, Topology, Outgoing, UserWrites)
        assert [found for found in reached if any(kind in type(found).__mro__ for kind in of_the_task)] == []


def test_a_processor_cannot_change_the_time_or_the_headers_of_its_record():
    with driver(keep) as made:
        made.pipe(b"k", b"v", timestamp=T0, headers=[("a", b"1")])
        context = KEPT["context"]
        for name in ("timestamp", "stream_time", "headers", "commit_requested"):
            with pytest.raises(AttributeError):
                setattr(context, name, 1)
        assert (context.timestamp, context.stream_time, context.headers) == (T0, T0, (("a", b"1"),))


# -- what belongs to the task -------------------------------------------------------------------------------------


def commit_store(record, context):
    context.state_store("timestamped").put(record.key, ValueAndTimestamp(record.value, record.timestamp))
    context.state_store("timestamped").commit({})


def commit_store_and_catch(record, context):
    with contextlib.suppress(Exception):
        commit_store(record, context)


def commit_columns(record, context):
    context.arrow_store("timestamped")._store.commit({})


def put_inside(record, context):
    context.state_store("window").inner.put(b"ghost", b"1", 0)


class CommitsInInit:
    def init(self, context):
        with contextlib.suppress(Exception):
            context.state_store("plain").commit({})

    def process(self, record, context):
        pass


class CommitsInPunctuation:
    def init(self, context):
        context.schedule(10, lambda now: context.state_store("plain").commit({}))

    def process(self, record, context):
        pass


class RollsBackInBatch:
    def process_batch(self, batch, context):
        with contextlib.suppress(Exception):
            context.state_store("plain").rollback()


@pytest.mark.parametrize("dead", ["dead", None])
@pytest.mark.parametrize(
    "processor",
    [
        commit_store,
        commit_store_and_catch,
        commit_columns,
        put_inside,
        CommitsInInit,
        CommitsInPunctuation,
        RollsBackInBatch,
    ],
)
def test_a_refusal_ends_the_task_also_if_it_is_caught_and_is_no_poison(processor, dead):
    with driver(processor, dead=dead) as made:
        with pytest.raises(InvalidStateError, match=r"a processor cannot use '(commit|rollback|inner|_store)'"):  # noqa: PT012
            made.pipe(b"k", b"v", timestamp=T0)
            made.pipe(b"k", b"v", timestamp=T0 + 10)
            made.commit()
        made.restart(crash=True)
        assert is_empty(made)
        assert made.read("app-timestamped-changelog") == []
        assert dead is None or made.read("dead") == []
        assert made.counts.poison == 0


class CommitsInClose:
    def init(self, context):
        self._context = context

    def process(self, record, context):
        context.state_store("plain").put(record.key, record.value)

    def close(self):
        self._context.state_store("plain").commit({})


def test_a_refusal_in_close_is_reported_and_undoes_nothing():
    with driver(CommitsInClose) as made:
        made.pipe(b"k", b"v", timestamp=T0)
        with pytest.raises(InvalidStateError, match="a processor cannot use 'commit'"):
            made.restart()
        made.restart()
        assert list(made.store("plain").all()) == [(b"k", b"v")]


# -- writes at the wrong time -------------------------------------------------------------------------------------


class WritesInThreads:
    failed: dict[str, str] = {}  # noqa: RUF012

    def process(self, record, context):
        keep(record, context)
        for name, write in WRITES.items():
            thread = threading.Thread(target=self.write, args=(name, write))
            thread.start()
            thread.join()

    def write(self, name, write):
        try:
            write()
        except InvalidStateError as error:
            self.failed[name] = str(error)


@pytest.mark.parametrize("engine", ENGINES)
def test_another_thread_cannot_write_and_its_attempt_ends_the_task(engine):
    WritesInThreads.failed.clear()
    with driver(WritesInThreads, engine=engine) as made:
        with pytest.raises(InvalidStateError, match="only in the thread of that call"):
            made.pipe(b"k", b"v", timestamp=T0)
        assert WritesInThreads.failed.keys() == WRITES.keys()
        made.restart()
        assert is_empty(made)


class ReadsInAThread:
    def process(self, record, context):
        store = context.state_store("timestamped")
        store.put(record.key, ValueAndTimestamp(record.value, record.timestamp))
        thread = threading.Thread(target=lambda: KEPT.update(found=store.get(record.key)))
        thread.start()
        thread.join()


def test_another_thread_can_read():
    with driver(ReadsInAThread, engine="txn_rocksDB") as made:
        made.pipe(b"k", b"v", timestamp=T0)
        assert KEPT["found"] == ValueAndTimestamp(b"v", T0)


def add_and_write(key, value, so_far):
    for write in WRITES.values():
        with contextlib.suppress(Exception):
            write()
    return so_far + 1


adding = aggregate(int, add_and_write, value=JSON)


@pytest.mark.parametrize("dead", ["dead", None])
def test_a_function_of_an_aggregation_cannot_write(dead):
    aggregations = [{"store": "added", "aggregate": f"{__name__}:adding"}]
    with driver(keep, dead=dead, aggregations=aggregations) as made:
        made.pipe(b"k", b"1", timestamp=T0)
        with pytest.raises(InvalidStateError, match="not in functions of aggregations"):
            made.commit()
        made.restart(crash=True)
        assert is_empty(made)
        assert dead is None or made.read("dead") == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("crash", [False, True])
def test_what_was_kept_of_an_earlier_run_cannot_be_used(engine, crash):
    with driver(keep, engine=engine) as made:
        made.pipe(b"k", b"v", timestamp=T0)
        made.commit()
        KEPT["get"](b"row")
        KEPT["timestamped"].get_many([b"row"])
        made.restart(crash=crash)
        for name, write in WRITES.items():
            if name != "forward" or not crash:
                assert_refused(write, "closed|in close")
        for read in (
            lambda: KEPT["get"](b"row"),
            lambda: KEPT["timestamped"].get(b"row"),
            lambda: list(KEPT["rows"]),
            lambda: list(KEPT["window"].all()),
            lambda: KEPT["columns"].get_many(pa.array([b"row"])),
        ):
            assert_refused(read, "closed")
        assert list(made.store("timestamped").all()) == [(b"row", ValueAndTimestamp(b"v", T0))]
        made.pipe(b"k", b"v", timestamp=T0)  # and the new run has its own


# -- what a processor changes after it has passed it ---------------------------------------------------------------


def change_headers_later(record, context):
    headers = [["name", b"before"]]
    context.forward(record.key, record.value, headers=headers)
    context.state_store("headers").put(record.key, ValueTimestampHeaders(b"v", record.timestamp, headers))
    headers[0][1] = b"after"
    headers.append(["more", b""])


def test_headers_are_those_of_the_call():
    with driver(change_headers_later) as made:
        made.pipe(b"k", b"v", timestamp=T0)
        made.commit()
        assert [record.headers for record in made.read("out")] == [(("name", b"before"),)]
        assert [record.headers for record in made.read("app-headers-changelog")] == [(("name", b"before"),)]
        assert made.store("headers").get(b"k").headers == (("name", b"before"),)


class ChangesItsBatch:
    def process_batch(self, batch, context):
        batch.records.reverse()
        for record in batch.records:
            context.state_store("plain").put(record.key, record.value)
        poison = any(record.value == b"poison" for record in batch.records)
        batch.records.clear()
        batch.columns = None
        if poison:
            raise ValueError("it is poison")


def test_a_batch_can_be_changed_by_its_processor():
    with driver(ChangesItsBatch) as made:
        for key, value in ((b"a", b"1"), (b"b", b"poison"), (b"c", b"3")):
            made.pipe(key, value, timestamp=T0)
        made.commit()
        assert [(letter.key, letter.value) for letter in made.read("dead")] == [(b"b", b"poison")]
        assert list(made.store("plain").all()) == [(b"a", b"1"), (b"c", b"3")]


# -- the test driver ----------------------------------------------------------------------------------------------


def echo(record, context):
    found = context.state_store("timestamped").get(record.key)
    context.forward(record.key, found and found.value)


def test_a_test_can_fill_a_store_and_what_it_writes_is_logged():
    with driver(echo) as made:
        store = made.store("timestamped")
        store.put(b"k", ValueAndTimestamp(b"filled", T0))
        made.pipe(b"k", b"", timestamp=T0)
        store.put(b"k", ValueAndTimestamp(b"again", T0))
        made.pipe(b"k", b"", timestamp=T0)
        made.commit()
        assert [record.value for record in made.read("out")] == [b"filled", b"again"]
        assert [record.value for record in made.read("app-timestamped-changelog")] == [b"filled", b"again"]


def test_a_test_gets_the_interface_of_a_processor_and_its_refusals_do_not_end_the_task():
    with driver(echo) as made:
        with pytest.raises(InvalidStateError, match="a processor cannot use 'commit'"):
            made.store("plain").commit({})
        made.pipe(b"k", b"", timestamp=T0)
        made.commit()
