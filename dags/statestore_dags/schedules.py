"""Schedules from the environment: cron expressions in UTC, where nothing means never by time; and their depths."""

from __future__ import annotations

import json
import os
import re

from airflow.sdk import CronTriggerTimetable
from airflow.sdk.exceptions import AirflowTimetableInvalid

from statestore.model import check_name
from statestore.requests.verify import DEPTHS

_SCHEDULES = "STATESTORE_PROCESS_SCHEDULES"
_AFTER_PROCESS = "STATESTORE_VERIFY_AFTER_PROCESS"
_DEEP_SAMPLE = "STATESTORE_VERIFY_DEEP_SAMPLE"
_ALERT_AT = "STATESTORE_VERIFY_ALERT_AT"


def schedule(name: str, default: str) -> str | None:
    """Return the cron expression of a setting; None if it is set to nothing."""
    return os.environ.get(name, default).strip() or None


def snapshot_schedule() -> str | None:
    """Return the cron expression of `snapshot`; None without an archive, where it has nothing to do."""
    if not os.environ.get("STATESTORE_ARCHIVE", "").strip():
        return None
    return schedule("STATESTORE_SNAPSHOT_SCHEDULE", "37 */6 * * *")


def depth_after_process() -> str | None:
    """Return how thoroughly stores are verified after each run of `process`; None: not at all.

    Raises
    ------
    ValueError
        If it is no depth.
    """
    depth = os.environ.get(_AFTER_PROCESS, "offsets").strip()
    if depth and depth not in DEPTHS:
        raise ValueError(f"{_AFTER_PROCESS}: expected one of {', '.join(DEPTHS)} or nothing, found {depth!r}")
    return depth or None


def deep_sample() -> float:
    """Return the fraction of the key ranges that `verify.deep` compares by time.

    Raises
    ------
    ValueError
        If it is no such number.
    """
    return _fraction(_DEEP_SAMPLE, "0.1")


def alert_at() -> float:
    """Return the fraction of the way to an expensive or lossy kill at which the DAGs alert.

    Raises
    ------
    ValueError
        If the setting is no such number.
    """
    return _fraction(_ALERT_AT, "0.8")


def _fraction(name: str, default: str) -> float:
    text = os.environ.get(name, "").strip() or default
    found = float(text) if re.fullmatch(r"[0-9]*\.?[0-9]+", text) else 0.0
    if not 0 < found <= 1:
        raise ValueError(f"{name}: expected a number above 0 and at most 1, found {text!r}")
    return found


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
