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
    row = row.model_copy(update={"restore_point": point})
    if row.status is Status.EMPTY and row.start and point.usable and point.committed is not None:
        detail = f"all of its changelog was deleted, and snapshot {point.snapshot} has the store"
        step = advice(Situation.SNAPSHOT_HAS_ALL, target_of(spec))
        return row.model_copy(
            update={"status": Status.MISSING, "action": Action.FULL, "detail": detail, "advice": step}
        )
    if point.snapshot is None or row.action is not Action.BY_HAND or row.advice is None:
        return row
    target = target_of(spec)._replace(snapshot=point.snapshot)
    gone = row.advice.situation == Situation.STORE_AND_LOG_GONE
    if row.loss_cause is Status.REPLACED and (gone or (spec.home.in_archive and spec.changelog is not None)):
        step = advice(Situation.ONLY_SNAPSHOT, target)
        return row.model_copy(update={"advice": step, "detail": _with_snapshot(row, point)})
    if not row.waits_for_loss:
        return row
    record = None if spec.home.in_archive else read_record(spec.paths, spec.store.name)
    if (record is None or record.is_begun) and (known := known_of(spec)) is not None:
        record = known.record
    needs = Needs.of(record)
    if point.usable and row.loss_cause is Status.TRUNCATED and needs.met_by(point) and not row.status.is_found_by_rows:
        detail = f"{row.detail}; snapshot {point.snapshot} has what the changelog has lost"
        step = advice(Situation.SNAPSHOT_HAS_ALL, target)
        return row.model_copy(update={"action": Action.FULL, "detail": detail, "advice": step})
    step = row.advice
    if step.situation == Situation.LOG_LOST_START_ARCHIVE:
        step = advice(Situation.LOG_LOST_START, target)
    return row.model_copy(update={"advice": step, "detail": _with_snapshot(row, point)})


def _with_snapshot(row: VerifyRow, point: RestorePoint) -> str:
    said = f"{row.detail}; snapshot {point.snapshot} has the store up to offset {point.committed}"
    return f"{said} ({point.detail})" if point.detail else said
