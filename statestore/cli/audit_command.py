"""The command audit, and the audit records of other commands."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from statestore import clock
from statestore.cli import options, output
from statestore.errors import InputError
from statestore.objects.path import Location, location

if TYPE_CHECKING:
    from statestore.audit import Action, AuditRecord


def audited(
    reports_dir: Location | None,
    action: Action,
    applications: Iterable[str],
    stores: Iterable[str] = (),
    *,
    accepts_loss: bool = False,
    run_id: str | None = None,
) -> None:
    """Write the audit record of a command that is about to change something.

    Raises
    ------
    InputError
        If the record cannot be written.
    """
    from statestore.audit import new_record, write_record

    if reports_dir is None:
        return
    record = new_record(
        action,
        applications,
        store_partitions=tuple(stores),
        accepts_loss=accepts_loss,
        run_id=run_id,
        request=shlex.join(["statestore", *sys.argv[1:]]),
    )
    write_record(reports_dir, record)


def audit(
    reports_dir: options.ReportsDirNeeded,
    application: options.Applications = None,
    since: Annotated[
        str | None, typer.Option(help="Only records from this time on: ISO 8601, or ms.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Only records before this time: ISO 8601, or ms.", show_default=False)
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the records as CSV.")] = False,
    json: options.Json = None,
) -> None:
    """Show who restored, rolled back, removed, rewrote, or approved what, and who accepted a loss of data."""
    from statestore.audit import AuditRecord, read_records
    from statestore.cli.tables import table

    if as_csv and json is not None:
        raise InputError("--csv, --json: expected one of them, found both")
    options.require_writable(json=json)
    bounds = _time("--since", since), _time("--until", until)
    records = read_records(location(reports_dir), application or (), *bounds)
    if as_csv:
        names = list(AuditRecord.model_fields)
        rows = csv.DictWriter(sys.stdout, names)
        rows.writeheader()
        rows.writerows(_flat(record) for record in records)
        return
    columns = ("time", "action", "by", "applications", "store partitions", "accepts loss", "run")
    output.console(json).print(table(f"{len(records)} audit records", columns, map(_row, records)))
    output.write_content(json, {"records": [record.model_dump(mode="json") for record in records]})


def _time(option: str, text: str | None) -> int | None:
    try:
        return None if text is None else clock.ms_of(text)
    except ValueError as error:
        raise InputError(
            f"{option}: expected a number, or a time in ISO 8601 such as 2026-01-31T12:00:00+00:00, found {text!r}"
        ) from error


def _row(record: AuditRecord) -> tuple[str, ...]:
    return (
        f"{datetime.fromtimestamp(record.at_ms // 1000, UTC):%F %T} UTC",
        record.action,
        f"{record.by} on {record.host}",
        ", ".join(record.applications),
        ", ".join(record.store_partitions[:3]) + (", ..." if len(record.store_partitions) > 3 else ""),
        "yes" if record.accepts_loss else "",
        record.dag_run_id or record.run_id or "",
    )


def _flat(record: AuditRecord) -> dict[str, object]:
    fields = record.model_dump(mode="json")
    return {name: " ".join(value) if isinstance(value, list) else value for name, value in fields.items()}
