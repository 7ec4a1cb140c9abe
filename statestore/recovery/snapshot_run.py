"""A run that publishes snapshots from the changelogs: of which store partitions, and its report.

The job and the command differ in where their store partitions come from, and in who does the pieces of work.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from statestore import clock
from statestore.archive.archive import ArchiveSpec
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InputError
from statestore.objects.path import Location
from statestore.partition.spec import StorePartitionSpec
from statestore.progress.display import shown
from statestore.progress.files import remove_progress
from statestore.recovery.restore_progress import RESTORES, progress_label
from statestore.recovery.runner import Runner
from statestore.recovery.snapshot_building import SnapshotSpec, make_snapshot, not_made
from statestore.reports import ArchivedRow, SnapshotReport


def from_their_logs(applications: Sequence[ApplicationDefinition]) -> list[ApplicationDefinition]:
    """Return the applications of which `process` publishes no snapshots, so that they are made from their logs."""
    return [application for application in applications if not application.publishes_snapshots]


def run_snapshots(
    stores: Sequence[StorePartitionSpec],
    archive: ArchiveSpec,
    run_id: str,
    run: Runner,
    *,
    accept_loss: bool,
    run_bytes: int,
    scratch: Path,
    reports_dir: Location | None = None,
    started_ms: int,
) -> SnapshotReport:
    """Make a snapshot of each store partition, each by itself, and say what came of it.

    Parameters
    ----------
    run
        Does the pieces of work.
    accept_loss
        Whether they are built from their logs alone, also from one that has lost something.
    run_bytes
        Bound of a sorted run in memory.
    scratch
        Directory with room for as many stores as are built at a time, where the work is done.
    reports_dir
        Below it the progress is shown; None: nowhere.

    Raises
    ------
    InputError, ArchiveAccessError, ArchiveUnavailableError
        If there are no store partitions, or the archive cannot be used. Nothing was done.
    """
    if not stores:
        raise InputError(
            "there is no store partition to create a snapshot of. If `process` publishes the snapshots of the "
            "application, name it with --application"
        )
    archive.open()
    progress = None if reports_dir is None else reports_dir.absolute() / "snapshot" / f".progress-{run_id}"
    specs = [
        SnapshotSpec(
            store.model_copy(update={"archive": archive}),
            run_id,
            run_bytes,
            scratch.absolute(),
            progress=progress,
            accept_loss=accept_loss,
        )
        for store in stores
    ]
    try:
        if progress is None:
            rows = run(specs, make_snapshot, ArchivedRow, not_made)
        else:
            with shown(progress, [progress_label(store.store_partition) for store in stores], RESTORES):
                rows = run(specs, make_snapshot, ArchivedRow, not_made)
    finally:
        if progress is not None:
            remove_progress(progress)
    return SnapshotReport(
        run_id=run_id,
        applications=tuple(dict.fromkeys(store.application for store in stores)),
        started_ms=started_ms,
        finished_ms=clock.now_ms(),
        archive=archive.url,
        rows=tuple(rows),
    )
