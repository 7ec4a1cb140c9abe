"""Which store partitions there are: of the stores that definitions name, and of those that were discovered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from statestore.definitions.application import ApplicationDefinition
from statestore.discovery.changelogs import Installation, changelog_spec
from statestore.discovery.directories import tasks_in
from statestore.discovery.store import DiscoveredStore
from statestore.errors import InputError, TopicMismatchError
from statestore.kafka.topics import Topics
from statestore.model import TaskId
from statestore.partition.spec import StorePartitionSpec


class Selected(NamedTuple):
    """Store partitions of applications that have a definition.

    Attributes
    ----------
    failed
        By application: the error that keeps its partitions from being known. None of them is in `specs`.
    """

    specs: list[StorePartitionSpec]
    failed: Mapping[str, InputError]

    def specs_of_all(self) -> list[StorePartitionSpec]:
        """Return the store partitions, or raise the first error."""
        for error in self.failed.values():
            raise error
        return self.specs


def store_partition_specs(
    where: Installation,
    topics: Topics,
    applications: Iterable[ApplicationDefinition],
    stores: Iterable[str] = (),
    partitions: Iterable[int] = (),
    *,
    in_memory: bool = False,
) -> list[StorePartitionSpec]:
    """Return one spec per store partition of the applications; see `select_store_partitions`.

    Raises
    ------
    TopicMismatchError
        If an application's input topic does not exist.
    InputError
        As `select_store_partitions`.
    """
    return select_store_partitions(where, topics, applications, stores, partitions, in_memory=in_memory).specs_of_all()


def select_store_partitions(
    where: Installation,
    topics: Topics,
    applications: Iterable[ApplicationDefinition],
    stores: Iterable[str] = (),
    partitions: Iterable[int] = (),
    *,
    in_memory: bool = False,
    leftovers: bool = False,
) -> Selected:
    """Return one spec per store partition of the applications, or of those stores and partitions only.

    Parameters
    ----------
    leftovers
        Whether to include directories of partitions that no topic has: their stores are judged, and not restored.
    in_memory
        Whether to include stores that are only in memory, and have no directory.

    Raises
    ------
    InputError
        If a partition is asked for that no application has.
    """
    wanted_stores, wanted_partitions = set(stores), set(partitions)
    specs: list[StorePartitionSpec] = []
    failed: dict[str, InputError] = {}
    most = 0
    for application in applications:
        names = [store.changelog_of(application.name) for store in application.logged_stores]
        inputs = [part.input_topic for part in application.subtopologies]
        found = topics.describe([*inputs, *names])
        try:
            if application.input_topic not in found:
                topics.require(application.input_topic)
        except TopicMismatchError as error:
            failed[application.name] = error
            continue
        configs = topics.topic_configs(name for name in names if name in found)
        tasks = tasks_in(where.state_dir, application.name)
        for store in application.stores:
            if (store.engine == "in_memory" and not in_memory) or (wanted_stores and store.name not in wanted_stores):
                continue
            part = application.subtopology_of(store.name)
            topic = found.get(store.changelog_of(application.name)) if store.logged else None
            # If the repartition topic is missing, count the changelog's partitions. Without both, no task has run.
            counted = found.get(part.input_topic, topic)
            count = 0 if counted is None else counted.partitions
            changelog = changelog_spec(topic, configs[topic.name]) if topic else None
            of_store = [
                StorePartitionSpec(
                    application=application.name,
                    task=TaskId(part.index, partition),
                    store=store,
                    changelog=changelog,
                    cluster=where.cluster,
                    state_dir=where.state_dir.absolute(),
                    exactly_once=application.processing_guarantee == "exactly_once_v2",
                    input_topic=part.input_topic,
                )
                for partition in sorted(
                    {*range(count), *(task.partition for task in tasks if task.subtopology == part.index)}
                )
            ]
            of_store = [spec for spec in of_store if spec.task.partition < count or (leftovers and spec.live.exists())]
            most = max([most, *(spec.task.partition + 1 for spec in of_store)])
            specs += [spec for spec in of_store if not wanted_partitions or spec.task.partition in wanted_partitions]
    outside = sorted(partition for partition in wanted_partitions if not 0 <= partition < most)
    if outside:
        raise InputError(f"partitions {outside} do not exist: the input has 0 to {most - 1}")
    return Selected(specs, failed)


class FailedStore(NamedTuple):
    """A store of an application that failed: nothing is known of its partitions, for this reason."""

    application: str
    store: str
    error: InputError


def failed_stores(
    applications: Iterable[ApplicationDefinition], failed: Mapping[str, InputError], stores: Collection[str] = ()
) -> list[FailedStore]:
    """Return the stores on disk of the applications that failed, or those of them that have one of these names."""
    return [
        FailedStore(application.name, store.name, failed[application.name])
        for application in applications
        if application.name in failed
        for store in application.stores
        if store.engine != "in_memory" and (not stores or store.name in stores)
    ]


def task_counts(topics: Topics, applications: Iterable[ApplicationDefinition]) -> dict[tuple[str, int], int]:
    """Return how many tasks there are, by application and subtopology: as many as its input has partitions."""
    inputs = {(app.name, part.index): part.input_topic for app in applications for part in app.subtopologies}
    found = topics.describe(inputs.values())
    return {part: found[topic].partitions for part, topic in inputs.items() if topic in found}


def tasks_of(topics: Topics, application: ApplicationDefinition) -> list[TaskId]:
    """Return all tasks of an application, also those without a store."""
    counts = task_counts(topics, [application])
    return [TaskId(subtopology, number) for (_, subtopology), count in counts.items() for number in range(count)]


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
            cluster=where.cluster,
            state_dir=where.state_dir.absolute(),
            exactly_once=exactly_once,
            owned=False,
            described=store.described,
            shown=bool(store.here),
            segments_seen=tuple(store.segments.get(str(task), {}).items()),
            progress_seen=tuple(seen.databases.items()) if (seen := store.progress.get(str(task))) else (),
            committed_seen=seen.committed if seen else None,
            restored_by_seen=seen.restored_by if seen else None,
            global_kind=store.global_kind,
            global_said=store.global_said,
        )
        for store in stores
        if store.definition is not None
        for task in store.tasks
    ]
