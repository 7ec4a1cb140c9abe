"""The topics of an application as lists: what Kafka is for a task, in tests without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from statestore.changelog.stored_values import stored_batch
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InputError
from statestore.formats.value_format import ValueFormat
from statestore.kafka.partitioner import partition_of
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition


class LoggedRecord(NamedTuple):
    """A record of a topic; the timestamp is in ms since the epoch."""

    key: Any
    value: Any
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Logs:
    """The topics of an application.

    Parameters
    ----------
    partitions
        Partitions of the input topic. Topics that others own have one.
    """

    def __init__(self, application: ApplicationDefinition, partitions: int) -> None:
        aggregated = [item.output_topic for item in application.aggregations]
        outside = [*application.output_topics, *aggregated, application.dead_letter_topic]
        self._partitions = {topic: 1 for topic in outside if topic is not None}
        for part in application.subtopologies:
            own = part.aggregations[0].partitions if part.index else None
            self._partitions[part.input_topic] = own or partitions
            for store in [found for found in part.stores if found.logged]:
                self._partitions[store.changelog_of(application.name)] = own or partitions
        self._logs: dict[TopicPartition, list[LoggedRecord]] = {
            TopicPartition(topic, number): [] for topic, count in self._partitions.items() for number in range(count)
        }

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Partitions of a topic.

        Raises
        ------
        InputError
            If the application has no such topic.
        """
        if topic not in self._partitions:
            known = ", ".join(sorted(self._partitions))
            raise InputError(f"there is no topic {topic!r}; the application's are: {known}")
        return [TopicPartition(topic, number) for number in range(self._partitions[topic])]

    def append(self, topic: str, record: LoggedRecord, partition: int | None = None) -> tuple[TopicPartition, int]:
        """Append a record; without a partition the key chooses one. Return where it is, with its offset."""
        if partition is None:
            partition = 0 if record.key is None else partition_of(record.key, self._partitions[topic])
        where = TopicPartition(topic, partition)
        log = self._logs[where]
        log.append(record)
        return where, len(log) - 1

    def read(self, partition: TopicPartition, start: int = 0) -> list[LoggedRecord]:
        """Return the records of a partition from an offset on."""
        return self._logs[partition][start:]

    def messages(self, partition: TopicPartition, start: int) -> list[Message]:
        """Return the same records as a consumer gets them."""
        topic, number = partition
        return [
            Message(
                topic=topic,
                partition=number,
                offset=offset,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=(TIMESTAMP_CREATE_TIME, record.timestamp),
            )
            for offset, record in enumerate(self.read(partition, start), start)
        ]

    def range_of(self, partition: TopicPartition) -> LogRange:
        """Return the offsets of a partition."""
        end = len(self._logs[partition])
        return LogRange(0, end, end)


class ListReader(NamedTuple):
    """The part of a `ChangelogReader` that a replay uses."""

    partition: TopicPartition
    logs: Logs

    @property
    def position(self) -> dict[TopicPartition, int]:
        """Empty: tasks log no positions."""
        return {}

    def read(self, start: int, end: int, values: ValueFormat | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the records with `start <= offset < end`, their values as `ChangelogReader.read` does."""
        messages = self.logs.messages(self.partition, start)[: end - start]
        if messages:
            yield stored_batch(messages, values)
