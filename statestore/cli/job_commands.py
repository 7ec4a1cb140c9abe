"""The commands that run a job with a Spark of their own, as the DAGs do: process, validate, maintain."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statestore import clock
from statestore.cli import next_steps, options
from statestore.cli.options import Installation
from statestore.cli.parameters import with_request
from statestore.cli.programs import run_program
from statestore.cli.report_commands import show
from statestore.cli.spark_jvm import VARIABLE as JVM_OPTIONS
from statestore.cli.spark_jvm import spark_jvm
from statestore.config import as_of_dir
from statestore.objects.path import location
from statestore.packages import require_extra
from statestore.requests.arguments import argv
from statestore.requests.maintenance import MaintenanceRequest
from statestore.requests.process import ProcessRequest
from statestore.requests.request import Request
from statestore.requests.validate import ValidateRequest

if TYPE_CHECKING:
    from statestore.reports import AnyReport

_Master = Annotated[
    str | None,
    typer.Option(help="Spark master. Default: local[--parallel]. The nodes of a cluster must see the same paths."),
]
_Conf = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Spark property to set. May be repeated.")]
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@options.with_installation
@with_request(ProcessRequest)
def process(
    request: ProcessRequest,
    installation: Installation,
    parallel: options.Parallel,
    master: _Master = None,
    conf: _Conf = None,
    json: options.Json = None,
) -> None:
    """Process the input topics up to their current ends, exactly once."""
    _run("process", request, installation, _spark(master, parallel, conf), json)


@options.with_installation
@with_request(ValidateRequest)
def validate(
    request: ValidateRequest,
    installation: Installation,
    parallel: options.Parallel,
    master: _Master = None,
    conf: _Conf = None,
    json: options.Json = None,
) -> None:
    """Validate stores against their expectation suites. A replaced store is deleted once its replacement passes."""
    _run("validate", request, installation, _spark(master, parallel, conf), json)


@options.with_installation
@with_request(MaintenanceRequest, without=("as_of_dir",), variables={"reports_days": "STATESTORE_REPORTS_DAYS"})
def maintain(
    request: MaintenanceRequest,
    installation: Installation,
    parallel: options.Parallel,
    quarantine_days: options.QuarantineDays = 7.0,
    master: _Master = None,
    conf: _Conf = None,
    json: options.Json = None,
) -> None:
    """Remove old files that are no longer needed: replaced stores, reports, and files of killed restores."""
    as_of = as_of_dir(Path(installation["STATESTORE_STATE_DIR"]))
    settings = {**installation, "STATESTORE_QUARANTINE_DAYS": str(quarantine_days)}
    request = request.model_copy(update={"as_of_dir": as_of})
    _run("maintenance", request, settings, _spark(master, parallel, conf), json)


def _spark(master: str | None, parallel: int, conf: list[str] | None) -> str:
    """Return what spark-submit is told.

    Raises
    ------
    InputError
        If a setting is malformed.
    """
    options.require_settings("--conf", conf or ())
    local = [f"{name}={value}" for name, value in _LOCAL.items()] if master is None else []
    settings = [text for setting in (*local, *(conf or ())) for text in ("--conf", setting)]
    return shlex.join(["--master", master or f"local[{parallel}]", *settings, "pyspark-shell"])


def _run(job: str, request: Request, settings: Installation, spark: str, json: Path | None) -> None:
    require_extra("validate" if job == "validate" else "spark", f"the job {job}")
    reports_dir = location(settings["STATESTORE_REPORTS_DIR"])
    options.require_writable(json=json, reports_dir=reports_dir)
    report = reports_dir / job / f"command-{clock.now_ms()}.json"
    # If nothing is said, Spark would take whatever python3 is on PATH.
    defaults = {"PYSPARK_PYTHON": sys.executable, JVM_OPTIONS: spark_jvm()}
    environment = {**defaults, **os.environ, **settings, "PYSPARK_SUBMIT_ARGS": spark}
    run_program(f"statestore_jobs.{job}", ["--report", str(report), *argv(request)], environment)
    show(report, json, steps=_steps)


def _steps(report: AnyReport) -> list[next_steps.Step]:
    from statestore.reports import MaintenanceReport, ProcessReport

    match report:
        case ProcessReport():
            return next_steps.after_process(report.rows)
        case MaintenanceReport() if report.dry_run and any(row.removed_count for row in report.rows):
            return [(next_steps.again(without="--dry-run"), "remove them")]
    return []
