"""Which store partitions there are: of the stores that definitions name, and of those that were discovered."""

from __future__ import annotations

from collections.abc import Iterable

from statestore.changelog.topics import Topics
from statestore.definitions.application import ApplicationDefinition
from statestore.discovery.changelogs import Installation, changelog_spec
from statestore.discovery.store import DiscoveredStore
from statestore.errors import InputError
from statestore.model import TaskId
from statestore.partition.spec import StorePartitionSpec


def store_partition_specs(
    where: Installation,
    topics: Topics,
    applications: Iterable[ApplicationDefinition],
    stores: Iterable[str] = (),
    partitions: Iterable[int] = (),
    *,
    in_memory: bool = False,
) -> list[StorePartitionSpec]:
    """One spec per store partition of the applications, or of those stores and partitions only.

    Parameters
    ----------
    in_memory
        Whether to include stores that are only in memory, and have no directory.

    Raises
    ------
    InputError
        If a partition is asked for that no application has.
    """
    wanted_stores, wanted_partitions = set(stores), set(partitions)
    specs = []
    most = 0
    for application in applications:
        names = [store.changelog_of(application.name) for store in application.stores]
        inputs = [part.input_topic for part in application.subtopologies]
        found = topics.describe([*inputs, *names])
        if application.input_topic not in found:
            topics.require(application.input_topic)
        configs = topics.topic_configs(name for name in names if name in found)
        for store in application.stores:
            if (store.engine == "in_memory" and not in_memory) or (wanted_stores and store.name not in wanted_stores):
                continue
            part = application.subtopology_of(store.name)
            # Without its repartition topic a subtopology has never run.
            count = found[part.input_topic].partitions if part.input_topic in found else 0
            most = max(most, count)
            topic = found.get(store.changelog_of(application.name))
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
                    input_topic=part.input_topic,
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


def discovered_specs(
    where: Installation, stores: Iterable[DiscoveredStore], *, exactly_once: bool = True
) -> list[StorePartitionSpec]:
    """One spec for each store partition of the stores that have no problem."""
    return [
        StorePartitionSpec(
            application=store.application,
            task=task,
            store=store.definition,
            changelog=store.changelog,
            bootstrap_servers=where.bootstrap_servers,
            state_dir=where.state_dir.absolute(),
            kafka_timeout_s=where.kafka_timeout_s,
            exactly_once=exactly_once,
            owned=False,
            described=store.described,
            shown=bool(store.here),
            segments_seen=tuple(store.segments.get(str(task), {}).items()),
            global_kind=store.global_kind,
            global_said=store.global_said,
        )
        for store in stores
        if store.definition is not None
        for task in store.tasks
    ]
