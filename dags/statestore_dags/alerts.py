"""Alerts outside the UI: any of Airflow's notifiers, for runs that fail and for runs that take too long.

    STATESTORE_ALERT_NOTIFIER    import path, such as airflow.providers.smtp.notifications.smtp.SmtpNotifier
    STATESTORE_ALERT_ARGUMENTS   JSON object of its arguments; texts may use Jinja, {{ statestore }} says what is wrong
    STATESTORE_DEADLINE_MINUTES  how long a run may take from when it was queued; not set: as long as it wants

The notifier is imported when it is needed, and each run's *plan* says in its log if it could not be.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
from datetime import timedelta
from typing import Any

# They are exported lazily, which mypy does not see.
from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback  # type: ignore[attr-defined]
from airflow.sdk.bases.notifier import BaseNotifier

from statestore.config import load_directories
from statestore.environments import environment_of_dag
from statestore.errors import InputError, StateStoreError
from statestore.reports import read_any_report
from statestore_dags.archive_connection import reports_access
from statestore_dags.report_parts import report_path
from statestore_dags.row_summaries import row_to_dict

log = logging.getLogger(__name__)
_NAMED = 20


class Alert(BaseNotifier):
    """Hands what is wrong with a run to the notifier of the settings."""

    def __init__(self, context: Any = None, **_: Any) -> None:
        super().__init__(context=context)

    def notify(self, context: Any) -> None:
        """Send it.

        Raises
        ------
        InputError
            If the settings name no notifier that can be made.
        """
        with environment_of_dag(_run_of(context)[0]).active():
            notifier = _notifier()
            if notifier is None:
                log.error("a run failed or is late, but STATESTORE_ALERT_NOTIFIER names no notifier")
                return
            context["statestore"] = what_is_wrong(context)
            notifier(context)


def on_failure() -> list[BaseNotifier] | None:
    """What a DAG calls when a run of it has failed; None where nobody is to be told."""
    return [Alert()] if os.environ.get("STATESTORE_ALERT_NOTIFIER", "").strip() else None


def deadline() -> DeadlineAlert | None:
    """The deadline of a DAG's runs; None where there is none."""
    text = os.environ.get("STATESTORE_DEADLINE_MINUTES", "").strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or not float(text):
        raise ValueError(f"STATESTORE_DEADLINE_MINUTES: expected a number of minutes above 0, found {text!r}")
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(minutes=float(text)),
        callback=SyncCallback(Alert),
    )


def problem() -> str | None:
    """Say why the notifier of the settings could not be used; None if it could be, or if none is wanted."""
    try:
        _notifier()
    except InputError as error:
        return str(error)
    return None


def _notifier() -> BaseNotifier | None:
    path = os.environ.get("STATESTORE_ALERT_NOTIFIER", "").strip()
    if not path:
        return None
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"STATESTORE_ALERT_NOTIFIER: expected the import path of a notifier, found {path!r}: {error}; install its "
            "provider where the DAG processor and the workers run"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise InputError(f"STATESTORE_ALERT_NOTIFIER: expected a subclass of BaseNotifier, found {path!r}")
    try:
        return kind(**_arguments())
    except (TypeError, ValueError) as error:
        raise InputError(f"STATESTORE_ALERT_ARGUMENTS: {path} refuses them: {error}") from error


def _arguments() -> dict[str, Any]:
    text = os.environ.get("STATESTORE_ALERT_ARGUMENTS", "").strip() or "{}"
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"STATESTORE_ALERT_ARGUMENTS: expected a JSON object: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"STATESTORE_ALERT_ARGUMENTS: expected a JSON object, found {type(found).__name__}")
    return found


def what_is_wrong(context: Any) -> str:
    """Say in a few lines what is wrong with a run: what its report names, or why there is none."""
    dag_id, run_id = _run_of(context)
    if "deadline" in context:
        return f"run {run_id} of DAG {dag_id} is late: it has not ended by {context['deadline']['deadline_time']}"
    head = f"run {run_id} of DAG {dag_id} failed"
    try:
        path = report_path(load_directories().reports_dir, dag_id, run_id)
        with reports_access():
            if not path.exists():
                return f"{head} before it had a report; the log of its first red step says why"
            rows = read_any_report(path).rows
    except StateStoreError as error:
        return f"{head}: {error}"
    failed = [found for row in rows if (found := row_to_dict(row))["health"] == "failed"]
    lines = [f"{row['label']}: {row['headline']}" for row in failed[:_NAMED]]
    more = [f"and {len(failed) - _NAMED} more"] if len(failed) > _NAMED else []
    return "\n".join([f"{head}; {len(failed)} of {len(rows)} rows of its report are not healthy", *lines, *more])


def _run_of(context: Any) -> tuple[str, str]:
    run = context.get("dag_run")
    if isinstance(run, dict):  # a deadline knows no more than this
        return run["dag_id"], run.get("dag_run_id") or run["run_id"]
    return context["dag"].dag_id, context["run_id"]
