"""Which broker leads a partition, and which of Kafka's errors mean that this is being found out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from statestore.kafka.client import is_passing
from statestore.kafka.connection_pool import Address
from statestore.kafka.rights import needing, on_topics
from statestore.model import TopicPartition

if TYPE_CHECKING:
    from statestore.kafka.cluster import Cluster

#: A broker that was just started, or just told to lead, answers so for a moment.
_PASSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
}


def may_pass(error: KafkaError) -> bool:
    """True if reading may go on a moment later, perhaps with another broker."""
    return error.code() in _PASSING or is_passing(error)


def find_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, Address | KafkaError]:
    """Return the leader's address, or the reason why it is unknown, for each partition.

    The admin client then knows the leaders, too. If it had to find them with its next request to these partitions,
    librdkafka 2.16 could crash the process: an answer to another request lets two threads use the same state
    (`rd_kafka_topic_partition_list_query_leaders_async`).

    Raises
    ------
    KafkaException
        If no broker answers in time.
    """
    asked = list(partitions)
    known = cluster.pool.leaders(asked)
    if known.keys() == set(asked):
        return dict(known)
    names = {partition.topic for partition in asked}
    client = cluster.admin(timeout_s)
    listed = client.list_topics(names.pop() if len(names) == 1 else None, timeout=timeout_s)
    cluster.pool.remember_leaders(_all_leaders(listed))
    for name in names - listed.topics.keys():  # hidden for want of a right, unless its own answer says otherwise
        listed.topics.update(client.list_topics(name, timeout=timeout_s).topics)
    return {partition: _leader(listed, partition) for partition in asked}


def require_leaders(cluster: Cluster, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
    """Have the admin client know who leads partitions.

    Raises
    ------
    KafkaException
        If a partition does not exist, or has no leader now.
    """
    for partition, leader in find_leaders(cluster, partitions, timeout_s).items():
        if isinstance(leader, KafkaError):
            raise needing(KafkaException(leader), *on_topics("DESCRIBE", partition.topic))


def _all_leaders(listed: Any) -> dict[TopicPartition, Address]:
    found = {
        partition: _leader(listed, partition)
        for name, topic in listed.topics.items()
        for partition in (TopicPartition(name, number) for number in topic.partitions)
    }
    return {partition: leader for partition, leader in found.items() if not isinstance(leader, KafkaError)}


def _leader(listed: Any, partition: TopicPartition) -> Address | KafkaError:
    topic = listed.topics.get(partition.topic)
    if topic is None:
        return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    found = topic.partitions.get(partition.partition)
    error = topic.error or (found.error if found else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    # A replica that is down is named as an error of the partition, too.
    if found is None or found.leader not in listed.brokers:
        return error or KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    leader = listed.brokers[found.leader]
    return leader.host, leader.port
