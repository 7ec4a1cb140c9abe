"""The commands that show what jobs have left and where they are: report, progress. Nothing else is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from statestore.cli import options, output
from statestore.clock import duration_text
from statestore.errors import InputError
from statestore.objects.path import Location, listing, location

if TYPE_CHECKING:
    from statestore.reports import AnyReport

_JOBS = ("process", "verify", "restore", "validate", "snapshot", "drill", "survey", "write", "maintenance")
_RUNNING = ("process", "restore", "snapshot")


def _jobs() -> list[str]:
    return list(_JOBS)


def report(
    what: Annotated[
        str,
        typer.Argument(
            metavar="JOB|FILE|URL",
            help=f"Report file or URL; or a job, for its newest report: {', '.join(_JOBS)}.",
            autocompletion=_jobs,
        ),
    ],
    reports_dir: options.ReportsDir = None,
    json: options.Json = None,
) -> None:
    """Show the report of a job: of its newest run, or from a file. Exit code 1 if it reports damage or a failure."""
    options.require_writable(json=json)
    if what not in _JOBS:
        show(location(what), json)
    if reports_dir is None:
        raise InputError("--reports-dir: expected the directory, or the URL, that the jobs write their reports into")
    show(newest(location(reports_dir), what), json)


def progress(reports_dir: options.ReportsDirNeeded, json: options.Json = None) -> None:
    """Show the progress of running process, restore, and snapshot jobs."""
    from statestore.cli.tables import table
    from statestore.progress.files import read_files
    from statestore.recovery.restore_progress import RestoreProgress
    from statestore.tasks.task_progress import TaskProgress

    options.require_writable(json=json)
    found: dict[str, list[dict[str, Any]]] = {}
    rows: list[tuple[str, str, str, int, int, float | None, str | None]] = []
    for job in _RUNNING:
        found[job] = []
        for directory in sorted(listing(location(reports_dir) / job, ".progress-*"), key=str):
            run = directory.name.removeprefix(".progress-")
            if job == "process":
                for task in read_files(directory, TaskProgress):
                    found[job].append({"run_id": run, **task.model_dump()})
                    label = f"{task.application}/{task.task}"
                    rows.append((run, label, task.phase, task.next, task.end, None, None))
            else:
                for part in read_files(directory, RestoreProgress):
                    found[job].append({"run_id": run, **part.model_dump()})
                    left = None if part.seconds_left is None else duration_text(part.seconds_left)
                    rows.append((run, part.label, part.phase, part.next, part.end, part.records_per_s, left))
    columns = ("run", "of", "phase", "offset>", "end>", "records/s>", "left>")
    output.console(json).print(table(f"{len(rows)} pieces of work", columns, rows))
    output.write_content(json, found)


def newest(reports_dir: Location, job: str) -> Location:
    """Return the newest report of a job.

    Raises
    ------
    InputError
        If there is none.
    """
    found = listing(reports_dir / job, "*.json")
    if not found:
        raise InputError(f"{reports_dir / job} has no report of {job}: no run of it has ended yet")
    return max(found, key=lambda path: path.stat().st_mtime_ns)


def show(
    path: Location, json: Path | None, steps: Callable[[AnyReport], Sequence[tuple[str, str]]] = lambda _: ()
) -> NoReturn:
    """Show a report, and end with exit code 1 if anything in it is not well, 3 if it is so only for now.

    Parameters
    ----------
    steps
        Which commands may follow.
    """
    from statestore.cli import tables
    from statestore.cli import verification as work
    from statestore.drills.standing import exit_code
    from statestore.reports import DrillReport, VerifyReport, read_any_report

    found = read_any_report(path)
    tables.show(output.console(json), found)
    output.write_content(json, found.model_dump(mode="json"))
    output.say_next(steps(found), json)
    if isinstance(found, VerifyReport):
        raise typer.Exit(work.exit_code(found.rows))
    if isinstance(found, DrillReport):
        raise typer.Exit(exit_code(found))
    failures = [getattr(row, "failure", None) for row in found.rows if not row.healthy]
    passing = all(failure is not None and failure.retriable for failure in failures)
    raise typer.Exit(0 if not failures else 3 if passing else 1)
