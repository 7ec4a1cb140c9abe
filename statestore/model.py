"""Identifiers: tasks, store partitions, topics, and how they are named.

Names pass one allowlist here, so that every path and topic built from them is safe.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from statestore.errors import InputError

#: Kafka's rule for topics, which Kafka Streams also applies to stores, and so to an `application.id` with stores.
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: Names that lead to other directories: two of the file system, and the one in which `statedir` keeps its files.
_NOT_NAMES = (".", "..", ".statestore")
#: A log of commands says the same names again and again.
_REMEMBERED_NAMES = 4_096


@lru_cache(_REMEMBERED_NAMES)
def check_name(name: str) -> str:
    """Return `name` if it may stand in a topic name and in a path, otherwise raise ValueError."""
    if not _NAME.fullmatch(name) or name in _NOT_NAMES:
        raise ValueError(
            f"{name!r:.260} is not a valid name: expected 1 to 249 of a-z A-Z 0-9 . _ -, as Kafka does, and none of "
            f"{' '.join(_NOT_NAMES)}"
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


#: A partition number, a task id, or the place of a global store.
_PART = re.compile(r"([0-9]{1,9})(?:_([0-9]{1,9}))?|global")


class StoreSelector(NamedTuple):
    """A store, or some of its partitions, in each form that tables, reports and errors print.

    | text                                   | selects                             |
    |----------------------------------------|-------------------------------------|
    | `totals`, `shop/totals`                | a store                             |
    | `totals/0_3`, `shop/totals/0_3`        | a store partition, by its task id   |
    | `totals/3`, `shop/totals/3`            | the same, by its partition number   |
    | `totals/0_3,0_4`, `shop/totals/3,4`    | several store partitions            |

    Of two names, the second one is a partition if it can be one. `global` is the place of a global store. Where the
    subtopology is not known, reports have `?_3`, and `-` where no task is: these are partition 3, and all.

    Attributes
    ----------
    application
        None: of every application that is selected otherwise.
    parts
        Task ids and partition numbers, as text; empty: all.
    """

    store: str
    application: str | None = None
    parts: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> StoreSelector:
        """Read one.

        Raises
        ------
        InputError
            If it is none of these forms.
        """
        names = text.split("/")
        parts = _parts(names[-1]) if len(names) in (2, 3) else None
        if parts is not None:
            names.pop()
        try:
            if len(names) not in (1, 2):
                raise ValueError("expected at most an application, a store, and a partition")
            *applications, store = map(check_name, names)
        except ValueError as error:
            raise InputError(
                f"{text!r:.300} names no store: {error}. Expected STORE, APPLICATION/STORE, or a store partition such "
                "as APPLICATION/STORE/0_3, STORE/0_3 or STORE/3"
            ) from error
        return cls(store, applications[0] if applications else None, parts or frozenset())

    def selects_store(self, application: str, store: str) -> bool:
        """Return whether it selects a store, or a part of it."""
        return store == self.store and self.application in (None, application)

    def selects_task(self, task: TaskId) -> bool:
        """Return whether it selects the partition of its store that a task has."""
        by_number = task.subtopology >= 0 and str(task.partition) in self.parts
        return not self.parts or by_number or str(task) in self.parts

    def selects(self, found: StorePartition) -> bool:
        """Return whether it selects a store partition."""
        return self.selects_store(found.application, found.store) and self.selects_task(found.task)

    def __str__(self) -> str:
        return "/".join(filter(None, [self.application, self.store, ",".join(sorted(self.parts))]))


def _parts(text: str) -> frozenset[str] | None:
    """Read `0_3`, `3`, `global`, or several with commas between them; None if it is none of these."""
    if text == "-":
        return frozenset()
    found: set[str] = set()
    for part in text.split(","):
        numbers = _PART.fullmatch(part.removeprefix("?_"))
        if numbers is None:
            return None
        found.add("_".join(str(int(number)) for number in numbers.groups() if number) or part)
    return frozenset(found)


def changelog_topic(application: str, store: str) -> str:
    """Name of a store's changelog topic: `<application.id>-<store>-changelog`."""
    return f"{application}-{store}-changelog"


def later_changelog(application: str, store: str, number: int) -> str:
    """Name of a changelog topic that takes the place of the one before it, which stays; numbers start at 2."""
    return f"{changelog_topic(application, store)}-{number}"


def commit_numbers(application: str, store: str) -> str:
    """Name under which a store without a changelog keeps the number of its last commit. No topic has this name."""
    return f"{application}-{store}-commits"


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


def is_repartition_topic(application: str, topic: str) -> bool:
    """Return whether a topic that an application reads is one of its repartition topics, by its name."""
    return topic.startswith(f"{application}-") and topic.endswith("-repartition")


def input_offsets_topic(application: str, repartition: str | None = None) -> str:
    """Name of the topic that keeps the input offsets of tasks.

    `<application>-input-offsets`, or `<repartition topic>-offsets` for tasks that read a repartition topic.
    """
    return f"{application}-input-offsets" if repartition is None else f"{repartition}-offsets"


def transactional_id(application: str, task: TaskId) -> str:
    """`transactional.id` of a task: one for all attempts, so that a later one fences an earlier one."""
    return f"{application}-{task}"
