"""Input records with their headers: the same whether their batches are fetched and decoded, or come from librdkafka."""

from __future__ import annotations

import numba  # noqa: F401  # with it loaded, the reader fetches and decodes also what is short
import pytest
from confluent_kafka import Producer

from statestore.kafka.cluster import Cluster
from statestore.kafka.reader import LogReader
from statestore.kafka.record_headers import with_headers
from statestore.model import TopicPartition
from statestore.tasks.input_records import InputRecords
from statestore.tasks.processor import Record
from tests.integration.broker import T0, WAIT_S, create_topic, unique

HEADERS = [
    [],
    [("trace", b"00-4bf9-01")],
    [("a", b"1"), ("a", None), ("", b""), ("Ü", b"\xff" * 300)],
    [],
    [("trace", b"2")] * 40,
]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_records_come_with_their_headers_however_they_are_read(bootstrap_servers: str, compression: str) -> None:
    topic = create_topic(bootstrap_servers, unique("headers"))
    producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": compression})
    for number in range(50):
        value = None if number % 7 == 3 else b"%d" % number
        producer.produce(topic, value, b"k%d" % number, 0, timestamp=T0 + number, headers=HEADERS[number % 5])
    assert producer.flush(WAIT_S) == 0
    where = TopicPartition(topic, 0)
    with LogReader(Cluster(bootstrap_servers), where) as reader:
        fetched = [
            record
            for batch in reader.read_records(0, 50)
            for part in InputRecords.arrived(where, batch, 7)
            for record in part.records
        ]
        (messages,) = reader.read_messages(0, 50)
    assert fetched == InputRecords(where, *with_headers(messages)).records
    assert fetched[12] == Record(topic, 0, 12, b"k12", b"12", T0 + 12, tuple(HEADERS[2]))
    assert fetched[3].value is None
