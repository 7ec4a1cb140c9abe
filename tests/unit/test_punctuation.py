"""Punctuations come at multiples of stream time, whatever batches and runs the records came in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import ProcessingError
from statestore.stores.serdes import INT64, UTF8
from statestore.tasks.punctuation import Schedules
from statestore.testing import TopologyTestDriver


class Ticking:
    """Tells of each record and of each call, and when the context says it is."""

    def init(self, context):
        self.context = context
        context.schedule(100, lambda now: self.tell("tick", now))
        context.schedule(250, lambda now: self.tell("tock", now))

    def process(self, record, context):
        self.tell("record", record.timestamp)

    def tell(self, what, now):
        assert self.context.stream_time >= now
        self.context.forward(what.encode(), INT64.serialize(now))


class Late:
    """Schedules from inside a record."""

    def process(self, record, context):
        if record.value == b"schedule":
            context.schedule(100, lambda now: context.forward(b"tick", INT64.serialize(now)))


class Failing:
    def init(self, context):
        context.schedule(100, self.fail)

    def process(self, record, context):
        context.state_store("s").put(b"seen", record.value)

    def fail(self, now):
        if now >= 200:
            raise RuntimeError("cannot punctuate")


def make(processor, **how):
    definition = {
        "name": "app",
        "input_topic": "in",
        "output_topics": ["out"],
        "processor": f"{__name__}:{processor}",
        "stores": [{"name": "s", "format": "plain"}],
        **how.pop("changes", {}),
    }
    return TopologyTestDriver(definition, engine="in_memory", **{"value_serde": INT64, **how})


def feed(driver, *timestamps):
    """Pipe records; return what came out, as (what, when, record timestamp)."""
    for timestamp in timestamps:
        driver.pipe(b"k", 1, timestamp=timestamp)
    driver.commit()
    return [(record.key, record.value, record.timestamp) for record in driver.read("out", key_serde=UTF8)]


def ticks(driver, *timestamps):
    return [(what, now) for what, now, _ in feed(driver, *timestamps) if what != "record"]


def test_the_first_record_calls_all_and_the_next_calls_come_at_multiples_of_the_epoch():
    with make("Ticking") as driver:
        assert ticks(driver, 1_030) == [("tick", 1_030), ("tock", 1_030)]
        assert ticks(driver, 1_099) == []
        assert ticks(driver, 1_100) == [("tick", 1_100)]
        assert ticks(driver, 1_101, 1_199) == []
        assert ticks(driver, 1_260) == [("tick", 1_260), ("tock", 1_260)]
        assert ticks(driver, 1_300) == [("tick", 1_300)]


def test_one_call_stands_for_all_multiples_that_a_record_passed():
    with make("Ticking") as driver:
        ticks(driver, 1_000)
        assert ticks(driver, 1_999) == [("tick", 1_999), ("tock", 1_999)]
        assert ticks(driver, 2_000) == [("tick", 2_000), ("tock", 2_000)]


def test_a_record_that_does_not_move_stream_time_calls_nothing():
    with make("Ticking") as driver:
        ticks(driver, 1_000)
        assert ticks(driver, 900, 1_000, 1) == []


def test_calls_come_after_the_record_in_the_order_of_scheduling_with_stream_time_as_the_timestamp():
    with make("Ticking") as driver:
        assert feed(driver, 1_030, 500) == [
            ("record", 1_030, 1_030),
            ("tick", 1_030, 1_030),
            ("tock", 1_030, 1_030),
            ("record", 500, 500),
        ]


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_repeats_no_call_and_leaves_none_out(crash):
    with make("Ticking") as driver:
        ticks(driver, 1_030)
        driver.restart(crash=crash)
        assert ticks(driver, 1_031, 1_099) == []
        driver.restart(crash=crash)
        assert ticks(driver, 1_100) == [("tick", 1_100)]


@given(st.lists(st.tuples(st.integers(1, 2_000), st.booleans()), max_size=20))
def test_calls_do_not_depend_on_where_runs_end(steps):
    def run(*, bordered):
        with make("Ticking", commit_every=None) as driver:
            for timestamp, border in steps:
                driver.pipe(b"k", 1, timestamp=timestamp)
                if bordered and border:
                    driver.restart()
            driver.commit()
            return driver.read("out")

    assert run(bordered=True) == run(bordered=False)


def test_what_is_scheduled_while_processing_begins_behind_the_stream_time_of_then():
    with make("Late", value_serde=UTF8) as driver:
        driver.pipe(b"k", "schedule", timestamp=1_030)
        driver.pipe(b"k", "", timestamp=1_099)
        assert driver.read("out") == []
        driver.pipe(b"k", "", timestamp=1_100)
        assert len(driver.read("out")) == 1


@pytest.mark.parametrize("dead_letters", [None, "dead"])
def test_a_punctuation_that_fails_ends_the_task_also_where_there_are_dead_letters(dead_letters):
    with make("Failing", changes={"dead_letter_topic": dead_letters}) as driver:
        driver.pipe(b"k", 1, timestamp=100)
        with pytest.raises(ProcessingError, match=r"app task 0_0: .* its punctuation: RuntimeError: cannot punctuate"):
            driver.pipe(b"k", 2, timestamp=200)
        driver.restart()
        assert driver.store("s").get(b"seen") == INT64.serialize(1)


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_an_interval_below_a_millisecond_is_refused(interval_ms):
    with pytest.raises(ValueError, match=f"at least 1 ms, found {interval_ms}"):
        Schedules().add(interval_ms, print, -1)


@given(st.integers(1, 500), st.lists(st.integers(0, 3_000), min_size=1, max_size=30))
def test_between_two_calls_there_is_a_multiple_of_the_interval(interval_ms, timestamps):
    schedules, calls, stream_time = Schedules(), [], -1
    schedules.add(interval_ms, calls.append, stream_time)
    expected = []
    for timestamp in timestamps:
        if timestamp > stream_time:
            if timestamp // interval_ms > stream_time // interval_ms:
                expected.append(timestamp)
            stream_time = timestamp
            schedules.advance(stream_time)
    assert calls == expected
