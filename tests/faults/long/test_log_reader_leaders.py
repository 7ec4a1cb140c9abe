"""The log reader while a partition moves from one broker to another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kafka as kafka_python
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from demo import kafka
from demo.processes import Processes, wait_until
from statestore.changelog.reader import LogReader, first_offsets
from statestore.model import TopicPartition
from tests.integration.broker import WAIT_S, produce, unique
from tests.integration.log_reading import WAYS, choose

#: More than fits into two answers.
_COUNT = 20_000
_VALUE = b"v" * 1_000


class _SecondBroker(kafka.Kafka):
    """Joins another broker's cluster, whose controller it uses."""

    def __init__(self, processes: Processes, directory: Path, first: kafka.Kafka) -> None:
        super().__init__(processes, directory)
        self._first = first

    def _configure(self, port: int, controller_port: int) -> None:
        super()._configure(port, controller_port)
        theirs = self._first._last_ports()[1]
        text = self._config.read_text(encoding="utf-8")
        for old, new in (
            ("process.roles=broker,controller", "process.roles=broker"),
            ("node.id=1", "node.id=2"),
            (f"1@{kafka.HOST}:{controller_port}", f"1@{kafka.HOST}:{theirs}"),
            (f",CONTROLLER://{kafka.HOST}:{controller_port}", ""),
        ):
            assert old in text
            text = text.replace(old, new)
        self._config.write_text(text, encoding="utf-8")

    def _wait_until_ready(self, bootstrap_servers: str, cluster_id: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._first.bootstrap_servers})
        wait_until(lambda: len(admin.list_topics(timeout=WAIT_S).brokers) == 2, 90, "a second broker", self._service)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a cluster of two brokers."""
    directory = tmp_path_factory.mktemp("brokers")
    with Processes(directory) as processes, pytest.MonkeyPatch.context() as patched:
        first = kafka.Kafka(processes, directory / "first")
        address = first.start()
        cluster_id = AdminClient({"bootstrap.servers": address}).list_topics(timeout=WAIT_S).cluster_id
        patched.setattr(kafka, "_new_cluster_id", lambda: cluster_id)
        _SecondBroker(processes, directory / "second", first).start()
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
    with LogReader(servers, partition, stall_timeout_s=60) as reader:
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
    assert first_offsets(servers, {partition: (7, _COUNT)}, WAIT_S) == {partition: 7}
