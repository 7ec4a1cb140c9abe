"""Remove what is old and of no more use: replaced stores, what killed restores have left, files of runs, snapshots.

A task is one Spark task, which holds the task's lock. The files of runs and the archive's snapshots are removed on
the driver.
"""

from __future__ import annotations

from statestore import clock
from statestore.config import Settings
from statestore.errors import StateStoreError
from statestore.metastore.catalogue import Catalogue
from statestore.recovery.archive_cleanup import archive_rows
from statestore.recovery.report_cleanup import OldFiles
from statestore.recovery.task_cleanup import CleaningSpec, clean_task, tasks_with_own_files
from statestore.reports import Failure, MaintenanceReport, MaintenanceRow
from statestore.requests.maintenance import MaintenanceRequest
from statestore_jobs.entry import run_job, spark_session
from statestore_jobs.parallel import run_each
from statestore_jobs.shared_state import state_of

_DAY_S = 24 * 60 * 60


def run(request: MaintenanceRequest, settings: Settings, catalogue: Catalogue, run_id: str) -> MaintenanceReport:
    """List on the driver, tidy up in Spark tasks."""
    started = clock.now_ms()
    definitions = catalogue.definitions()
    specs = [
        CleaningSpec(
            paths=paths,
            stores=definitions[paths.application].stores if paths.application in definitions else (),
            older_than_s=settings.quarantine_days * _DAY_S,
            accept_loss=settings.accept_loss,
            dry_run=request.dry_run,
        )
        for paths in tasks_with_own_files(settings.state_dir.absolute())
    ]
    with state_of(spark_session("maintenance"), settings) as spark:
        # Nobody sees the disks of all nodes: what lies there goes when its task comes by.
        rows = [] if settings.node_local_state else run_each(spark, specs, clean_task, MaintenanceRow, _lost)
    files = OldFiles(
        reports_dir=settings.reports_dir,
        data_docs_dir=settings.data_docs_dir,
        as_of_dir=request.as_of_dir,
        older_than_s=request.reports_days * _DAY_S,
        dry_run=request.dry_run,
    )
    return MaintenanceReport(
        run_id=run_id,
        applications=tuple(dict.fromkeys(spec.paths.application for spec in specs)),
        started_ms=started,
        finished_ms=clock.now_ms(),
        dry_run=request.dry_run,
        rows=(*rows, *files.clean(), *archive_rows(settings, dry_run=request.dry_run)),
    )


def _lost(spec: CleaningSpec, error: StateStoreError) -> MaintenanceRow:
    return MaintenanceRow(place=spec.place, failure=Failure.of(error))


def main() -> None:
    """Run this job as a program."""
    run_job("maintenance", MaintenanceRequest, run)
