"""Audit records of DAG runs: the user who starts a run, and the user who approves or rejects it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from statestore.audit import Answer, new_record, write_record
from statestore.config import load_directories
from statestore_dags.archive_connection import reports_access
from statestore_dags.retrying import in_environment

if TYPE_CHECKING:
    from airflow.sdk import Context


def requested_by(dag_run: Any) -> str:
    """Return the user who started a run, or the type of the run: scheduled, asset_triggered, operator_triggered."""
    return str(dag_run.triggering_user_name or getattr(dag_run.run_type, "value", dag_run.run_type))


def record_answer(context: Context, event: Mapping[str, Any], approves: str) -> None:
    """Write the audit record of an answer to a step that waits for a person.

    Parameters
    ----------
    event
        The answer, as Airflow gives it.
    approves
        The option that approves.
    """
    if "error" in event:  # the time for an answer has passed
        return
    answer: Answer = "approve" if approves in event["chosen_options"] else "reject"
    user, params = event["responded_by_user"] or {}, context["params"]
    dag_id, run = context["dag"].dag_id, context["dag_run"]
    with in_environment(dag_id), reports_access():
        record = new_record(
            answer,
            filter(None, [params.get("application")]),
            by=user.get("name") or user.get("id") or "unknown",
            store_partitions=tuple(params.get("stores") or ()),
            accepts_loss=bool(params.get("accept_loss")),
            request=json.dumps({name: value for name, value in params.items() if value}, default=str),
            dag_id=dag_id,
            dag_run_id=run.run_id,
        )
        write_record(load_directories().reports_dir, record)
