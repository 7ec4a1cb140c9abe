"""Schedules from the environment: cron expressions in UTC, where nothing means never by time."""

from __future__ import annotations

import json
import os

from airflow.sdk import CronTriggerTimetable
from airflow.sdk.exceptions import AirflowTimetableInvalid

from statestore.model import check_name

_SCHEDULES = "STATESTORE_PROCESS_SCHEDULES"


def schedule(name: str, default: str) -> str | None:
    """Return the cron expression of a setting; None if it is set to nothing."""
    return os.environ.get(name, default).strip() or None


def process_schedules() -> dict[str, str | None]:
    """Return the applications that have a schedule of their own, and it.

    Raises
    ------
    ValueError
        If the setting is no JSON object of names and cron expressions; the DAG file then shows it as import error.
    """
    text = os.environ.get(_SCHEDULES, "").strip() or "{}"
    wanted = f'{_SCHEDULES}: expected a JSON object such as {{"orders": "*/5 * * * *"}}, found {text}'
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{wanted}: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(cron, str) for cron in found.values()):
        raise ValueError(wanted)
    for name, cron in found.items():
        check_name(name)
        if cron.strip():
            _require_cron(name, cron)
    return {name: cron.strip() or None for name, cron in sorted(found.items())}


def _require_cron(application: str, cron: str) -> None:
    try:
        CronTriggerTimetable(cron, timezone="UTC").validate()
    except AirflowTimetableInvalid as error:
        raise ValueError(f"{_SCHEDULES}: application {application}: {cron!r} is no cron expression: {error}") from error
