"""The command topic: its name, its settings, and reading it.

One partition; records are kept for ever, until `compaction.py` deletes those before a snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import NamedTuple

from statestore.errors import OpenTransactionError, RetryError, TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.kafka.open_transaction import advice
from statestore.kafka.reader import LogReader
from statestore.kafka.topics import LogRange, Topic
from statestore.model import TopicPartition

#: Without them commands would be lost: by age, by size, by a key that comes again, by a replica that was behind; or
#: when they were written, by a broker that puts its own time into their records.
CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
    "message.timestamp.type": "CreateTime",
}
#: Of a new topic. A snapshot is one record: this is enough for some 40,000 applications.
_LARGE_RECORDS = {"max.message.bytes": "67108864"}
_PAUSE_S = 0.005


def topic_name(service_id: str) -> str:
    """Name of a service's command topic."""
    return f"_statestore-{service_id}_command_topic"


def turns_topic_name(service_id: str) -> str:
    """Name of the topic in which a service's writers wait for their turns."""
    return f"_statestore-{service_id}_turns"


class CommandRecord(NamedTuple):
    """A record of the command topic."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    def is_same(self, other: CommandRecord) -> bool:
        """Tell whether both are one record. Their timestamps do not count: one may be the broker's."""
        return (self.offset, self.key, self.value) == (other.offset, other.key, other.value)


class EnsuredTopic(NamedTuple):
    """The command topic as it is now, and what had to be repaired."""

    topic: Topic
    warnings: tuple[str, ...]


class CommandTopic:
    """The command topic of one service.

    Parameters
    ----------
    cluster
        Its deadline is also that of waiting for a transaction to end.
    """

    def __init__(self, cluster: Cluster, service_id: str) -> None:
        self.partition = TopicPartition(topic_name(service_id), 0)
        self._cluster = cluster
        self._topics = cluster.topics

    @property
    def name(self) -> str:
        """Name of the topic."""
        return self.partition.topic

    def describe(self) -> Topic | None:
        """Describe the topic; None if there is none."""
        return self._topics.find(self.name)

    def ensure(self, seen: Topic | None = None) -> EnsuredTopic:
        """Return the topic, made if it was not there, with its settings repaired where they would lose commands.

        Parameters
        ----------
        seen
            The topic that was there a moment ago; None if there was none. Only then it is made.

        Raises
        ------
        RetryError
            If it is no longer as it was seen.
        """
        topic = self.describe()
        if topic != seen:
            raise RetryError(f"command topic {self.name} is no longer the topic that was read before. Run again")
        if topic is None:
            return EnsuredTopic(self._topics.ensure(self.name, 1, CONFIG | _LARGE_RECORDS), ())
        wrong = self.wrong_settings()
        if not wrong:
            return EnsuredTopic(topic, ())
        self._topics.set_config(self.name, {key: CONFIG[key] for key in wrong})
        found = ", ".join(f"{key}={value}" for key, value in wrong.items())
        expected = ", ".join(f"{key}={CONFIG[key]}" for key in wrong)
        warning = f"command topic {self.name} had {found}, which loses commands or their times; set to {expected}"
        return EnsuredTopic(topic, (warning,))

    def wrong_settings(self) -> dict[str, str | None]:
        """Return the settings of the topic that are not those of `CONFIG`."""
        found = self._topics.topic_configs([self.name])[self.name]
        return {key: found.get(key) for key, value in CONFIG.items() if found.get(key) != value}

    def recreate(self) -> Topic:
        """Delete the topic with all that is in it, and make it anew."""
        self._topics.delete(self.name)
        return self._topics.ensure(self.name, 1, CONFIG | _LARGE_RECORDS)

    def ends(self) -> LogRange:
        """Return where the log starts and ends.

        Raises
        ------
        TopicMismatchError
            If there is no such topic.
        """
        deadline = time.monotonic() + self._cluster.timeout_s
        while True:
            try:
                return self._topics.log_ranges([self.partition])[self.partition]
            except TopicMismatchError:  # or a broker that was just started leads nothing yet
                if time.monotonic() > deadline or self.describe() is None:
                    raise
            time.sleep(_PAUSE_S)

    def read(self, start: int, target: int) -> list[CommandRecord]:
        """Return the committed records with `start <= offset < target`.

        The end is told by the reader's position: markers and aborted records take offsets, too. The log must be stable
        up to the target.
        """
        return [record for records in self.batches(start, target) for record in records]

    def batches(self, start: int, target: int) -> Generator[list[CommandRecord], None, None]:
        """Yield the same records as they come, many at a time."""
        with LogReader(self._cluster, self.partition) as reader:
            for messages in reader.read_messages(start, target):
                yield [
                    CommandRecord(message.offset(), message.timestamp()[1], message.key(), message.value())
                    for message in messages
                ]

    def wait_until_stable(self, target: int, log: LogRange | None = None) -> None:
        """Wait until every transaction that began below an offset has ended.

        Parameters
        ----------
        log
            The log's ends, if they have just been asked for.

        Raises
        ------
        OpenTransactionError
            If one is still open when the deadline has passed.
        """
        deadline = time.monotonic() + self._cluster.timeout_s
        log = log or self.ends()
        while log.last_stable < target:
            if time.monotonic() > deadline:
                raise OpenTransactionError(
                    f"a transaction has been open in {self.name} since offset {log.last_stable}. It hides commands up "
                    f"to offset {target}; waited {self._cluster.timeout_s:g} s: "
                    + advice(self._cluster, self.partition, log.last_stable)
                )
            time.sleep(_PAUSE_S)  # a marker is written a moment after its commit was answered
            log = self.ends()

    def delete_before(self, offset: int) -> None:
        """Delete the records before an offset."""
        self._topics.delete_records({self.partition: offset})
