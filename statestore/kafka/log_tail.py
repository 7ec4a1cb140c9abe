"""Follows the end of one topic partition, record by record, as records arrive."""

from __future__ import annotations

from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from statestore.errors import StateStoreError
from statestore.kafka.client import translate
from statestore.kafka.cluster import Cluster
from statestore.kafka.deadline import close_consumer
from statestore.kafka.rights import is_about_unused_group, on_topics
from statestore.model import TopicPartition

_MAX_MESSAGES = 10_000


class LogTail:
    """A consumer of one topic partition, also of records whose transactions are open.

    Parameters
    ----------
    start
        Offset of the first record; if it no longer exists, the first one that does.
    """

    def __init__(self, cluster: Cluster, partition: TopicPartition, start: int) -> None:
        self._partition = partition
        self._consumer: Consumer = cluster.client(
            Consumer,
            **{
                "group.id": "statestore-log-tail",  # librdkafka requires one; nothing is committed to it
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                # Otherwise, the connection to the leader is only made when librdkafka next looks.
                "enable.sparse.connections": False,
            },
        )
        self._consumer.assign([KafkaTopicPartition(*partition, start)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        close_consumer(self._consumer)

    def poll(self, wait_s: float) -> list[Message]:
        """Return the records that have arrived; wait so long (s) for the first one.

        Raises
        ------
        StateStoreError
            If the brokers refuse to send them.
        """
        try:
            first = self._consumer.poll(wait_s)
            arrived = [] if first is None else [first, *self._consumer.consume(_MAX_MESSAGES, 0)]
        except KafkaException as error:
            raise self._failed(error) from error
        records = []
        for message in arrived:
            if (failed := message.error()) is None:
                records.append(message)
            elif not is_about_unused_group(failed):
                raise self._failed(failed)
        return records

    def _failed(self, error: KafkaException | KafkaError) -> StateStoreError:
        return translate(error, f"reading {self._partition}", *on_topics("READ", self._partition.topic))
