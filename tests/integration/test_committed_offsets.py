"""Committed offsets between our client and others: metadata has no end in one direction, a NUL too many in the other.

kafka-python stands for Kafka Streams: like it, it commits metadata without a NUL, and it shows every byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import KafkaAdminClient
from kafka import TopicPartition as OtherPartition
from kafka.structs import OffsetAndMetadata

from statestore.errors import InputError, KafkaUnavailableError
from statestore.formats import commit_metadata
from statestore.formats.commit_metadata import CommitMetadata
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import ConsumerGroup, GroupOffset, commit_offsets, committed_offsets
from statestore.kafka.writer import TransactionalWriter
from statestore.model import TopicPartition
from tests.integration import broker
from tests.integration.broker import WAIT_S

TIME = 1_700_000_000_000
#: One entry whose name grows gives each length of Base64 between 36 and 304, and none gives 12.
METADATA = [CommitMetadata(TIME)] + [CommitMetadata(TIME, {"w" * length: TIME - length}) for length in range(200)]


@pytest.fixture
def partition(bootstrap_servers: str) -> TopicPartition:
    return TopicPartition(broker.create_topic(bootstrap_servers, broker.unique("input")), 0)


@pytest.fixture
def group(bootstrap_servers: str, partition: TopicPartition) -> Iterator[ConsumerGroup]:
    with ConsumerGroup(Cluster(bootstrap_servers, WAIT_S), broker.unique("group")) as made:
        assert made.committed(partition) is None  # and its coordinator is there
        yield made


@pytest.fixture
def other_client(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as made:
        yield made


def test_metadata_that_another_client_committed_is_read_at_every_length(
    group: ConsumerGroup, partition: TopicPartition, other_client: KafkaAdminClient
) -> None:
    for offset, metadata in enumerate(METADATA):
        text = commit_metadata.encode(metadata)
        committed = {OtherPartition(*partition): OffsetAndMetadata(offset, text, -1)}
        other_client.alter_group_offsets(group.group, committed)
        found = group.committed(partition)
        assert found.next_offset == offset
        assert found.metadata.startswith(text)
        assert commit_metadata.decode(found.metadata) == metadata


@pytest.mark.parametrize("transactional", [True, False])
def test_metadata_that_we_commit_ends_in_a_nul_which_kafka_streams_refuses(
    transactional: bool,
    bootstrap_servers: str,
    group: ConsumerGroup,
    partition: TopicPartition,
    other_client: KafkaAdminClient,
) -> None:
    """If this fails, confluent-kafka was mended: take the paragraph on it out of docs/kafka-streams.md."""
    text = commit_metadata.encode(CommitMetadata(TIME))
    offsets = {partition: GroupOffset(3, text)}
    if transactional:
        writer = TransactionalWriter(Cluster(bootstrap_servers, WAIT_S), group.group)
        writer.init()
        writer.begin()
        writer.send_offsets(group, offsets)
        writer.commit()
    else:
        commit_offsets(Cluster(bootstrap_servers, WAIT_S), group.group, offsets)
    assert group.committed(partition) == offsets[partition]
    asked = OtherPartition(*partition)
    (found,) = other_client.list_group_offsets({group.group: [asked]})[group.group].values()
    assert (found.offset, found.metadata) == (3, text + "\0")


def test_offsets_that_an_open_transaction_has_sent_are_waited_for(
    bootstrap_servers: str, group: ConsumerGroup, partition: TopicPartition
) -> None:
    offsets = {partition: GroupOffset(3)}
    commit_offsets(Cluster(bootstrap_servers, WAIT_S), group.group, {partition: GroupOffset(1)})
    writer = TransactionalWriter(Cluster(bootstrap_servers, WAIT_S), group.group)
    writer.init()
    writer.begin()
    writer.send_offsets(group, offsets)
    with pytest.raises(KafkaUnavailableError, match="unstable offsets"):
        committed_offsets(Cluster(bootstrap_servers, 0.5), group.group)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(committed_offsets, Cluster(bootstrap_servers, WAIT_S), group.group)
        writer.commit()
        assert asked.result() == offsets


def test_offsets_of_a_group_that_somebody_consumes_as_are_not_changed(
    bootstrap_servers: str, group: ConsumerGroup, partition: TopicPartition
) -> None:
    commit_offsets(Cluster(bootstrap_servers, WAIT_S), group.group, {partition: GroupOffset(1)})
    with broker.member_of(bootstrap_servers, group.group, partition.topic):
        with pytest.raises(InputError, match=f"committing input offsets of {group.group}: .* stop it"):
            commit_offsets(Cluster(bootstrap_servers, WAIT_S), group.group, {partition: GroupOffset(2)})
        assert committed_offsets(Cluster(bootstrap_servers, WAIT_S), group.group) == {partition: GroupOffset(1)}
