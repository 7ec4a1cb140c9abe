"""Which application a changelog topic belongs to, where its name fits several.

`orders-v2-totals-changelog` is the changelog of store `v2-totals` of application `orders`, or of store `totals` of
application `orders-v2`. The evidence, the strongest first:

    a directory of the store, a record of it (known_stores_file.py), or the user's word        checked by the caller
    a definition; a directory or a record of the other application's store
    the topology in the group of an application (`group.protocol=streams`)
    for the longer name: a directory of the other application, or its consumer group, if Kafka Streams commits to it
    and one of the topics that it reads has as many partitions

A group of the longer name that Kafka Streams is not known to use proves nothing: the user is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from statestore.changelog.group import committed_offsets, group_names, uses_stream_assignor
from statestore.changelog.streams_group import StreamsGroup, streams_group
from statestore.changelog.topics import Topic, Topics
from statestore.discovery.changelogs import Installation
from statestore.discovery.directories import stores_in, tasks_in
from statestore.discovery.known_stores_file import read_known
from statestore.errors import InputError, StateStoreError
from statestore.formats.commit_metadata import is_metadata
from statestore.model import changelog_topic


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
    evidence = _Evidence(where, topics, application)
    described = topics.describe([changelog_topic(application, store) for store in stores])
    found: dict[str, OtherOwner] = {}
    for store in stores:
        topic = changelog_topic(application, store)
        if (owner := defined.get(topic, application)) != application:
            found[store] = OtherOwner(owner, "its definition names the topic")
        elif topic in described and (other := evidence.owner(described[topic])) is not None:
            found[store] = other
    return found


class _Evidence:
    """Evidence of the applications in a cluster; each is asked for once."""

    def __init__(self, where: Installation, topics: Topics, application: str) -> None:
        self._where = where
        self._topics = topics
        self._application = application
        self._groups: Callable[[], frozenset[str]] = cache(self._asked_groups)
        self._topology: Callable[[str], StreamsGroup | None] = cache(self._asked_topology)
        self._group_owner: Callable[[str], tuple[str, Collection[int]] | None] = cache(self._of_group)

    def owner(self, topic: Topic) -> OtherOwner | None:
        """Return the other owner of a topic, or None if no evidence shows one."""
        own = self._topology(self._application)
        if own is not None and topic.name in own.changelogs:
            return None
        names = list(_names(topic.name, self._application))
        for application, store in names:
            if (shown := self._shown(application, store, topic)) is not None:
                return OtherOwner(application, shown)
        doubt = None
        for application, _ in names:
            if len(application) < len(self._application):
                continue
            if tasks_in(self._where.state_dir, application):
                return OtherOwner(application, f"{self._where.state_dir / application} is its directory")
            if application not in self._groups():
                continue
            if own is not None and own.changelogs:
                return OtherOwner(application, f"no subtopology of {self._application} logs to the topic")
            shown_by = self._group_owner(application)
            if shown_by is not None and (not shown_by[1] or topic.partitions in shown_by[1]):
                return OtherOwner(application, shown_by[0])
            why = "Kafka Streams is not known to use it" if shown_by is None else "no topic that it reads has as many "
            why += "" if shown_by is None else f"partitions as {topic.name}"
            doubt = doubt or OtherOwner(application, f"there is a consumer group {application}, but {why}", False)
        return doubt

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
        if application in self._groups():
            group = self._topology(application)
            if group is not None and topic.name in group.changelogs:
                return f"its group {application} has the topic in its topology"
        return None

    def _of_group(self, application: str) -> tuple[str, Collection[int]] | None:
        """Return what shows that Kafka Streams uses a group, and the partitions of topics it reads; None: nothing."""
        servers, timeout_s = self._where.bootstrap_servers, self._where.kafka_timeout_s
        try:
            offsets = committed_offsets(servers, application, timeout_s)
            counts = {topic.partitions for topic in self._topics.describe({at.topic for at in offsets}).values()}
            if any(is_metadata(found.metadata) for found in offsets.values()):
                return f"Kafka Streams commits to its consumer group {application}", counts
            if self._topology(application) is not None or uses_stream_assignor(servers, application, timeout_s):
                return f"Kafka Streams is a member of its consumer group {application}", counts
        except StateStoreError:  # refused, or no answer: the group alone proves nothing
            pass
        return None

    def _asked_groups(self) -> frozenset[str]:
        try:
            return group_names(self._where.bootstrap_servers, self._where.kafka_timeout_s)
        except StateStoreError:
            return frozenset()

    def _asked_topology(self, application: str) -> StreamsGroup | None:
        try:
            return streams_group(self._where.bootstrap_servers, application, self._where.kafka_timeout_s)
        except StateStoreError:
            return None


def _names(topic: str, application: str) -> Iterator[tuple[str, str]]:
    """Yield the other applications, each with its store, whose changelog has this name; the longest first."""
    stem = topic.removesuffix("-changelog")
    for at in reversed(range(1, len(stem) - 1)):
        if stem[at] == "-" and at != len(application):
            yield stem[:at], stem[at + 1 :]
