"""The application's consumer group: where its next input offsets are kept, as Kafka's own tools see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from statestore.kafka.cluster import Cluster
from statestore.kafka.deadline import close_consumer
from statestore.kafka.rights import Right, on_group, on_topics
from statestore.model import TopicPartition

#: Name of Kafka Streams' assignor in the classic protocol.
_STREAM_ASSIGNOR = "stream"


class GroupOffset(NamedTuple):
    """A group's committed offset, next to read, with the metadata that was committed with it.

    If another client committed it, there may be anything behind the metadata: see formats/commit_metadata.py.
    """

    next_offset: int
    metadata: str = ""


class ConsumerGroup:
    """Reads a group's committed offsets, commits them, and names the group to a transactional producer.

    It never joins the group: partitions are assigned by the job, and exclusion is the producer's fencing.

    Parameters
    ----------
    require_stable
        Wait for the end of a transaction that has sent offsets. Without it, what was committed before is read.
    """

    def __init__(self, cluster: Cluster, group: str, *, require_stable: bool = True) -> None:
        self.group = group
        self._cluster = cluster
        self._consumer = cluster.client(
            Consumer,
            **{
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if require_stable else "read_uncommitted",
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        close_consumer(self._consumer)

    def committed(self, partition: TopicPartition) -> GroupOffset | None:
        """Return what the group committed for a partition; None if nothing."""

        def ask(timeout_s: float) -> GroupOffset:
            (answer,) = self._consumer.committed([KafkaTopicPartition(*partition)], timeout=timeout_s)
            if answer.error is not None:
                raise KafkaException(answer.error)
            return GroupOffset(answer.offset, _metadata(answer))

        doing = f"reading the committed offset of group {self.group} for {partition}"
        rights = (on_group("DESCRIBE", self.group), *on_topics("DESCRIBE", partition.topic))
        found = self._cluster.answered(ask, doing, *rights)
        return found if found.next_offset >= 0 else None

    def commit(self, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Commit offsets outside of any transaction."""

        def ask(_: float) -> None:
            _require_committed(self._consumer.commit(offsets=kafka_offsets(offsets), asynchronous=False))

        self._cluster.answered(ask, f"committing input offsets of {self.group}", *to_commit(self.group, offsets))

    def metadata(self) -> Any:
        """Group metadata for `TransactionalWriter.send_offsets`."""
        return self._consumer.consumer_group_metadata()


def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, GroupOffset]:
    """Return all that a group has committed, of whatever topics; nothing if there is no such group.

    Raises
    ------
    KafkaUnavailableError
        If Kafka does not answer, or a transaction that has sent offsets has not ended in time.
    """

    def ask(left_s: float) -> dict[TopicPartition, GroupOffset]:
        asked = cluster.admin(left_s).list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=left_s
        )
        try:
            answers = asked[group].result().topic_partitions
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}
            raise
        found = {}
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
            if answer.offset >= 0:
                where = TopicPartition(answer.topic, answer.partition)
                found[where] = GroupOffset(answer.offset, _metadata(answer))
        return found

    return cluster.answered(ask, f"reading the committed offsets of group {group}", on_group("DESCRIBE", group))


def group_names(cluster: Cluster) -> frozenset[str]:
    """Return the names of all consumer groups that the brokers show to us.

    Raises
    ------
    KafkaUnavailableError
        If Kafka does not answer in time.
    """

    def ask(left_s: float) -> frozenset[str]:
        found = cluster.admin(left_s).list_consumer_groups(request_timeout=left_s).result()
        if found.errors and not found.valid:
            raise found.errors[0]
        return frozenset(group.group_id for group in found.valid)

    return cluster.answered(ask, "listing the consumer groups")


def uses_stream_assignor(cluster: Cluster, group: str) -> bool:
    """Return whether a group has members that Kafka Streams assigns tasks to.

    Raises
    ------
    KafkaUnavailableError
        If Kafka does not answer in time.
    """

    def ask(left_s: float) -> bool:
        asked = cluster.admin(left_s).describe_consumer_groups([group], request_timeout=left_s)
        return bool(asked[group].result().partition_assignor == _STREAM_ASSIGNOR)

    return cluster.answered(ask, f"asking who consumes as {group}", on_group("DESCRIBE", group))


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
    """Commit offsets of a group once, outside of any transaction, without a consumer of its own for that.

    Raises
    ------
    InputError
        If somebody consumes as this group.
    KafkaUnavailableError
        If Kafka does not answer in time.
    """
    asked = ConsumerGroupTopicPartitions(group, kafka_offsets(offsets))

    def ask(left_s: float) -> None:
        answers = cluster.admin(left_s).alter_consumer_group_offsets([asked], request_timeout=left_s)
        _require_committed(answers[group].result().topic_partitions)

    cluster.answered(ask, f"committing input offsets of {group}", *to_commit(group, offsets))


def to_commit(group: str, offsets: Iterable[TopicPartition]) -> tuple[Right, ...]:
    """Return the rights to commit offsets of a group."""
    return on_group("READ", group), *on_topics("READ", *(partition.topic for partition in offsets))


def _require_committed(answers: Iterable[KafkaTopicPartition]) -> None:
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)


def _metadata(answer: KafkaTopicPartition) -> str:
    """Return the metadata of an answer, and what librdkafka lets follow it in memory (its issue 4649)."""
    try:
        return answer.metadata or ""
    except UnicodeDecodeError as error:  # what follows is no text, and the error has all of it
        return error.object.decode(errors="replace")


def kafka_offsets(offsets: Mapping[TopicPartition, GroupOffset]) -> list[KafkaTopicPartition]:
    """Return the offsets in confluent-kafka's form."""
    return [
        KafkaTopicPartition(*partition, found.next_offset, metadata=found.metadata)
        for partition, found in offsets.items()
    ]
