"""A subtopology at work: what comes of records does not depend on how they are cut into batches."""

from __future__ import annotations

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import KafkaUnavailableError, ProcessingError
from statestore.kafka.record_headers import with_headers
from statestore.model import TaskId, TopicPartition
from statestore.stores.api import StoreContext
from statestore.stores.open import build_store
from statestore.tasks import INT64, ValueAndTimestamp, sum_of
from statestore.tasks.input_records import InputRecords
from statestore.tasks.topology import Topology
from tests.session.examples import examples
from tests.unit.outputs import Lists

T0 = 1_700_000_000_000
DEFINITION = {
    "name": "app",
    "input_topic": "in",
    "output_topics": ["out"],
    "dead_letter_topic": "dead",
    "default_dsl_store": "in_memory",
    "processor": f"{__name__}:forward",
    "stores": [{"name": "s"}],
}


def forward(record, context):
    context.forward(record.key, record.value)


total = sum_of(value=INT64)


@pytest.fixture
def topology(tmp_path):
    """Make a topology whose stores are in memory."""
    opened = []

    def made(output=None, **changes):
        output = output or Lists()
        application = ApplicationDefinition.model_validate({**DEFINITION, **changes})
        stores = {store.name: build_store(store) for store in application.subtopologies[0].stores}
        for store in stores.values():
            store.init(StoreContext("app", TaskId(0, 0), tmp_path / "task", tmp_path / "own"))
        opened.extend(stores.values())
        topology = Topology(application, TaskId(0, 0), stores, output)
        topology.start(-1)
        topology.output = output  # for the test
        return topology

    yield made
    for store in opened:
        store.close()


def records(*rows):
    """Make input of values and timestamps (ms)."""
    messages = [
        Message(topic="in", partition=0, offset=at, key=b"k", value=value, timestamp=(TIMESTAMP_CREATE_TIME, time))
        for at, (value, time) in enumerate(rows)
    ]
    return InputRecords(TopicPartition("in", 0), *with_headers(messages))


def test_a_processor_takes_records_until_a_commit_is_due(topology):
    made = topology()
    due = iter([False, True])  # it is not asked after each record: every eighth is enough
    assert made.process(records(*((b"v", T0 + at) for at in range(20))), lambda: next(due)) == 16
    assert made.counts.records_in == made.counts.records_out == 16
    assert made.stream_time == T0 + 15


def test_aggregations_take_whole_batches_and_change_nothing_before_the_flush(topology):
    made = topology(processor=None, stores=[], aggregations=[{"store": "c"}])
    assert made.process(records(*((b"v", T0 + at) for at in range(5))), lambda: True) == 5
    assert made.pending_bytes > 0
    assert made.output.logged == []
    made.flush()
    assert made.output.logged == [("c", b"k", INT64.serialize(5), T0 + 4)]
    assert made.pending_bytes == 0


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.sampled_from([INT64.serialize(3), b"short", None]), st.integers(-1, 300)), max_size=30),
    st.lists(st.integers(1, 7), max_size=30),
)
def test_results_do_not_depend_on_how_records_are_cut(topology, found, sizes):
    aggregations = [
        {"store": "sum", "aggregate": f"{__name__}:total"},
        {"store": "windows", "aggregate": f"{__name__}:total", "windows": {"size_ms": 50, "grace_ms": 20}},
        {"store": "sessions", "sessions": {"gap_ms": 10}},
    ]

    def run(cuts):
        made = topology(aggregations=aggregations)
        left, cuts = records(*found), iter(cuts)
        while len(left):
            size = min(next(cuts, len(left)), len(left))
            part, left = left.part(0, size), left.part(size)
            while len(part):
                part = part.part(made.process(part, lambda: False))
            if size % 2:
                made.flush()
        made.flush()
        letters = sorted(dict(sent[4])["__streams.errors.offset"] for sent in made.output.sent if sent[0] == "dead")
        rows = {name: list(made._stores[name].all()) for name in ("sum", "windows", "sessions")}
        return rows, made.counts.late, made.counts.dropped, made.counts.poison, made.stream_time, letters

    assert run(sizes) == run([])


def test_a_batch_goes_on_behind_a_record_without_a_time(topology):
    made = topology(processor=None, stores=[], aggregations=[{"store": "c"}])
    left = records((b"v", T0), (b"v", 0), (b"v", T0 + 1), (b"v", -1))
    taken = []
    while len(left):
        taken.append(made.process(left, lambda: False))
        left = left.part(taken[-1])
    made.flush()
    assert taken == [1, 1, 1, 1]
    assert made.output.logged == [("c", b"k", INT64.serialize(2), T0 + 1)]
    assert (made.counts.records_in, made.counts.poison) == (4, 2)


# -- user code that catches everything ----------------------------------------------------------------------------


def put_and_go_on(record, context):
    try:
        context.state_store("s").put(record.key, ValueAndTimestamp(record.value, record.timestamp))
    except Exception:
        return


class Refusing(Lists):
    """Takes no change: librdkafka does so when 500,000 records wait, which a test cannot send."""

    def log_many(self, store, keys, values, timestamps, headers=None, count=None):
        raise KafkaUnavailableError("no record was taken")


def test_a_log_that_failed_ends_the_task_though_user_code_catches_it(topology):
    made = topology(Refusing(), processor=f"{__name__}:put_and_go_on", dead_letter_topic=None)
    with pytest.raises(KafkaUnavailableError, match="no record was taken"):
        made.process(records((b"1", T0)), lambda: False)
    with pytest.raises(KafkaUnavailableError, match="no record was taken"):
        made.flush()


def forward_at(record, context):
    context.forward(record.key, record.value, timestamp=int(record.value))


@pytest.mark.parametrize("timestamp", [0, -1])
def test_a_forward_with_a_timestamp_that_kafka_would_take_for_now_is_poison(topology, timestamp):
    made = topology(processor=f"{__name__}:forward_at", dead_letter_topic=None)
    with pytest.raises(ProcessingError, match=rf"in-0@0: ValueError: its timestamp is {timestamp}, .* above 0"):
        made.process(records((b"%d" % timestamp, T0)), lambda: False)
    assert made.output.sent == []
