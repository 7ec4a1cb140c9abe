"""Columns of records arrive as a plain consumer reads them: each once, in their order, whatever is lost in between."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statestore.errors import InputError, TopicMismatchError
from statestore.kafka import produce
from statestore.kafka.cluster import Cluster
from statestore.kafka.connection import ConnectionLostError
from statestore.kafka.produce import ColumnProducer
from statestore.kafka.reader import is_compressed
from statestore.model import TopicPartition
from tests.integration import broker
from tests.integration.broker import T0, Logged

#: Of a record, without its offset.
Sent = tuple[bytes | None, bytes | None, int]


def drawn(seed: int, count: int) -> list[Sent]:
    """Draw records: of no bytes and of many, with and without keys and values, their times in no order."""
    source = random.Random(seed)

    def some(most: int) -> bytes | None:
        return None if source.random() < 0.1 else source.randbytes(source.choice((0, 1, 20, source.randrange(most))))

    return [
        (some(300), some(20_000 if source.random() < 0.05 else 500), T0 + source.randrange(-500, 10**6))
        for _ in range(count)
    ]


def send(producer: ColumnProducer, partition: int, records: list[Sent]) -> None:
    keys, values = (pa.array([record[at] for record in records], pa.binary()) for at in (0, 1))
    producer.produce(partition, keys, values, np.array([record[2] for record in records], np.int64))


def read(servers: str, topic: str, partition: int) -> list[Sent]:
    found: list[Logged] = broker.consume(servers, topic, partition)[0]
    assert [record.offset for record in found] == list(range(len(found)))
    return [(record.key, record.value, record.timestamp) for record in found]


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    settings = {"max.message.bytes": "50000", "retention.ms": "-1"}
    return broker.create_topic(bootstrap_servers, broker.unique("columns"), 2, settings)


def test_records_arrive_once_in_their_order_also_if_an_answer_is_lost(
    bootstrap_servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = ColumnProducer(Cluster(bootstrap_servers, 30), topic, 50_000)
    first, second, third = drawn(1, 1_200), drawn(2, 700), drawn(3, 300)
    send(producer, 0, first)
    send(producer, 1, second)
    plain, lost = produce._ProduceConnection.produce, []

    def answer_lost(*arguments: Any) -> Any:  # the broker has the batches, as if the network failed a moment later
        found = plain(*arguments)
        if len(lost) < 2:
            lost.append(found)
            raise ConnectionLostError("lost on purpose")
        return found

    monkeypatch.setattr(produce._ProduceConnection, "produce", answer_lost)
    producer.flush()
    assert len(lost) == 2
    send(producer, 0, third)
    producer.flush()
    assert [read(bootstrap_servers, topic, partition) for partition in range(2)] == [first + third, second]


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("smaller", [True, False])
def test_records_are_compressed_where_that_makes_them_smaller(
    bootstrap_servers: str, topic: str, compress: bool, smaller: bool
) -> None:
    producer = ColumnProducer(Cluster(bootstrap_servers, 30), topic, 50_000, compress=compress)
    source = random.Random(4)
    values = [bytes(200) if smaller else source.randbytes(200) for _ in range(500)]
    sent: list[Sent] = [(b"key", value, T0) for value in values]
    send(producer, 0, sent)
    producer.flush()
    assert read(bootstrap_servers, topic, 0) == sent
    assert is_compressed(Cluster(bootstrap_servers, 30), TopicPartition(topic, 0), 0, 500) is (compress and smaller)


def test_a_record_is_taken_that_only_its_end_makes_small_enough(bootstrap_servers: str) -> None:
    topic = broker.create_topic(bootstrap_servers, broker.unique("columns"), 1, {"max.message.bytes": "100000"})
    producer = ColumnProducer(Cluster(bootstrap_servers, 30), topic, 100_000)
    sent: list[Sent] = [(b"key", random.Random(5).randbytes(70_000) + bytes(100_000), T0)]
    send(producer, 0, sent)
    producer.flush()
    assert read(bootstrap_servers, topic, 0) == sent


def test_a_log_without_records_does_not_tell_whether_they_are_compressed(bootstrap_servers: str, topic: str) -> None:
    assert is_compressed(Cluster(bootstrap_servers, 30), TopicPartition(topic, 0), 0, 0) is None


def test_a_record_that_its_topic_does_not_take_is_named(bootstrap_servers: str, topic: str) -> None:
    producer = ColumnProducer(Cluster(bootstrap_servers, 30), topic, 50_000)
    send(producer, 0, [(b"small", b"1", T0)])
    send(producer, 1, [(b"the key", random.Random(1).randbytes(90_000), T0)])
    with pytest.raises(InputError, match=r"a record of .* b'the key', is larger .* max.message.bytes is 50000"):
        producer.flush()


def test_a_topic_that_does_not_exist_is_named(bootstrap_servers: str) -> None:
    producer = ColumnProducer(Cluster(bootstrap_servers, 0.5), broker.unique("missing"), 50_000)
    send(producer, 0, [(b"key", b"1", T0)])
    with pytest.raises(TopicMismatchError, match="missing-"):
        producer.flush()
