"""Making a snapshot from the log alone, or from an earlier snapshot and the rest of the log.

The application is not touched, and need not stop: the store is built in a directory of its own, published, and removed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from statestore.archive.grown_from import beginning
from statestore.durable import write_durably
from statestore.errors import SnapshotError, StateStoreError
from statestore.objects.path import Location
from statestore.partition.facts import LastKnown, LogFacts, RebuildLoss
from statestore.partition.generations import newest_generation, replaced_with
from statestore.partition.replacement import may_lack_versions
from statestore.partition.snapshots import loss_by_log, publish_live, publish_row
from statestore.partition.spec import StorePartitionSpec
from statestore.partition.verdict import LACKS_VERSIONS
from statestore.recovery.full import Logs, store_logs
from statestore.recovery.restore import restore
from statestore.recovery.rows import failed
from statestore.recovery.spec import RestoreSpec
from statestore.reports import ArchivedRow, Failure, Loss, RestoreRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.statedir.scratch import scratch_directory
from statestore.statedir.swap import locked_task
from statestore.verification.options import VerifyOptions
from statestore.verification.unlogged import examine_unlogged


class SnapshotSpec(NamedTuple):
    """Which snapshot to make from a log.

    Attributes
    ----------
    label
        Names the run.
    run_bytes
        Bound of a sorted run in memory.
    scratch
        Directory with room for the store, which is removed afterwards.
    progress
        Directory in which it says how far it is; None: nowhere.
    accept_loss
        Build it from the log alone, also where that has lost something: its snapshots begin a new generation.
    """

    store: StorePartitionSpec
    label: str
    run_bytes: int
    scratch: Path
    progress: Location | None = None
    accept_loss: bool = False


def make_snapshot(spec: SnapshotSpec) -> ArchivedRow:
    """Make a snapshot as `snapshot_from_log`, and say in the row of a report what came of it."""
    if not spec.store.store.logged:
        return snapshot_of_files(spec.store)
    started = time.monotonic()
    made = snapshot_from_log(spec)
    published = made.published
    return ArchivedRow(
        application=made.application,
        store=made.store,
        task=made.task,
        snapshot=None if published is None else published.snapshot,
        grown_from=made.snapshot,
        records=made.records,
        keys=made.keys,
        committed=made.committed,
        files=0 if published is None else published.files,
        bytes=0 if published is None else published.bytes,
        seconds=round(time.monotonic() - started, 3),
        failure=made.failure,
    )


def snapshot_of_files(store: StorePartitionSpec) -> ArchivedRow:
    """Publish the closed files of a store without a changelog; a failure of ours becomes part of the row."""
    started = time.monotonic()
    row = ArchivedRow(application=store.application, store=store.store.name, task=str(store.task))
    try:
        with locked_task(store.paths, store.lock_wait_s):
            found = examine_unlogged(store, VerifyOptions(depth="offsets"))
            if found.status is Status.EMPTY:
                return row.model_copy(update={"seconds": round(time.monotonic() - started, 3)})
            if found.status is not Status.UNLOGGED or not found.sealed:
                raise SnapshotError(
                    f"{store.store_partition} is {found.status}, and was {'' if found.sealed else 'not '}closed in "
                    f"order, so it is not published: {found.detail}. Run process for its task"
                )
            published = publish_row(store, "snapshot")
        done = {"snapshot": published.snapshot, "files": published.files, "bytes": published.bytes}
        row = row.model_copy(update={**done, "committed": found.committed, "failure": published.failure})
    except (StateStoreError, OSError) as error:
        row = row.model_copy(update={"failure": Failure.of(error)})
    return row.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def not_made(spec: SnapshotSpec, error: StateStoreError) -> ArchivedRow:
    """Return the row of a snapshot whose worker was lost."""
    store = spec.store
    failure = Failure.of(error)
    return ArchivedRow(application=store.application, store=store.store.name, task=str(store.task), failure=failure)


def snapshot_from_log(how: SnapshotSpec) -> RestoreRow:
    """Build a store partition beside all that is there, and publish it; a failure of ours becomes part of the row."""
    store, accept_loss = how.store, how.accept_loss
    request = RestoreRequest(mode="full" if accept_loss else "snapshot", accept_loss=accept_loss)
    spec = RestoreSpec(store, request, how.label, how.run_bytes, progress=how.progress, publish=False)
    try:
        if not accept_loss:
            _begin_generation(store)
        with scratch_directory(how.scratch) as directory:
            # What is judged is what lies there.
            there = store.with_shared_disk.model_copy(update={"state_dir": directory / "state"})
            spec = spec._replace(store=there)
            built = restore(spec)
            if built.failure is not None:
                return built
            lost = incomplete_log(store, store_logs(store)) if accept_loss and built.mode == "full" else None
            if lost is not None:
                begins = beginning(f"an accepted loss: {lost.why}", newest_generation(store))
                write_durably(there.paths.snapshot(store.store.name), begins)
            published = publish_row(there, "snapshot")
            return built.model_copy(update={"published": published, "failure": published.failure})
    except (StateStoreError, OSError) as error:
        return failed(spec, error)


def _begin_generation(store: StorePartitionSpec) -> None:
    """Publish the live store if it was replaced with what no snapshot has yet: its log gives what was there before.

    Raises
    ------
    LockedError
        If its application runs.
    SnapshotError
        If its application has run since.
    """
    if not store.home.disks_are_shared or (why := replaced_with(store)) is None:
        return
    with locked_task(store.paths, store.lock_wait_s):
        published = publish_live(store, "restore")
    if published is None:
        raise SnapshotError(
            f"{store.store_partition} was put in place by {why}. It has no snapshot and was opened since, so it is "
            f"not published. To create a snapshot of what its log gives, add --accept-loss"
        )


def incomplete_log(store: StorePartitionSpec, logs: Logs) -> RebuildLoss | None:
    """Say what a log has lost which its store may have had, so that its fold lacks it; None: nothing."""
    log = logs[store.partition]
    lost = loss_by_log(store, LastKnown(anything=True), LogFacts(store.changelog, log))
    if lost.loss is not Loss.LIKELY and may_lack_versions(store, log.last_stable - 1, log):
        return RebuildLoss(Loss.UNPROVEN, LACKS_VERSIONS)
    return lost if lost.loss is Loss.LIKELY else None
