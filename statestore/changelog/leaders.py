"""Which broker leads a partition, and which of Kafka's errors mean that this is being found out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError

from statestore.changelog.client import Admin, is_passing
from statestore.changelog.kept import Address, kept
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
    """Asks who leads partitions, or remembers it (`keep_connections`)."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._admin = Admin(bootstrap_servers)

    def of(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[TopicPartition, Address | KafkaError]:
        """Return the leader's address for each partition, or why there is none to be had now.

        Raises
        ------
        KafkaException
            If no broker answers in time.
        """
        asked, keeper = list(partitions), kept()
        known = keeper.leaders(self._servers) if keeper else {}
        if keeper is not None and all(partition in known for partition in asked):
            return {partition: known[partition] for partition in asked}
        names = {partition.topic for partition in asked}
        admin = self._admin.client(timeout_s)
        listed = admin.list_topics(names.pop() if len(names) == 1 else None, timeout=timeout_s)
        if keeper is not None:
            keeper.keep_leaders(self._servers, _all_leaders(listed))
        return {partition: _leader(listed, partition) for partition in asked}

    def forget(self) -> None:
        """Ask again who leads, and connect anew: an answer showed that what is remembered may be wrong."""
        if (keeper := kept()) is not None:
            keeper.forget(self._servers)


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
