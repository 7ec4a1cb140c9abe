"""What jobs find out on the driver before any Spark task starts: topics, partitions, and a spec per piece of work."""

from __future__ import annotations

from pathlib import Path

from statestore.changelog.topics import REPARTITION_CONFIG, Topics, changelog_config
from statestore.config import Settings
from statestore.model import ApplicationDefinition, TaskId, TopicPartition, changelog_topic, repartition_topic
from statestore.stores.serdes import load_serde
from statestore.tasks.aggregates import load_aggregate
from statestore.tasks.processor import load_key, load_processor
from statestore.tasks.spec import TaskSpec
from statestore.verification.targets import changelog_spec


def prepare(topics: Topics, application: ApplicationDefinition) -> None:
    """Check what an application needs, and make the internal topics that are missing.

    Raises
    ------
    TopicMismatchError
        If the input or an output topic is missing, or an internal topic has another number of partitions.
    DefinitionError
        If the application's code cannot be imported.
    InputError
        If somebody else consumes as this application.
    """
    _import_code(application)
    for name in _written(application):
        topics.require(name)
    topics.require_no_members(application.name)
    partitions = topics.require(application.input_topic).partitions
    for part in application.subtopologies:
        for item in part.regrouped:
            name = repartition_topic(application.name, item.store)
            topics.ensure(name, item.partitions or partitions, REPARTITION_CONFIG)
    for part in application.subtopologies:
        partitions = topics.require(part.input_topic).partitions
        for store in part.stores:
            topics.ensure(changelog_topic(application.name, store.name), partitions, changelog_config(store))


def task_specs(
    settings: Settings,
    topics: Topics,
    application: ApplicationDefinition,
    subtopology: int = 0,
    progress: Path | None = None,
) -> list[TaskSpec]:
    """One spec per input partition of a subtopology, with the input's end of now. The application is prepared.

    Parameters
    ----------
    progress
        Directory in which the tasks say how far they are.
    """
    part = application.subtopologies[subtopology]
    names = {store.name: changelog_topic(application.name, store.name) for store in part.stores}
    found = topics.describe([part.input_topic, *names.values()])
    repartitions = [repartition_topic(application.name, item.store) for item in part.regrouped]
    configs = topics.topic_configs([*names.values(), *repartitions, *_written(application)])
    changelogs = {store: changelog_spec(found[name], configs[name]) for store, name in names.items()}
    inputs = [TopicPartition(part.input_topic, number) for number in range(found[part.input_topic].partitions)]
    ranges = topics.log_ranges(inputs)
    limits = [int(config["max.message.bytes"]) for config in configs.values() if "max.message.bytes" in config]
    return [
        TaskSpec(
            application=application,
            task=TaskId(subtopology, partition.partition),
            input_end=ranges[partition].last_stable,
            changelogs=changelogs,
            bootstrap_servers=settings.bootstrap_servers,
            state_dir=settings.state_dir.absolute(),
            kafka_timeout_s=settings.kafka_timeout_s,
            recording_level=settings.metrics_recording_level,
            max_batch_bytes=min(limits, default=None),
            progress=None
            if progress is None
            else progress / f"{application.name}-{subtopology}_{partition.partition}.json",
        )
        for partition in inputs
    ]


def _import_code(application: ApplicationDefinition) -> None:
    if application.processor is not None:
        load_processor(application.processor)
    for item in application.aggregations:
        load_aggregate(item.aggregate)
        if item.group_by is not None:
            load_key(item.group_by)
    for store in application.stores:
        load_serde(store.key_serde)
        load_serde(store.value_serde)


def _written(application: ApplicationDefinition) -> list[str]:
    """Topics that the application writes to and does not own."""
    aggregated = [item.output_topic for item in application.aggregations]
    named = [*application.output_topics, *aggregated, application.dead_letter_topic]
    return list(dict.fromkeys(name for name in named if name is not None))
