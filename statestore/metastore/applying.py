"""Applying definitions: all are compared with Kafka and the catalogue first, then each is submitted by itself.

The command `statestore apply` and the DAG `metastore` do this, and only show it differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from statestore.changelog.topics import Topics
from statestore.errors import InvalidCommandError, TopicMismatchError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import Command
from statestore.metastore.effects import make_topics, resolve_partitions, unrecorded_topics
from statestore.metastore.metastore import Make, Metastore
from statestore.metastore.plan import Plan, Step, make_plan, put
from statestore.metastore.view import Submitted
from statestore.model import ApplicationDefinition


class Applied(NamedTuple):
    """What was done for one application; nothing was logged where it was unchanged."""

    step: Step
    submitted: Submitted | None


def plan_definitions(topics: Topics, catalogue: Catalogue, definitions: Iterable[ApplicationDefinition]) -> Plan:
    """Plan what applying definitions does. Nothing is written.

    Raises
    ------
    TopicMismatchError
        If the topics of one do not fit it; the message tells all that is wrong with any of them.
    InvalidCommandError
        If one cannot be applied to the catalogue.
    """
    resolved, problems = [], []
    for definition in definitions:
        try:
            resolved.append((definition, resolve_partitions(topics, definition)))
        except TopicMismatchError as error:
            problems.append(str(error))
    if problems:
        raise TopicMismatchError("\n".join(problems))
    return make_plan(catalogue, resolved)


def carry_out(topics: Topics, metastore: Metastore, catalogue: Catalogue, plan: Plan) -> Iterator[Applied]:
    """Do what a plan says, one application after the other, and make the internal topics that follow from it.

    Done again after it was stopped, it goes on where it was: what is applied is unchanged, and topics that are not
    recorded are made and recorded.

    Parameters
    ----------
    catalogue
        The one that the plan was made from.

    Raises
    ------
    InvalidCommandError
        If another writer has changed an application since; those before it are done.
    """
    for step in plan.steps:
        submitted = None if step.command is None else metastore.submit(_put(step, catalogue))
        now = catalogue if submitted is None else submitted.view.catalogue
        entry = now.applications.get(step.application)
        if entry is not None and unrecorded_topics(entry):
            make_topics(topics, metastore, step.application)
        yield Applied(step, submitted)


def _put(step: Step, seen: Catalogue) -> Make:
    """Return what makes the command of a step, unless somebody has changed what its plan was made from."""

    def make(catalogue: Catalogue) -> Command | None:
        name, planned = step.application, step.command
        assert planned is not None
        command = put(catalogue, planned.definition, planned.partitions)
        before, now = seen.applications.get(name), catalogue.applications.get(name)
        if command is not None and (before and before.changed_id) != (now and now.changed_id):
            changed = f"changed by {now.changed_by} with command {now.changed_id}" if now else "dropped"
            raise InvalidCommandError(
                f"application {name} was {changed} since this plan was made; nothing was done for it. Run again, and "
                "look at the new plan"
            )
        return command

    return make
