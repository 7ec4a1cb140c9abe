"""Whether anything is left in ranges of many logs, beside what a plain consumer gets of each."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from statestore.errors import KafkaUnavailableError, StoreBehindLogStartError, TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.kafka.reader import first_offset, first_offsets
from statestore.model import TopicPartition
from tests.integration import broker
from tests.integration.broker import NO_BROKER, WAIT_S, produce, transaction
from tests.integration.log_reading import WAYS

_PARTITIONS = 14
_LARGE = 900_000


@pytest.fixture(scope="module")
def logs(bootstrap_servers: str) -> dict[TopicPartition, tuple[list[int], int]]:
    """Partitions of every sort, with the offsets of their records and their ends."""
    chosen = random.Random(3)
    topic = broker.create_topic(bootstrap_servers, broker.unique("many"), _PARTITIONS)
    other = broker.create_topic(bootstrap_servers, broker.unique("other"), 2)
    for partition in range(_PARTITIONS - 4):  # the last stay empty
        for _ in range(3):
            rows = [(b"k", b"v" * chosen.choice((1, 1, 20_000)))] * chosen.randrange(1, 4)
            sort = chosen.choice(("plain", "commit", "abort", "abort"))
            if sort == "plain":
                produce(bootstrap_servers, topic, rows, partition)
            else:
                transaction(bootstrap_servers, topic, rows, end=sort, partition=partition)
    large = Producer({"bootstrap.servers": bootstrap_servers, "message.max.bytes": 1_000_000})
    for partition in range(0, _PARTITIONS, 3):  # more than fits into one answer beside the others
        large.produce(topic, random.Random(partition).randbytes(_LARGE), b"k", partition=partition)
    assert large.flush(WAIT_S) == 0
    produce(bootstrap_servers, other, [(b"k", b"v")], 1)
    names = [TopicPartition(topic, number) for number in range(_PARTITIONS)] + [
        TopicPartition(other, number) for number in range(2)
    ]
    found = {}
    for name in names:
        records, end = broker.consume(bootstrap_servers, *name, start=0)
        found[name] = [record.offset for record in records], end
    return found


@pytest.mark.short_for("fetched and decoded here")
def test_any_range_of_any_partition_is_answered_as_a_consumer_would(
    bootstrap_servers: str, logs: dict[TopicPartition, tuple[list[int], int]], way: str
) -> None:
    chosen = random.Random(way)
    for _ in range(2 if way == WAYS[1] else 10):
        ranges = {}
        for partition, (_, end) in logs.items():
            start, stop = sorted(chosen.randrange(end + 1) for _ in range(2))
            ranges[partition] = start, chosen.choice((stop, end))
        expected = {
            partition: next((at for at in logs[partition][0] if start <= at < stop), None)
            for partition, (start, stop) in ranges.items()
        }
        assert any(at is None for at in expected.values())
        assert any(at is not None for at in expected.values())
        assert first_offsets(Cluster(bootstrap_servers, 10), ranges) == expected
        one = chosen.choice(list(ranges))
        assert first_offset(Cluster(bootstrap_servers, 10), one, *ranges[one]) == expected[one]


def test_nothing_asked_is_nothing_answered_even_without_a_broker() -> None:
    assert first_offsets(Cluster(NO_BROKER, 1), {}) == {}
    assert first_offsets(Cluster(NO_BROKER, 1), {TopicPartition("any", 0): (5, 5)}) == {TopicPartition("any", 0): None}


@pytest.mark.long
def test_range_that_is_not_stable_yet_is_an_error_in_time(bootstrap_servers: str) -> None:
    topic = broker.create_topic(bootstrap_servers, broker.unique("open"))
    hung = transaction(bootstrap_servers, topic, [(b"k", b"v")], end="open")
    try:
        with pytest.raises(KafkaUnavailableError, match=f"{topic}-0 the first: nothing came for 1 s"):
            first_offsets(Cluster(bootstrap_servers, 1), {TopicPartition(topic, 0): (0, 1)})
    finally:
        hung.abort_transaction(WAIT_S)


@pytest.mark.short_for("7")
@pytest.mark.parametrize("number", [0, 7])
def test_partition_that_is_not_there_is_a_mismatch(bootstrap_servers: str, number: int) -> None:
    name = broker.create_topic(bootstrap_servers, broker.unique("one")) if number else broker.unique("absent")
    with pytest.raises(TopicMismatchError, match=f"{name}-{number}"):
        first_offsets(Cluster(bootstrap_servers, 1), {TopicPartition(name, number): (0, 1)})


def test_range_below_the_log_start_is_a_store_behind_it(bootstrap_servers: str) -> None:
    topic = broker.create_topic(bootstrap_servers, broker.unique("deleted"))
    produce(bootstrap_servers, topic, [(b"k", b"v")] * 10)
    broker.delete_records(bootstrap_servers, topic, 5)
    with pytest.raises(StoreBehindLogStartError, match=f"{topic}-0 no longer has offset 3"):
        first_offsets(Cluster(bootstrap_servers, 10), {TopicPartition(topic, 0): (3, 10)})


def test_no_broker_is_an_error_in_time() -> None:
    with pytest.raises(KafkaUnavailableError):
        first_offsets(Cluster(NO_BROKER, 1), {TopicPartition("any", 0): (0, 1)})


_SHORT = """
import sys
from statestore.changelog.reader import ChangelogReader
from statestore.kafka.cluster import Cluster
from statestore.kafka.reader import first_offset
from statestore.model import TopicPartition
cluster, partition = Cluster(sys.argv[1]), TopicPartition(sys.argv[2], 0)
assert first_offset(cluster, partition, 0, 100) == 0
with ChangelogReader(cluster, partition) as reader:
    assert sum(map(len, reader.read(0, 100))) == 100
assert "numba" not in sys.modules, "its import takes longer than this"
"""


@pytest.mark.long
def test_process_that_reads_little_does_not_import_a_compiler(bootstrap_servers: str) -> None:
    topic = broker.create_topic(bootstrap_servers, broker.unique("short"))
    produce(bootstrap_servers, topic, [(b"k", b"v")] * 100)
    subprocess.run([sys.executable, "-c", _SHORT, bootstrap_servers, topic], check=True, timeout=60)
