"""A requested restore: its store partitions, the mode of each, and the report of the run.

The job and the command differ in where their store partitions come from, and in who does the pieces of work.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from statestore import clock
from statestore.definitions.application import ApplicationDefinition
from statestore.discovery.partitions import task_counts
from statestore.kafka.topics import Topics
from statestore.objects.path import Location
from statestore.partition.spec import StorePartitionSpec
from statestore.progress.files import remove_progress
from statestore.recovery.many import cut_by_length, plan_many, require_points, restore_many
from statestore.recovery.planning import RECORDS_PER_S, require_partitions
from statestore.recovery.restore_metrics import progress_exported
from statestore.recovery.runner import Runner
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Action, RestorePlanReport, RestorePlanRow, RestoreReport, VerifyReport, read_report
from statestore.requests.restore import RestoreRequest


def advised(report: VerifyReport, *, accept_loss: bool) -> set[str]:
    """Return the labels of what a verification advises to restore, or would but for what would be lost."""
    return {
        row.label
        for row in report.rows
        if row.action in (Action.TAIL, Action.FULL) or (accept_loss and row.waits_for_loss)
    }


def require_as_many_as_tasks(
    stores: Sequence[StorePartitionSpec], topics: Topics, applications: Sequence[ApplicationDefinition]
) -> None:
    """Refuse changelogs that have not as many partitions as their application, if it is defined, has tasks."""
    counts = task_counts(topics, applications)
    for store in stores:
        if (tasks := counts.get((store.application, store.task.subtopology))) is not None:
            require_partitions(store, tasks)


def restore_specs(
    stores: Sequence[StorePartitionSpec], request: RestoreRequest, run_id: str, *, run_bytes: int, quarantine_s: float
) -> list[RestoreSpec]:
    """Say for each store partition how it is restored.

    Raises
    ------
    InputError
        If an as-of point is not in a log, or its target is in use.
    """
    diverged: set[str] = set()
    if request.verify_report is not None:
        # Only a comparison with the log finds these, so nothing less thorough may find them whole again.
        verified = read_report(request.verify_report, VerifyReport)
        diverged = {row.label for row in verified.rows if row.status.is_found_by_rows and not row.live}
    approved = (
        {} if request.plan is None else {row.label: row for row in read_report(request.plan, RestorePlanReport).rows}
    )
    if request.target is not None:
        request = request.model_copy(update={"target": request.target.absolute()})
    # Its snapshots may have the same rows.
    from_log = "full" if request.mode == "snapshot" else request.mode
    forced = request.model_copy(update={"force": True, "mode": from_log})
    specs = [
        RestoreSpec(
            store,
            forced if str(store.store_partition) in diverged else request,
            run_id,
            run_bytes,
            ranges=request.ranges or 1,
            quarantine_s=quarantine_s,
            diverged=str(store.store_partition) in diverged,
            approved=None if request.plan is None else approved.get(str(store.store_partition), _nothing(store)),
        )
        for store in stores
    ]
    require_points(specs)
    return specs


def _nothing(store: StorePartitionSpec) -> RestorePlanRow:
    """Return the plan of a store partition that an approved plan does not name."""
    return RestorePlanRow(application=store.application, store=store.store.name, task=str(store.task))


def run_restore(
    specs: Sequence[RestoreSpec],
    request: RestoreRequest,
    run_id: str,
    run: Runner,
    *,
    parallelism: int,
    reports_dir: Location | None = None,
    started_ms: int,
) -> RestoreReport | RestorePlanReport:
    """Restore store partitions, or say what would be done.

    Parameters
    ----------
    run
        Does the pieces of work.
    parallelism
        How many of them at the same time.
    reports_dir
        Below it the progress is shown; None: to nobody else.
    """
    if request.ranges is None:
        specs = cut_by_length(specs, parallelism)
    applications = tuple(dict.fromkeys(spec.store.application for spec in specs))
    head: dict[str, Any] = {"run_id": run_id, "applications": applications, "started_ms": started_ms}
    if request.dry_run:
        plans = tuple(plan_many(specs, run))
        return RestorePlanReport(**head, finished_ms=clock.now_ms(), rows=plans, records_per_s=RECORDS_PER_S)
    with _progress(reports_dir, run_id) as progress, progress_exported("restore", progress):
        shown = [spec._replace(progress=progress) for spec in specs]
        rows = tuple(restore_many(shown, run, progress, parallelism))
    return RestoreReport(**head, finished_ms=clock.now_ms(), rows=rows)


@contextmanager
def _progress(reports_dir: Location | None, run_id: str) -> Iterator[Location]:
    if reports_dir is None:
        with tempfile.TemporaryDirectory(prefix="statestore-") as name:
            yield Path(name)
        return
    directory = reports_dir.absolute() / "restore" / f".progress-{run_id}"
    try:
        yield directory
    finally:
        remove_progress(directory)
