"""Finds what remains of a lost changelog topic, and its owner. Requests change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from statestore.changelog.topic_settings import changelog_config
from statestore.errors import InputError, InvalidStateError
from statestore.kafka.topics import LogRange, Topic, Topics
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.changelog_writing import kept_settings, surplus
from statestore.rewrite.journal import NewTopic, RewriteJournal
from statestore.statedir.record import read_record


class Remains(Enum):
    """State of the topic: missing, without a record, half written by a reseed, or complete."""

    NOTHING = "nothing"
    EMPTY = "empty"
    HALF = "half"
    WHOLE = "whole"


class Made(NamedTuple):
    """State of the lost changelog, and its replacement.

    Attributes
    ----------
    partitions, config
        Of the topic that is to be made, with its settings.
    said
        What is there and what becomes of it, for people.
    """

    remains: Remains
    partitions: int
    config: Mapping[str, str]
    said: str


def lost_changelog(
    topics: Topics,
    stores: Sequence[StorePartitionSpec],
    journal: RewriteJournal | None,
    tasks: int | None,
    recorded: str | None,
) -> Made:
    """Say what is left of the changelog of stores, and refuse one that somebody has written to.

    Parameters
    ----------
    journal
        Of a reseed that was interrupted.
    tasks
        How many the application has; None: as many as the topic has partitions.
    recorded
        Id of the changelog in the catalogue.

    Raises
    ------
    InputError
        If it has records that are not from a reseed, or not every task is here.
    """
    store = stores[0]
    name, found = store.partition.topic, topics.find(store.partition.topic)
    partitions = _count(stores, tasks, None if found is None else found.partitions)
    config = changelog_config(store.store)
    if found is None:
        return Made(Remains.NOTHING, partitions, config, f"topic {name} does not exist; it is made")
    config = kept_settings(topics, name) | config
    if journal is not None and journal.topics[name].topic_id == found.topic_id:
        if journal.whole:
            return Made(
                Remains.WHOLE, partitions, config, f"topic {name} was written by an earlier attempt; it is used"
            )
        _require_nobodys(topics, stores, found, journal.topics[name], recorded)
        said = f"topic {name} was left half written by an earlier attempt; it is deleted and created again"
        return Made(Remains.HALF, partitions, config, said)
    for partition, log in _all_logs(topics, name, found.partitions).items():
        if log.high_watermark:
            raise InputError(
                f"topic {name}, id {found.topic_id}, is not empty: {partition} has the offsets {log.start} to "
                f"{log.high_watermark - 1}. Somebody has written to it since it was made again, and what the store "
                "should have of that cannot be told here. To keep the store, delete the topic first; to take what the "
                "topic has, restore with --accept-loss"
            )
    said = (
        f"topic {name}, id {found.topic_id}, has no record; it is deleted and made again, so that nobody knows its id"
    )
    return Made(Remains.EMPTY, partitions, config, said)


def _count(stores: Sequence[StorePartitionSpec], tasks: int | None, partitions: int | None) -> int:
    """Return how many partitions the changelog must have: one for each task, and all of these are here."""
    here = sorted(store.task for store in stores)
    numbers = [task.partition for task in here]
    count = tasks if tasks is not None else partitions
    listed = ", ".join(map(str, here))
    if count is None:
        raise InputError(
            f"the changelog of {stores[0].application}/{stores[0].store.name} does not exist, so it is unknown "
            f"whether its tasks here, {listed}, are all. If they are, add --tasks {len(here)}"
        )
    if numbers != list(range(count)) or len({task.subtopology for task in here}) != 1:
        raise InputError(
            f"the changelog of {stores[0].application}/{stores[0].store.name} has {count} partitions, one for each "
            f"task, and the tasks here are {listed}: it can only be written where all of them are. Nothing was changed"
        )
    return count


def _require_nobodys(
    topics: Topics, stores: Sequence[StorePartitionSpec], topic: Topic, new: NewTopic, recorded: str | None
) -> None:
    """Make sure that nobody has taken a half written topic for a changelog.

    Raises
    ------
    InvalidStateError
        Saying who has.
    """
    records = {str(store.task): read_record(store.paths, store.store.name) for store in stores}
    built = [task for task, record in records.items() if record is not None and record.topic_id == topic.topic_id]
    why = None
    if recorded == topic.topic_id:
        why = "the catalogue has recorded it since"
    elif built:
        why = f"the stores of {', '.join(built)} were restored from it since"
    elif surplus(topics, topic, new.records) is not None:
        why = "somebody else has written to it since"
    if why is not None:
        raise InvalidStateError(
            f"topic {topic.name}, id {topic.topic_id}, was left half written by an earlier attempt, and {why}: it "
            "is not deleted. Put the replaced stores back (statestore restore --rollback), see that nobody uses the "
            "topic, delete it, and run again"
        )


def _all_logs(topics: Topics, name: str, partitions: int) -> dict[TopicPartition, LogRange]:
    return topics.log_ranges([TopicPartition(name, number) for number in range(partitions)])
