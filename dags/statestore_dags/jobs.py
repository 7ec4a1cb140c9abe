"""The Spark jobs of a run: one for each application, so that a failure does not hide the results of the others.

`validate` is one job for all: its stores share the index of the Data Docs, which one job at a time may write.
`maintenance` is one, too: what it looks at belongs to no application alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from statestore.config import as_of_dir
from statestore.drills.objectives_file import read_objectives
from statestore.environments import active_environment
from statestore.objects.path import Location
from statestore.reports import VerifyReport, read_report
from statestore.requests.arguments import argv
from statestore.requests.process import ProcessRequest
from statestore.requests.request import Request
from statestore.requests.restore import RestoreRequest
from statestore_dags import arguments
from statestore_dags.report_parts import part_path, split_by_application
from statestore_dags.row_summaries import damaged_applications

if TYPE_CHECKING:
    from statestore.config import Settings

log = logging.getLogger(__name__)
#: What the job of one application is given, by the application.
_Work = Mapping[str, Request]


class Trigger(NamedTuple):
    """Besides the form, what a run is asked for by what has started it.

    Attributes
    ----------
    without
        Applications that are left out if the form names none, also of a report.
    only
        The only ones that are meant then; None: all.
    by_time
        A schedule has started it, and nobody has filled in the form.
    """

    without: Sequence[str] = ()
    only: Collection[str] | None = None
    by_time: bool = False


def plan_jobs(
    job: str,
    params: arguments.Params,
    applications: arguments.Applications,
    settings: Settings,
    report: Location,
    head: Sequence[str],
    asked: Trigger,
) -> list[dict[str, Any]]:
    """Return what `spark_jobs` maps over.

    Parameters
    ----------
    report
        Of the run.
    head
        Arguments that every job is given.
    asked
        By whom, and for what.

    Raises
    ------
    InputError
        If the form asks for something that does not exist, or contradicts itself.
    """
    work = _work(job, params, applications, settings, report, asked)
    reports = {name: report if len(work) == 1 else part_path(report, name) for name in work}
    return [
        {
            "part": name,
            "report": str(reports[name]),
            "application_args": ["--report", str(reports[name]), *head, *_listed(name), *argv(request)],
        }
        for name, request in work.items()
    ]


def _listed(name: str) -> list[str]:
    """Return the arguments that describe an application without a definition; none for another one."""
    found = active_environment().kafka_streams.get(name)
    return [] if found is None else ["--kafka-streams", found.model_dump_json(exclude_defaults=True)]


def _work(
    job: str,
    params: arguments.Params,
    applications: arguments.Applications,
    settings: Settings,
    report: Location,
    asked: Trigger,
) -> _Work:
    match job:
        case "process" | "verify":
            listed = arguments.with_state_dir() if job == "verify" else {}
            names = arguments.chosen_applications(params, {**applications, **listed}, asked.without, asked.only)
            if job == "process":
                return {name: ProcessRequest(applications=(name,)) for name in names}
            return {name: arguments.verify_request(params, name, by_time=asked.by_time) for name in names}
        case "restore":
            target = as_of_dir(settings.state_dir) / report.stem
            request = arguments.restore_request(params, applications, settings.reports_dir, target)
            return _restores(request, report, asked.without)
        case "drill":
            return arguments.drill_requests(
                params, applications, read_objectives(settings.objectives), by_time=asked.by_time
            )
        case "snapshot":
            settings.required_archive()
            requests = arguments.snapshot_requests(params, applications)
            if not requests:
                log.info("nothing to do: `process` publishes snapshots of all applications that are defined")
            return requests
        case "validate":
            by_time = asked.by_time
            chosen = arguments.validate_request(params, applications, settings.reports_dir, by_time=by_time)
            return {} if chosen is None else {"validate": chosen}
        case _:
            days = os.environ.get("STATESTORE_REPORTS_DAYS", "")
            return {"maintenance": arguments.maintenance_request(params, days, as_of_dir(settings.state_dir))}


def _restores(request: RestoreRequest, report: Location, without: Sequence[str]) -> _Work:
    if request.verify_report is None:
        return {request.applications[0]: request}
    found = read_report(request.verify_report, VerifyReport)
    damaged = damaged_applications(found)
    others = active_environment().kafka_streams.keys() & set(found.applications)
    if len(damaged) < 2 and not others and set(damaged).isdisjoint(without):
        return {next(iter(damaged), "nothing"): request}
    parts = split_by_application(found, report, [name for name in damaged if name not in without])
    return {name: request.model_copy(update={"verify_report": part}) for name, part in parts.items()}


def summary(job: str, params: arguments.Params) -> str:
    """Say in a sentence what the form asks for; the approval of a restore shows it."""
    given = {name: value for name, value in dict(params).items() if value not in (None, [], "", False)}
    return f"{job}: " + (", ".join(f"{name} = {value}" for name, value in given.items()) or "nothing in particular")
