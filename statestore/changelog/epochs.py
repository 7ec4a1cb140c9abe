"""Detects a truncated log by its leader epochs, which its offsets do not reveal (KIP-320).

A log that was cut, by an unclean leader election or on a broker's disk, grows again, soon beyond what was seen of it.
Leaders write in epochs: each has a larger number than all before, and no two write in the same one. So the records
before an offset are those that were seen if the last of them still is of its epoch. Where a log was seen to end is kept
with that epoch (`last_epochs`); later its leader is asked where the epoch ended (`compare_ends`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from statestore.kafka.cluster import Cluster
from statestore.kafka.epoch_ends import EpochEnd, ask_epoch_ends
from statestore.kafka.topics import LogRange, LogStart
from statestore.kafka.validating_consumer import refused_positions
from statestore.model import TopicPartition


class LogEnd(NamedTuple):
    """Up to where a log was seen.

    Attributes
    ----------
    offset
        Exclusive.
    epoch
        Leader epoch of the last record before it, or of a leader that had nothing to write yet.
    """

    offset: int
    epoch: int


class Continuity(Enum):
    """State of the part of a log that was seen."""

    #: It is still there, but for what compaction and deletion take.
    INTACT = "intact"
    #: Some of it is gone from the end, and other records may have taken its offsets.
    CUT = "cut"
    #: Neither is certain.
    UNKNOWN = "unknown"


class LogComparison(NamedTuple):
    """A log now, against where it was seen to end.

    Attributes
    ----------
    departs_by
        Of a log that was cut: it departs from what was seen at this offset or before. None if that cannot be told.
    detail
        What was found, for reports; empty if it is intact.
    """

    continuity: Continuity
    departs_by: int | None = None
    detail: str = ""


def last_epochs(cluster: Cluster, ends: Mapping[TopicPartition, LogEnd]) -> dict[TopicPartition, LogEnd]:
    """Return ends of logs with the epochs of the last records before them.

    Brokers name an end with the epoch of the leader that answers, which may have written nothing yet. If it never
    does, its epoch leaves no trace in the log, and the comparison would be UNKNOWN after the next election. Clusters
    that only librdkafka can speak to (see `can_fetch`) are not asked: ends are returned as they are.

    Parameters
    ----------
    ends
        Offsets, not above the high watermark, with the epochs in which leaders named them (`LogRange.epoch`).

    Raises
    ------
    TopicMismatchError
        If there is no such partition.
    KafkaUnavailableError
        If nothing came within the deadline, or access is refused.
    """
    found = {partition: LastEpoch(end) for partition, end in ends.items()}
    first = {partition: epoch for partition, last in found.items() if (epoch := last.asks()) is not None}

    def take(partition: TopicPartition, answered: EpochEnd) -> int | None:
        found[partition].take(answered)
        return found[partition].asks()

    if first and cluster.can_fetch:
        ask_epoch_ends(cluster, first, take)
    return {partition: last.end for partition, last in found.items()}


def log_ends(cluster: Cluster, logs: Mapping[TopicPartition, LogRange]) -> dict[TopicPartition, LogEnd]:
    """Return where logs end for read-committed readers, as `last_epochs` does; those without an epoch are left out.

    Raises
    ------
    KafkaUnavailableError
        As `last_epochs`.
    """
    ends = {at: LogEnd(log.last_stable, log.epoch) for at, log in logs.items() if log.epoch is not None}
    return last_epochs(cluster, ends) if ends else {}


def compare_ends(cluster: Cluster, seen: Mapping[TopicPartition, LogEnd]) -> dict[TopicPartition, LogComparison]:
    """Compare logs with where they were seen to end: thousands in one go.

    CUT is certain: below the offset a newer epoch begins than was seen there, or the log ends. So is INTACT: the log
    knows the epoch, and the next one begins at the offset or above. All else is UNKNOWN:

    - *The leader knows no epoch as new.* Epochs began anew: the topic was recreated (compare its id first), or the
      cluster's metadata was restored; or a broker that leads no more does not know yet.
    - *An older epoch ends at the offset or above.* A leader with records of its own in an older epoch was elected
      uncleanly; or the replica that leads was filled when compaction had removed all records of the epoch.
    - *Nothing that was seen is left*, because the log's start has moved to the offset or beyond.
    - *The log no longer knows which epoch it begins with*, so that the answer may be of an epoch that it does not know:
      its leader-epoch-checkpoint was lost, or a broker was killed soon after records were deleted.

    Compaction by the leader itself does not matter: it knows the epochs of records that are gone. Through librdkafka,
    which clusters need that `can_fetch` refuses, CUT is found likewise, by validating positions; otherwise librdkafka
    does not show the epoch that the leader names, and the answer is UNKNOWN. It makes one request for each partition.

    Parameters
    ----------
    seen
        What `last_epochs` returned when the logs were seen.

    Raises
    ------
    TopicMismatchError
        If there is no such partition.
    KafkaUnavailableError
        If nothing came within the deadline, or access is refused.
    """
    found = {partition: LogComparison(Continuity.INTACT) for partition, end in seen.items() if not end.offset}
    asked = {partition: end for partition, end in seen.items() if end.offset}
    if not asked:
        return found
    topics = cluster.topics
    if not cluster.can_fetch:
        topics.log_starts(asked)  # where a topic is not there, a consumer would wait for it
        refused = refused_positions(cluster, asked)
        logs = topics.log_ranges(refused)
        return found | {partition: validated(end, logs.get(partition)) for partition, end in asked.items()}
    answered: dict[TopicPartition, EpochEnd] = {}
    epochs = {partition: end.epoch for partition, end in asked.items()}
    ask_epoch_ends(cluster, epochs, answered.__setitem__)
    # After that: a start that moves in between cannot make unknown epochs look known.
    starts = topics.log_starts(asked)
    return found | {
        partition: compared(end, answered[partition], starts[partition]) for partition, end in asked.items()
    }


def compared(seen: LogEnd, answered: EpochEnd, start: LogStart) -> LogComparison:
    """Say what a leader's answer means; `compare_ends` has the reasons. Pure."""
    offset, epoch = seen
    if not offset:
        return LogComparison(Continuity.INTACT)
    if answered.epoch < 0 or answered.offset < 0:
        return _unknown(f"its leader knows no leader epoch as new as {epoch}")
    if answered.offset < offset:
        return LogComparison(
            Continuity.CUT,
            answered.offset,
            f"it was seen up to offset {offset} with leader epoch {epoch}, which now ends at {answered.offset}",
        )
    if answered.epoch < epoch:
        return _unknown(f"leader epoch {epoch} is not in it, and epoch {answered.epoch} ends at {answered.offset}")
    if start.offset >= offset:
        return _unknown(f"it starts at offset {start.offset}: nothing is left of what was seen up to {offset}")
    if start.epoch is None or start.epoch > epoch:
        return _unknown(f"it does not know the leader epochs of what was seen up to offset {offset}")
    return LogComparison(Continuity.INTACT)


def validated(seen: LogEnd, log: LogRange | None) -> LogComparison:
    """Say what it means that librdkafka refused a position, or did not. Pure.

    Parameters
    ----------
    log
        The log as it was after a refusal; None if the position was not refused.
    """
    offset, epoch = seen
    if log is None:
        return _unknown("no cut was found, but librdkafka does not show whether the log knows its leader epoch")
    if log.start > offset:
        return _unknown(f"it starts at offset {log.start}: nothing is left of what was seen up to {offset}")
    if log.epoch is None or log.epoch < epoch:
        return _unknown(f"its leader knows no leader epoch as new as {epoch}")
    ends = f"offset {offset} with leader epoch {epoch}, which now ends below"
    return LogComparison(Continuity.CUT, min(offset - 1, log.high_watermark), f"it was seen up to {ends}")


class LastEpoch:
    """Finds the epoch of the last record before an offset, from the one in which a leader named the offset. Pure.

    An epoch that begins at the offset or above has no record before it; then the one before it is the next to try.
    Where the log does not know the earlier ones, the epoch stays one that is certainly not too small: one that is too
    large finds the same cuts, but leaves more unknown.
    """

    def __init__(self, end: LogEnd) -> None:
        self.end = end
        self._begins: int | None = None
        self._done = not end.offset

    def asks(self) -> int | None:
        """Return the epoch to ask for, None if nothing is left to ask: the end of one tells where the next begins."""
        return None if self._done or not self.end.epoch else self.end.epoch - 1

    def take(self, answered: EpochEnd) -> None:
        """Go on from an answer."""
        epoch, begins = answered
        # Asked for an epoch before all that it knows, a log names that epoch itself, and the same beginning again.
        if begins < self.end.offset or begins == self._begins:
            self._done = True
        else:
            self.end, self._begins = LogEnd(self.end.offset, epoch), begins


def _unknown(detail: str) -> LogComparison:
    return LogComparison(Continuity.UNKNOWN, None, detail)
