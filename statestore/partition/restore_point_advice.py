"""The next step for a store partition, once its snapshots are known."""

from __future__ import annotations

from statestore.advice import Situation, advice
from statestore.partition.advice import target_of
from statestore.partition.archived import known_of
from statestore.partition.facts import Needs
from statestore.partition.home import Copy
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Advice, RestorePoint
from statestore.statedir.record import StoreRecord, read_record

#: Situations in which a snapshot can be the last copy.
_LAST_COPY = {
    Copy.DISK: (Situation.STORE_AND_LOG_GONE,),
    Copy.SNAPSHOT: (Situation.STORE_AND_LOG_GONE, Situation.RECREATED_NO_RESEED),
}
#: Situations in which snapshots decide.
DECIDED_BY_SNAPSHOTS = (Situation.LOG_LOST_START_ARCHIVE, Situation.UNLOGGED_LOST, *_LAST_COPY[Copy.SNAPSHOT])


def with_restore_point(spec: StorePartitionSpec, step: Advice, point: RestorePoint) -> Advice:
    """Return the next step, given the newest snapshot of the store partition."""
    target = target_of(spec)._replace(snapshot=point.snapshot or "")
    if step.situation == Situation.LOG_LOST_START_ARCHIVE:
        found = Situation.SNAPSHOT_HAS_ALL if _covers(spec, point) else Situation.LOG_LOST_START
        return advice(found, target)
    if step.situation == Situation.UNLOGGED_LOST:
        return advice(Situation.UNLOGGED_LOST_ALONE, target) if point.snapshot is None else step
    if point.snapshot is None or step.situation not in _LAST_COPY[spec.home.copy]:
        return step
    return advice(Situation.ONLY_SNAPSHOT, target)


def _covers(spec: StorePartitionSpec, point: RestorePoint) -> bool:
    """Return whether a snapshot can be used, and has what the changelog has lost at its start."""
    if not point.usable:
        return False
    record = _RECORD[spec.home.copy](spec)
    if (record is None or record.is_begun) and (known := known_of(spec)) is not None:
        record = known.record
    return Needs.of(record).met_by(point)


def _on_disk(spec: StorePartitionSpec) -> StoreRecord | None:
    return read_record(spec.paths, spec.store.name)


def _of_newest(spec: StorePartitionSpec) -> StoreRecord | None:
    return None


#: Record that shows what the store had; None: that of its newest snapshot.
_RECORD = {Copy.DISK: _on_disk, Copy.SNAPSHOT: _of_newest}
