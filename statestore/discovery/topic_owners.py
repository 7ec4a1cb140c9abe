"""Which application a changelog topic belongs to, where its name fits several.

`orders-v2-totals-changelog` is the changelog of store `v2-totals` of application `orders`, or of store `totals` of
application `orders-v2`. The evidence, the strongest first:

    a directory of the store, a record of it (known_stores_file.py), or the user's word        checked by the caller
    a definition; a directory or a record of the other application's store
    the topology in the group of an application (`group.protocol=streams`)
    the transactional ids of the topic's producers, which begin with the application's name (exactly-once)
    for the longer name: a directory of the other application; or a consumer group to which Kafka Streams commits, if
    this application is here without the store

A consumer group alone shows that there is such an application, and not that the topic belongs to it: the user is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, cached_property
from typing import NamedTuple

from statestore.discovery.changelogs import Installation
from statestore.discovery.directories import stores_in, tasks_in
from statestore.discovery.known_stores_file import read_known
from statestore.errors import InputError, StateStoreError
from statestore.formats.commit_metadata import is_metadata
from statestore.kafka.groups import committed_offsets, group_names, uses_stream_assignor
from statestore.kafka.open_transaction import transactional_ids
from statestore.kafka.streams_group import StreamsGroup, streams_group
from statestore.kafka.topics import Topic, Topics
from statestore.model import TopicPartition, changelog_topic

_COMMITS = "Kafka Streams commits to a consumer group"
#: Rest of a transactional id after the application's name and a hyphen: process and thread, or the task (before 3.0).
_PRODUCER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+|\d+_\d+")


class OtherOwner(NamedTuple):
    """Another application that a topic belongs to, or may belong to.

    Attributes
    ----------
    certain
        False: the evidence does not decide, and the user is asked.
    """

    application: str
    evidence: str
    certain: bool = True


def other_owners(
    where: Installation, topics: Topics, application: str, stores: Collection[str], defined: Mapping[str, str]
) -> dict[str, OtherOwner]:
    """Return the other owners of changelog topics that have the name of an application's store, by that store.

    Parameters
    ----------
    stores
        Stores without a directory and a record of this application.
    defined
        By changelog topic: the application whose definition names it.
    """
    if not stores:
        return {}
    described = topics.describe([changelog_topic(application, store) for store in stores])
    undefined = [topic for name, topic in described.items() if name not in defined]
    evidence = _Evidence(where, topics, application, undefined)
    found: dict[str, OtherOwner] = {}
    for store in stores:
        topic = changelog_topic(application, store)
        if (owner := defined.get(topic, application)) != application:
            found[store] = OtherOwner(owner, "its definition names the topic")
        elif topic in described and (other := evidence.owner(described[topic])) is not None:
            found[store] = other
    return found


def is_of_application(transactional_id: str, application: str) -> bool:
    """Return whether Kafka Streams gives a transactional id to producers of an application."""
    prefix = f"{application}-"
    return (
        transactional_id.startswith(prefix) and _PRODUCER.fullmatch(transactional_id.removeprefix(prefix)) is not None
    )


class _Evidence:
    """Evidence of the applications in a cluster; each is asked for once."""

    def __init__(self, where: Installation, topics: Topics, application: str, asked: Collection[Topic]) -> None:
        self._where = where
        self._topics = topics
        self._application = application
        self._asked = asked
        self._topology: Callable[[str], StreamsGroup | None] = cache(self._asked_topology)
        self._use: Callable[[str], str] = cache(self._use_of_group)

    def owner(self, topic: Topic) -> OtherOwner | None:
        """Return the other owner of a topic, or None if no evidence shows one."""
        own = self._topology(self._application)
        if own is not None and topic.name in own.changelogs:
            return None
        names = list(_names(topic.name, self._application))
        for application, store in names:
            if (shown := self._shown(application, store, topic)) is not None:
                return OtherOwner(application, shown)
        here = {application for application, _ in names if self._is_here(application)}
        others = [application for application, _ in names if application in here or application in self._groups]
        writers = self._writers(topic, [self._application, *others]) if others else {}
        if len(writers) == 1:
            ((writer, transactional_id),) = writers.items()
            said = f"its producer has the transactional id {transactional_id}"
            return None if writer == self._application else OtherOwner(writer, said)
        longer = [application for application in others if len(application) > len(self._application)]
        for application in longer:
            if application in here:
                return OtherOwner(application, f"{self._where.state_dir / application} is its directory")
            if own is not None and own.changelogs:
                return OtherOwner(application, f"no subtopology of {self._application} logs to the topic")
            if not writers and self._is_here(self._application) and _COMMITS in self._use(application):
                place = self._where.state_dir / self._application
                return OtherOwner(application, f"{self._use(application)}, and {place} does not have the store")
        return OtherOwner(longer[0], self._use(longer[0]), False) if longer else None

    def _writers(self, topic: Topic, applications: Collection[str]) -> dict[str, str]:
        """Return the applications whose transactions wrote to a topic, each with a transactional id."""
        return {
            application: transactional_id
            for transactional_id in sorted(self._transactional_ids.get(topic.name, ()))
            for application in applications
            if is_of_application(transactional_id, application)
        }

    def _is_here(self, application: str) -> bool:
        try:
            return bool(tasks_in(self._where.state_dir, application))
        except InputError:  # no application can have this name
            return False

    def _shown(self, application: str, store: str, topic: Topic) -> str | None:
        """Return what shows that an application has a store with this changelog; None if nothing does."""
        state_dir = self._where.state_dir
        known = read_known(state_dir, application).get(store)
        if known is not None and (known.changelog, known.topic_id) == (topic.name, topic.topic_id):
            return f"a verification has recorded its store {store}"
        try:
            directories = [found.directory for found in stores_in(state_dir, application)[0] if found.name == store]
        except InputError:
            directories = []
        if directories:
            return f"{directories[0]} is the directory of its store"
        if application in self._groups:
            group = self._topology(application)
            if group is not None and topic.name in group.changelogs:
                return f"its group {application} has the topic in its topology"
        return None

    def _use_of_group(self, application: str) -> str:
        """Return a sentence part that names the consumer group of an application, and what is known of its use."""
        try:
            offsets = committed_offsets(self._where.cluster, application)
            if any(is_metadata(found.metadata) for found in offsets.values()):
                return f"{_COMMITS} {application}"
            if self._topology(application) is not None or uses_stream_assignor(self._where.cluster, application):
                return f"Kafka Streams is a member of a consumer group {application}"
        except StateStoreError:  # refused, or no answer
            pass
        return f"there is a consumer group {application}, but Kafka Streams is not known to use it"

    @cached_property
    def _groups(self) -> frozenset[str]:
        try:
            return group_names(self._where.cluster)
        except StateStoreError:
            return frozenset()

    @cached_property
    def _transactional_ids(self) -> Mapping[str, frozenset[str]]:
        partitions = [TopicPartition(topic.name, at) for topic in self._asked for at in range(topic.partitions)]
        return transactional_ids(self._where.cluster, partitions)

    def _asked_topology(self, application: str) -> StreamsGroup | None:
        try:
            return streams_group(self._where.cluster, application)
        except StateStoreError:
            return None


def _names(topic: str, application: str) -> Iterator[tuple[str, str]]:
    """Yield the other applications, each with its store, whose changelog has this name; the longest first."""
    stem = topic.removesuffix("-changelog")
    for at in reversed(range(1, len(stem) - 1)):
        if stem[at] == "-" and at != len(application):
            yield stem[:at], stem[at + 1 :]
