"""The standing of a store relative to its changelog, from offsets alone. Pure: no Kafka, no RocksDB.

Processing, verification and restore decide with the same function.
"""

from __future__ import annotations

from typing import NamedTuple

from statestore.kafka.topics import LogRange
from statestore.reports import Status


class Standing(NamedTuple):
    """The standing of a store by its offsets.

    Attributes
    ----------
    status
        `Status.LAGGING` means only that records may be left to read.
    detail
        The evidence.
    catches_up
        A lagging store becomes complete if the rest of its log is replayed. If not, deletes may be missing from it.
    """

    status: Status
    detail: str
    catches_up: bool = False


def standing(
    committed: int | None,
    log: LogRange,
    *,
    empty: bool,
    topic_id: str,
    recorded_topic_id: str | None,
    caught_up_ms: int | None,
    delete_retention_ms: int,
    now_ms: int,
    compacted: bool = True,
    seen_end: int | None = None,
    may_be_rebuilt: bool = True,
) -> Standing:
    """Judge a store by its committed offset.

    Parameters
    ----------
    committed
        Offset of the last changelog record in the store; None if unknown.
    log
        The changelog partition's offsets.
    empty
        The store has no rows.
    topic_id, recorded_topic_id
        The changelog's id now, and the one that the store's offset belongs to (None if not recorded).
    caught_up_ms
        When the store on disk last had all of its changelog; None if not recorded.
    delete_retention_ms
        For how long the changelog keeps tombstones after they could be compacted away.
    compacted
        Whether the changelog is compacted at all. If not, no tombstone behind the committed offset can be missing.
    seen_end
        Offset before which the store has seen all, where that is known to be more than the committed offset: behind its
        last record there are the markers of transactions.
    may_be_rebuilt
        Whether compaction leaves what the store has. If not, its tail is replayed, although deletes may be gone.

    Returns
    -------
    Standing
        OK if the log has nothing beyond the committed offset; LAGGING if it may have.

    Notes
    -----
    AHEAD is measured against the high watermark: the last stable offset of an open transaction lies before records
    that an at-least-once store may rightly have (conformance R7).
    """
    if recorded_topic_id is not None and recorded_topic_id != topic_id:
        return Standing(
            Status.REPLACED,
            f"the changelog has topic id {topic_id}, the store belongs to {recorded_topic_id}: the topic was recreated",
        )
    if committed is None:
        if log.start >= log.last_stable and empty:
            return Standing(Status.OK, "nothing logged yet")
        if empty:
            return Standing(Status.LAGGING, "nothing of the changelog is in the store yet", catches_up=True)
        return Standing(Status.LAGGING, "the store has rows, but how far it is was never committed")
    unseen = next_offset(committed, seen_end)
    if unseen > log.high_watermark:
        seen = f"committed offset {committed}" if unseen == committed + 1 else f"the last offset seen, {unseen - 1},"
        return Standing(Status.AHEAD, f"{seen} is at or beyond the log's end {log.high_watermark}")
    if unseen < log.start:
        return Standing(
            Status.TRUNCATED,
            f"offsets {unseen} to {log.start - 1} are gone from the log: what they held may be lost",
        )
    if unseen >= log.last_stable:
        return Standing(Status.OK, "")
    to_read = f"offsets {unseen} to {log.last_stable - 1} are to be read"
    if compacted and (caught_up_ms is None or now_ms - caught_up_ms >= delete_retention_ms):
        since = "never" if caught_up_ms is None else f"{(now_ms - caught_up_ms) // 1000} s ago"
        old = f"the store was last known intact {since}, tombstones are kept for {delete_retention_ms // 1000} s"
        if not may_be_rebuilt:
            detail = f"{to_read}; {old}: keys whose deletes are gone from the log stay in the store"
            return Standing(Status.LAGGING, detail, catches_up=True)
        return Standing(
            Status.LAGGING,
            f"{old}: deletes may be gone from the log, so replaying its tail could bring deleted keys back",
        )
    return Standing(Status.LAGGING, to_read, catches_up=True)


def next_offset(committed: int, seen_end: int | None) -> int:
    """Return the first offset that a store may not have seen."""
    return max(committed + 1, seen_end or 0)
