"""Identifiers: tasks, store partitions, topics, and how they are named.

Names pass one allowlist here, so that every path and topic built from them is safe.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from statestore.errors import InputError

# Kafka's topic characters. 100 leaves room for `<application>-<store>-changelog` within Kafka's 249.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """Return `name` if it may stand in a topic name and in a path, otherwise raise ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r:.120} is not a valid name: expected 1 to 100 of a-z A-Z 0-9 . _ -, starting with a letter or "
            "digit"
        )
    return name


Name = Annotated[str, AfterValidator(check_name)]


class TopicPartition(NamedTuple):
    """A topic's partition; as text `<topic>-<partition>`, also its key in a store's `offsets` column family."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TaskId(NamedTuple):
    """Kafka Streams' task id: one input partition of one subtopology, as text `0_3`."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Read `0_3`.

        Raises
        ------
        InputError
            If the text is not a task id.
        """
        match = re.fullmatch(r"([0-9]{1,9})_([0-9]{1,9})", text)
        if not match:
            raise InputError(f"{text!r} is not a task id: expected <subtopology>_<partition>, such as 0_3")
        return cls(int(match[1]), int(match[2]))


class StoreFormat(StrEnum):
    """How a value is laid out in RocksDB (KIP-258, KIP-1271)."""

    PLAIN = "plain"
    TIMESTAMPED = "timestamped"
    TIMESTAMPED_IN_DEFAULT = "timestamped-in-default"
    HEADERS = "headers"


#: Kafka Streams' directory of a task's key-value stores; window and session stores lie beside it, by their names.
KEY_VALUE_DIRECTORY = "rocksdb"


class StorePartition(NamedTuple):
    """One store of one task: the unit that is verified, restored and validated."""

    application: str
    store: str
    task: TaskId

    @property
    def changelog(self) -> TopicPartition:
        """Partition of the changelog topic, Kafka Streams' name."""
        return TopicPartition(changelog_topic(self.application, self.store), self.task.partition)

    def __str__(self) -> str:
        return f"{self.application}/{self.store}/{self.task}"


def changelog_topic(application: str, store: str) -> str:
    """Name of a store's changelog topic: `<application.id>-<store>-changelog`."""
    return f"{application}-{store}-changelog"


def later_changelog(application: str, store: str, number: int) -> str:
    """Name of a changelog topic that takes the place of the one before it, which stays; numbers start at 2."""
    return f"{changelog_topic(application, store)}-{number}"


def changelog_number(application: str, store: str, topic: str) -> int | None:
    """Return which of a store's changelogs a topic is, 1 for the first; None if its name is not one of them."""
    first = changelog_topic(application, store)
    if topic == first:
        return 1
    number = topic.removeprefix(f"{first}-")
    return int(number) if re.fullmatch("[2-9]|[1-9][0-9]{1,5}", number) and topic != number else None


def repartition_topic(application: str, store: str) -> str:
    """Name of the topic through which a regrouped aggregation's records go: `<application.id>-<store>-repartition`."""
    return f"{application}-{store}-repartition"


def transactional_id(application: str, task: TaskId) -> str:
    """`transactional.id` of a task: one for all attempts, so that a later one fences an earlier one."""
    return f"{application}-{task}"
