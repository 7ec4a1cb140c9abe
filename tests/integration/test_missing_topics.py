"""A topic that is missing stays missing, also where brokers create each topic that a client asks for, as by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from demo.kafka import Kafka
from demo.processes import Processes
from statestore.changelog.reader import ChangelogReader
from statestore.errors import StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.leaders import find_leaders
from statestore.kafka.produce import ColumnProducer
from statestore.kafka.reader import first_offset
from statestore.kafka.writer import AtLeastOnceWriter
from statestore.model import TopicPartition
from tests.integration.broker import unique

_TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def creating_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that creates topics; yields its bootstrap servers."""
    directory = tmp_path_factory.mktemp("creating")
    with Processes(directory) as processes:
        settings = {"auto.create.topics.enable": "true"}
        yield Kafka(processes, directory / "kafka", settings=settings).start()


def _asked_for_leader(servers: str, partition: TopicPartition) -> None:
    find_leaders(Cluster(servers), [partition], _TIMEOUT_S)


def _asked_for_ends(servers: str, partition: TopicPartition) -> None:
    Cluster(servers, _TIMEOUT_S).topics.log_ranges([partition])


def _truncated(servers: str, partition: TopicPartition) -> None:
    Cluster(servers, _TIMEOUT_S).topics.delete_records({partition: 1})


def _looked_into(servers: str, partition: TopicPartition) -> None:
    first_offset(Cluster(servers, _TIMEOUT_S), partition, 0, 1)


def _read(servers: str, partition: TopicPartition) -> None:
    with ChangelogReader(Cluster(servers, _TIMEOUT_S), partition) as reader:
        list(reader.read(0, 1))


def _read_by_message(servers: str, partition: TopicPartition) -> None:
    with ChangelogReader(Cluster(servers, _TIMEOUT_S), partition) as reader:
        list(reader.read_messages(0, 1))


def _written(servers: str, partition: TopicPartition) -> None:
    writer = AtLeastOnceWriter(Cluster(servers, _TIMEOUT_S), "test")
    try:
        writer.begin()
        writer.produce(partition.topic, b"k", b"v", 1, partition.partition)
        writer.flush()
    finally:
        writer.close()


def _written_in_columns(servers: str, partition: TopicPartition) -> None:
    producer = ColumnProducer(Cluster(servers, _TIMEOUT_S), partition.topic, 1_000_000)
    producer.produce(partition.partition, pa.array([b"k"]), pa.array([b"v"]), pa.array([1]).to_numpy())
    producer.flush()


@pytest.mark.parametrize(
    "use",
    [
        _asked_for_leader,
        _asked_for_ends,
        _truncated,
        _looked_into,
        _read,
        _read_by_message,
        _written,
        _written_in_columns,
    ],
)
def test_a_missing_topic_is_not_created_by_using_it(
    creating_broker: str, use: Callable[[str, TopicPartition], None]
) -> None:
    name = unique("missing")
    with suppress(StateStoreError):
        use(creating_broker, TopicPartition(name, 0))
    topics = Cluster(creating_broker).topics
    topics.create(unique("other"), 1, {})
    assert name not in topics.names()
