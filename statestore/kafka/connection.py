"""A direct connection to one broker: one request at a time, and one buffer that is reused for the answers.

How it is made is in secured.py; what is asked, in the modules that derive from it: fetch.py and epoch_ends.py.

    request:  i32 length | i16 api | i16 version | i32 correlation id | client id | what follows
    answer:   i32 length | i32 correlation id | what follows

Arrays begin with an i32 count, names with an i16 length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from struct import error as StructError
from typing import Any, TypeVar

import numpy as np

from statestore.kafka.compression import Bytes
from statestore.kafka.record_batch import SLACK
from statestore.kafka.secure_connection import connect
from statestore.model import TopicPartition

T = TypeVar("T")

#: What any request is given, s, also the last one before a deadline: without time to answer brokers would seem silent.
LEAST_S = 1.0
_INT, _SHORT = Struct(">i"), Struct(">h")
_HEAD = Struct(">hhi")
_LARGEST_ANSWER = 2**31 - 1


class ConnectionLostError(Exception):
    """The connection is of no use any more; the same request may go through on another."""


class Connection:
    """A connection to one broker.

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

    def rest(self) -> None:
        """Give back the memory for answers, until the next one."""
        self._buffer = np.empty(0, np.uint8)

    def _send(self, api: int, version: int, *body: bytes) -> None:
        self._sent += 1
        parts = [_HEAD.pack(api, version, self._sent), text(self._name), *body]
        try:
            self._socket.sendall(b"".join([_INT.pack(sum(map(len, parts))), *parts]))
        except OSError as error:
            raise ConnectionLostError(str(error)) from error

    def _answered(self, silence_s: float, parse: Callable[[Bytes], T]) -> T:
        """Wait for the answer to the last request; if nothing comes for so long, the connection is lost.

        Parameters
        ----------
        parse
            Gets what follows the correlation id, with `SLACK` readable bytes behind it. The next answer overwrites it.
        """
        self._socket.settimeout(silence_s)
        head = bytearray(_INT.size)
        self._receive(memoryview(head))
        (length,) = _INT.unpack(head)
        if not _INT.size <= length <= _LARGEST_ANSWER - SLACK:
            raise ConnectionLostError(f"an answer of {length} bytes")
        if len(self._buffer) < length + SLACK:
            self._buffer = _room(length + SLACK)
        self._receive(self._buffer.data[:length])
        (number,) = _INT.unpack_from(self._buffer.data)
        if number != self._sent:
            raise ConnectionLostError(f"an answer to request {number}, expected {self._sent}")
        try:
            return parse(self._buffer[_INT.size : length])
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


def _room(size: int) -> Bytes:
    """Return memory that the system has back as soon as nobody holds any of it: the allocator would keep it."""
    return np.frombuffer(mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS), np.uint8)


def text(value: bytes) -> bytes:
    """Return a name as requests have it."""
    return _SHORT.pack(len(value)) + value


def by_topic(asked: Mapping[TopicPartition, bytes]) -> bytes:
    """Return the array of topics, each with the array of what is asked of its partitions."""
    return b"".join(topic_parts({where: [of_partition] for where, of_partition in asked.items()}))


def topic_parts(asked: Mapping[TopicPartition, Sequence[bytes]]) -> list[bytes]:
    """Return what `by_topic` does in parts, so that large ones are copied only when they are sent."""
    topics: dict[str, list[Sequence[bytes]]] = {}
    for (topic, _), of_partition in asked.items():
        topics.setdefault(topic, []).append(of_partition)
    parts = [_INT.pack(len(topics))]
    for topic, partitions in topics.items():
        parts += [text(topic.encode()), _INT.pack(len(partitions)), *chain.from_iterable(partitions)]
    return parts


def read_by_topic(data: memoryview, at: int, read: Callable[[str, int], int]) -> None:
    """Go through an answer's array of topics.

    Parameters
    ----------
    at
        Where the array begins.
    read
        Takes one partition's answer, of that topic and at that place; returns where it ends.
    """
    (topics,) = _INT.unpack_from(data, at)
    at += _INT.size
    for _ in range(topics):
        (size,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
        topic = bytes(data[at : at + size]).decode()
        (partitions,) = _INT.unpack_from(data, at + size)
        at += size + _INT.size
        for _ in range(partitions):
            at = read(topic, at)
