"""The commands that run a job with a Spark of their own, as the DAGs do: process, validate, maintain."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from statestore import clock
from statestore.cli import completion, options
from statestore.cli.options import Installation
from statestore.cli.programs import run_program
from statestore.cli.reporting import show
from statestore.config import as_of_dir
from statestore.errors import InputError
from statestore.packages import require_extra

_Master = Annotated[
    str | None, typer.Option(help="Spark's master; local[--parallel] if not said. A cluster must see the same paths.")
]
_Conf = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark. May be repeated.")]
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@options.with_installation
def process(
    installation: Installation,
    parallel: options.Parallel,
    application: options.Applications = None,
    resume_from_position: Annotated[
        bool,
        typer.Option(
            "--resume-from-position", help="Go on from the stores' position where the group's offsets are gone."
        ),
    ] = False,
    master: _Master = None,
    conf: _Conf = None,
    json: options.Json = None,
) -> None:
    """Process what has arrived in the input topics, exactly once, up to their ends of now."""
    arguments = [*_repeated("--application", application)]
    if resume_from_position:
        arguments.append("--resume-from-position")
    _run("process", arguments, installation, _spark(master, parallel, conf), json)


@options.with_installation
def validate(
    installation: Installation,
    parallel: options.Parallel,
    application: Annotated[
        str | None, typer.Option(help="Whose stores to validate.", autocompletion=completion.applications)
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option(help="May be repeated; none means all.", autocompletion=completion.stores),
    ] = None,
    restore_report: Annotated[
        Path | None, typer.Option(help="Validate what this report of restore says was restored, instead.")
    ] = None,
    verify_report: Annotated[
        Path | None, typer.Option(help="Validate what this report of verify has looked at, instead.")
    ] = None,
    master: _Master = None,
    conf: _Conf = None,
    json: options.Json = None,
) -> None:
    """Judge stores by their suites of expectations; a store that a restore has replaced goes when its heir passes."""
    given = [name for name in (application, restore_report, verify_report) if name is not None]
    if len(given) != 1 or (store and application is None):
        raise InputError("expected one of --application, with or without --store, --restore-report and --verify-report")
    arguments = [*_repeated("--application", [application] if application else None), *_repeated("--store", store)]
    for option, report in (("--restore-report", restore_report), ("--verify-report", verify_report)):
        arguments += _repeated(option, [str(report.absolute())] if report else None)
    _run("validate", arguments, installation, _spark(master, parallel, conf), json)


@options.with_installation
def maintain(
    installation: Installation,
    parallel: options.Parallel,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    reports_days: Annotated[
        float,
        typer.Option(envvar="STATESTORE_REPORTS_DAYS", min=0, help="How long reports, history and verdicts are kept."),
    ] = 30.0,
    quarantine_days: options.QuarantineDays = 7.0,
    master: _Master = None,
    conf: _Conf = None,
    json: options.Json = None,
) -> None:
    """Remove what is old and of no more use: replaced stores, old reports, what killed restores have left."""
    as_of = as_of_dir(Path(installation["STATESTORE_STATE_DIR"]))
    arguments = ["--reports-days", str(reports_days), "--as-of-dir", str(as_of)]
    if dry_run:
        arguments.append("--dry-run")
    settings = {**installation, "STATESTORE_QUARANTINE_DAYS": str(quarantine_days)}
    _run("maintenance", arguments, settings, _spark(master, parallel, conf), json)


def _repeated(option: str, values: list[str] | None) -> list[str]:
    return [text for value in values or () for text in (option, value)]


def _spark(master: str | None, parallel: int, conf: list[str] | None) -> str:
    """Return what spark-submit is told.

    Raises
    ------
    InputError
        If a setting is malformed.
    """
    if odd := [each for each in conf or () if not each.partition("=")[0] or "=" not in each]:
        raise InputError(f"--conf: expected NAME=VALUE, found {odd[0]!r}")
    local = [f"{name}={value}" for name, value in _LOCAL.items()] if master is None else []
    said = ["--master", master or f"local[{parallel}]", *_repeated("--conf", [*local, *(conf or ())]), "pyspark-shell"]
    return shlex.join(said)


def _run(job: str, arguments: list[str], settings: Installation, spark: str, json: Path | None) -> None:
    require_extra("validate" if job == "validate" else "spark", f"the job {job}")
    reports_dir = Path(settings["STATESTORE_REPORTS_DIR"])
    options.require_writable(json=json, reports_dir=reports_dir)
    report = reports_dir / job / f"command-{clock.now_ms()}.json"
    # If nothing is said, Spark would take whatever python3 is on PATH.
    environment = {"PYSPARK_PYTHON": sys.executable, **os.environ, **settings, "PYSPARK_SUBMIT_ARGS": spark}
    run_program(f"statestore_jobs.{job}", ["--report", str(report), *arguments], environment)
    show(report, json)
