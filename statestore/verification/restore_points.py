"""The last restore point of each store partition, which verification adds if there is an archive."""

from __future__ import annotations

from collections.abc import Sequence

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
        return row.model_copy(update={"status": Status.MISSING, "action": Action.FULL, "detail": detail})
    if not row.waits_for_loss or point.snapshot is None:
        return row
    record = None if spec.home.in_archive else read_record(spec.paths, spec.store.name)
    if (record is None or record.is_begun) and (known := known_of(spec)) is not None:
        record = known.record
    needs = Needs.of(record)
    if point.usable and row.loss_cause is Status.TRUNCATED and needs.met_by(point) and not row.status.is_found_by_rows:
        detail = f"{row.detail}; snapshot {point.snapshot} has what the changelog has lost"
        return row.model_copy(update={"action": Action.FULL, "detail": detail})
    detail = (
        f"{row.detail}. Manually: mode full and --accept-loss keep what the changelog still has; snapshot "
        f"{point.snapshot} has the store up to offset {point.committed}"
    )
    return row.model_copy(update={"detail": f"{detail} ({point.detail})" if point.detail else detail})
