"""Applying definitions: all are compared with Kafka and the catalogue first, then each is submitted by itself.

The command `statestore apply` and the DAG `metastore` do this, and only show it differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from statestore.config import is_node_local
from statestore.definitions.application import ApplicationDefinition, require_shared_directory
from statestore.errors import InvalidCommandError, StateStoreError, TopicMismatchError
from statestore.kafka.topics import Topics
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.claims import require_own, write_claims
from statestore.metastore.command_topic import topic_name
from statestore.metastore.commands import Command, Entry
from statestore.metastore.effects import NamedTopic, make_topics, resolve_partitions, unrecorded_topics
from statestore.metastore.evolution import with_known_changelogs
from statestore.metastore.in_use import kept_free
from statestore.metastore.loading import require_loadable
from statestore.metastore.metastore import Make, Metastore
from statestore.metastore.ownership import ALIKE, OwnedTopics, twins
from statestore.metastore.plan import Plan, Step, make_plan, put
from statestore.metastore.takeover import require_own_logs, writers
from statestore.metastore.view import Submitted


class Applied(NamedTuple):
    """Result for one application. Nothing was logged if it was unchanged."""

    step: Step
    submitted: Submitted | None


def plan_definitions(
    topics: Topics,
    catalogue: Catalogue,
    definitions: Iterable[ApplicationDefinition],
    to_create: Mapping[str, NamedTopic] = MappingProxyType({}),
) -> Plan:
    """Plan what applying definitions does. Nothing is written.

    Parameters
    ----------
    to_create
        Topics that will be created before the plan is carried out, by name.

    Raises
    ------
    TopicMismatchError
        If the topics of one do not fit it; the message tells all that is wrong with any of them.
    InvalidCommandError
        If one cannot be applied to the catalogue.
    InputError
        If one has a store without a changelog, and each node has its own state directory.
    """
    resolved, problems = [], []
    node_local = is_node_local()
    for definition in definitions:
        require_shared_directory(definition, node_local=node_local)
        entry = catalogue.applications.get(definition.name)
        definition = with_known_changelogs(definition, entry)
        try:
            resolved.append((definition, _partitions(topics, definition, entry, to_create)))
        except TopicMismatchError as error:
            problems.append(str(error))
    if problems:
        raise TopicMismatchError("\n".join(problems))
    plan, known = make_plan(catalogue, resolved), writers(catalogue)
    for step in plan.steps:
        if step.command is not None:
            require_own_logs(topics, catalogue.applications.get(step.application), step.command, known)
    return plan


def require_runnable(plan: Plan) -> None:
    """Refuse a plan that would log an application whose code or suites cannot be loaded.

    Raises
    ------
    DefinitionError
        With all that cannot be loaded.
    """
    require_loadable([step.command.definition for step in plan.steps if step.command is not None])


def require_own_topic(topics: Topics, service_id: str) -> None:
    """Refuse a service whose command topic Kafka would not make.

    Raises
    ------
    TopicMismatchError
        If there is a topic of a name that Kafka takes for the same.
    """
    for own, twin in twins([topic_name(service_id)], topics.names()).items():
        raise TopicMismatchError(
            f"command topic {own} cannot be created beside topic {twin}: {ALIKE}; choose another service id"
        )


def carry_out(
    topics: Topics,
    metastore: Metastore,
    catalogue: Catalogue,
    plan: Plan,
    state_dir: Path | None = None,
    *,
    taken_from: str | None = None,
) -> Iterator[Applied]:
    """Do what a plan says, one application after the other, and make the internal topics that follow from it.

    What is given is in the catalogue; its topics are made when the next one is asked for. Done again after it was
    stopped, it goes on where it was: what is applied is unchanged, and topics that are not recorded are made and
    recorded.

    Parameters
    ----------
    catalogue
        The one that the plan was made from.
    state_dir
        State directory whose locks show whether an application that loses stores, or is taken over, is running. If
        None, only its consumer group is checked.
    taken_from
        Service id of another catalogue, whose applications may be taken over; None: those of others are refused.

    Raises
    ------
    InputError, LockedError
        If an application that loses stores, or is taken over, is running; nothing is done.
    OtherCatalogueError
        If an application belongs to another catalogue; nothing is done.
    InvalidCommandError, TopicMismatchError
        If another writer has changed an application since, or somebody its topics; those before it are done.
    StateStoreError
        If Kafka refuses to make topics; the application's command stays.
    """
    unclaimed = require_own(topics, [step.application for step in plan.steps], metastore.service_id, taken_from)
    with ExitStack() as still:
        for step in plan.steps:
            if step.removed or (taken_from is not None and step.application in unclaimed):
                still.enter_context(kept_free(topics, state_dir, step.application))
        for step in plan.steps:
            submitted = None if step.command is None else metastore.submit(_put(topics, step, catalogue))
            yield Applied(step, submitted)
            now = catalogue if submitted is None else submitted.view.catalogue
            entry = now.applications.get(step.application)
            if entry is not None and unrecorded_topics(entry):
                _make_topics(topics, metastore, step.application)
            if step.application in unclaimed:
                write_claims(topics, [step.application], metastore.service_id)


def _make_topics(topics: Topics, metastore: Metastore, application: str) -> None:
    try:
        make_topics(topics, metastore, application)
    except StateStoreError as error:
        raise type(error)(
            f"application {application} is in the catalogue, but its internal topics were not created and recorded. "
            f"Once they can be, apply it again: {error}"
        ) from error


def _put(topics: Topics, step: Step, seen: Catalogue) -> Make:
    """Return what makes the command of a step, unless somebody has changed what its plan was made from.

    The topics are looked at again each time, the last time when nobody else can write.
    """

    def make(catalogue: Catalogue) -> Command | None:
        name, planned = step.application, step.command
        assert planned is not None
        command = put(catalogue, planned.definition, planned.partitions)
        before, now = seen.applications.get(name), catalogue.applications.get(name)
        if command is None:
            return None
        if (before and before.changed_id) != (now and now.changed_id):
            changed = f"changed by {now.changed_by} with command {now.changed_id}" if now else "dropped"
            raise InvalidCommandError(
                f"application {name} was {changed} since this plan was made. Nothing was changed for it. Run again, "
                "and check the new plan"
            )
        OwnedTopics(catalogue.definitions().values()).require_free(planned.definition)
        partitions = _partitions(topics, planned.definition, now)
        if partitions != planned.partitions:
            raise TopicMismatchError(
                f"application {name}: the partitions of its topics have changed since this plan was made: expected "
                f"{planned.partitions}, found {partitions}. Nothing was changed for it. Run again, and check the "
                "new plan"
            )
        require_own_logs(topics, now, command, writers(catalogue))
        return command

    return make


def _partitions(
    topics: Topics,
    definition: ApplicationDefinition,
    entry: Entry | None,
    to_create: Mapping[str, NamedTopic] = MappingProxyType({}),
) -> dict[str, int]:
    recorded = (entry.topics if entry is not None else None) or ()
    return resolve_partitions(topics, definition, recorded, to_create)
