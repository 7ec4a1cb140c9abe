"""The last restore point of each store partition, which verification adds if there is an archive."""

from __future__ import annotations

from collections.abc import Sequence

from statestore.advice import Situation, advice
from statestore.partition.advice import target_of
from statestore.partition.restore_point_advice import with_restore_point
from statestore.partition.restore_points import restore_points
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Action, RestorePoint, Status, VerifyRow
from statestore.requests.verify import Depth


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
    row = row.model_copy(update={"restore_point": point})
    if row.live:  # a running application is not restored
        return row
    if row.status is Status.EMPTY and row.start and point.usable and point.committed is not None:
        detail = f"all of its changelog was deleted, and snapshot {point.snapshot} has the store"
        step = advice(Situation.SNAPSHOT_HAS_ALL, target_of(spec))
        return row.model_copy(
            update={"status": Status.MISSING, "action": Action.FULL, "detail": detail, "advice": step}
        )
    if row.action is not Action.BY_HAND or row.advice is None:
        return row
    step = with_restore_point(spec, row.advice, point)
    row = row.model_copy(update={"advice": step})
    if step.situation == Situation.SNAPSHOT_HAS_ALL:
        detail = f"{row.detail}; snapshot {point.snapshot} has what the changelog has lost"
        return row.model_copy(update={"action": Action.FULL, "detail": detail})
    if point.snapshot is None or not (row.waits_for_loss or step.situation == Situation.ONLY_SNAPSHOT):
        return row
    return row.model_copy(update={"detail": _with_snapshot(row, point)})


def _with_snapshot(row: VerifyRow, point: RestorePoint) -> str:
    said = f"{row.detail}; snapshot {point.snapshot} has the store up to offset {point.committed}"
    return f"{said} ({point.detail})" if point.detail else said
