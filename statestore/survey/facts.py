"""What the brokers tell about the state on a cluster. Frozen values; whatever could not be read is named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from statestore.kafka.streams_group import StreamsGroup
from statestore.model import TopicPartition

REPARTITION = "-repartition"
#: `orders-totals-changelog`; statestore gives later changelogs of a store a number (`later_changelog`).
_CHANGELOG = re.compile(r"(?P<stem>.+-.+)-changelog(-[2-9]|-[1-9][0-9]+)?")
_SUPPRESSED = "KTABLE-SUPPRESS-STATE-STORE-"


def changelog_stem(topic: str) -> str | None:
    """Return application and store, joined by a hyphen, of a topic with the name of a changelog; else None."""
    match = _CHANGELOG.fullmatch(topic)
    return None if match is None else match["stem"]


def is_in_memory(store: str) -> bool:
    """Return whether Kafka Streams keeps a store in memory, by its name: what it suppresses."""
    return store.startswith(_SUPPRESSED)


class Unread(NamedTuple):
    """A fact that could not be read.

    Attributes
    ----------
    subject
        Topic, group, or broker.
    fact
        What is not known of it.
    why
        The error, with what to do.
    """

    subject: str
    fact: str
    why: str


class Setting(NamedTuple):
    """A setting of a topic.

    Attributes
    ----------
    own
        It was set for this topic, and is not the default of the brokers.
    """

    value: str
    own: bool


class PartitionFacts(NamedTuple):
    """A partition. None: not read.

    Attributes
    ----------
    leader
        Broker id; None: nobody leads it.
    start, end
        Offsets of its log; the end is exclusive.
    bytes
        Size of the leader's log on disk.
    """

    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int | None = None
    end: int | None = None
    bytes: int | None = None


class TopicFacts(NamedTuple):
    """A topic.

    Attributes
    ----------
    settings
        The ones that the survey judges; None: not read.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionFacts, ...]
    settings: Mapping[str, Setting] | None = None

    @property
    def bytes(self) -> int | None:
        """Sum over the partitions; None if one was not read."""
        return _sum([partition.bytes for partition in self.partitions])

    @property
    def offsets(self) -> int | None:
        """Number of offsets in the logs: at least as many as records. None if a log was not read."""
        return _sum([None if log.start is None or log.end is None else log.end - log.start for log in self.partitions])

    @property
    def replication(self) -> int:
        """Smallest replication factor of a partition."""
        return min((len(partition.replicas) for partition in self.partitions), default=0)

    def setting(self, name: str) -> str:
        """Return a setting; empty if it was not read."""
        found = (self.settings or {}).get(name)
        return "" if found is None else found.value

    def number(self, name: str) -> int | None:
        """Return a setting that is a whole number; None if it was not read."""
        text = self.setting(name)
        return int(text) if text.removeprefix("-").isdigit() else None


class GroupFacts(NamedTuple):
    """A consumer group.

    Attributes
    ----------
    type
        `classic`, `consumer`, `streams`, `share`, or empty if the brokers do not tell types.
    protocol
        How a classic or consumer group assigns partitions; `stream` is Kafka Streams.
    members
        Clients and hosts; None: not read.
    static_members
        Members with a `group.instance.id`.
    committed
        Metadata of the committed offsets; None: not read.
    reads
        Topics that it reads, by its commits, members, and topology.
    topology
        Of a group of type `streams`.
    idle_since_ms
        When its last member left, or when it last committed if it never had members; None: it has members, or not read.
    """

    name: str
    type: str
    state: str
    protocol: str = ""
    members: tuple[str, ...] | None = None
    static_members: int = 0
    committed: Mapping[TopicPartition, str] | None = None
    reads: frozenset[str] = frozenset()
    topology: StreamsGroup | None = None
    idle_since_ms: int | None = None


class BrokerFacts(NamedTuple):
    """A broker; settings that were not read are missing."""

    node: int
    address: str
    settings: Mapping[str, str]


class ClusterFacts(NamedTuple):
    """All that was read of a cluster.

    Attributes
    ----------
    topics
        Changelogs and repartition topics.
    partition_counts
        Of all topics.
    requests
        How many requests it took.
    hidden_groups
        Names of possible owners of which it is not known whether there is a group.
    """

    cluster_id: str
    bootstrap_servers: str
    brokers: tuple[BrokerFacts, ...]
    topics: Mapping[str, TopicFacts]
    partition_counts: Mapping[str, int]
    groups: Mapping[str, GroupFacts]
    unread: tuple[Unread, ...]
    requests: int
    hidden_groups: frozenset[str] = frozenset()

    @property
    def changelogs(self) -> list[TopicFacts]:
        """Topics with the name of a changelog."""
        return [topic for name, topic in self.topics.items() if changelog_stem(name) is not None]

    def broker_numbers(self, setting: str) -> list[int]:
        """Return a numeric setting of each broker that has told it."""
        return [int(broker.settings[setting]) for broker in self.brokers if setting in broker.settings]


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
