"""Poison: what becomes of a record that the application's code fails on, and what is undone of it."""

from __future__ import annotations

import pytest

from statestore.errors import InputError, ProcessingError, UnknownStoreError
from statestore.stores.api import Windowed
from statestore.stores.serdes import INT64
from statestore.tasks import Serde, ValueAndTimestamp
from statestore.tasks.aggregates import sum_of
from statestore.testing import TopologyTestDriver

T0 = 1_700_000_000_000
RETENTION_MS = 120_000
ENGINES = ["txn_rocksDB", "rocksDB", "in_memory"]
STORES = [
    {"name": "plain", "format": "plain"},
    {"name": "timestamped"},
    {"name": "window", "kind": "window", "window_size_ms": 1_000, "retention_ms": RETENTION_MS},
    {
        "name": "duplicates",
        "kind": "window",
        "window_size_ms": 1_000,
        "retention_ms": RETENTION_MS,
        "retain_duplicates": True,
        "format": "plain",
    },
    {"name": "session", "kind": "session", "retention_ms": RETENTION_MS},
    {"name": "timestamped-session", "kind": "session", "retention_ms": RETENTION_MS, "format": "timestamped"},
]
NAMES = [store["name"] for store in STORES]


# -- processors ---------------------------------------------------------------------------------------------------


def write_everywhere(record, context):
    """Write to every store in every way and send; then fail if the value says so."""
    store, at = context.state_store, record.timestamp
    key, value = record.key, record.value
    store("plain").put_if_absent(b"first " + key, value)
    store("plain").put_all([(b"all", value), (b"same", value), (b"same", key)])
    store("timestamped").put(key, ValueAndTimestamp(value, at))
    store("timestamped").put(key, ValueAndTimestamp(value + value, at))
    store("timestamped").delete(b"first")
    store("window").put(key, ValueAndTimestamp(value, at), at)
    store("window").put(b"first", None, T0)
    store("duplicates").put(key, value, at)
    store("duplicates").put(key, value, at)
    store("session").remove(Windowed(b"first", T0, T0))
    store("session").put(Windowed(key, at, at + 5), value)
    store("timestamped-session").put(Windowed(key, at, at), ValueAndTimestamp(value, at))
    context.forward(key, value, topic="out")
    if value == b"poison":
        store("plain").delete_range(b"a", b"z")
        context.forward(key, b"never", topic="out")
        raise ValueError("it is poison", b"\xff")


def forward_text(record, context):
    context.forward(record.key, record.value.decode())


def forward_elsewhere(record, context):
    context.forward(record.key, b"", topic="elsewhere")


def ask_for_another_store(record, context):
    context.state_store("elsewhere")


def interrupt(record, context):
    raise KeyboardInterrupt


class FailsInInit:
    def init(self, context):
        raise RuntimeError("no model")

    def process(self, record, context):
        pass


class WritesInInit:
    def init(self, context):
        context.state_store("plain").put(b"k", b"v")

    def process(self, record, context):
        pass


def fail_on_short(record, context):
    if record.value == b"short":
        raise LookupError


NO_BYTES = Serde("no bytes", lambda number: number, lambda raw: raw)


def put_number(record, context):
    context.state_store("plain").put(record.key, 7)


def key_or_fail(record):
    """The value is the key, except where it says something else."""
    if record.value == b"poison":
        raise LookupError("no key in it")
    if record.value == b"text":
        return "text"
    return None if record.value == b"left out" else record.value or b"a"


total = sum_of(value=INT64)
DEFINITION = {
    "name": "app",
    "input_topic": "in",
    "output_topics": ["out"],
    "processor": f"{__name__}:write_everywhere",
    "stores": STORES,
}


def make(dead_letter_topic="dead", engine="in_memory", commit_every=1, **changes):
    definition = {**DEFINITION, "dead_letter_topic": dead_letter_topic, **changes}
    return TopologyTestDriver(definition, engine=engine, commit_every=commit_every)


def rows(driver):
    return {name: list(driver.store(name).all()) for name in NAMES}


def changes(driver):
    return {name: driver.read(f"app-{name}-changelog") for name in NAMES}


# -- dead letters -------------------------------------------------------------------------------------------------


@pytest.mark.short_for("1-txn_rocksDB", "None-in_memory")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("commit_every", [1, None])
def test_what_a_poison_record_wrote_and_sent_is_undone_in_every_kind_of_store(engine, commit_every):
    with make(engine=engine, commit_every=commit_every) as driver:
        driver.pipe(b"first", b"1", timestamp=T0)
        driver.pipe(b"a", b"2", timestamp=T0 + 10)
        driver.commit()
        before = rows(driver)
        assert all(before.values())
        assert len(driver.read("out")) == 2
        assert all(changes(driver).values())
        driver.pipe(b"a", b"poison", timestamp=T0 + 10)
        driver.pipe(b"first", b"poison", timestamp=T0)
        driver.pipe(b"new", b"poison", timestamp=T0 + 20)
        assert rows(driver) == before
        driver.commit()
        assert rows(driver) == before
        assert driver.read("out") == []
        assert not any(changes(driver).values())
        assert (driver.counts.poison, driver.counts.records_in, driver.counts.records_out) == (3, 5, 2)


@pytest.mark.short_for("txn_rocksDB")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_poison_record_from_the_future_makes_nothing_expire(engine):
    with make(engine=engine) as driver:
        driver.pipe(b"a", b"1", timestamp=T0)
        before = rows(driver)
        driver.pipe(b"a", b"poison", timestamp=T0 + 100 * RETENTION_MS)
        assert rows(driver) == before
        driver.pipe(b"b", b"2", timestamp=T0 + 1)
        assert [key.key for key, _ in driver.store("window").all()] == [b"a", b"b"]
        assert driver.store("window").expired_records == 0
        assert driver.stream_time() == T0 + 100 * RETENTION_MS  # it did arrive


def test_records_behind_a_poison_one_are_processed_as_if_it_had_not_been_there():
    def run(values):
        with make(commit_every=None) as driver:
            for number, value in enumerate(values):
                if value is not None:
                    driver.pipe(b"k%d" % (number % 3), value, timestamp=T0 + number)
            driver.commit()
            logged = changes(driver)
            # The numbers of duplicates only have to differ.
            logged["duplicates"] = [record._replace(key=record.key[:-4]) for record in logged["duplicates"]]
            return rows(driver), driver.read("out"), logged

    assert run([b"1", b"poison", b"2", b"poison", b"3"]) == run([b"1", None, b"2", None, b"3"])


def test_a_dead_letter_is_the_record_with_its_headers_and_those_of_kip_1034():
    with make() as driver:
        driver.pipe(b"a", b"fine", timestamp=T0)
        driver.pipe(b"a", b"poison", timestamp=T0 + 7, headers=[("trace", b"7"), ("trace", None)])
        (letter,) = driver.read("dead")
    assert (letter.key, letter.value, letter.timestamp) == (b"a", b"poison", T0 + 7)
    assert letter.headers[:2] == (("trace", b"7"), ("trace", None))
    why = dict(letter.headers[2:])
    stacktrace = why.pop("__streams.errors.stacktrace").decode()
    assert why == {
        "__streams.errors.exception": b"builtins.ValueError",
        "__streams.errors.message": b"('it is poison', b'\\xff')",
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"0",
        "__streams.errors.offset": b"1",
    }
    assert "in write_everywhere" in stacktrace


def test_a_record_for_which_something_is_forwarded_that_cannot_be_sent_is_a_dead_letter():
    with make(processor=f"{__name__}:forward_text") as driver:
        driver.pipe(b"a", b"1", timestamp=T0)
        (letter,) = driver.read("dead")
        assert b"found str as value" in dict(letter.headers)["__streams.errors.message"]


@pytest.mark.parametrize("timestamp", [0, -1])
def test_a_record_without_a_time_is_a_dead_letter_of_the_stream_time_of_then(timestamp):
    with make() as driver:
        driver.pipe(b"a", b"1", timestamp=timestamp)
        driver.pipe(b"a", b"1", timestamp=T0)
        driver.pipe(b"a", b"1", timestamp=timestamp)
        assert [(letter.key, letter.timestamp) for letter in driver.read("dead")] == [(b"a", 1), (b"a", T0)]
        assert len(driver.read("out")) == 1
        assert driver.stream_time() == T0


@pytest.mark.parametrize("poison", [b"poison", b"text"])
def test_a_record_that_cannot_be_grouped_is_a_dead_letter_one_without_key_or_value_is_left_out(poison):
    aggregations = [{"store": "c", "group_by": f"{__name__}:key_or_fail"}]
    with make(processor=None, stores=[], aggregations=aggregations) as driver:
        for value in (b"a", poison, None, b"left out", b"a"):
            driver.pipe(b"k", value, timestamp=T0)
        assert [letter.value for letter in driver.read("dead")] == [poison]
        assert [record.key for record in driver.read("app-c-repartition")] == [b"a", b"a"]
        assert driver.store("c").get(b"a").value == INT64.serialize(2)
        assert (driver.counts.poison, driver.counts.dropped) == (1, 1)


@pytest.mark.parametrize("commit_every", [1, 2, None])
def test_a_record_that_cannot_be_aggregated_is_a_dead_letter_and_the_others_count(commit_every):
    aggregations = [{"store": "c", "aggregate": f"{__name__}:total", "output_topic": "out"}]
    with make(processor=None, stores=[], aggregations=aggregations, commit_every=commit_every) as driver:
        for value in (INT64.serialize(2), b"short", INT64.serialize(5), b"", INT64.serialize((1 << 63) - 1)):
            driver.pipe(b"k", value, timestamp=T0, headers=[("trace", value)])
        driver.commit()
        letters = driver.read("dead")
        assert [letter.value for letter in letters] == [b"short", b"", INT64.serialize((1 << 63) - 1)]
        assert [dict(letter.headers)["__streams.errors.offset"] for letter in letters] == [b"1", b"3", b"4"]
        assert [letter.headers[0][1] for letter in letters] == [letter.value for letter in letters]
        assert driver.store("c").get(b"k").value == INT64.serialize(7)
        assert driver.counts.poison == 3


@pytest.mark.parametrize("commit_every", [1, 3, None])
def test_a_record_that_fails_several_times_is_one_dead_letter(commit_every):
    stores = ("c", "d")
    aggregations = [{"store": store, "aggregate": f"{__name__}:total"} for store in stores]
    with make(processor=f"{__name__}:fail_on_short", aggregations=aggregations, commit_every=commit_every) as driver:
        for value in (INT64.serialize(2), b"short", b"other", INT64.serialize(5)):
            driver.pipe(b"k", value, timestamp=T0)
        driver.commit()
        letters = [(letter.value, dict(letter.headers)["__streams.errors.exception"]) for letter in driver.read("dead")]
        assert sorted(letters) == [(b"other", b"builtins.ValueError"), (b"short", b"builtins.LookupError")]
        assert driver.counts.poison == 2
        assert [driver.store(store).get(b"k").value for store in stores] == [INT64.serialize(7)] * 2


# -- without dead letters -----------------------------------------------------------------------------------------


def test_without_dead_letters_a_poison_record_ends_the_task_with_record_and_line():
    with make(dead_letter_topic=None) as driver:
        driver.pipe(b"a", b"1", timestamp=T0)
        with pytest.raises(ProcessingError) as caught:
            driver.pipe(b"a", b"poison", timestamp=T0)
    line = write_everywhere.__code__.co_firstlineno
    found = str(caught.value)
    assert "app task 0_0, record in-0@1: ValueError: ('it is poison', b'\\xff')" in found
    assert f"({__file__}:{line + 20})" in found
    assert "name a dead_letter_topic" in found
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("timestamp", [0, -1])
def test_without_dead_letters_a_record_without_a_time_ends_the_task(timestamp):
    with make(dead_letter_topic=None) as driver:
        driver.pipe(b"a", b"1", timestamp=T0)
        with pytest.raises(ProcessingError, match=rf"in-0@1: ValueError: its timestamp is {timestamp}, expected milli"):
            driver.pipe(b"a", b"1", timestamp=timestamp)


# -- what is no poison --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dead_letter_topic", ["dead", None])
@pytest.mark.parametrize(
    ("processor", "error"),
    [
        ("forward_elsewhere", InputError),
        ("ask_for_another_store", UnknownStoreError),
        ("interrupt", KeyboardInterrupt),
    ],
)
def test_an_error_that_no_record_is_to_blame_for_ends_the_task(processor, error, dead_letter_topic):
    with make(dead_letter_topic, processor=f"{__name__}:{processor}") as driver:
        with pytest.raises(error):
            driver.pipe(b"a", b"1", timestamp=T0)
        assert driver.read("out") == []
        assert driver.counts.poison == 0


def test_an_init_that_fails_ends_the_task():
    with (
        make(processor=f"{__name__}:FailsInInit") as driver,
        pytest.raises(ProcessingError, match=r"app task 0_0: .* in its init: RuntimeError: no model"),
    ):
        driver.pipe(b"a", b"1", timestamp=1_000)


def test_what_init_writes_has_the_time_of_the_first_record_then_stream_time():
    with make(processor=f"{__name__}:WritesInInit") as driver:
        driver.pipe(b"a", b"1", timestamp=1_000)
        driver.restart()
        driver.pipe(b"a", b"1", timestamp=900)
        assert [change.timestamp for change in driver.read("app-plain-changelog")] == [1_000, 1_000]


def test_a_serde_that_makes_no_bytes_fails_on_its_record_and_writes_nothing():
    stores = [{"name": "plain", "format": "plain", "value_serde": f"{__name__}:NO_BYTES"}]
    with make(processor=f"{__name__}:put_number", stores=stores, aggregations=[]) as driver:
        driver.pipe(b"a", b"1", timestamp=1_000)
        (letter,) = driver.read("dead")
        assert dict(letter.headers)["__streams.errors.message"] == b"a serde makes bytes of keys and values, found int"
        assert driver.store("plain").is_empty
        assert driver.read("app-plain-changelog") == []
