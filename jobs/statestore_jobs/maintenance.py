"""Remove what is old and of no more use: replaced stores, what killed restores have left, files of runs long ago.

A task is one Spark task, which holds the task's lock. The files of runs are removed on the driver.
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from math import isfinite
from pathlib import Path

from statestore import clock
from statestore.config import Settings
from statestore.errors import StateStoreError
from statestore.metastore.catalogue import Catalogue
from statestore.recovery.cleaning import CleaningSpec, clean_task, tasks_with_own_files
from statestore.recovery.old_files import OldFiles
from statestore.reports import Failure, MaintenanceReport, MaintenanceRow
from statestore_jobs.entry import run_job, spark_session
from statestore_jobs.parallel import run_each
from statestore_jobs.shared_state import shared_state

_DAY_S = 24 * 60 * 60


def add_arguments(parser: ArgumentParser) -> None:
    """Declare this job's arguments."""
    parser.add_argument(
        "--reports-days", type=_days, default=30.0, help="days after which reports, history and verdicts are removed"
    )
    parser.add_argument(
        "--as-of-dir", type=Path, help="directory of the state directories of mode as-of, which are removed likewise"
    )
    parser.add_argument("--dry-run", action="store_true", help="report what would be removed, and remove nothing")


def _days(text: str) -> float:
    days = float(text)
    if not isfinite(days) or days < 0:
        raise ArgumentTypeError(f"expected a number of days from 0, found {text!r}")
    return days


def run(arguments: Namespace, settings: Settings, catalogue: Catalogue) -> MaintenanceReport:
    """List on the driver, tidy up in Spark tasks."""
    started = clock.now_ms()
    definitions = catalogue.definitions()
    specs = [
        CleaningSpec(
            paths=paths,
            stores=definitions[paths.application].stores if paths.application in definitions else (),
            older_than_s=settings.quarantine_days * _DAY_S,
            accept_loss=settings.accept_loss,
            dry_run=arguments.dry_run,
        )
        for paths in tasks_with_own_files(settings.state_dir.absolute())
    ]
    with shared_state(spark_session("maintenance"), settings.state_dir) as spark:
        rows = run_each(spark, specs, clean_task, MaintenanceRow, _lost)
    files = OldFiles(
        reports_dir=settings.reports_dir,
        data_docs_dir=settings.data_docs_dir,
        as_of_dir=arguments.as_of_dir,
        older_than_s=arguments.reports_days * _DAY_S,
        dry_run=arguments.dry_run,
    )
    return MaintenanceReport(
        run_id=arguments.report.stem,
        applications=tuple(dict.fromkeys(spec.paths.application for spec in specs)),
        started_ms=started,
        finished_ms=clock.now_ms(),
        dry_run=arguments.dry_run,
        rows=(*rows, *files.clean()),
    )


def _lost(spec: CleaningSpec, error: StateStoreError) -> MaintenanceRow:
    return MaintenanceRow(place=spec.place, failure=Failure.of(error))


def main() -> None:
    """Run this job as a program."""
    run_job("maintenance", run, add_arguments)
