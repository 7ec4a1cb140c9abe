"""Checks whether ranges of a log still contain records, for many partitions at once.

Offsets alone do not tell: markers, aborted records and compaction holes take some, too. So the beginning of each range
is fetched, as little of it as brokers give, and only looked at until a record is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError

from statestore.kafka.cluster import Cluster
from statestore.kafka.fetch import FetchConnection, Fetched, FetchLimits
from statestore.kafka.leader_requests import LeaderRounds, Left
from statestore.kafka.partition_fetcher import gone
from statestore.kafka.record_batch import OldFormatError, delivered, first_record, split
from statestore.kafka.shared_fetch import take_fetched
from statestore.model import TopicPartition

_MIB = 1024 * 1024
#: A broker gives the first partition that has anything a whole batch, and to the others what fits.
_AT_FIRST = FetchLimits(32 * _MIB, 16 * 1024, wait_ms=0)
_AGAIN = FetchLimits(32 * _MIB, 2 * _MIB, wait_ms=0)

#: Reads a range message by message: the offset of its first record.
ReadMessages = Callable[[TopicPartition, int, int], int | None]


class FirstOffsets:
    """Looks for the first record in a range of each partition, with one connection to each broker.

    Parameters
    ----------
    ranges
        Start and end, exclusive, of what to look through.
    read_messages
        For logs that have records of the old formats.
    """

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        read_messages: ReadMessages,
    ) -> None:
        self._cluster = cluster
        self._ranges = ranges
        self._read_messages = read_messages
        self._rounds = LeaderRounds(cluster, FetchConnection, "looking for records in", "READ")
        self._found: dict[TopicPartition, int | None] = dict.fromkeys(ranges)
        # Where to look next; what did not get any further stays in front, where a broker gives a whole batch.
        self._next = {partition: start for partition, (start, end) in ranges.items() if start < end}
        self._asked: set[TopicPartition] = set()

    def find(self) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record in each range that a read-committed consumer gets; None if none."""
        for partition, start in list(self._next.items()):
            there = take_fetched(self._cluster, partition, start, leave=True)  # a reader of the log takes it
            if there is not None:
                self._look_at(partition, there)
        self._rounds.ask_all(self._next, self._ask)
        return self._found

    def _ask(self, connection: FetchConnection, positions: Left, silence_s: float) -> float:
        limits = _AT_FIRST if self._asked.isdisjoint(positions) else _AGAIN
        self._asked.update(positions)
        connection.request(positions, limits, read_committed=True)
        answered, throttled_s = connection.answer(silence_s)
        # Whoever got nothing beside others that got something may only have found no room.
        all_empty = not any(len(fetched.records) for fetched in answered.values())
        for partition, fetched in answered.items():
            if fetched.error == KafkaError.OFFSET_OUT_OF_RANGE:
                raise gone(partition, self._next[partition])
            if fetched.error:
                self._rounds.refused(partition, KafkaError(fetched.error))
            elif len(fetched.records):
                self._look_at(partition, fetched)
            elif all_empty and fetched.tells_of_none_before(self._ranges[partition][1]):
                del self._next[partition]
        return throttled_s

    def _look_at(self, partition: TopicPartition, fetched: Fetched) -> None:
        start, end = self._next.pop(partition), self._ranges[partition][1]
        next_offset = start
        try:
            batches = list(split(fetched.records, partition))
            next_offset = batches[-1].last_offset + 1
            for batch in delivered(batches, fetched.aborted):
                found = first_record(batch, start, partition)
                if found is not None:
                    self._found[partition] = found if found < end else None
                    return
        except OldFormatError:
            self._found[partition] = self._read_messages(partition, start, end)
            return
        if next_offset < end:
            self._next[partition] = next_offset
