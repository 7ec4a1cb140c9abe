"""Which broker leads a partition, and which of Kafka's errors mean that this is being found out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from statestore.kafka.client import Admin, is_passing
from statestore.kafka.connection_pool import Address
from statestore.model import TopicPartition

__all__ = ["Address", "Leaders", "may_pass"]

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


class Leaders:
    """Asks an admin client who leads partitions, or remembers what it was told.

    The client then knows that, too, and does not have to find out with its next request to these partitions. Where it
    must, librdkafka 2.16 may crash the process: if another answer tells it while such a request is made, two threads
    have its state (`rd_kafka_topic_partition_list_query_leaders_async`).
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def of(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, Address | KafkaError]:
        """Return the leader's address for each partition, or why there is none to be had now.

        Raises
        ------
        KafkaException
            If no broker answers in time.
        """
        asked, servers = list(partitions), self._admin.bootstrap_servers
        known = self._admin.kept.leaders(servers, asked)
        if known.keys() == set(asked):
            return dict(known)
        names = {partition.topic for partition in asked}
        client = self._admin.client(timeout_s)
        listed = client.list_topics(names.pop() if len(names) == 1 else None, timeout=timeout_s)
        self._admin.kept.keep_leaders(servers, _all_leaders(listed))
        return {partition: _leader(listed, partition) for partition in asked}

    def learn(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Have the client know who leads partitions.

        Raises
        ------
        KafkaException
            If a partition is not there, or nobody leads it now.
        """
        for leader in self.of(partitions, timeout_s).values():
            if isinstance(leader, KafkaError):
                raise KafkaException(leader)

    def forget(self) -> None:
        """Ask again who leads, and connect anew: an answer showed that what is remembered may be wrong."""
        self._admin.kept.forget(self._admin.bootstrap_servers)


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
