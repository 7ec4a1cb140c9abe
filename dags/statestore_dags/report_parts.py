"""The report of a run and its parts: one for each application, each written by a separate Spark job.

    <reports_dir>/<job>/<run>.json                       the report of the run
    <reports_dir>/<job>/.parts/<run>-<application>.json   of one application, where there are several
    .attempt-<attempt>/<run>.json                        beside either of them, while an attempt is in progress

A job that fails leaves no part, and takes nothing from the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from statestore.environments import DagName, active_environment
from statestore.errors import InputError
from statestore.objects.path import Location, location
from statestore.reports import AnyReport, DrillReport, read_any_report, write_report

PARTS = ".parts"
ATTEMPT = ".attempt-"


def job_of(dag_id: str) -> str:
    """Name of the job of a DAG: DAG `payments.process.shop` runs the job `process`."""
    return DagName.parse(dag_id).dag


def report_path(reports_dir: Location, dag_id: str, run_id: str) -> Location:
    """Where the report of a DAG run lies.

    Run ids hold colons and plus signs and may be 250 characters long; the digest keeps the short form distinct.
    """
    environment, job, rest = DagName.parse(dag_id)
    # Runs by time have the same id in each environment. The page looks for what begins with it.
    return reports_dir / job / _file_name(f"{rest}-{run_id}" if rest else run_id, environment)


def part_path(report: Location, application: str) -> Location:
    """Where one application's part of a run's report lies."""
    return report.parent / PARTS / _file_name(f"{report.stem}-{application}")


def attempt_path(report: Location, attempt: str) -> Location:
    """Where the job of one attempt writes its report. The name stays: the job takes its run id from it."""
    return report.parent / f"{ATTEMPT}{attempt}" / report.name


def _file_name(name: str, environment: str = "") -> str:
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:120]
    distinct = f"{environment}/{name}" if environment else name
    return f"{safe}-{sha256(distinct.encode()).hexdigest()[:8]}.json"


def split_by_application(report: AnyReport, into: Location, applications: Iterable[str]) -> dict[str, Location]:
    """Write what a report says of each application into a file of its own; return the files by application."""
    found = {}
    for name in applications:
        rows = tuple(row for row in report.rows if getattr(row, "application", None) == name)
        found[name] = part_path(into, f"found-{name}")
        write_report(found[name], report.model_copy(update={"applications": (name,), "rows": rows}))
    return found


def gather(jobs: Sequence[dict[str, Any]], report: Location) -> list[tuple[str, str]]:
    """Put the parts that the jobs of a run have left together into its report.

    Parameters
    ----------
    jobs
        What `plan` has planned.

    Returns
    -------
    list of (str, str)
        The parts of jobs that have left no report, and what there is to say of each.
    """
    parts: list[AnyReport] = []
    failed: list[tuple[str, str]] = []
    for job in jobs:
        try:
            parts.append(read_any_report(location(job["report"])))
        except InputError as error:
            failed.append((job["part"], str(error)))
    if not parts:
        report.unlink(missing_ok=True)  # of an earlier attempt
    elif [job["report"] for job in jobs] != [str(report)]:
        write_report(report, _merged(parts, report.stem))
    return failed


def _merged(parts: Sequence[AnyReport], run_id: str) -> AnyReport:
    told = {
        field: tuple(one for part in parts for one in getattr(part, field))
        for field in ("confidence", "evidence")
        if isinstance(parts[0], DrillReport)
    }
    # Those that are listed without a definition have other directories, which the environment names.
    listed = active_environment().kafka_streams
    own = (part.state_dir for part in parts if not set(part.applications) <= set(listed))
    return parts[0].model_copy(
        update={
            **told,
            "state_dir": next(own, parts[0].state_dir),
            "run_id": run_id,
            "applications": tuple(dict.fromkeys(name for part in parts for name in part.applications)),
            "started_ms": min(part.started_ms for part in parts),
            "finished_ms": max(part.finished_ms for part in parts),
            "rows": tuple(row for part in parts for row in part.rows),
        }
    )
