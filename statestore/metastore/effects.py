"""The effects of a definition in Kafka: internal topics, created once and recorded with their ids.

Reading the catalogue makes nothing. A topic is made only while the catalogue records no id of it; from then on it is
required, and one that is missing or was replaced is drift (`drift.py`), mended only by command.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from statestore.changelog.topic_settings import (
    OFFSETS_CONFIG,
    REPARTITION_CONFIG,
    append_time_refused,
    changelog_config,
)
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import TopicMismatchError
from statestore.kafka.topics import Topic, Topics, has_append_time
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import Command, Entry, RecordTopics
from statestore.metastore.evolution import partitions_of, written_topics
from statestore.metastore.metastore import Metastore
from statestore.metastore.ownership import ALIKE, twins
from statestore.model import repartition_topic


class InternalTopic(NamedTuple):
    """A topic that the application owns, as it is made."""

    name: str
    partitions: int
    config: Mapping[str, str]


class NamedTopic(NamedTuple):
    """A topic that a definition names and that is to be created.

    Attributes
    ----------
    role
        What the first application that names it does with it: input, output or dead-letter.
    config
        Settings that differ from the brokers' defaults.
    """

    name: str
    role: str
    partitions: int
    config: dict[str, str]


def internal_topics(definition: ApplicationDefinition, partitions: Mapping[str, int]) -> list[InternalTopic]:
    """Return the repartition topics, the topics of input offsets, and the changelogs of an application.

    Parameters
    ----------
    partitions
        Of each topic that its tasks read, repartition topics included.
    """
    parts = definition.subtopologies
    repartitions = (repartition_topic(definition.name, item.store) for part in parts for item in part.regrouped)
    changelogs = [
        InternalTopic(store.changelog_of(definition.name), partitions[part.input_topic], changelog_config(store))
        for part in parts
        for store in part.stores
        if store.logged
    ]
    offsets = (InternalTopic(part.offsets_topic, partitions[part.input_topic], OFFSETS_CONFIG) for part in parts)
    sent = (InternalTopic(name, partitions[name], REPARTITION_CONFIG) for name in repartitions)
    return [*sent, *offsets, *changelogs]


def wrong_times(found: Iterable[InternalTopic], configs: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return an error for each internal topic in which the brokers would replace the timestamps of rows."""
    return [
        f"internal {append_time_refused(topic.name)}"
        for topic in found
        if has_append_time(configs[topic.name]) and not has_append_time(topic.config)
    ]


def expiring_offsets(found: Iterable[InternalTopic], configs: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return an error for each topic of input offsets that Kafka does not keep as it must be kept."""
    expected = OFFSETS_CONFIG["cleanup.policy"]
    return [
        f"internal topic {topic.name} has cleanup.policy {policy}, expected {expected}: it would lose input offsets. "
        "`statestore drift --repair` sets it"
        for topic in found
        if topic.config is OFFSETS_CONFIG
        and policies(policy := configs[topic.name]["cleanup.policy"]) != policies(expected)
    ]


def missing_topics(
    topics: Topics,
    definitions: Iterable[ApplicationDefinition],
    partitions: int,
    configs: Mapping[str, Mapping[str, str]],
) -> dict[str, NamedTopic]:
    """Return the topics that applications read from or write to, do not own, and that do not exist. Nothing is made.

    Parameters
    ----------
    partitions
        Of a topic whose application has no input topic yet; else it gets as many as the input topic has.
    configs
        Settings by role.
    """
    wanted = list(definitions)
    roles = {name: role for definition in wanted for name, role in _topics_of(definition).items()}
    found = topics.describe(roles)
    missing: dict[str, NamedTopic] = {}
    for definition in wanted:
        of_input = found.get(definition.input_topic)
        count = partitions if of_input is None else of_input.partitions
        for name, role in _topics_of(definition).items():
            if name not in found and (name not in missing or role == "input"):
                missing[name] = NamedTopic(name, role, count, dict(configs.get(role, {})))
    return missing


def create_topics(topics: Topics, missing: Iterable[NamedTopic]) -> None:
    """Create topics, and wait until the brokers show them. A topic that appeared meanwhile is taken as it is."""
    for topic in missing:
        topics.make(topic.name, topic.partitions, topic.config)


def resolve_partitions(
    topics: Topics,
    definition: ApplicationDefinition,
    recorded: Collection[str] = (),
    to_create: Mapping[str, NamedTopic] = MappingProxyType({}),
) -> dict[str, int]:
    """Compare a definition with Kafka and return the partitions of each topic that its tasks read. Nothing is made.

    Parameters
    ----------
    recorded
        Internal topics that the catalogue has ids of; the others are to be made, or taken over if they are there.
    to_create
        Topics that count as if they existed, by name.

    Raises
    ------
    TopicMismatchError
        If topics are missing or do not fit; the message names all of them.
    """
    roles = _topics_of(definition)
    counts = {name: topic.partitions for name, topic in to_create.items()}
    counts |= {name: topic.partitions for name, topic in topics.describe(roles).items()}
    problems = [
        f"{role} topic {name} does not exist; create it (`statestore apply --create-topics` does), or correct its name"
        for name, role in roles.items()
        if name not in counts
    ]
    partitions = {}
    if definition.input_topic in counts:
        partitions = partitions_of(definition, counts[definition.input_topic])
        needed = {topic.name: topic for topic in internal_topics(definition, partitions)}
        there = topics.describe(needed)
        problems += [
            f"internal topic {topic.name} has {topic.partitions} partitions, expected {needed[topic.name].partitions}: "
            "the number of an application with state cannot change; give the application another name, or delete the "
            "topic if a dropped application left it"
            for topic in there.values()
            if topic.partitions != needed[topic.name].partitions
        ]
        problems += [
            f"internal topic {name} cannot be created beside topic {twin}: {ALIKE}; give the application or the store "
            "another name"
            for name, twin in twins(needed, topics.names()).items()
        ]
        configs = topics.topic_configs(there)
        problems += wrong_times([needed[name] for name in there], configs)
        problems += _of_another_kind(configs, [needed[name] for name in there if name not in recorded])
    if problems:
        raise TopicMismatchError(f"application {definition.name} does not fit Kafka: {'; '.join(problems)}")
    return partitions


def _topics_of(definition: ApplicationDefinition) -> dict[str, str]:
    """Topics that the application names, and the role of each."""
    return {definition.input_topic: "input", **written_topics(definition)}


def policies(value: str) -> frozenset[str]:
    """Return what a value of `cleanup.policy` consists of."""
    return frozenset(value.replace(" ", "").split(","))


def _of_another_kind(configs: Mapping[str, Mapping[str, str]], found: Sequence[InternalTopic]) -> Iterator[str]:
    """Name topics that were left by another kind of store: only key-value logs are compacted and nothing else.

    A log that is never compacted tells nothing: it was made by somebody who keeps all of it.
    """
    for topic in found:
        policy, expected = configs[topic.name]["cleanup.policy"], topic.config["cleanup.policy"]
        if "compact" in policies(policy) and policies(policy) != policies(expected):
            yield (
                f"internal topic {topic.name} exists with cleanup.policy {policy}, expected {expected}: it was created "
                "for another kind of store. Give the store another name, or delete the topic. If its records belong to "
                "this store, set the topic's cleanup.policy"
            )


def unrecorded_topics(entry: Entry) -> list[InternalTopic]:
    """Return the internal topics that the catalogue records no id of."""
    recorded = entry.topics or {}
    return [topic for topic in internal_topics(entry.definition, entry.partitions) if topic.name not in recorded]


def make_topics(topics: Topics, metastore: Metastore, application: str) -> None:
    """Make the internal topics of an application that are not recorded, and record them.

    Killed in between, the next call finds the topics that were made and records those. Where all are recorded, nothing
    is done.

    Raises
    ------
    UnknownApplicationError
        If the catalogue has no such application.
    TopicMismatchError
        If an internal topic is there with another number of partitions.
    MetastoreDegradedError
        If the catalogue takes no commands.
    """
    missing = unrecorded_topics(metastore.require_running().catalogue.entry(application))
    if missing:
        made = [topics.ensure(topic.name, topic.partitions, dict(topic.config)) for topic in missing]
        record_topics(metastore, application, made)


def record_topics(
    metastore: Metastore, application: str, found: Iterable[Topic], *, replacing: frozenset[str] = frozenset()
) -> None:
    """Record the ids of internal topics. One that another writer has recorded meanwhile stays, unless it is replaced.

    Parameters
    ----------
    replacing
        Names of topics whose recorded id is no longer right.
    """
    ids = {topic.name: topic.topic_id for topic in found}

    def command(catalogue: Catalogue) -> Command | None:
        entry = catalogue.applications.get(application)
        if entry is None:  # dropped since
            return None
        recorded = entry.topics or {}
        needed = {topic.name for topic in internal_topics(entry.definition, entry.partitions)}
        new = {
            name: topic_id
            for name, topic_id in ids.items()
            if name in needed and recorded.get(name) != topic_id and (name not in recorded or name in replacing)
        }
        return RecordTopics(application=application, topics=new) if new else None

    metastore.submit(command)
