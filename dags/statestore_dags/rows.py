"""A report's rows as the UI shows them: one small dict each, with a label, a headline and its health.

Dicts, because they travel through XCom to the Airflow tasks that are mapped over them.
"""

from __future__ import annotations

from typing import Any

from statestore.reports import (
    Action,
    ProcessReport,
    ProcessRow,
    RestoreReport,
    RestoreRow,
    ValidateReport,
    ValidateRow,
    VerifyReport,
    VerifyRow,
)

AnyReport = ProcessReport | VerifyReport | RestoreReport | ValidateReport
AnyRow = ProcessRow | VerifyRow | RestoreRow | ValidateRow

REPORTS: dict[str, type[AnyReport]] = {
    "process": ProcessReport,
    "verify": VerifyReport,
    "restore": RestoreReport,
    "validate": ValidateReport,
}


def row_to_dict(row: AnyRow) -> dict[str, Any]:
    """The row's fields, and what the UI says of it.

    `health` is "healthy", "failed", or "later" where a store partition was in use and nothing could be said.
    """
    later = isinstance(row, VerifyRow) and row.action is Action.LATER
    return {
        "label": row.label,
        "health": "healthy" if row.healthy else "later" if later else "failed",
        "headline": headline(row),
        **row.model_dump(mode="json", exclude_none=True),
    }


def headline(row: AnyRow) -> str:
    """One sentence for the log and the error of the row's Airflow task."""
    match row:
        case ProcessRow():
            said = (
                f"{row.records_in:,} records in, {row.records_out:,} out, {row.changelog_records:,} to changelogs, "
                f"{row.commits:,} commits, {row.seconds:.1f} s"
            )
        case VerifyRow():
            said = f"{row.status}, action: {row.action}" + (f". {row.detail}" if row.detail else "")
        case RestoreRow():
            how = f" ({row.mode}, was {row.before})" if row.mode else ""
            said = f"{row.outcome}{how}: {row.records:,} records, {row.keys:,} keys, {row.seconds:.1f} s"
        case ValidateRow():
            said = f"{row.verdict}: {row.expectations} expectations on {row.keys:,} keys"
            if row.failed_expectations:
                said += f"; failed: {', '.join(row.failed_expectations)}"
            if row.detail:
                said += f". {row.detail}"
    failure = getattr(row, "failure", None)
    return f"{said}. {failure.kind}: {failure.message}" if failure else said


def wants_restore(rows: list[dict[str, Any]]) -> bool:
    """True if `restore` can mend something that `verify` found."""
    return any(row["action"] in (Action.TAIL, Action.FULL) for row in rows)


def wants_validation(rows: list[dict[str, Any]]) -> bool:
    """True if `restore` put a store in place that nobody has validated yet."""
    return any(row["outcome"] == "restored" for row in rows)
