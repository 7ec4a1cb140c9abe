"""Whether anything is left in a range of a log, for many partitions at once.

Offsets alone do not tell: markers, aborted records and compaction holes take some, too. So the beginning of each range
is fetched, as little of it as brokers give, and only looked at until a record is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from confluent_kafka import KafkaError, KafkaException

from statestore.changelog.client import client_config, translate
from statestore.changelog.fetch import LEAST_S, ConnectionLostError, FetchConnection, Fetched, FetchLimits
from statestore.changelog.leaders import Address, Leaders, may_pass
from statestore.changelog.partition_fetcher import gone
from statestore.changelog.record_batch import OldFormatError, delivered, first_record, split
from statestore.errors import KafkaUnavailableError, StateStoreError, TopicMismatchError
from statestore.model import TopicPartition

_MIB = 1024 * 1024
#: A broker gives the first partition that has anything a whole batch, and to the others what fits.
_LIMITS = (FetchLimits(32 * _MIB, 16 * 1024, wait_ms=0), FetchLimits(32 * _MIB, 2 * _MIB, wait_ms=0))
_PARTITIONS_A_REQUEST = 1_000
_SILENCE_S = 10.0
_PAUSE_S = 0.1

#: Reads a range message by message: the offset of its first record.
ReadMessages = Callable[[TopicPartition, int, int], int | None]


class FirstOffsets:
    """Looks for the first record in a range of each partition, with one connection to each broker.

    Parameters
    ----------
    bootstrap_servers
        Kafka brokers.
    ranges
        Start and end, exclusive, of what to look through.
    stall_timeout_s
        Give up when for so long no partition got any further.
    read_messages
        For logs that have records of the old formats.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        stall_timeout_s: float,
        read_messages: ReadMessages,
    ) -> None:
        self._ranges = ranges
        self._stall_timeout_s = stall_timeout_s
        self._read_messages = read_messages
        self._settings = client_config(bootstrap_servers)
        self._leaders = Leaders(bootstrap_servers)
        self._led: dict[TopicPartition, Address] = {}
        self._connections: dict[Address, FetchConnection] = {}
        self._failed: KafkaError | str = "no answer"
        self._found: dict[TopicPartition, int | None] = dict.fromkeys(ranges)
        # Where to look next; what did not get any further stays in front, where a broker gives a whole batch.
        self._next = {partition: start for partition, (start, end) in ranges.items() if start < end}

    def find(self) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record in each range that a read-committed consumer gets; None if none."""
        limits = _LIMITS[0]
        deadline = time.monotonic() + self._stall_timeout_s
        try:
            while self._next:
                before = dict(self._next)
                self._look(limits, max(deadline - time.monotonic(), LEAST_S))
                if self._next != before:
                    deadline = time.monotonic() + self._stall_timeout_s
                elif time.monotonic() > deadline:
                    raise self._stalled()
                else:
                    time.sleep(_PAUSE_S)  # nothing announces that a leader is there
                limits = _LIMITS[1]
        finally:
            for connection in self._connections.values():
                connection.close()
        return self._found

    def _look(self, limits: FetchLimits, timeout_s: float) -> None:
        """Ask every broker once for all that is left."""
        by_leader: dict[Address, dict[TopicPartition, int]] = {}
        for partition, leader in self._find_leaders(timeout_s).items():
            by_leader.setdefault(leader, {})[partition] = self._next[partition]
        for leader, positions in by_leader.items():
            try:
                for some in _chunks(positions):
                    self._ask(leader, some, limits, min(timeout_s, _SILENCE_S))
            except ConnectionLostError as error:
                self._failed = str(error)
                self._forget(leader)

    def _find_leaders(self, timeout_s: float) -> dict[TopicPartition, Address]:
        unknown = [partition for partition in self._next if partition not in self._led]
        if unknown:
            try:
                answered = self._leaders.of(unknown, timeout_s)
            except KafkaException as error:
                answered = dict.fromkeys(unknown, error.args[0])
            for partition, leader in answered.items():
                if isinstance(leader, KafkaError):
                    self._note(partition, leader)
                else:
                    self._led[partition] = leader
        return {partition: self._led[partition] for partition in self._next if partition in self._led}

    def _ask(
        self, leader: Address, positions: Mapping[TopicPartition, int], limits: FetchLimits, silence_s: float
    ) -> None:
        if leader not in self._connections:
            self._connections[leader] = FetchConnection(leader, self._settings, silence_s)
        connection = self._connections[leader]
        connection.request(positions, limits, read_committed=True)
        answered, throttled_s = connection.answer(silence_s)
        # Whoever got nothing beside others that got something may only have found no room.
        all_empty = not any(len(fetched.records) for fetched in answered.values())
        for partition, fetched in answered.items():
            if fetched.error:
                self._note(partition, KafkaError(fetched.error))
                self._led.pop(partition, None)
            elif len(fetched.records):
                self._look_at(partition, fetched)
            elif all_empty and fetched.tells_of_none_before(self._ranges[partition][1]):
                del self._next[partition]
        time.sleep(throttled_s)  # a quota: the broker would not answer before

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

    def _note(self, partition: TopicPartition, error: KafkaError) -> None:
        """Remember what stands in the way for a moment, or raise what does for longer."""
        if error.code() == KafkaError.OFFSET_OUT_OF_RANGE:
            raise gone(partition, self._next[partition])
        if not may_pass(error):
            raise translate(error, f"reading {partition}")
        self._failed = error

    def _forget(self, leader: Address) -> None:
        if leader in self._connections:
            self._connections.pop(leader).close()
        self._led = {partition: other for partition, other in self._led.items() if other != leader}

    def _stalled(self) -> StateStoreError:
        waiting = next(iter(self._next))
        if isinstance(self._failed, KafkaError):
            failed = translate(self._failed, f"reading {waiting}")
            if isinstance(failed, TopicMismatchError):
                return failed
        return KafkaUnavailableError(
            f"looking for records in {len(self._next)} partitions, {waiting} the first: nothing came for "
            f"{self._stall_timeout_s:g} s ({self._failed}); check that the brokers are up, then run again"
        )


def _chunks(positions: Mapping[TopicPartition, int]) -> Iterator[dict[TopicPartition, int]]:
    left = iter(positions.items())
    while some := dict(islice(left, _PARTITIONS_A_REQUEST)):
        yield some
