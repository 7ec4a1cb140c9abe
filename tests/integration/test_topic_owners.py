"""Which application a changelog topic belongs to, where its name fits `orders` and `orders-v2`.

The groups, topics and producers are real; the commits are those of Kafka Streams, or of an ordinary consumer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from statestore.cli.selection import Where
from statestore.discovery.applications import discover
from statestore.discovery.known_store import KnownStore
from statestore.discovery.known_stores_file import keep_known
from statestore.errors import UnknownApplicationError
from statestore.formats.commit_metadata import CommitMetadata, encode
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, commit_offsets
from statestore.model import TopicPartition
from tests.integration.broker import create_topic, unique

STREAMS = encode(CommitMetadata(partition_time=5))


class Owners:
    """A state directory with application `orders`, and topic `orders-v2-totals-changelog`, whose owner is unknown."""

    def __init__(self, servers: str, state_dir: Path) -> None:
        self.where = Where(Cluster(servers), state_dir)
        self.name = unique("orders")
        self.other = f"{self.name}-v2"
        self.topic = create_topic(servers, f"{self.other}-totals-changelog", 2)
        (state_dir / self.name / "0_0").mkdir(parents=True)

    def commit(self, metadata: str, partitions: int) -> None:
        """Commit as group `orders-v2`, which reads a topic."""
        topic = create_topic(self.where.cluster.servers, unique("read"), partitions)
        commit_offsets(self.where.cluster, self.other, {TopicPartition(topic, 0): GroupOffset(0, metadata)})

    def produce(self, application: str) -> None:
        """Write to the topic as an application with exactly-once processing does."""
        servers = self.where.cluster.servers
        producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{application}-{uuid4()}-1"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(self.topic, b"v", b"k", partition=0)
        producer.commit_transaction(60)

    def trouble(
        self, name: str | None = None, defined: Mapping[str, str] | None = None
    ) -> list[tuple[str, str | None]]:
        """Return the stores of an application, each with its problem."""
        topics = self.where.cluster.topics
        found = discover(self.where, topics, name or self.name, defined=defined)
        return [(store.name, store.trouble) for store in found]


@pytest.fixture
def cluster(bootstrap_servers: str, tmp_path: Path) -> Owners:
    return Owners(bootstrap_servers, tmp_path)


def test_a_topic_of_no_other_application_is_a_lost_store(cluster: Owners) -> None:
    assert cluster.trouble() == [("v2-totals", "missing")]


@pytest.mark.parametrize(("metadata", "partitions"), [("", 2), (STREAMS, 2), (STREAMS, 3)])
def test_a_group_shows_the_owner_if_kafka_streams_commits_to_it_and_the_application_lacks_the_store(
    cluster: Owners, metadata: str, partitions: int
) -> None:
    cluster.commit(metadata, partitions)
    assert cluster.trouble() == [("v2-totals", "foreign" if metadata == STREAMS else "needed")]
    assert cluster.trouble(cluster.other) == [("totals", "missing")]


@pytest.mark.parametrize("owner", ["orders", "orders-v2"])
@pytest.mark.parametrize("known_by", ["its group", "its directory"])
def test_the_transactional_id_of_its_producer_shows_the_owner(cluster: Owners, owner: str, known_by: str) -> None:
    if known_by == "its group":
        cluster.commit(STREAMS, 2)
    else:
        (cluster.where.state_dir / cluster.other / "0_0").mkdir(parents=True)
    cluster.produce(cluster.name if owner == "orders" else cluster.other)
    assert cluster.trouble() == [("v2-totals", "missing" if owner == "orders" else "foreign")]
    if owner == "orders-v2":
        assert cluster.trouble(cluster.other) == [("totals", "missing")]
    elif known_by == "its directory":
        assert cluster.trouble(cluster.other) == [("totals", "foreign")]
    else:
        with pytest.raises(UnknownApplicationError):
            cluster.trouble(cluster.other)


def test_producers_of_both_applications_show_no_owner(cluster: Owners) -> None:
    cluster.commit(STREAMS, 2)
    cluster.produce(cluster.name)
    cluster.produce(cluster.other)
    assert cluster.trouble() == [("v2-totals", "needed")]


def test_the_record_of_a_store_goes_before_a_group(cluster: Owners) -> None:
    cluster.commit(STREAMS, 2)
    topic_id = cluster.where.cluster.topics.require(cluster.topic).topic_id
    known = KnownStore(unknown="it is odd", changelog=cluster.topic, topic_id=topic_id)
    keep_known(cluster.where.state_dir, cluster.other, {"totals": known})
    assert cluster.trouble() == [("v2-totals", "foreign")]
    found = discover(cluster.where, cluster.where.cluster.topics, cluster.name, known={"v2-totals": known})
    assert [(store.name, store.trouble) for store in found] == [("v2-totals", "unknown")]


def test_a_definition_and_the_directory_of_a_store_show_its_owner(cluster: Owners) -> None:
    assert cluster.trouble(defined={cluster.topic: cluster.other}) == [("v2-totals", "foreign")]
    (cluster.where.state_dir / cluster.name / "0_0" / "rocksdb" / "v2-totals").mkdir(parents=True)
    with pytest.raises(UnknownApplicationError):
        cluster.trouble(cluster.other)
