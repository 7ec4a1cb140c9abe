"""The steps of DAG `metastore`: what the form's definitions would change, and changing it.

The second step applies the plan that the first has shown: it goes by the same catalogue, and is refused where somebody
has changed an application since.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import task

from statestore.config import load_settings
from statestore.environments import active_environment
from statestore_dags.archive_connection import reports_access
from statestore_dags.arguments import definitions_form, require_known_fields
from statestore_dags.connections import kafka_connection
from statestore_dags.retrying import RETRIED, in_environment
from statestore_dags.suggestions import remember

# Inside the functions below, and not here: DAG files are parsed every few seconds.
if TYPE_CHECKING:
    from statestore.kafka.topics import Topics
    from statestore.metastore.catalogue import Catalogue
    from statestore.metastore.metastore import Metastore
    from statestore.metastore.plan import Plan, Step

log = logging.getLogger(__name__)
_DONE = {"create": "created", "change": "changed", "unchanged": "unchanged"}


class _Work(NamedTuple):
    topics: Topics
    metastore: Metastore
    catalogue: Catalogue
    pin: str
    plan: Plan
    state_dir: Path


@task(task_id="plan", multiple_outputs=True, **RETRIED)
def plan_definitions(params: Any = None, dag: Any = None, dag_run: Any = None) -> dict[str, Any]:
    """Show what the form's definitions would change; return the catalogue's pin, and a row for each application."""
    from statestore.metastore.apply import require_runnable

    with in_environment(dag.dag_id), kafka_connection(), reports_access():
        require_known_fields(dag_run.conf, dag.params)
        text, _ = definitions_form(params)
        work = _work(text)
        require_runnable(work.plan)
    for step in work.plan.steps:
        log.info("%s: %s\n%s", step.application, step.kind, "\n".join(f"    {change}" for change in step.changes))
    rows = [_row(step, "unchanged" if step.command is None else f"would {step.kind}") for step in work.plan.steps]
    return {"catalogue": work.pin, "rows": rows}


@task(task_id="apply", **RETRIED)
def apply_definitions(
    catalogue: str, rows: list[dict[str, Any]], params: Any = None, dag: Any = None
) -> list[dict[str, Any]]:
    """Apply what was planned, unless the plan is all that was asked for; return a row for each application."""
    from statestore.metastore.apply import carry_out

    done = []
    with in_environment(dag.dag_id) as environment, kafka_connection(), reports_access():
        text, dry_run = definitions_form(params)
        if dry_run:
            return rows
        work = _work(text, catalogue)
        for step, submitted in carry_out(work.topics, work.metastore, work.catalogue, work.plan, work.state_dir):
            headline = _DONE["unchanged"]
            if submitted is not None and submitted.command is not None:
                headline = f"{_DONE[step.kind]} by command {submitted.command.id}, at offset {submitted.offset}"
            for warning in submitted.warnings if submitted is not None else ():
                log.warning("%s", warning)
            log.info("%s: %s", step.application, headline)
            done.append(_row(step, headline))
        remember(load_settings().reports_dir, environment.own(work.metastore.view().catalogue.definitions()))
    return done


def _work(text: str, pin: str | None = None) -> _Work:
    """Plan by the catalogue of a pin, or of now."""
    from statestore.metastore.apply import plan_definitions, require_own_topic
    from statestore.metastore.claims import require_own
    from statestore.metastore.definition_files import parse_definitions
    from statestore.metastore.metastore import Metastore
    from statestore.metastore.view import Pin

    definitions = parse_definitions(text, "the form")
    active_environment().require(definitions)
    settings = load_settings()
    topics = settings.cluster.topics
    metastore = Metastore.of(settings)
    view = metastore.require_running() if pin is None else metastore.pinned(Pin.parse(pin))
    require_own_topic(topics, settings.service_id)
    require_own(topics, definitions, settings.service_id)
    plan = plan_definitions(topics, view.catalogue, definitions.values())
    return _Work(topics, metastore, view.catalogue, str(view.pin), plan, settings.state_dir)


def _row(step: Step, headline: str) -> dict[str, Any]:
    """What `check` shows of an application."""
    return {
        "label": step.application,
        "health": "healthy",
        "headline": headline,
        "changes": [str(change) for change in step.changes],
    }
