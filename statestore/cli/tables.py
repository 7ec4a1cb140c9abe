"""Reports as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from statestore.clock import duration_text
from statestore.reports import (
    Action,
    AnyReport,
    ArchivedRow,
    DrillConfidence,
    DrillReport,
    Failure,
    MaintenanceReport,
    MaintenanceRow,
    ProcessReport,
    ProcessRow,
    RestorePlanReport,
    RestorePlanRow,
    RestoreReport,
    RestoreRow,
    SnapshotReport,
    Status,
    SurveyReport,
    ValidatedStore,
    ValidateReport,
    VerifyReport,
    VerifyRow,
    WriteReport,
)

if TYPE_CHECKING:
    from statestore.recovery.warming import WarmRow

_BAD, _DOUBTFUL, _GOOD = "bold red", "yellow", "green"
#: So many rows that an expectation failed for are printed; its page has more.
_ROWS_SHOWN = 3


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Text | str | int | float | None]]) -> Table:
    """Return a table; columns whose name ends in ``>`` hold numbers."""
    result = Table(title=title, title_justify="left")
    for column in columns:
        result.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    for row in rows:
        result.add_row(*(_cell(value) for value in row))
    return result


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 store` or `2 stores`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cell(value: Text | str | int | float | None) -> Text:
    if isinstance(value, Text):
        return value
    # Text, not markup: names of files and keys may have brackets.
    return Text("-" if value is None else f"{value:,}" if isinstance(value, int | float) else value)


def _failed(failure: Failure | None) -> Text:
    return Text(f"{failure.kind}: {failure.message}" if failure else "", style=_BAD)


def status_text(status: Status) -> Text:
    """Return the status in its colour."""
    doubtful = status in (Status.LOCKED, Status.LAGGING, Status.UNKNOWN_FORMAT, Status.UNCONFIRMED)
    return Text(status.value, style=_GOOD if status.healthy else _DOUBTFUL if doubtful else _BAD)


def show(console: Console, report: AnyReport) -> None:
    """Print the report of a job."""
    from statestore.cli.survey_command import show_survey  # which needs this module for its tables

    match report:
        case VerifyReport():
            show_verified(console, report.rows)
        case RestoreReport():
            show_restored(console, report.rows)
        case RestorePlanReport():
            show_plan(console, report.rows)
        case ProcessReport():
            show_processed(console, report.rows)
        case ValidateReport():
            show_validated(console, report)
        case SnapshotReport():
            show_archived(console, report.rows)
        case WriteReport():
            show_written(console, report)
        case DrillReport():
            show_drilled(console, report)
        case MaintenanceReport():
            show_maintained(console, report.rows, dry_run=report.dry_run)
        case SurveyReport():
            show_survey(console, report)


def show_processed(console: Console, rows: Sequence[ProcessRow]) -> None:
    """Print what tasks did."""
    columns = (
        "task",
        "records in>",
        "out>",
        "to changelogs>",
        "commits>",
        "late>",
        "dropped>",
        "poison>",
        "left>",
        "took>",
        "detail",
    )
    found = (
        (
            *(row.label, row.records_in, row.records_out, row.changelog_records, row.commits, row.late_records),
            *(
                row.dropped_records,
                row.poison_records,
                row.lag,
                duration_text(row.seconds),
                _failed(row.failure) if row.failure else Text(row.remarks, _DOUBTFUL),
            ),
        )
        for row in rows
    )
    console.print(table(f"{len(rows)} tasks", columns, found))


def show_validated(console: Console, report: ValidateReport) -> None:
    """Print the verdict of each store, and what failed."""
    columns = ("store", "verdict", "expectations>", "failed>", "rows>", "s>", "detail")
    found = (
        (
            f"{store.application}/{store.store}",
            Text(store.verdict, style=_GOOD if store.verdict == "passed" else _BAD),
            *(store.expectations, len(store.failed_expectations), store.keys, store.seconds, store.detail),
        )
        for store in report.stores
    )
    console.print(table(counted(len(report.stores), "store"), columns, found))
    for store in report.stores:
        _show_failed(console, store)
    if report.data_docs is not None:
        console.print(Text(f"Data Docs: {report.data_docs}"), soft_wrap=True)
    for row in report.rows:
        if row.rollback is not None:
            console.print(Text(f"to put the replaced store back: {row.rollback}"), soft_wrap=True)


def _show_failed(console: Console, store: ValidatedStore) -> None:
    """Print each expectation that failed, in how many rows, and the first of these."""
    sampled = {failed.expectation: failed for failed in store.failed_rows}
    for expectation in store.failed_expectations:
        failed = sampled.get(expectation)
        count = "" if failed is None or failed.count is None else f", in {failed.count:,} of {store.keys:,} rows"
        console.print(
            Text(f"{store.application}/{store.store}: failed: {expectation}{count}", style=_BAD), soft_wrap=True
        )
        for row in () if failed is None else failed.rows[:_ROWS_SHOWN]:
            console.print(Text(f"    {', '.join(f'{name}={value}' for name, value in row.items())}"), soft_wrap=True)
    if store.failed_expectations and store.data_docs is not None:
        console.print(Text(f"    all of them: {store.data_docs}"), soft_wrap=True)


def show_written(console: Console, report: WriteReport) -> None:
    """Print what a write of a DataFrame did."""
    columns = ("store partition", "puts>", "deletes>", "last offset>", "store", "old store moved to", "detail")
    found = (
        (
            *(row.label, row.puts, row.deletes, row.last, "" if row.caught_up is None else row.caught_up.outcome),
            *(row.quarantine, _failed(row.failure or (None if row.caught_up is None else row.caught_up.failure))),
        )
        for row in report.rows
    )
    console.print(table(f"{report.mode} of {len(report.rows)} store partitions, {report.changelog}", columns, found))


def show_drilled(console: Console, report: DrillReport) -> None:
    """Print how the store partitions stand, and how far their restores can be relied on."""
    columns = (
        *("store partition", "standing", "this run", "restored from", "rows>", "fetch>", "replay>", "build>", "check>"),
        *("restore>", "proof>", "evidence>", "detail"),
    )
    found = (
        (
            row.label,
            Text(row.standing, style=_GOOD if row.standing == "proven" else _BAD),
            Text(row.verdict or "" if row.drilled else "", style=_GOOD if row.verdict == "proven" else _DOUBTFUL),
            row.snapshot or ("changelog" if row.source else ""),
            row.rows,
            *map(duration_text, (row.fetch_seconds, row.replay_seconds, row.build_seconds, row.check_seconds)),
            *map(duration_text, (row.seconds, row.proof_seconds)),
            row.evidence,
            row.detail,
        )
        for row in report.rows
    )
    console.print(table(counted(len(report.rows), "store partition"), columns, found))
    for of in report.confidence:
        console.print(Text(_confidence(of)), soft_wrap=True)
    for head in report.evidence:
        said = f"{head.application}: evidence {head.length}:{head.sha256}"
        where = ", recorded in the command topic" if head.recorded else ", not recorded elsewhere: keep it"
        problem = f"{head.application}: evidence: {head.problem}"
        console.print(Text(problem, style=_BAD) if head.problem else Text(f"{said}{where}"), soft_wrap=True)


def _confidence(found: DrillConfidence) -> str:
    said = f"{found.application}: {found.proven} of {found.partitions} store partitions proven ({found.share:.0%})"
    if found.slowest_seconds is None or found.application_seconds is None or found.p99_seconds is None:
        return said
    slowest, p99 = duration_text(found.slowest_seconds), duration_text(found.p99_seconds)
    said += f"; slowest restore {slowest}, 99th percentile {p99}; the whole application "
    said += f"in about {duration_text(found.application_seconds)}"
    if found.node_seconds is not None:
        said += f", one machine in about {duration_text(found.node_seconds)}"
    return f"{said}. This assumes: {'; '.join(found.assumptions)}"


def show_maintained(console: Console, rows: Sequence[MaintenanceRow], *, dry_run: bool) -> None:
    """Print what maintenance removed, or would remove."""
    done = "would be removed" if dry_run else "removed"
    columns = ("place", f"{done}>", "bytes>", "kept", "detail")
    found = (
        (row.place, row.removed_count, row.removed_bytes, "; ".join(row.kept), _failed(row.failure)) for row in rows
    )
    console.print(table(f"{len(rows)} places", columns, found))


def show_verified(console: Console, rows: Sequence[VerifyRow]) -> None:
    """Print what verification found."""
    columns = ("store partition", "status", "action", "committed>", "end>", "rows>", "took>", "detail")
    found = (
        (
            row.label,
            status_text(row.status),
            "" if row.action is Action.NONE else row.action.value,
            row.committed,
            row.end,
            row.keys,
            duration_text(row.seconds),
            row.detail,
        )
        for row in rows
    )
    console.print(table(verified_title(rows), columns, found))


def verified_title(rows: Sequence[VerifyRow]) -> str:
    """Return how many store partitions a verification has rows of, and how many of them were not judged."""
    acknowledged = sum(bool(row.acknowledged) for row in rows)
    unjudged = sum(not row.judged for row in rows) - acknowledged
    in_use = sum(row.status is Status.LOCKED for row in rows)
    parts = {"not judged": unjudged, "acknowledged": acknowledged, "in use": in_use}
    said = [f"{count} {what}" for what, count in parts.items() if count]
    return ", ".join([f"{len(rows)} store partitions", *said])


_LACKING = "built from its log alone, and compaction has removed records from it that the store may have had"


def show_restored(console: Console, rows: Sequence[RestoreRow]) -> None:
    """Print what a restore did."""
    columns = ("store partition", "before", "outcome", "mode", "records>", "rows>", "committed>", "took>", "detail")
    styles = {"restored": _GOOD, "skipped": "", "failed": _BAD}
    found = (
        (
            row.label,
            "" if row.before is None else status_text(row.before),
            Text(row.outcome, style=styles.get(row.outcome, "")),
            row.mode or "",
            row.records,
            row.keys,
            row.committed,
            duration_text(row.seconds),
            _LACKING if row.exact is False and row.failure is None else _failed(row.failure),
        )
        for row in rows
    )
    console.print(table(f"{len(rows)} store partitions", columns, found))


def show_warmed(console: Console, rows: Sequence[WarmRow]) -> None:
    """Print what became of the stores of tasks."""
    columns = ("store partition", "before", "outcome", "mode", "records>", "rows>", "committed>", "took>", "detail")
    styles = {"warmed": _GOOD, "ready": _GOOD, "left": _DOUBTFUL, "failed": _BAD}
    found = (
        (
            f"{row.application}/{row.store}/{row.task}",
            "" if row.before is None else status_text(Status(row.before)),
            Text(row.outcome, style=styles[row.outcome]),
            *(row.mode or "", row.records, row.keys, row.committed, duration_text(row.seconds), row.detail),
        )
        for row in rows
    )
    console.print(table(f"{len(rows)} store partitions", columns, found))


def show_archived(console: Console, rows: Sequence[ArchivedRow]) -> None:
    """Print which snapshots were published."""
    columns = ("store partition", "from", "records>", "rows>", "snapshot", "files>", "bytes>", "took>", "detail")
    found = (
        (
            *(row.label, row.grown_from or "changelog", row.records, row.keys, row.snapshot),
            *(row.files, row.bytes, duration_text(row.seconds), _failed(row.failure)),
        )
        for row in rows
    )
    console.print(table(f"{len(rows)} store partitions", columns, found))


def show_plan(console: Console, rows: Sequence[RestorePlanRow]) -> None:
    """Print what a restore would do, why, and what that takes."""
    columns = ("store partition", "is", "to do", "offsets>", "ranges>", "log bytes>", "disk bytes>", "takes>", "why")
    found = (
        (
            row.label,
            "" if row.status is None else status_text(row.status),
            Text("refused", style=_BAD) if row.failure else row.mode or "nothing",
            *_needs(row),
            row.failure.message if row.failure else f"{row.reason}{_parts(row)}",
        )
        for row in rows
    )
    console.print(table(f"{len(rows)} store partitions", columns, found))


def _needs(row: RestorePlanRow) -> tuple[str | int | None, ...]:
    if row.mode is None:
        return ("",) * 5
    seconds = None if row.seconds is None else duration_text(row.seconds)
    return (row.offsets, row.ranges, row.log_bytes, row.disk_needed, seconds)


def _parts(row: RestorePlanRow) -> str:
    return f"; many nodes build it, each part takes {row.disk_each} bytes of disk" if row.disk_each else ""
