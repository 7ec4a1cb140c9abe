"""The drill of one store partition: restored into scratch space as onto an empty disk, proven against its log, removed.

The live store is neither read nor changed: the restore sees an empty state directory, the changelog, and the archive.
The next drill on this machine removes files that a killed drill left in scratch space.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

from statestore import clock, kill_switch
from statestore.archive.manifest import to_bytes
from statestore.archive.snapshots import read_snapshot
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.objectives import RestoreObjectives
from statestore.drills.row_digest import rows_sha256
from statestore.drills.scratch import bytes_to_keep_free, require_apart
from statestore.drills.standing import missed_objective
from statestore.drills.suite import suite_problem, suite_result
from statestore.errors import DiskSpaceError, RetryError, StateStoreError, of_os_error
from statestore.objects.path import Location
from statestore.partition.home import Filling
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.planning import plan_restore
from statestore.recovery.restore import restore
from statestore.recovery.snapshot import find_snapshot
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Contents, DrillRow, DrillVerdict, Failure, RestoreRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.statedir.scratch import scratch_directory
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions

#: From what a drill restores: as a restore would choose, or only a snapshot, or only the log.
DrillMode = Literal["auto", "snapshot", "full"]
#: Mode `auto` leaves a missing global table to its application.
_MODE: dict[Filling, DrillMode] = {Filling.TOPIC: "full"}
_PHASES = {"fetch_seconds": "fetching", "replay_seconds": "reading", "build_seconds": "building"}


class DrillSpec(NamedTuple):
    """The drill of one store partition.

    Attributes
    ----------
    store
        The live store partition; its directory is not opened.
    scratch
        Directory to build in.
    reserve
        Bytes that stay free if scratch space is on the disk of the live stores; None: the default.
    progress
        Directory in which the restore says how far it is; None: nowhere.
    definition
        Definition of the application, which names the suites of its stores; None: not defined.
    """

    store: StorePartitionSpec
    objectives: RestoreObjectives
    label: str
    run_bytes: int
    scratch: Path
    mode: DrillMode = "auto"
    reserve: int | None = None
    progress: Location | None = None
    definition: ApplicationDefinition | None = None


def drill(spec: DrillSpec) -> DrillRow:
    """Drill one store partition; a failure of ours becomes part of the row."""
    row = _row_of(spec)
    try:
        if spec.store.changelog is None:
            why = "it has no changelog that its rows could be compared with"
            return _ended(row, "unproven" if not spec.store.store.logged else "failed", why)
        require_apart(spec.scratch, spec.store.state_dir)
        keep_free = bytes_to_keep_free(spec.scratch, spec.store.state_dir, spec.reserve)
        with scratch_directory(spec.scratch) as directory:
            row = _drilled(spec, row, emptied(spec.store, directory / "state"), keep_free)
            row = _with_suite(spec, row, emptied(spec.store, directory / "state"), keep_free)
            kill_switch.reached("drill, proven, not removed")
    except (StateStoreError, OSError) as error:
        row = failed_drill(row, error)
    return row


def not_drilled(spec: DrillSpec, error: StateStoreError) -> DrillRow:
    """Return the row of a drill whose worker was lost."""
    return failed_drill(_row_of(spec), error)


def failed_drill(row: DrillRow, error: StateStoreError | OSError) -> DrillRow:
    """Return a row with the reason why its drill was not completed."""
    cause = of_os_error(error) if isinstance(error, OSError) else error
    row = row.model_copy(update={"failure": Failure.of(cause)})
    return _ended(row, "not done" if isinstance(cause, RetryError) else "failed", str(cause))


def emptied(store: StorePartitionSpec, state_dir: Path) -> StorePartitionSpec:
    """Return a store partition as a machine with an empty disk sees it."""
    seen: dict[str, Any] = {"segments_seen": (), "progress_seen": (), "committed_seen": None, "restored_by_seen": None}
    return store.with_shared_disk.model_copy(update={"state_dir": state_dir, **seen})


def restore_spec(spec: DrillSpec, there: StorePartitionSpec, keep_free: int = 0) -> RestoreSpec:
    """Return the restore that a drill tries: it publishes nothing, and accepts no loss."""
    return RestoreSpec(
        there,
        RestoreRequest(mode=_MODE.get(there.origin.filling, spec.mode)),
        spec.label,
        spec.run_bytes,
        progress=spec.progress,
        publish=False,
        keep_free=keep_free,
    )


def _row_of(spec: DrillSpec) -> DrillRow:
    store, within = spec.store, spec.objectives.restorable_within
    return DrillRow(
        application=store.application,
        store=store.store.name,
        task=str(store.task),
        standing="never proven",
        drilled=True,
        within_seconds=None if within is None else within / 1000,
    )


def _ended(row: DrillRow, verdict: DrillVerdict, detail: str = "") -> DrillRow:
    return row.model_copy(update={"verdict": verdict, "detail": detail, "drilled_ms": clock.now_ms()})


def _drilled(spec: DrillSpec, row: DrillRow, there: StorePartitionSpec, keep_free: int) -> DrillRow:
    asked = restore_spec(spec, there, keep_free)
    planned = plan_restore(asked)
    if planned.failure is None and planned.disk_needed > planned.disk_free - keep_free:
        raise DiskSpaceError(
            f"the drill of {there.store_partition} needs about {planned.disk_needed} bytes in {spec.scratch}, "
            f"{planned.disk_free} are free, and {keep_free} must stay free for the live stores. Name another disk with "
            "STATESTORE_DRILL_DIR"
        )
    restored = restore(asked)
    row = row.model_copy(update=_of_restore(there, restored, planned.fetched + planned.log_bytes))
    if restored.failure is not None:
        verdict: DrillVerdict = "not done" if restored.failure.retriable else "failed"
        return _ended(row.model_copy(update={"failure": restored.failure}), verdict, restored.failure.message)
    kill_switch.reached("drill, restored, not proven")
    row = row.model_copy(update=_of_snapshot(there, restored))
    started = time.monotonic()
    options = VerifyOptions(depth="deep", run_bytes=spec.run_bytes)
    verified = verify(there, options)
    if verified.contents is not None:
        row = row.model_copy(update=_of_contents(verified.contents))
    row = row.model_copy(update={"rows_sha256": rows_sha256(there)})
    row = row.model_copy(update={"proof_seconds": round(time.monotonic() - started, 3)})
    return _ended(row, *_judged(spec, row, restored, verified.status, verified.detail, verified.contents))


def _with_suite(spec: DrillSpec, row: DrillRow, there: StorePartitionSpec, keep_free: int) -> DrillRow:
    """Run the suite if an objective asks for it; a store that failed the drill is not looked at again."""
    if not spec.objectives.suites or row.verdict in ("failed", "not done"):
        return row
    row = row.model_copy(update=suite_result(spec.definition, there, there.state_dir.parent, keep_free))
    problem = suite_problem(row)
    # Rows that break a rule are more urgent than rows that were not compared.
    if problem is None or (problem[0] == "unproven" and row.verdict == "unproven"):
        return row
    return _ended(row, *problem)


def _of_restore(there: StorePartitionSpec, restored: RestoreRow, bytes_: int) -> dict[str, Any]:
    phases = dict(restored.phase_seconds)
    named = {field: phases.pop(phase, 0.0) for field, phase in _PHASES.items()}
    return {
        **named,
        # Looking at the empty disk, the plan, the check of the new store, and the swap.
        "check_seconds": round(sum(phases.values()), 3),
        "seconds": restored.seconds,
        "source": restored.mode,
        "snapshot": restored.snapshot,
        "topic": there.changelog and there.changelog.topic,
        "topic_id": there.changelog and there.changelog.topic_id,
        "start": restored.start,
        "end": restored.end,
        "committed": restored.committed,
        "records": restored.records,
        "bytes": bytes_,
    }


def _of_snapshot(there: StorePartitionSpec, restored: RestoreRow) -> dict[str, Any]:
    if restored.snapshot is None:
        return {}
    found = find_snapshot(there, restored.snapshot)
    return {
        # Less than 0 if the clocks differ: its age is then unknown, and it must not look new.
        "snapshot_age_seconds": round((clock.now_ms() - found.listed.written_ms) / 1000, 3),
        "snapshot_sha256": hashlib.sha256(to_bytes(read_snapshot(found.objects, found.listed))).hexdigest(),
    }


def _of_contents(found: Contents) -> dict[str, Any]:
    proven = found.offsets or tuple((first, last) for _, first, last in found.partition_offsets)
    return {
        "rows": found.store_rows,
        "log_rows": found.log_rows,
        "offsets": proven,
        "store_digest": found.store_digest,
        "log_digest": found.log_digest,
    }


def _judged(
    spec: DrillSpec,
    row: DrillRow,
    restored: RestoreRow,
    status: Status,
    detail: str,
    contents: Contents | None,
) -> tuple[DrillVerdict, str]:
    """Return the verdict of a drill, and its reason: nothing that was not compared in full is proven."""
    if restored.failed_sources:
        return "failed", f"a restore has to do without {'; '.join(restored.failed_sources)}"
    if spec.mode != "auto" and restored.mode != spec.mode:
        return "failed", f"no {'snapshot' if spec.mode == 'snapshot' else 'log'} could be used: mode {restored.mode}"
    if status not in (Status.OK, Status.LAGGING, Status.EMPTY) or (contents is not None and contents.differing):
        return "failed", f"the restored store is {status}: {detail}"
    if (why := _not_compared(row, restored, contents)) is not None:
        return "unproven", f"restored, but not proven: {why}"
    return missed_objective(row, spec.objectives) or ("proven", "")


def _not_compared(row: DrillRow, restored: RestoreRow, contents: Contents | None) -> str | None:
    """Return what was not compared; None if the rows prove the offset."""
    if contents is None:
        return "its rows were not compared"
    if contents.store_rows == 0:
        return "it has no rows, so nothing was compared"
    if contents.not_judged:
        return f"{contents.not_judged} rows could not be judged, because the changelog no longer has their records"
    if contents.not_proven:
        return contents.not_proven
    if contents.brokers_timestamps:
        return "the changelog has the brokers' timestamps, so those of the rows were not compared"
    if contents.sample is not None or not row.offsets:
        return "its rows prove no offset"
    if row.committed is None:
        return "it has no committed offset"
    if not contents.partition_offsets and not any(first <= row.committed <= last for first, last in row.offsets):
        return f"its rows prove other offsets than {row.committed}"
    if restored.exact is False:
        return "compaction has removed versions that it may have had"
    return None
