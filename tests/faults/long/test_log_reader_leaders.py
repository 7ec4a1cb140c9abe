"""The log reader while a partition moves from one broker to another."""

from __future__ import annotations

from collections.abc import Iterator

import kafka as kafka_python
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from demo.processes import Processes, wait_until
from statestore.changelog.reader import ChangelogReader
from statestore.kafka.cluster import Cluster
from statestore.kafka.reader import first_offsets
from statestore.model import TopicPartition
from tests.faults.brokers import joined_brokers
from tests.integration.broker import WAIT_S, produce, unique
from tests.integration.log_reading import WAYS, choose

#: More than fits into two answers.
_COUNT = 20_000
_VALUE = b"v" * 1_000


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a cluster of two brokers."""
    directory = tmp_path_factory.mktemp("brokers")
    with Processes(directory) as processes, joined_brokers(processes, directory, 1) as (address, _):
        yield address


@pytest.mark.share_for("fetched and decoded here", why="our own reader")
@pytest.mark.parametrize("way", WAYS)
def test_partition_that_moves_is_read_on_without_a_gap(servers: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(way, monkeypatch)
    topic = unique("moving")
    partition = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, num_partitions=1, replica_assignment=[[2]])])[topic].result(WAIT_S)

    def leader() -> int:
        found = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
        return found[0].leader if 0 in found else -1

    wait_until(lambda: leader() == 2, WAIT_S, "the topic's leader")
    produce(servers, topic, [(b"k", _VALUE)] * _COUNT)
    with ChangelogReader(Cluster(servers, 60), partition) as reader:
        reading = reader.read(0, _COUNT)
        batches = [next(reading)]
        moving = kafka_python.KafkaAdminClient(bootstrap_servers=servers)
        try:
            moving.alter_partition_reassignments({kafka_python.TopicPartition(*partition): [1]})
            wait_until(lambda: leader() == 1, 60, "the partition to move")
        finally:
            moving.close()
        batches += reading
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(_COUNT))
    assert first_offsets(Cluster(servers, WAIT_S), {partition: (7, _COUNT)}) == {partition: 7}
