"""Lower bounds of a store's position, which its rows alone cannot show: an earlier state is a prefix of the log, too.

Bounds are the committed offset, the seal (`statedir/seal.py`), and the last verification. Within one database, the last
sequence number and the number of the next file never fall. If they have fallen since the last verification, an older
copy of the files was put back.
"""

from __future__ import annotations

from collections.abc import Mapping

from statestore.partition.facts import DiskFacts, Trouble
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status, VerifyRow
from statestore.statedir.record import StoreRecord, restored_by
from statestore.stores.manifest import progress_of
from statestore.verification.proof.prefix import Range


def older_databases(spec: StorePartitionSpec) -> list[str]:
    """Describe each database that is in an earlier state than at the last verification."""
    seen = dict(spec.progress_seen)
    here = progress_of(spec.live, segmented=spec.store.segmented) if seen and spec.live.is_dir() else {}
    return [
        f"{spec.live / name if name else spec.live} has sequence number {here[name].sequence} and next file "
        f"{here[name].next_file}, and had {before.sequence} and {before.next_file} when it was last verified"
        for name, before in seen.items()
        if name in here and here[name].is_before(before)
    ]


def with_lower_bounds(spec: StorePartitionSpec, seen: DiskFacts) -> DiskFacts:
    """Refuse a store whose files are from before its committed offset: its rows may be those of an earlier offset.

    If its committed offset is older, too, the store lags as a whole, which a replay corrects (`noted`).
    """
    if not seen.present or seen.trouble is not None:
        return seen
    if not (older := older_databases(spec)) or not bounds_apply(spec, seen.record, seen.committed):
        return seen
    detail = f"an older copy of its files was put back: {'; '.join(older)}; restore the store from its changelog"
    return seen._replace(trouble=Trouble(Status.CORRUPT, detail))


def is_another_store(spec: StorePartitionSpec, record: StoreRecord | None) -> bool:
    """Return whether a restore has put another store in place since the last verification."""
    return restored_by(record) != spec.restored_by_seen


def bounds_apply(spec: StorePartitionSpec, record: StoreRecord | None, committed: int | None) -> bool:
    """Return whether the numbers of the last verification are bounds of the store that is here now.

    They are not if a restore has put another store in place since, or if its committed offset is older, too.
    """
    if is_another_store(spec, record):
        return False
    return committed is None or spec.committed_seen is None or committed >= spec.committed_seen


def below_last_verification(
    spec: StorePartitionSpec, ranges: Mapping[int, tuple[Range, ...]], record: StoreRecord | None, end: int
) -> str:
    """Return which database has rows of an earlier offset than at the last verification; empty if none has.

    A verified store was closed, so all of its rows were in its files.

    Parameters
    ----------
    ranges
        By start (ms) of a segment: the offsets that its database equals.
    end
        End of the log. A log that ends before the offset of the last verification is another one.
    """
    seen, offset, changelog = dict(spec.progress_seen), spec.committed_seen, spec.changelog
    if not seen or offset is None or offset >= end:
        return ""
    if record is not None and changelog is not None and record.topic_id != changelog.topic_id:
        return ""
    here = progress_of(spec.live, segmented=spec.store.segmented)
    for start, directory in spec.store.store_kind.segments(spec.live).items():
        name = directory.name if spec.store.segmented else ""
        same = name in here and name in seen and here[name].identity == seen[name].identity != ""
        if same and (found := ranges.get(start)) and found[-1].last < offset:
            return (
                f"the rows in {directory} are those of offset {found[-1].last}, and it had offset {offset} when it was "
                "last verified"
            )
    return ""


def noted(spec: StorePartitionSpec, found: VerifyRow) -> VerifyRow:
    """Add to the row of a store that lags that it had a later offset at the last verification."""
    if found.status is not Status.LAGGING or spec.committed_seen is None:
        return found
    if found.committed is None or found.committed >= spec.committed_seen:
        return found
    offset = spec.committed_seen
    detail = f"it had offset {offset} when it was last verified: an older copy was put back, or it was rebuilt"
    return found.model_copy(update={"detail": "; ".join(filter(None, [found.detail, detail]))})
