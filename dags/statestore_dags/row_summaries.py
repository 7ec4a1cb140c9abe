"""A report's rows as the UI shows them: one small dict each, with a label, a headline and its health."""

from __future__ import annotations

from typing import Any

from statestore.environments import active_environment
from statestore.errors import LockedError
from statestore.reports import (
    Action,
    AnyReport,
    ArchivedRow,
    DrillRow,
    MaintenanceRow,
    ProcessRow,
    RestorePlanRow,
    RestoreReport,
    RestoreRow,
    SurveyRow,
    ValidateRow,
    VerifyReport,
    VerifyRow,
    WriteRow,
)

AnyRow = (
    ProcessRow
    | VerifyRow
    | RestoreRow
    | RestorePlanRow
    | ValidateRow
    | ArchivedRow
    | WriteRow
    | MaintenanceRow
    | DrillRow
    | SurveyRow
)


def row_to_dict(row: AnyRow) -> dict[str, Any]:
    """The row's fields, and what the UI says of it.

    `health` is "healthy", "failed", or "later" where a store partition was in use and nothing could be said. A healthy
    store whose application must not be killed now is "failed", too.
    """
    return {
        "label": row.label,
        "health": _health(row),
        "headline": headline(row),
        **row.model_dump(mode="json", exclude_none=True),
    }


def _health(row: AnyRow) -> str:
    if isinstance(row, VerifyRow) and row.kill_risk:  # a failure calls the notifier
        return "failed"
    return "healthy" if row.healthy else "later" if _in_use(row) else "failed"


def _in_use(row: AnyRow) -> bool:
    if isinstance(row, MaintenanceRow):  # what could not be tidied up now is tidied up next time
        return row.failure is not None and row.failure.kind == LockedError.__name__
    return isinstance(row, VerifyRow) and row.action is Action.LATER


def headline(row: AnyRow) -> str:
    """One sentence for the log and the error of the row's Airflow task."""
    match row:
        case ProcessRow():
            said = (
                f"{row.records_in:,} records in, {row.records_out:,} out, {row.changelog_records:,} to changelogs, "
                f"{row.commits:,} commits, {row.seconds:.1f} s"
            )
            if row.remarks:
                said += f"; {row.remarks}"
        case VerifyRow():
            said = f"{row.status}, action: {row.action}" + (f". {row.detail}" if row.detail else "")
            if row.kill_risk:
                said += f". Warning: {row.kill_risk}"
            if row.advice is not None:
                said += f". {row.advice.sentence}"
                said += f" Next: {row.advice.command}" if row.advice.command else ""
        case RestoreRow():
            how = f" ({', was '.join(filter(None, [row.mode, row.before]))})" if row.mode else ""
            if row.outcome == "restored" and row.mode is None:
                how = " by an earlier attempt at this run"
            said = f"{row.outcome}{how}: {row.records:,} records, {row.keys:,} keys, {row.seconds:.1f} s"
        case RestorePlanRow():
            todo = f"{row.mode}, {row.offsets:,} offsets to read, about {row.seconds:,.0f} s" if row.mode else "nothing"
            said = f"to do: {todo}" + (f". {row.reason}" if row.reason else "")
        case ArchivedRow():
            made = f"{row.files:,} files, {row.bytes:,} bytes" if row.snapshot else "nothing"
            said = f"published {made}, from {row.grown_from or 'the changelog alone'}: {row.records:,} records"
            said += f", {row.seconds:.1f} s"
        case WriteRow():
            said = f"{row.puts:,} rows put, {row.deletes:,} deleted"
        case DrillRow():
            said = row.standing
            if row.verdict is not None:
                when = "" if row.drilled else "last time "
                said += f": {when}restored in {row.seconds:.1f} s, {row.rows:,} rows compared"
            if row.detail:
                said += f". {row.detail}"
        case SurveyRow():
            said = f"risks: {len(row.risks):,}, facts not read: {len(row.unread):,}"
            for risk in row.risks:
                said += f"\n{risk.advice.situation}: {risk.subject}, {risk.why}. {risk.advice.sentence}"
                said += f" Next: {risk.advice.command}" if risk.advice.command else ""
            for fact in row.unread:
                said += f"\nnot read: {fact.fact} of {fact.subject}. {fact.why}"
        case MaintenanceRow():
            said = f"{row.removed_count:,} removed, {row.removed_bytes:,} bytes"
            if row.kept:
                said += f"; kept: {'; '.join(row.kept)}"
        case ValidateRow():
            said = f"{row.verdict}: {row.expectations} expectations on {row.keys:,} keys"
            if row.failed_expectations:
                said += f"; failed: {', '.join(row.failed_expectations)}"
            if row.detail:
                said += f". {row.detail}"
    failure = getattr(row, "failure", None)
    return f"{said}. {failure.kind}: {failure.message}" if failure else said


def wants_restore(report: AnyReport) -> bool:
    """True if `restore` can mend something that `verify` found."""
    return isinstance(report, VerifyReport) and bool(damaged_applications(report))


def damaged_applications(report: VerifyReport) -> list[str]:
    """Return the applications that `restore` can mend without a person.

    Not those without a definition: only a person knows that such an application stays stopped.
    """
    listed = active_environment().kafka_streams
    found = dict.fromkeys(row.application for row in report.rows if row.action in (Action.TAIL, Action.FULL))
    return [application for application in found if application not in listed]


def wants_validation(report: AnyReport) -> bool:
    """True if `restore` put a store in place that nobody has validated yet."""
    listed = active_environment().kafka_streams  # no suite is known for them
    return isinstance(report, RestoreReport) and any(
        row.outcome == "restored" and row.application not in listed for row in report.rows
    )
