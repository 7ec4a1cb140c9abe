"""Fetch requests on a direct connection: undecoded answers, in one buffer that is reused.

kafka-python's connections take ten times as long per byte (they read 4 KiB at a time, and copy each byte several
times), and librdkafka hands out single messages. So who leads a partition is asked of librdkafka (leaders.py), and
only fetching is done here: version 11, which brokers since Kafka 2.3 understand.

    Fetch 11  asks: i32 replica (-1) | i32 wait (ms) | i32 least bytes | i32 most bytes | i8 isolation |
                    i32 session (0) | i32 epoch (-1) | topics: name | partitions: i32 partition |
                    i32 leader epoch (-1) | i64 offset | i64 log start (-1) | i32 most bytes |
                    forgotten topics (0) | rack ("")
              gets: i32 throttled (ms) | i16 error | i32 session | topics: name | partitions: i32 partition |
                    i16 error | i64 high watermark | i64 last stable offset | i64 log start |
                    aborted: i64 producer id, i64 first offset | i32 replica | i32 length | record batches

What is around that is in connection.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from statestore.kafka.compression import Bytes
from statestore.kafka.connection import Connection, ConnectionLostError, by_topic, read_by_topic, text
from statestore.kafka.record_batch import AbortedTransaction
from statestore.model import TopicPartition

_INT = Struct(">i")
_BODY = Struct(">iiiibii")
_PARTITION = Struct(">iiqqi")
_ANSWER = Struct(">ihi")
_ANSWERED = Struct(">ihqqqi")
_ABORTED = Struct(">qq")
_RECORDS = Struct(">ii")  # preferred replica and length
_FETCH, _VERSION = 1, 11


class Fetched(NamedTuple):
    """Answer of a broker for a partition.

    Attributes
    ----------
    error
        Kafka's code, 0 for none.
    last_stable
        Where the log ends for read-committed readers; -1 where the broker names another one to ask.
    records
        Record batches, of which the last may be cut off. They are overwritten by the next answer.
    """

    error: int
    last_stable: int
    aborted: list[AbortedTransaction]
    records: Bytes

    def tells_of_none_before(self, end: int) -> bool:
        """True if nothing is left of the log between what was asked for and an offset: compaction removed it.

        A partition that was asked for beside others may also have got nothing because they took all the room.
        """
        return not self.error and not len(self.records) and self.last_stable >= end


class FetchLimits(NamedTuple):
    """How much a broker may answer with, and how long it may wait until there is something."""

    max_bytes: int
    partition_max_bytes: int
    wait_ms: int


class FetchConnection(Connection):
    """A connection for Fetch requests."""

    def request(self, positions: Mapping[TopicPartition, int], limits: FetchLimits, *, read_committed: bool) -> None:
        """Ask for records from an offset on for each partition."""
        asked = {
            partition: _PARTITION.pack(partition.partition, -1, offset, -1, limits.partition_max_bytes)
            for partition, offset in positions.items()
        }
        body = _BODY.pack(-1, limits.wait_ms, 1, limits.max_bytes, int(read_committed), 0, -1)
        self._send(_FETCH, _VERSION, body + by_topic(asked) + _INT.pack(0) + text(b""))

    def answer(self, silence_s: float) -> tuple[dict[TopicPartition, Fetched], float]:
        """Wait for what the broker says to the last request; if nothing comes for so long, the connection is lost.

        Returns
        -------
        tuple
            What it has for each partition, and for how many seconds it wants not to be asked again (a quota).
            Partitions may be missing then.
        """
        return self._answered(silence_s, _parse)


def _parse(data: Bytes) -> tuple[dict[TopicPartition, Fetched], float]:
    view = data.data
    throttled_ms, error, _ = _ANSWER.unpack_from(view)
    if error:
        raise ConnectionLostError(f"error {error}")
    answered: dict[TopicPartition, Fetched] = {}

    def read(topic: str, at: int) -> int:
        partition, error, _, last_stable, _, count = _ANSWERED.unpack_from(view, at)
        at += _ANSWERED.size
        aborted = [AbortedTransaction(*_ABORTED.unpack_from(view, at + i * _ABORTED.size)) for i in range(count)]
        at += max(count, 0) * _ABORTED.size
        replica, size = _RECORDS.unpack_from(view, at)
        at += _RECORDS.size
        size = max(size, 0)
        if size > len(data) - at:
            raise ConnectionLostError(f"{size} bytes of records, of which {len(data) - at} came")
        last_stable = last_stable if replica < 0 else -1  # else it has not looked for records
        answered[TopicPartition(topic, partition)] = Fetched(error, last_stable, aborted, data[at : at + size])
        return int(at + size)

    read_by_topic(view, _ANSWER.size, read)
    return answered, throttled_ms / 1000
