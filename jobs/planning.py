"""What jobs find out on the driver before any Spark task starts: topics, partitions, and a spec per piece of work."""

from __future__ import annotations

from collections.abc import Iterable

from statestore.changelog.topics import Topic, Topics
from statestore.config import Settings
from statestore.errors import InputError
from statestore.model import ApplicationDefinition, TaskId, TopicPartition, changelog_topic
from statestore.tasks.processor import load_processor
from statestore.tasks.spec import ChangelogSpec, StorePartitionSpec, TaskSpec

_DAY_MS = 24 * 60 * 60 * 1000


def task_specs(settings: Settings, topics: Topics, application: ApplicationDefinition) -> list[TaskSpec]:
    """One spec per input partition, with the input's end of now; missing changelog topics are made.

    Raises
    ------
    TopicMismatchError
        If the input or an output topic is missing, or a changelog has other partitions than the input.
    DefinitionError
        If the processor cannot be imported.
    """
    load_processor(application.processor)
    for name in application.output_topics:
        topics.require(name)
    partitions = topics.require(application.input_topic).partitions
    changelogs = {
        store.name: _changelog_spec(
            topics, topics.ensure_changelog(changelog_topic(application.name, store.name), partitions)
        )
        for store in application.stores
    }
    inputs = [TopicPartition(application.input_topic, partition) for partition in range(partitions)]
    ranges = topics.log_ranges(inputs)
    return [
        TaskSpec(
            application=application,
            task=TaskId(0, partition.partition),
            input_end=ranges[partition].last_stable,
            changelogs=changelogs,
            bootstrap_servers=settings.bootstrap_servers,
            state_dir=settings.state_dir.absolute(),
            kafka_timeout_s=settings.kafka_timeout_s,
            recording_level=settings.metrics_recording_level,
        )
        for partition in inputs
    ]


def store_partition_specs(
    settings: Settings,
    topics: Topics,
    applications: Iterable[ApplicationDefinition],
    stores: Iterable[str] = (),
    partitions: Iterable[int] = (),
) -> list[StorePartitionSpec]:
    """One spec per store partition of the applications, or of those stores and partitions only.

    Raises
    ------
    InputError
        If a partition is asked for that no application has.
    """
    wanted_stores, wanted_partitions = set(stores), set(partitions)
    specs = []
    most = 0
    for application in applications:
        names = [changelog_topic(application.name, store.name) for store in application.stores]
        found = topics.describe([application.input_topic, *names])
        if application.input_topic not in found:
            topics.require(application.input_topic)
        count = found[application.input_topic].partitions
        most = max(most, count)
        for store in application.stores:
            if wanted_stores and store.name not in wanted_stores:
                continue
            topic = found.get(changelog_topic(application.name, store.name))
            changelog = _changelog_spec(topics, topic) if topic else None
            specs += [
                StorePartitionSpec(
                    application=application.name,
                    task=TaskId(0, partition),
                    store=store,
                    changelog=changelog,
                    bootstrap_servers=settings.bootstrap_servers,
                    state_dir=settings.state_dir.absolute(),
                    kafka_timeout_s=settings.kafka_timeout_s,
                )
                for partition in range(count)
                if not wanted_partitions or partition in wanted_partitions
            ]
    outside = sorted(partition for partition in wanted_partitions if not 0 <= partition < most)
    if outside:
        raise InputError(f"partitions {outside} do not exist: the input has 0 to {most - 1}")
    return specs


def _changelog_spec(topics: Topics, topic: Topic) -> ChangelogSpec:
    config = topics.topic_config(topic.name)
    return ChangelogSpec(
        topic=topic.name,
        topic_id=topic.topic_id,
        delete_retention_ms=int(config.get("delete.retention.ms", _DAY_MS)),
    )
