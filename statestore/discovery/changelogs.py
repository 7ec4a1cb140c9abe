"""Changelog topics: which an application has, what their settings tell, and where their logs begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from statestore.errors import InputOffsetError
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import ConsumerGroup
from statestore.kafka.topics import LogRange, Topic, Topics, has_append_time
from statestore.kinds.versioned import COMPACTION_LAG
from statestore.model import TopicPartition, changelog_topic, check_name
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec

_DAY_MS = 24 * 60 * 60 * 1000
#: Kafka Streams keeps what it suppresses in memory, and logs it.
_IN_MEMORY = "KTABLE-SUPPRESS-STATE-STORE-"


class Installation(Protocol):
    """Where Kafka and the state are, as `Settings` say or somebody else."""

    @property
    def cluster(self) -> Cluster:
        """The Kafka cluster."""

    @property
    def state_dir(self) -> Path:
        """Kafka Streams' `state.dir`."""


def logged_stores(topics: Topics, application: str) -> list[str]:
    """Return the stores that have a changelog topic named after them, if the topic is this application's.

    Topics of applications whose names begin as this one's are among them (topic_owners.py).
    """
    prefix, suffix = changelog_topic(application, "|").split("|")
    stores = []
    for name in topics.names():
        store = name.removeprefix(prefix).removesuffix(suffix)
        if name == f"{prefix}{store}{suffix}" and not store.startswith(_IN_MEMORY):
            try:
                stores.append(check_name(store))
            except ValueError:
                continue
    return stores


def changelog_configs(topics: Topics, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the settings of topics, without what brokers say for all: that tells nothing of a store."""
    configs = topics.topic_configs(names)
    asked = [name for name, config in configs.items() if config.get(COMPACTION_LAG, "0") != "0"]
    own = topics.own_settings(asked)
    default = [name for name in asked if COMPACTION_LAG not in own[name]]
    return {name: {**config, COMPACTION_LAG: "0"} if name in default else config for name, config in configs.items()}


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
    with ConsumerGroup(where.cluster, application) as group:
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
            with ConsumerGroup(spec.cluster, spec.changelog.end_group) as group:
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
            f"{log.last_stable - 1}, but consumer group {spec.application} has no committed offset for it: it is "
            f"unknown how much of it was processed. The group's offset is gone, or {partition.topic} is not an input "
            f"of the application. Set the group's offset to where it was; or, if only the application writes the "
            f"topic, add --changelog {spec.store.name}={partition.topic}"
        )
    end = log.start if next_offset is None else max(next_offset, log.start)
    return log._replace(last_stable=min(log.last_stable, end))
