"""The dry run of a restore: the plan of each store partition, and its cost. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Callable

from statestore.archive.manifest import Manifest
from statestore.errors import DiskSpaceError, StateStoreError, TopicMismatchError
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.as_of import point_and_target, require_free_target
from statestore.recovery.as_of_source import point_source
from statestore.recovery.deciding import decide, examine_store
from statestore.recovery.disk_space import estimated_bytes, free_bytes
from statestore.recovery.full import Logs
from statestore.recovery.sources import all_sources, source_of
from statestore.recovery.sources.source import BuildSource
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.tail import tail_logs
from statestore.reports import Failure, RestorePlanRow
from statestore.statedir.swap import locked_task
from statestore.verification.options import VerifyOptions

#: Rate of one Spark task that durations are estimated with; `make bench-restore` measures the machine's own.
RECORDS_PER_S = 500_000
#: Below so many offsets a range of its own does not pay for its Spark task.
_LEAST_RANGE_OFFSETS = 500_000
#: Where nodes exchange files, all of them together do two to three times the work of one task: fewer take longer.
_LEAST_RANGES_APART = 4


def require_partitions(store: StorePartitionSpec, tasks: int) -> None:
    """Refuse a changelog with another number of partitions than its application has tasks (conformance R10).

    Raises
    ------
    TopicMismatchError
        Saying what to do.
    """
    found = store.changelog.partitions if store.changelog else None
    if found is not None and found != tasks and store.origin.has_partition_of_task:
        raise TopicMismatchError(
            f"changelog topic {store.partition.topic} has {found} partitions, application {store.application} has "
            f"{tasks} tasks: keys are not in the partitions of their tasks, so no store can be restored from it; "
            f"recreate the topics with their former number of partitions, or process the input again with a new "
            f"application name"
        )


def range_count(offsets: int, tasks: int, parallelism: int, *, apart: bool = False) -> int:
    """Into how many ranges a log is cut so that all Spark tasks have work. Pure.

    Parameters
    ----------
    offsets
        Of the log.
    tasks
        How many are restored at the same time: the stores of each come one after the other.
    parallelism
        Spark tasks that run at the same time.
    apart
        They do not see each other's disks.
    """
    count = min(parallelism // max(tasks, 1), offsets // _LEAST_RANGE_OFFSETS)
    return 1 if count < (_LEAST_RANGES_APART if apart else 1) else count


def plan_restore(
    spec: RestoreSpec, planned: Callable[[RestoreSpec, RestorePlanRow], RestorePlanRow] | None = None
) -> RestorePlanRow:
    """Return what `restore` would do with a store partition; why it would refuse becomes part of the row.

    Parameters
    ----------
    planned
        Plans it in another way; None: by its changelog.
    """
    store = spec.store
    row = RestorePlanRow(application=store.application, store=store.store.name, task=str(store.task))
    try:
        usual = _as_of_plan if spec.request.mode == "as-of" else _planned
        return (planned or usual)(spec, row)
    except (StateStoreError, OSError) as error:
        return row.model_copy(update={"failure": Failure.of(error)})


def _as_of_plan(spec: RestoreSpec, row: RestorePlanRow) -> RestorePlanRow:
    as_of, target = point_and_target(spec)
    logs, snapshot, _ = point_source(spec)
    require_free_target(target, spec.store.state_dir, as_of)
    row = row.model_copy(update={"mode": "as-of", "reason": f"as of {spec.request.as_of}"})
    return _with_cost(spec, row, source_of("log"), logs, snapshot)


def _planned(spec: RestoreSpec, row: RestorePlanRow) -> RestorePlanRow:
    store = spec.store
    cluster = store.cluster
    with locked_task(store.paths, store.lock_wait_s, reading=True):
        facts, verdict = examine_store(spec, VerifyOptions(), cluster)
        row = row.model_copy(update={"status": verdict.status})
        facts, made = decide(spec, facts, verdict, cluster)
    row = row.model_copy(update={"reason": made.reason})
    if made.source is None:
        return row
    logs = facts.asked_log.all_logs
    if made.mode != "full":
        logs = tail_logs(logs, made.after)
    source = next((one for one in all_sources() if one.prepares(spec) and made.source == "log"), source_of(made.source))
    snapshot = facts.known_archive.manifest(made.snapshot)
    consequences = {
        "mode": made.mode,
        "loss": made.replaced_loss,
        "loss_detail": made.replaced_why,
        "begins": made.begins,
        "suspects": made.suspects,
        "publishes": made.publishes,
    }
    return _with_cost(spec, row.model_copy(update=consequences), source, logs, snapshot)


def _with_cost(
    spec: RestoreSpec,
    row: RestorePlanRow,
    source: BuildSource,
    logs: Logs,
    snapshot: Manifest | None,
) -> RestorePlanRow:
    """Add to a plan what it reads, and the disk space that it needs."""
    store, mode = spec.store, row.mode
    start = min(log.start for log in logs.values())
    offsets = sum(log.last_stable - log.start for log in logs.values())
    size, free = estimated_bytes(store, logs), free_bytes(spec.request.target or store.state_dir)
    needed, each = source.disk(spec, size, offsets)
    fetched = 0 if snapshot is None else snapshot.bytes
    needed += fetched
    short = f"needs about {needed} bytes, {free} are free"
    return row.model_copy(
        update={
            "start": start,
            "end": start + offsets,
            "resumable": source.resumable(spec, logs) if mode == "full" else 0,
            "ranges": spec.ranges if mode == "full" else 1,
            "log_bytes": size,
            "snapshot": snapshot and str(snapshot.name),
            "fetched": fetched,
            "disk_needed": needed,
            "disk_each": each,
            "disk_free": free,
            "seconds": round(offsets / RECORDS_PER_S, 1),
            "failure": Failure(kind=DiskSpaceError.__name__, message=short) if free < needed else None,
        }
    )
