"""Planning on the driver before any Spark task starts: topics, partitions, and a spec for each piece of work.

Internal topics are made while the catalogue has no ids of them; from then on they must be there, and be the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from statestore.advice import message
from statestore.archive.archive import archive_of
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition, require_shared_directory
from statestore.discovery.changelogs import changelog_spec
from statestore.errors import TopicMismatchError
from statestore.kafka.topics import Topic, Topics
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.claims import FoundClaim, require_own, write_claims
from statestore.metastore.commands import Entry
from statestore.metastore.effects import (
    InternalTopic,
    expiring_offsets,
    internal_topics,
    make_topics,
    unrecorded_topics,
    wrong_times,
)
from statestore.metastore.evolution import written_topics
from statestore.metastore.lost_changelog import advise_on_changelog
from statestore.metastore.metastore import Metastore
from statestore.model import TaskId, TopicPartition, repartition_topic
from statestore.objects.path import Location
from statestore.stores.serdes import load_serde
from statestore.tasks.aggregates import load_aggregate
from statestore.tasks.processor import load_key, load_processor
from statestore.tasks.spec import TaskSpec
from statestore.tasks.timestamp_bounds import bounds_of


def prepare(
    topics: Topics,
    metastore: Metastore,
    entries: Sequence[Entry],
    claims: Mapping[str, FoundClaim] | None = None,
    *,
    state_dir: Path | None = None,
    node_local: bool = False,
) -> None:
    """Check what applications need; make and record the internal topics of which the catalogue has no ids yet.

    Parameters
    ----------
    entries
        The applications, as the catalogue has them or as it had them at a pin. Their topics are looked up in the
        catalogue of now: a repair since then counts.
    claims
        Claims read before. If None, they are read now. Before a claim is written, it is read again.
    state_dir
        Stores in this directory can be the last copy of a lost changelog's rows; None if it is not visible here.
    node_local
        Stores on disks are copies, and the archive has the stores.

    Raises
    ------
    TopicMismatchError
        If a topic is missing, is another one than the catalogue has, or has another number of partitions.
    UnknownApplicationError
        If an application was dropped since the pin, and not all of its topics were recorded.
    DefinitionError
        If an application's code cannot be imported.
    InputError
        If somebody else consumes as an application.
    OtherCatalogueError
        If an application belongs to another catalogue of the cluster.
    """
    names = [entry.definition.name for entry in entries]
    unclaimed = require_own(topics, names, metastore.service_id, claims=claims)
    if unclaimed and claims is not None:
        unclaimed = require_own(topics, unclaimed, metastore.service_id)
    for entry in entries:
        _require_surroundings(topics, entry)
    now = metastore.view().catalogue
    if unrecorded := [entry.definition.name for entry in entries if unrecorded_topics(_with_topics_of(now, entry))]:
        for name in unrecorded:
            make_topics(topics, metastore, name)
        now = metastore.view().catalogue
    for entry in entries:
        _require_internal(topics, _with_topics_of(now, entry), state_dir, node_local=node_local)
    write_claims(topics, unclaimed, metastore.service_id)


def _require_surroundings(topics: Topics, entry: Entry) -> None:
    """Require what is not the application's own."""
    application = entry.definition
    _import_code(application)
    for name in written_topics(application):
        topics.require(name)
    topics.require_no_members(application.name)
    found, expected = topics.require(application.input_topic), entry.partitions[application.input_topic]
    if found.partitions != expected:
        raise TopicMismatchError(
            f"topic {found.name}, the input of application {application.name}, has {found.partitions} partitions, "
            f"expected {expected} as the catalogue says: the number of partitions of an application with state cannot "
            "change; define it under a new name"
        )


def _with_topics_of(now: Catalogue, entry: Entry) -> Entry:
    """Return the entry with the ids of topics as they were recorded last."""
    latest = now.applications.get(entry.definition.name)
    found = (latest.topics if latest else None) or {}
    return entry.model_copy(update={"topics": {**(entry.topics or {}), **found}})


def _require_internal(topics: Topics, entry: Entry, state_dir: Path | None, *, node_local: bool) -> None:
    """Require each internal topic by its id: one that was made anew would be an empty log for a store that has rows."""
    application, recorded = entry.definition, entry.topics or {}
    needed = internal_topics(application, entry.partitions)
    found = topics.describe(topic.name for topic in needed)
    problems = [problem for topic in needed if (problem := _problem(topic, found.get(topic.name), recorded))]
    if state_dir is not None and problems:
        lost = [name for name, wanted in recorded.items() if _is_lost(name, wanted, needed, found)]
        steps = [
            advise_on_changelog(state_dir.absolute(), topics, entry, name, found.get(name), node_local=node_local)
            for name in lost
        ]
        if known := [step for step in steps if step is not None]:
            error = TopicMismatchError(message(f"application {application.name} cannot continue", known[0]))
            raise error.with_evidence("; ".join(problems))
    configs = topics.topic_configs(found)
    there = [topic for topic in needed if topic.name in found]
    problems += wrong_times(there, configs)
    problems += expiring_offsets(there, configs)
    if problems:
        raise TopicMismatchError(
            f"application {application.name} cannot continue: {'; '.join(problems)}. `statestore drift` lists what is "
            "not as the catalogue has it, and what to do"
        )


def _is_lost(name: str, wanted: str, needed: Sequence[InternalTopic], found: Mapping[str, Topic]) -> bool:
    """Return whether an internal topic that the catalogue records is missing or another one."""
    there = found.get(name)
    return any(topic.name == name for topic in needed) and (there is None or there.topic_id != wanted)


def _problem(needed: InternalTopic, found: Topic | None, recorded: Mapping[str, str]) -> str | None:
    wanted = recorded.get(needed.name)
    if wanted is None:
        return f"internal topic {needed.name} is no longer in the catalogue, whose definition has changed"
    if found is None:
        return f"internal topic {needed.name} is missing"
    if found.topic_id != wanted:
        return f"internal topic {needed.name} was replaced: its id is {found.topic_id}, the catalogue has {wanted}"
    if found.partitions != needed.partitions:
        return f"internal topic {needed.name} has {found.partitions} partitions, expected {needed.partitions}"
    return None


def task_specs(
    settings: Settings,
    topics: Topics,
    application: ApplicationDefinition,
    subtopology: int = 0,
    progress: Location | None = None,
) -> list[TaskSpec]:
    """One spec per input partition of a subtopology, with the input's end of now. The application is prepared.

    Parameters
    ----------
    progress
        Directory in which the tasks say how far they are.
    """
    require_shared_directory(application, node_local=settings.node_local_state)
    part = application.subtopologies[subtopology]
    names = {store.name: store.changelog_of(application.name) for store in part.stores if store.logged}
    found = topics.describe([part.input_topic, part.offsets_topic, *names.values()])
    repartitions = [repartition_topic(application.name, item.store) for item in part.regrouped]
    configs = topics.topic_configs([*names.values(), *repartitions, *written_topics(application)])
    changelogs = {store: changelog_spec(found[name], configs[name]) for store, name in names.items()}
    inputs = [TopicPartition(part.input_topic, number) for number in range(found[part.input_topic].partitions)]
    ranges = topics.log_ranges(inputs)
    archive = archive_of(settings, topics)
    limits = [int(config["max.message.bytes"]) for config in configs.values() if "max.message.bytes" in config]
    return [
        TaskSpec(
            application=application,
            task=TaskId(subtopology, partition.partition),
            input_end=ranges[partition].last_stable,
            input_id=found[part.input_topic].topic_id,
            offsets_id=found[part.offsets_topic].topic_id,
            changelogs=changelogs,
            cluster=settings.cluster,
            state_dir=settings.state_dir.absolute(),
            recording_level=settings.metrics_recording_level,
            max_batch_bytes=min(limits, default=None),
            timestamps=bounds_of(configs.values()),
            archive=archive,
            accept_loss=settings.accept_loss,
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
