"""The health of one store partition on the page: a word, a colour, an action, a reason. One function decides all four.

Jobs tell of a store partition at different times. What is newer outweighs what is older:

- A verification tells its status. A later restore, or a later run of `process` that has rebuilt it, makes it RESTORED.
  A later run of `process` that has written to a store that was EMPTY, or has caught up with a changelog that it was
  behind, makes it UNVERIFIED.
- A verdict counts until the store is replaced, and never while a verification says that it is damaged.
- What makes the badge as bad as it is also decides the action, so badge and action never contradict each other.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

from statestore.advice import NO_ACTION, Situation, advice, of_action
from statestore.clock import duration_text
from statestore.reports import Action, Advice, Loss, Status
from statestore_ui.report_rows import Drilled, Processed, Restored, Row, Run, Validated, Verified

#: `good` is intact, `notice` is intact and says something, `busy` is unknown, `warn` is behind or in doubt, `bad` needs
#: work: each is worse than the one before.
Level = Literal["good", "notice", "busy", "warn", "bad"]
LEVELS: tuple[Level, ...] = get_args(Level)

_LEVELS: dict[Status, Level] = {
    Status.OK: "good",
    Status.EMPTY: "good",
    Status.OLD_FORMAT: "notice",
    Status.STALE: "notice",
    Status.UNLOGGED: "notice",
    Status.PROVEN: "good",
    Status.IN_USE: "notice",
    Status.LOCKED: "busy",
    Status.UNCONFIRMED: "warn",
    Status.LAGGING: "warn",
}
#: Words of the page's own: for store partitions that no verification has looked at since they were seen or restored.
RESTORED, UNVERIFIED = "RESTORED", "UNVERIFIED"
#: An application without a definition was not verified, or not recently enough.
NOT_VERIFIED = "NOT VERIFIED"
#: An application of the catalogue that no report has a row for.
NEVER_RUN = "NEVER RUN"
TASK_FAILED, RESTORE_FAILED = "task failed", "restore failed"
#: These come before others of their level: nothing is processed, or a repair has failed.
FIRST = (TASK_FAILED, RESTORE_FAILED)

_NONE = NO_ACTION
_VERIFY = "Verify the store: it has not been verified since. The DAG verify does this after each run of process."
_END_CLEANLY = "Do not kill the application. Stop it cleanly, so that it writes its stores to disk."
_START_VERIFY = "Read why the last run of the DAG verify did not look at it, or start the DAG."
_START_SIDECAR = "Check that its sidecar runs, and that it writes its reports to the directory of reports."
_RESTORE_AGAIN = "Read why the restore failed and remove the cause. Then start the restore again."
_READ_DATA_DOCS = (
    "Read which expectation failed. If store and changelog differ, restore it in mode full with Rebuild healthy stores "
    "too. If a rule of your own failed, check the application's data."
)
_ROWS_DIFFER = (
    "Rows of the store differ from its changelog. Restore it in mode full with Rebuild healthy stores too, then "
    "validate it again."
)
_OWN_RULE = (
    "A rule of your own failed, and the store equals its changelog: a restore gives the same rows. Check the input and "
    "the code of the application."
)
_PROCESS = "Turn on the DAG process, or start it: it reads the input and fills the stores."
_VALIDATE_AGAIN = "Read why the validation could not be completed and remove the cause. Then start the DAG validate."
_COMPARE = (
    "No suite applies to what can be read of the store. If it has a directory, verify it at depth deep: this compares "
    "it with its topic."
)
_READ_TASK = "Read why the task failed and remove the cause. The next run of process continues where this one stopped."


class Newest(NamedTuple):
    """The newest row of each job about one store partition.

    Attributes
    ----------
    written
        Of `process`: the newest row since the verification that has written to the store.
    proven
        Of `verify`, if the application runs or has no definition: the newest row with a proof.
    """

    verify: Verified | None = None
    restore: Restored | None = None
    validate: Validated | None = None
    process: Processed | None = None
    written: Processed | None = None
    drill: Drilled | None = None
    proven: Verified | None = None


class Standing(NamedTuple):
    """What the page says of a store partition.

    Attributes
    ----------
    word
        What its badge says: the status, or what makes it worse than that.
    action
        The one thing to do.
    command, button
        The command, and the form on this page that does the same; None if neither helps.
    verified
        Whether offsets and rows of the last verification are still its own.
    judged
        Whether the last verdict is about the store as it is now.
    """

    status: str
    level: Level
    word: str
    action: str
    detail: str = ""
    verified: bool = True
    judged: bool = False
    command: str | None = None
    button: str | None = None


_FINE = Standing(Status.OK, "good", Status.OK, _NONE)
_FINE_AND_JUDGED = _FINE._replace(judged=True)


def stand(newest: Newest) -> Standing:
    """Join what all jobs have said of a store partition, by age."""
    verify, restore, validate, process, written, *_ = newest
    if (  # most are like this, and there are many
        verify is not None
        and verify.status is Status.OK
        and restore is None
        and verify.loss is not Loss.LIKELY
        and not verify.detail
        and (validate is None or validate.verdict == "passed")
        and (process is None or (process.task.failure is None and process.rebuilt is None))
        and (written is None or written.rebuilt is None)
    ):
        return _FINE if validate is None else _FINE_AND_JUDGED
    found, replaced = _state(newest)
    if restore is not None and restore.outcome == "failed" and _later(restore, verify):
        worse = _worse(found, "bad", RESTORE_FAILED, _RESTORE_AGAIN)
        found = worse._replace(
            action=_RESTORE_AGAIN,
            command=None,
            button="restore",
            detail=_lines(found.detail, f"Restore failed. {restore.failure}"),
        )
    if validate is not None and _later(validate, replaced):
        if validate.verdict == "passed":
            found = found._replace(judged=found.level != "bad")
        else:
            found = _failed_validation(found, validate)
    if process is not None and process.task.failure is not None:
        worse = _worse(found, "bad", TASK_FAILED, _READ_TASK)
        found = worse if worse is found else worse._replace(button="process")
        found = found._replace(detail=_lines(found.detail, process.task.failure))
    return found


def _state(newest: Newest) -> tuple[Standing, Row | None]:
    """Return how the store is, and what has replaced it last."""
    verify, restore, _, process, written, *_ = newest
    found, since = Standing(UNVERIFIED, "busy", UNVERIFIED, _VERIFY, verified=False), None
    replaced: Row | None = None
    if verify is not None:
        found, since = _of_status(verify.status, verify.action, verify), verify
    if restore is not None and restore.outcome != "failed":
        if restore.outcome == "restored":
            replaced = restore
        if _later(restore, since):
            found, since = _of_restore(restore, found), restore  # type: ignore[assignment]
    for done in (written, process):
        if done is None or not _later(done, since, or_same=False):
            continue
        if done.rebuilt is not None:
            replaced = done
            detail = f"process has rebuilt it: {done.rebuilt}. It has not been verified since."
            found = Standing(RESTORED, "good", RESTORED, _NONE, detail, verified=False)
            break
        if (found.status == Status.EMPTY and done.wrote) or (found.status in _CAUGHT_UP and done.task.failure is None):
            detail = f"It was {found.status} when it was last verified. process has opened it since."
            found = Standing(UNVERIFIED, "busy", UNVERIFIED, _VERIFY, detail, verified=False)
            break
    return found, replaced


#: What a run of `process` that reached its end has left behind: it brings each store to the end of its changelog first.
_CAUGHT_UP = (Status.LAGGING, Status.MISSING)


def _of_status(status: Status, action: Action, verify: Verified) -> Standing:
    detail = verify.detail
    if verify.loss is Loss.LIKELY:
        detail = _lines(detail, verify.loss_detail if verify.loss_detail not in detail else "")
    step = _advice(action, verify)
    acknowledged = action is Action.NONE and status in (Status.UNKNOWN_FORMAT, Status.MISSING)
    level = "notice" if acknowledged else _LEVELS.get(status, "bad")
    said = _NONE if step is None else step.sentence
    found = Standing(status, level, status, said, detail)
    found = found if step is None else found._replace(command=step.command, button=step.button)
    if verify.kill_risk:
        found = _worse(found, "warn", "kill risk", _END_CLEANLY)._replace(detail=_lines(detail, verify.kill_risk))
    return found


def _advice(action: Action, verify: Verified) -> Advice | None:
    """Return the row's advice; a row of an earlier version has none, and only its action is known."""
    if verify.advice is not None:
        return Advice.model_validate(verify.advice)
    if action is Action.NONE and verify.loss is Loss.LIKELY:
        return advice(Situation.LAST_COPY)
    return of_action(action)


def _of_restore(row: Restored, before: Standing) -> Standing:
    if row.outcome == "restored":
        detail = f"{row.records:,} records, {row.keys:,} keys. Not verified since."
        return Standing(RESTORED, "good", RESTORED, _NONE, detail, verified=False)
    status = row.before or Status.OK
    level = _LEVELS.get(status, "bad")
    kept = before if before.status == status and not status.healthy else None
    action = _NONE if status.healthy else _VERIFY if kept is None else kept.action
    found = Standing(status, level, status, action, "A restore found that no action was needed.", verified=False)
    return found if kept is None else found._replace(command=kept.command, button=kept.button)


def _failed_validation(found: Standing, row: Validated) -> Standing:
    failed = f": {', '.join(row.failed)}" if row.failed else ""
    detail = _lines(found.detail, f"Validation {row.verdict}{failed}. {row.detail}".strip())
    is_failed, is_judged = row.verdict == "failed", row.verdict != "not judged"
    worse = _worse(
        found,
        "bad" if is_failed else "warn",
        f"validation {row.verdict}" if is_judged else row.verdict,
        _FAILED[row.differs] if is_failed else _VALIDATE_AGAIN if is_judged else _COMPARE,
    )
    if is_failed and row.differs and worse.word != found.word:
        worse = worse._replace(button="restore")
    return worse._replace(detail=detail, judged=found.level != "bad")


#: Advice on a failed validation, by whether rows differ from the changelog; reports of earlier versions do not say it.
_FAILED = {True: _ROWS_DIFFER, False: _OWN_RULE, None: _READ_DATA_DOCS}


def _worse(found: Standing, level: Level, why: str, action: str) -> Standing:
    """Let something make a store partition worse than it is; nothing changes if it is that bad already."""
    if LEVELS.index(level) <= LEVELS.index(found.level):
        return found
    return found._replace(level=level, word=why, action=action, command=None, button=None)


def not_verified(found: Standing | None, within_ms: int, *, by_jobs: bool) -> Standing:
    """Return the standing of a store partition without a verification, or whose last one is too old.

    Parameters
    ----------
    found
        By the last verification; None: nothing was looked at.
    by_jobs
        Whether the DAG `verify` looks at it; otherwise only a sidecar does.
    """
    action = _START_VERIFY if by_jobs else _START_SIDECAR
    if found is None:
        detail = "It is listed as a Kafka Streams application, and no report has a row for it."
        return Standing(NOT_VERIFIED, "warn", NOT_VERIFIED, action, detail, verified=False)
    detail = f"It was {found.status} when it was last verified, more than {duration_text(within_ms / 1000)} ago."
    return _worse(found, "warn", NOT_VERIFIED, action)._replace(detail=_lines(found.detail, detail))


def never_run() -> Standing:
    """Return the standing of an application of the catalogue that no report has a row for."""
    detail = "The catalogue has its definition, and no report has a row for it."
    return Standing(NEVER_RUN, "notice", NEVER_RUN, _PROCESS, detail, verified=False, button="process")


def failed_before_opening(process: Processed) -> Standing:
    """Return the standing of a task that failed before it had opened a store."""
    detail = process.task.failure or ""
    return Standing(UNVERIFIED, "bad", TASK_FAILED, _READ_TASK, detail, verified=False, button="process")


def cause_of(standing: Standing) -> Literal["verify", "restore", "validate", "process"]:
    """Return the job whose report makes a store partition as bad as it is."""
    if standing.word == TASK_FAILED:
        return "process"
    if standing.word == RESTORE_FAILED:
        return "restore"
    return "validate" if standing.word.startswith("validation ") or standing.word == "not judged" else "verify"


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


def _later(one: Row, other: Row | None, *, or_same: bool = True) -> bool:
    if other is None:
        return True
    return one.run.finished_ms > other.run.finished_ms or (or_same and one.run.finished_ms == other.run.finished_ms)


# -- as the page shows it ----------------------------------------------------------------------------------------------


def shown(newest: Newest, standing: Standing) -> dict[str, Any]:
    """Return the page's row, without names; what is unknown is left out. `run`s are still those of the rows."""
    row: dict[str, Any] = {
        "status": standing.status,
        "level": standing.level,
        "word": standing.word.upper(),
        "action": standing.action,
        "command": standing.command,
        "button": standing.button,
        "detail": standing.detail,
        **_offsets(newest, standing),
    }
    verify, restore, validate, process, _, drill, proven = newest
    if proven is not None:
        row["proven_ms"] = proven.run.finished_ms
    if verify is not None:
        row["verify"] = {"run": verify.run, "depth": verify.depth or None}
        row["loss"] = None if verify.loss is None or verify.loss is Loss.NONE else verify.loss
        row["restore_point"] = verify.restore_point
    if restore is not None:
        row["restore"] = {
            "run": restore.run,
            "outcome": restore.outcome,
            "mode": restore.mode,
            "message": restore.failure,
            "quarantine": restore.quarantine,
        }
    if validate is not None:
        row["validate"] = {
            "run": validate.run,
            "verdict": validate.verdict,
            "current": standing.judged,
            "expectations": validate.expectations,
            "failed": list(validate.failed),
            "rollback": validate.rollback,
            "data_docs": validate.data_docs,
        }
    if process is not None:
        row["process"] = _process(process)
    if drill is not None:
        row["drill"] = drill._asdict()
    return {name: _known(value) for name, value in row.items() if value is not None and value != ""}


def _offsets(newest: Newest, standing: Standing) -> dict[str, Any]:
    if standing.verified and newest.verify is not None:
        verify = newest.verify
        return {
            "lag": verify.lag,
            "committed": verify.committed,
            "end": verify.end,
            "keys": verify.keys,
            "disk_offset": verify.disk_offset,
            "disk_lag": verify.disk_lag,
        }
    restore = newest.restore
    if restore is not None and restore.outcome != "failed" and _later(restore, newest.verify):
        return {"committed": restore.committed, "end": restore.end}
    return {}


def _process(row: Processed) -> dict[str, Any]:
    task = row.task
    return {
        "run": task.run,
        "lag": task.lag,
        "message": task.failure,
        "records_in": task.records_in,
        "dead_letters": task.dead_letters,
        "late": task.late or None,
        "dropped": task.dropped or None,
        "commits": row.commits or None,
        "latency_avg_ms": row.latency_avg_ms if row.commits else None,
        "latency_max_ms": row.latency_max_ms if row.commits else None,
    }


def _known(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: found for name, found in value.items() if found is not None and found != ""}


def runs_of(row: dict[str, Any]) -> list[Run]:
    """Return the runs that a row of the page names."""
    return [row[job]["run"] for job in ("verify", "restore", "validate", "process", "drill") if job in row]
