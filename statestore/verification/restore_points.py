"""The last restore point of each store partition, which verification adds if there is an archive."""

from __future__ import annotations

from collections.abc import Sequence

from statestore.advice import Situation, advice
from statestore.partition.advice import target_of
from statestore.partition.archived import known_of
from statestore.partition.facts import Needs
from statestore.partition.restore_points import restore_points
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, RestorePoint, Status, VerifyRow
from statestore.requests.verify import Depth
from statestore.statedir.record import read_record


def with_restore_points(
    specs: Sequence[StorePartitionSpec], rows: Sequence[VerifyRow], depth: Depth
) -> list[VerifyRow]:
    """Add to each row the snapshot that a restore would begin with, and what follows from it.

    Parameters
    ----------
    depth
        `offsets` judges snapshots by their manifests alone; otherwise the archive is asked for their files, too.
    """
    points = restore_points(specs, look_at_files=depth != "offsets")
    return [_with_point(spec, row, point) for spec, row, point in zip(specs, rows, points, strict=True)]


def _with_point(spec: StorePartitionSpec, row: VerifyRow, point: RestorePoint | None) -> VerifyRow:
    if point is None:
        return row
    row, target = (
        row.model_copy(update={"restore_point": point}),
        target_of(spec)._replace(snapshot=point.snapshot or ""),
    )
    if row.status is Status.EMPTY and row.start and point.usable and point.committed is not None:
        detail = f"all of its changelog was deleted, and snapshot {point.snapshot} has the store"
        step = advice(Situation.SNAPSHOT_HAS_ALL, target)
        return row.model_copy(
            update={"status": Status.MISSING, "action": Action.FULL, "detail": detail, "advice": step}
        )
    if point.snapshot is None or row.action is not Action.BY_HAND or row.advice is None:
        return row
    if _is_in_snapshots_alone(spec, row):
        step = advice(Situation.ONLY_SNAPSHOT, target)
        return row.model_copy(update={"advice": step, "detail": _with_snapshot(row, point)})
    if not row.waits_for_loss:
        return row
    if _is_covered(spec, row, point):
        detail = f"{row.detail}; snapshot {point.snapshot} has what the changelog has lost"
        step = advice(Situation.SNAPSHOT_HAS_ALL, target)
        return row.model_copy(update={"action": Action.FULL, "detail": detail, "advice": step})
    step = row.advice
    if step.situation == Situation.LOG_LOST_START_ARCHIVE:
        step = advice(Situation.LOG_LOST_START, target)
    return row.model_copy(update={"advice": step, "detail": _with_snapshot(row, point)})


def _is_in_snapshots_alone(spec: StorePartitionSpec, row: VerifyRow) -> bool:
    """Return whether the changelog was recreated, and no disk has the store of the former one."""
    if row.loss_cause is not Status.REPLACED or row.advice is None or spec.changelog is None:
        return False
    return spec.home.in_archive or row.advice.situation == Situation.STORE_AND_LOG_GONE


def _is_covered(spec: StorePartitionSpec, row: VerifyRow, point: RestorePoint) -> bool:
    """Return whether a snapshot has what the changelog has lost at its start."""
    if not point.usable or row.loss_cause is not Status.TRUNCATED or row.status.is_found_by_rows:
        return False
    record = None if spec.home.in_archive else read_record(spec.paths, spec.store.name)
    if (record is None or record.is_begun) and (known := known_of(spec)) is not None:
        record = known.record
    return Needs.of(record).met_by(point)


def _with_snapshot(row: VerifyRow, point: RestorePoint) -> str:
    said = f"{row.detail}; snapshot {point.snapshot} has the store up to offset {point.committed}"
    return f"{said} ({point.detail})" if point.detail else said
