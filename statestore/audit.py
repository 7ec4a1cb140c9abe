"""Audit records: the user, the time, and the request of each action that may replace or remove live state.

    <reports directory>/audit/<ms>-<action>-<8 hexadecimal digits>.json

A record is written before the action begins, so that a killed action has one, too. An action whose record cannot be
written is refused. Records are created, never changed: neither `maintenance` nor the page writes this directory.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable
from socket import gethostname
from typing import Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from statestore import clock
from statestore.errors import InputError
from statestore.objects.path import Location, create_whole, listing, read_all
from statestore.reports import Int64, Text

Action = Literal["restore", "rollback", "release", "reinstate", "undo", "rewrite", "process", "acknowledge"]
Answer = Literal["approve", "reject"]
#: Environment variable with the user who started the DAG run that runs the command.
REQUESTED_BY = "STATESTORE_REQUESTED_BY"


class AuditRecord(BaseModel):
    """One action of a person, or of a schedule."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    at_ms: Int64 = Field(description="when the action began, by the clock of `host`")
    action: Action | Answer
    by: Text = Field(description="user of Airflow or of the operating system; for a schedule, the DAG run's type")
    host: Text
    applications: tuple[Text, ...]
    store_partitions: tuple[Text, ...] = Field(default=(), description="empty: all that the report of the run names")
    accepts_loss: bool = Field(default=False, description="whether the request accepts a loss of data")
    request: Text = Field(default="", description="the command line, or the form of the DAG as JSON")
    run_id: Text | None = Field(default=None, description="run whose report has the outcome; None: no report is kept")
    dag_id: Text | None = None
    dag_run_id: Text | None = None


def user() -> str:
    """Return the user that this process works for: by the environment variable, or the user of the process.

    The variable is no authentication: a user who can run the command can also set it.
    """
    if by := os.environ.get(REQUESTED_BY):
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry in /etc/passwd
        return f"user id {os.geteuid()}"


def new_record(
    action: Action | Answer, applications: Iterable[str], *, by: str | None = None, **said: object
) -> AuditRecord:
    """Return a record with the present time; without `by`, of the user of this process."""
    names = tuple(sorted(set(applications)))
    fields = {"at_ms": clock.now_ms(), "by": by or user(), "host": gethostname(), "applications": names, **said}
    return AuditRecord.model_validate({"action": action, **fields})


def write_record(reports_dir: Location | None, record: AuditRecord) -> None:
    """Write a record; without a reports directory, none is kept.

    Raises
    ------
    StateStoreError
        If it cannot be written. The action must not begin then.
    """
    if reports_dir is None:
        return
    name = f"{record.at_ms:015d}-{record.action}-{uuid4().hex[:8]}.json"
    path = _directory(reports_dir) / name
    try:
        create_whole(path, record.model_dump_json(indent=1).encode())
    except OSError as error:
        raise InputError(
            f"the audit record {path} cannot be written: {error.strerror or error}. Nothing was changed; check owner, "
            "permissions, and free space of the reports directory"
        ) from error


def read_records(
    reports_dir: Location, applications: Iterable[str] = (), since_ms: int | None = None, until_ms: int | None = None
) -> list[AuditRecord]:
    """Return the records of some applications, or of all, the oldest first.

    Parameters
    ----------
    since_ms, until_ms
        Only records from this time on, and before this time.

    Raises
    ------
    InputError
        If a file is not an audit record: it was changed, or is of a later version.
    """
    wanted = frozenset(applications)
    since, until = since_ms or 0, until_ms
    paths = sorted(listing(_directory(reports_dir), "[0-9]*.json"), key=lambda path: path.name)
    within = [path for path in paths if since <= _ms(path) and (until is None or _ms(path) < until)]
    records = [_parsed(path, content) for path, content in zip(within, read_all(within), strict=True)]
    return [record for record in records if not wanted or wanted.intersection(record.applications)]


def _directory(reports_dir: Location) -> Location:
    return reports_dir / "audit"


def _ms(path: Location) -> int:
    digits = path.name.partition("-")[0]
    return int(digits) if digits.isdecimal() else 0


def _parsed(path: Location, content: bytes) -> AuditRecord:
    try:
        return AuditRecord.model_validate_json(content)
    except ValidationError as error:
        raise InputError(f"{path} is not an audit record of schema version 1: {error}") from error
