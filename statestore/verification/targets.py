"""Which store partitions there are by the definitions of applications, and where their logs begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from statestore.changelog.group import ConsumerGroup
from statestore.changelog.topics import LogRange, Topic, Topics, has_append_time
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InputError, InputOffsetError
from statestore.model import TaskId, TopicPartition, changelog_topic
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec

_DAY_MS = 24 * 60 * 60 * 1000


class Installation(Protocol):
    """Where Kafka and the state are, as `Settings` say or somebody else."""

    @property
    def bootstrap_servers(self) -> str:
        """Kafka brokers."""

    @property
    def state_dir(self) -> Path:
        """Kafka Streams' `state.dir`."""

    @property
    def kafka_timeout_s(self) -> float:
        """Deadline of one request to Kafka."""


def store_partition_specs(
    where: Installation,
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
        inputs = [part.input_topic for part in application.subtopologies]
        found = topics.describe([*inputs, *names])
        if application.input_topic not in found:
            topics.require(application.input_topic)
        configs = topics.topic_configs(name for name in names if name in found)
        for store in application.stores:
            if store.engine == "in_memory" or (wanted_stores and store.name not in wanted_stores):
                continue
            part = application.subtopology_of(store.name)
            # Without its repartition topic a subtopology has never run.
            count = found[part.input_topic].partitions if part.input_topic in found else 0
            most = max(most, count)
            topic = found.get(changelog_topic(application.name, store.name))
            changelog = changelog_spec(topic, configs[topic.name]) if topic else None
            specs += [
                StorePartitionSpec(
                    application=application.name,
                    task=TaskId(part.index, partition),
                    store=store,
                    changelog=changelog,
                    bootstrap_servers=where.bootstrap_servers,
                    state_dir=where.state_dir.absolute(),
                    kafka_timeout_s=where.kafka_timeout_s,
                    exactly_once=application.processing_guarantee == "exactly_once_v2",
                )
                for partition in range(count)
                if not wanted_partitions or partition in wanted_partitions
            ]
    outside = sorted(partition for partition in wanted_partitions if not 0 <= partition < most)
    if outside:
        raise InputError(f"partitions {outside} do not exist: the input has 0 to {most - 1}")
    return specs


def task_counts(topics: Topics, applications: Iterable[ApplicationDefinition]) -> dict[tuple[str, int], int]:
    """Return how many tasks there are, by application and subtopology: as many as its input has partitions."""
    inputs = {(app.name, part.index): part.input_topic for app in applications for part in app.subtopologies}
    found = topics.describe(inputs.values())
    return {part: found[topic].partitions for part, topic in inputs.items() if topic in found}


def changelog_spec(topic: Topic, config: Mapping[str, str]) -> ChangelogSpec:
    """Return what is known of a changelog topic by its settings."""
    policy, retention_ms = config.get("cleanup.policy", "compact"), int(config.get("retention.ms", -1))
    by_age = "delete" in policy and retention_ms >= 0 and int(config.get("retention.bytes", -1)) < 0
    return ChangelogSpec(
        topic=topic.name,
        topic_id=topic.topic_id,
        delete_retention_ms=int(config.get("delete.retention.ms", _DAY_MS)),
        partitions=topic.partitions,
        compacted="compact" in policy,
        deleted_after_ms=retention_ms if by_age else None,
        log_append_time=has_append_time(config),
    )


def is_input(where: Installation, application: str, changelog: ChangelogSpec) -> bool:
    """Tell whether an application reads a topic: its group has an offset for one of the partitions at least."""
    with ConsumerGroup(where.bootstrap_servers, application, where.kafka_timeout_s) as group:
        partitions = (TopicPartition(changelog.topic, number) for number in range(changelog.partitions or 0))
        return any(group.committed(partition) is not None for partition in partitions)


def log_ranges(topics: Topics, specs: Sequence[StorePartitionSpec]) -> dict[TopicPartition, LogRange]:
    """Ask where the logs of store partitions begin and end, all at once.

    Where the changelog is the application's own input, its end is what the application has processed.

    Raises
    ------
    InputOffsetError
        If such an input has records, and how far the application is in it is not known.
    """
    logged = [spec for spec in specs if spec.changelog is not None]
    found = topics.log_ranges(dict.fromkeys(partition for spec in logged for partition in spec.partitions))
    for spec in logged:
        if spec.changelog is not None and spec.changelog.end_group is not None:
            with ConsumerGroup(spec.bootstrap_servers, spec.changelog.end_group, spec.kafka_timeout_s) as group:
                for partition in spec.partitions:
                    committed = group.committed(partition)
                    next_offset = None if committed is None else committed.next_offset
                    found[partition] = processed(spec, partition, found[partition], next_offset)
    return found


def processed(spec: StorePartitionSpec, partition: TopicPartition, log: LogRange, next_offset: int | None) -> LogRange:
    """End a log behind what a consumer group has processed. Pure.

    The high watermark stays: only a store that is beyond the log itself is ahead of it.

    Parameters
    ----------
    next_offset
        What the group committed; None: nothing.

    Raises
    ------
    InputOffsetError
        If the log has records and the group has no offset: what the store should have cannot be told.
    """
    if next_offset is None and log.start < log.last_stable:
        raise InputOffsetError(
            f"{spec.store_partition} is filled from {partition}, which has the offsets {log.start} to "
            f"{log.last_stable - 1}, but consumer group {spec.application} has no committed offset for it: how much of "
            f"it was processed is not known. The group's offset is gone, or {partition.topic} is no input of the "
            "application. Set the group's offset to where it was; or, if only the application writes the topic, say "
            f"--changelog {spec.store.name}={partition.topic}"
        )
    end = log.start if next_offset is None else max(next_offset, log.start)
    return log._replace(last_stable=min(log.last_stable, end))
