"""The health of one store partition on the page, from the newest row of each job: a word, a colour, a reason.

A verification and a restore both tell how a store is, so the later one counts. Validation judges what a restore left.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

from statestore.reports import ProcessRow, RestoreRow, Status, ValidateRow, VerifyRow

#: `good` is whole, `notice` is whole and says something, `busy` says nothing, `warn` is behind, `bad` needs work: each
#: is worse than the one before.
Level = Literal["good", "notice", "busy", "warn", "bad"]
_WORSE: tuple[Level, ...] = get_args(Level)

_LEVELS: dict[Status, Level] = {
    Status.OK: "good",
    Status.EMPTY: "good",
    Status.OLD_FORMAT: "notice",
    Status.LOCKED: "busy",
    Status.LAGGING: "warn",
}
#: Words of the page's own: for store partitions that no verification has looked at since they were seen or restored.
RESTORED, UNVERIFIED = "RESTORED", "UNVERIFIED"


class Dated(NamedTuple):
    """A row of a report, and which run of its job it is from: an index into the overview's runs."""

    row: Any
    finished_ms: int
    run: int


class Newest(NamedTuple):
    """The newest row of each job about one store partition."""

    verify: Dated | None = None
    restore: Dated | None = None
    validate: Dated | None = None
    process: Dated | None = None


def judge(newest: Newest) -> dict[str, Any]:
    """Return the page's row, without names; what is unknown is left out."""
    said: dict[str, Any] = {"status": UNVERIFIED, "level": "busy"}
    if newest.verify is not None:
        said = _verified(newest.verify.row)
    if newest.restore is not None and _later(newest.restore, newest.verify):
        said |= _restored(newest.restore.row)
    if newest.validate is not None and _later(newest.validate, newest.restore):
        said |= _validated(newest.validate.row, said)
    if newest.process is not None and newest.process.row.failure is not None:
        said |= _doubted(said, "warn", "task failed")
    said |= _columns(newest)
    return {name: value for name, value in said.items() if value is not None and value != ""}


def _later(one: Dated, other: Dated | None) -> bool:
    return other is None or one.finished_ms >= other.finished_ms


def _verified(row: VerifyRow) -> dict[str, Any]:
    return {
        "status": row.status,
        "level": _LEVELS.get(row.status, "bad"),
        "action": row.action,
        "detail": row.detail,
        "depth": row.depth,
        "lag": row.lag,
        "committed": row.committed,
        "end": row.end,
        "keys": row.keys,
    }


def _restore_point(row: VerifyRow) -> dict[str, Any] | None:
    point = row.restore_point
    if point is None:
        return None
    return {"usable": point.usable, **point.model_dump(exclude_none=True, exclude_defaults=True)}


def _restored(row: RestoreRow) -> dict[str, Any]:
    """What a restore has changed; one that failed has left the store as it was."""
    match row.outcome:
        case "restored":
            detail = f"{row.records:,} records, {row.keys:,} keys; no verification has looked at it since."
            found = {"status": RESTORED, "level": "good", "detail": detail}
        case "skipped":
            status = row.before or Status.OK
            found = {"status": status, "level": _LEVELS.get(status, "bad"), "detail": "A restore found nothing to do."}
        case _:
            return {"level": "bad", "detail": f"The restore failed: {_failure(row)}"}
    return {**found, "action": "none", "lag": None, "committed": row.committed, "end": row.end, "depth": None}


def _validated(row: ValidateRow, said: dict[str, Any]) -> dict[str, Any]:
    if row.verdict == "passed":
        return {}
    failed = f": {', '.join(row.failed_expectations)}" if row.failed_expectations else ""
    detail = f"{said.get('detail', '')}\nValidation {row.verdict}{failed}. {row.detail}".strip()
    level: Level = "bad" if row.verdict == "failed" else "warn"
    return {"detail": detail, **_doubted(said, level, f"validation {row.verdict}")}


def _doubted(said: dict[str, Any], level: Level, why: str) -> dict[str, Any]:
    """What makes a store partition worse than its status does; nothing if it is that bad already."""
    return {"level": level, "doubt": why} if _WORSE.index(level) > _WORSE.index(said["level"]) else {}


def _columns(newest: Newest) -> dict[str, Any]:
    """What each job's last run did with it, as the table and the panel show it."""
    verify, restore, validate, process = newest
    shown: dict[str, Any] = {"verify": None if verify is None else {"run": verify.run}}
    if verify is not None and verify.row.restore_point is not None:
        shown["restore_point"] = _restore_point(verify.row)
    if restore is not None:
        row: RestoreRow = restore.row
        shown["restore"] = {
            "run": restore.run,
            "outcome": row.outcome,
            "mode": row.mode,
            "message": _failure(row),
            "quarantine": row.quarantine,
        }
    if validate is not None:
        judged: ValidateRow = validate.row
        shown["validate"] = {
            "run": validate.run,
            "verdict": judged.verdict,
            "expectations": judged.expectations,
            "failed": list(judged.failed_expectations),
            "rollback": judged.rollback,
            "data_docs": judged.data_docs,
        }
    if process is not None:
        done: ProcessRow = process.row
        shown["process"] = {"run": process.run, "lag": done.lag, "message": _failure(done)}
    return {
        job: {name: value for name, value in column.items() if value is not None} if column else None
        for job, column in shown.items()
    }


def _failure(row: RestoreRow | ProcessRow) -> str | None:
    return None if row.failure is None else f"{row.failure.kind}: {row.failure.message}"
