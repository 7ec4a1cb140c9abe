"""The application's consumer group: where its next input offsets are kept, as Kafka's own tools see them."""

from __future__ import annotations

from typing import Any, Self

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from statestore.changelog.client import client_config, until_answered
from statestore.model import TopicPartition


class ConsumerGroup:
    """Reads a group's committed offsets and names the group to a transactional producer.

    It never joins the group: partitions are assigned by the job, and exclusion is the producer's fencing.
    """

    def __init__(self, bootstrap_servers: str, group: str, timeout_s: float = 30.0) -> None:
        self.group = group
        self._timeout_s = timeout_s
        self._consumer = Consumer(
            client_config(
                bootstrap_servers,
                **{
                    "group.id": group,
                    "enable.auto.commit": False,
                    # Offsets of a transaction that is still open are then waited for, not overlooked.
                    "isolation.level": "read_committed",
                },
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset, next to read; None if there is none."""

        def ask(timeout_s: float) -> int:
            (answer,) = self._consumer.committed([KafkaTopicPartition(*partition)], timeout=timeout_s)
            if answer.error is not None:
                raise KafkaException(answer.error)
            offset: int = answer.offset
            return offset

        doing = f"reading the committed offset of group {self.group} for {partition}"
        offset = until_answered(ask, doing, self._timeout_s)
        return offset if offset >= 0 else None

    def metadata(self) -> Any:
        """Group metadata for `TransactionalWriter.send_offsets`."""
        return self._consumer.consumer_group_metadata()
