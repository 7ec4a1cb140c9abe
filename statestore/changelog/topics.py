"""Topics as the library needs them: identity, partitions, retention, log ends, and making changelog topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from statestore.changelog.client import client_config, translate
from statestore.errors import TopicMismatchError
from statestore.model import TopicPartition

#: Kafka Streams' settings of a key-value store's changelog topic.
CHANGELOG_CONFIG = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}


class Topic(NamedTuple):
    """A topic as the brokers describe it."""

    name: str
    topic_id: str
    partitions: int


class LogRange(NamedTuple):
    """Offsets of one partition's log; both ends are exclusive."""

    start: int
    last_stable: int
    high_watermark: int


class Topics:
    """Questions about topics, each answered within a deadline.

    Parameters
    ----------
    bootstrap_servers
        Kafka brokers.
    timeout_s
        Deadline of one request.
    """

    def __init__(self, bootstrap_servers: str, timeout_s: float = 30.0) -> None:
        self._servers = bootstrap_servers
        self._timeout_s = timeout_s
        self._admin = AdminClient(client_config(bootstrap_servers))

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Describe those of the topics that exist.

        Raises
        ------
        KafkaUnavailableError
            If no broker answers in time.
        """
        doing = f"asking {self._servers} for topics"
        try:
            existing = self._admin.list_topics(timeout=self._timeout_s).topics
        except KafkaException as error:
            raise translate(error, doing) from error
        wanted = [name for name in dict.fromkeys(names) if name in existing]
        if not wanted:
            return {}
        futures = self._admin.describe_topics(TopicCollection(wanted), request_timeout=self._timeout_s)
        found = {name: self._result(future, f"describing topic {name}") for name, future in futures.items()}
        return {name: Topic(name, str(topic.topic_id), len(topic.partitions)) for name, topic in found.items()}

    def require(self, name: str) -> Topic:
        """Describe one topic.

        Raises
        ------
        TopicMismatchError
            If it does not exist.
        """
        topic = self.describe([name]).get(name)
        if topic is None:
            raise TopicMismatchError(f"topic {name} does not exist on {self._servers}; create it, or correct its name")
        return topic

    def ensure_changelog(self, name: str, partitions: int) -> Topic:
        """Return the changelog topic, made with Kafka Streams' settings if it was not there.

        Raises
        ------
        TopicMismatchError
            If it exists with another number of partitions.
        """
        topic = self.describe([name]).get(name)
        if topic is None:
            self.create(name, partitions, CHANGELOG_CONFIG)
            topic = self.require(name)
        if topic.partitions != partitions:
            raise TopicMismatchError(
                f"changelog topic {name} has {topic.partitions} partitions, its input has {partitions}: "
                "the number of partitions of an application with state cannot change; reset it under a new name"
            )
        return topic

    def create(self, name: str, partitions: int, config: dict[str, str]) -> None:
        """Create a topic with the brokers' replication factor; one that appeared meanwhile is taken as it is."""
        new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=config)
        future = self._admin.create_topics([new], request_timeout=self._timeout_s)[name]
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate(error, f"creating topic {name}") from error

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return start, last stable offset and high watermark of each partition.

        The high watermark is read last, so that it is never below the last stable offset.
        """
        asked = list(partitions)
        starts = self._list_offsets(asked, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        stable = self._list_offsets(asked, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        high = self._list_offsets(asked, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        return {partition: LogRange(starts[partition], stable[partition], high[partition]) for partition in asked}

    def topic_config(self, name: str) -> dict[str, str]:
        """Return the topic's effective settings."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        future = self._admin.describe_configs([resource], request_timeout=self._timeout_s)[resource]
        return {key: entry.value for key, entry in self._result(future, f"reading settings of topic {name}").items()}

    def _list_offsets(
        self, partitions: list[TopicPartition], spec: Any, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        futures = self._admin.list_offsets(
            {KafkaTopicPartition(*partition): spec for partition in partitions},
            isolation_level=isolation,
            request_timeout=self._timeout_s,
        )
        return {
            TopicPartition(asked.topic, asked.partition): self._result(
                future, f"asking for the log end of {asked}"
            ).offset
            for asked, future in futures.items()
        }

    def _result(self, future: Any, doing: str) -> Any:
        try:
            return future.result()
        except KafkaException as error:
            raise translate(error, doing) from error
