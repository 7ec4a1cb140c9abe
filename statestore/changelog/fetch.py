"""Fetch requests on a connection of our own: answers come undecoded, into one buffer that is used again.

kafka-python's connections take ten times as long per byte (they read 4 KiB at a time, and copy each byte several
times), and librdkafka hands out single messages. So who leads a partition is asked of librdkafka (leaders.py), and
only fetching is done here: version 11, which brokers since Kafka 2.3 understand. How a connection is made is in
secured.py.

    request:  i32 length | i16 1 | i16 11 | i32 correlation id | client id |
              i32 replica (-1) | i32 wait (ms) | i32 least bytes | i32 most bytes | i8 isolation | i32 session (0) |
              i32 epoch (-1) | topics: name | partitions: i32 partition | i32 leader epoch (-1) | i64 offset |
              i64 log start (-1) | i32 most bytes | forgotten topics (0) | rack ("")
    answer:   i32 length | i32 correlation id | i32 throttled (ms) | i16 error | i32 session |
              topics: name | partitions: i32 partition | i16 error | i64 high watermark | i64 last stable offset |
              i64 log start | aborted: i64 producer id, i64 first offset | i32 replica | i32 length | record batches

Arrays begin with an i32 count, names with an i16 length.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

import numpy as np

from statestore.changelog.compression import Bytes
from statestore.changelog.record_batch import SLACK, AbortedTransaction
from statestore.changelog.secured import connect
from statestore.model import TopicPartition

#: What any request is given, s, also the last one before a deadline: without time to answer brokers would seem silent.
LEAST_S = 1.0
_INT, _SHORT = Struct(">i"), Struct(">h")
_HEAD = Struct(">hhi")
_BODY = Struct(">iiiibii")
_PARTITION = Struct(">iiqqi")
_ANSWER = Struct(">iihi")
_ANSWERED = Struct(">ihqqqi")
_ABORTED = Struct(">qq")
_RECORDS = Struct(">ii")  # preferred replica and length
_FETCH, _VERSION = 1, 11
_LARGEST_ANSWER = 2**31 - 1


class ConnectionLostError(Exception):
    """The connection is of no use any more; the same request may go through on another."""


class Fetched(NamedTuple):
    """What a broker answered for a partition.

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


class FetchConnection:
    """A connection to one broker, with one request under way at a time.

    Parameters
    ----------
    address
        Host and port.
    settings
        The clients' configuration, as far as `can_fetch` knows it.
    timeout_s
        Deadline of each step of connecting.
    """

    def __init__(self, address: tuple[str, int], settings: Mapping[str, Any], timeout_s: float) -> None:
        self._name = str(settings["client.id"]).encode()
        self._sent = 0
        self._buffer: Bytes = np.empty(0, np.uint8)
        try:
            self._socket = connect(address, settings, timeout_s)
        except OSError as error:
            raise ConnectionLostError(str(error)) from error

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def request(self, positions: Mapping[TopicPartition, int], limits: FetchLimits, *, read_committed: bool) -> None:
        """Ask for records from an offset on for each partition."""
        self._sent += 1
        topics: dict[str, list[bytes]] = {}
        for (topic, partition), offset in positions.items():
            asked = _PARTITION.pack(partition, -1, offset, -1, limits.partition_max_bytes)
            topics.setdefault(topic, []).append(asked)
        parts = [
            _HEAD.pack(_FETCH, _VERSION, self._sent) + _text(self._name),
            _BODY.pack(-1, limits.wait_ms, 1, limits.max_bytes, int(read_committed), 0, -1),
            _INT.pack(len(topics)),
        ]
        for topic, partitions in topics.items():
            parts += [_text(topic.encode()), _INT.pack(len(partitions)), *partitions]
        message = b"".join([*parts, _INT.pack(0), _text(b"")])
        try:
            self._socket.sendall(_INT.pack(len(message)) + message)
        except OSError as error:
            raise ConnectionLostError(str(error)) from error

    def answer(self, silence_s: float) -> tuple[dict[TopicPartition, Fetched], float]:
        """Wait for what the broker says to the last request; if nothing comes for so long, the connection is lost.

        Returns
        -------
        tuple
            What it has for each partition, and for how many seconds it wants not to be asked again (a quota).
            Partitions may be missing then.
        """
        self._socket.settimeout(silence_s)
        head = bytearray(_INT.size)
        self._receive(memoryview(head))
        (length,) = _INT.unpack(head)
        if not _ANSWER.size <= length <= _LARGEST_ANSWER - SLACK:
            raise ConnectionLostError(f"an answer of {length} bytes")
        if len(self._buffer) < length + SLACK:
            self._buffer = np.empty(length + SLACK, np.uint8)
        self._receive(self._buffer.data[:length])
        try:
            return self._parse(length)
        except (StructError, UnicodeDecodeError) as error:
            raise ConnectionLostError(f"an answer of {length} bytes that cannot be read: {error}") from error

    def _receive(self, into: memoryview) -> None:
        at = 0
        while at < len(into):
            try:
                count = self._socket.recv_into(into[at:])
            except OSError as error:
                raise ConnectionLostError(str(error)) from error
            if not count:
                raise ConnectionLostError("the broker closed the connection")
            at += count

    def _parse(self, length: int) -> tuple[dict[TopicPartition, Fetched], float]:
        data = self._buffer.data[:length]
        number, throttled_ms, error, _ = _ANSWER.unpack_from(data)
        if number != self._sent:
            raise ConnectionLostError(f"an answer to request {number}, expected {self._sent}")
        if error:
            raise ConnectionLostError(f"error {error}")
        answered: dict[TopicPartition, Fetched] = {}
        (topics,), at = _INT.unpack_from(data, _ANSWER.size), _ANSWER.size + _INT.size
        for _ in range(topics):
            (size,) = _SHORT.unpack_from(data, at)
            at += _SHORT.size
            topic = bytes(data[at : at + size]).decode()
            (partitions,) = _INT.unpack_from(data, at + size)
            at += size + _INT.size
            for _ in range(partitions):
                partition, error, _, last_stable, _, count = _ANSWERED.unpack_from(data, at)
                at += _ANSWERED.size
                aborted = [
                    AbortedTransaction(*_ABORTED.unpack_from(data, at + i * _ABORTED.size)) for i in range(count)
                ]
                at += max(count, 0) * _ABORTED.size
                replica, size = _RECORDS.unpack_from(data, at)
                at += _RECORDS.size
                size = max(size, 0)
                if size > length - at:
                    raise ConnectionLostError(f"{size} bytes of records, of which {length - at} came")
                records = self._buffer[at : at + size]
                last_stable = last_stable if replica < 0 else -1  # else it has not looked for records
                answered[TopicPartition(topic, partition)] = Fetched(error, last_stable, aborted, records)
                at += size
        return answered, throttled_ms / 1000


def _text(value: bytes) -> bytes:
    return _SHORT.pack(len(value)) + value
