"""Publish snapshots of stores from their changelogs: one Spark task for each store partition.

The stores are built in scratch space where the Spark tasks run. The applications are not touched and need not stop, so
executors need not see the state directory.
"""

from __future__ import annotations

from functools import partial

from statestore import clock
from statestore.archive.archive import archive_of
from statestore.config import Settings
from statestore.discovery.partitions import store_partition_specs
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.definition_files import select
from statestore.recovery.run import require_as_many_as_tasks
from statestore.recovery.snapshot_run import from_their_logs, run_snapshots
from statestore.reports import SnapshotReport
from statestore.requests.snapshot import SnapshotRequest
from statestore.statedir.scratch import default_scratch
from statestore_jobs.entry import all_failed_for_now, run_job, spark_session
from statestore_jobs.parallel import run_each


def run(request: SnapshotRequest, settings: Settings, catalogue: Catalogue, run_id: str) -> SnapshotReport:
    """Plan on the driver, build and publish in Spark tasks."""
    started = clock.now_ms()
    settings.required_archive()
    topics = settings.cluster.topics
    applications = select(catalogue.definitions(), request.applications, request.stores)
    if not request.applications:
        applications = from_their_logs(applications)
    stores = store_partition_specs(settings, topics, applications, request.stores, request.partitions)
    require_as_many_as_tasks(stores, topics, applications)
    archive = archive_of(settings, topics)
    assert archive is not None
    return run_snapshots(
        stores,
        archive,
        run_id,
        partial(run_each, spark_session("snapshot")),
        accept_loss=request.accept_loss,
        run_bytes=settings.restore_run_bytes,
        scratch=settings.scratch_dir or default_scratch(settings.state_dir),
        reports_dir=settings.reports_dir,
        started_ms=started,
    )


def main() -> None:
    """Run this job as a program."""
    run_job("snapshot", SnapshotRequest, run, all_failed_for_now)
