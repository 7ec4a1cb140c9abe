"""Describes a group of Kafka Streams' own protocol (`group.protocol=streams`, KIP-1071).

Such a group is no consumer group: asked for as one, it seems to have no members. confluent-kafka has no request for it,
so it goes over a connection of our own (connection.py):

    ApiVersions 0           gets: i16 error | i32 count: i16 api, i16 first version, i16 last version
    FindCoordinator 2       asks: group | i8 type (0)
                            gets: i32 throttled (ms) | i16 error | message | i32 node | host | i32 port
    StreamsGroupDescribe 0  asks: names | bool operations (0) | tags
                            gets: i32 throttled (ms) | groups

The last one is in the newer form: lengths and counts are varints, one more than they are (0: null), and each structure
ends with tags.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException

from statestore.kafka.compression import Bytes
from statestore.kafka.connection import Connection, ConnectionLostError, text
from statestore.kafka.connection_pool import Address
from statestore.kafka.rights import on_group
from statestore.kafka.secure_connection import can_fetch

if TYPE_CHECKING:
    from statestore.kafka.cluster import Cluster

T = TypeVar("T")

API = 89
_API_VERSIONS, _FIND_COORDINATOR, _STREAMS_GROUP_DESCRIBE = (18, 0), (10, 2), (API, 0)
_NO_TAGS = b"\0"
_BYTE, SHORT, INT, _LONG = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
_API = Struct(">hhh")
#: What a coordinator answers of a group that is not there, or of another protocol.
_NOT_A_STREAMS_GROUP = KafkaError.GROUP_ID_NOT_FOUND


class StreamsGroup(NamedTuple):
    """A group of `group.protocol=streams`.

    Attributes
    ----------
    members
        Who is active in it: client and host.
    changelogs
        By changelog topic that Kafka Streams made: the number of the subtopology whose tasks log to it.
    sources
        By subtopology: the topics that its tasks read, repartition topics included.
    state
        As the coordinator names it, such as `Stable`.
    """

    members: tuple[str, ...]
    changelogs: Mapping[str, int]
    sources: Mapping[int, tuple[str, ...]] = MappingProxyType({})
    state: str = ""


#: A group, or the error code of its coordinator.
DescribedGroup = StreamsGroup | int


def streams_group(cluster: Cluster, group: str) -> StreamsGroup | None:
    """Ask for a group of Kafka Streams' own protocol.

    Returns
    -------
    StreamsGroup or None
        None if there is none of that name, if the brokers do not know the protocol, or if only librdkafka can speak to
        them (see `can_fetch`).

    Raises
    ------
    KafkaUnavailableError
        If no coordinator answers in time, or access is refused.
    """
    settings = cluster.config()
    if not can_fetch(settings):
        return None

    def ask(left_s: float) -> StreamsGroup | None:
        broker = cluster.admin(left_s).describe_cluster(request_timeout=left_s).result().nodes[0]
        try:
            return _asked((broker.host, broker.port), settings, group, left_s)
        except ConnectionLostError as error:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, str(error), retriable=True)) from error

    return cluster.answered(ask, f"asking for the streams group {group}", on_group("DESCRIBE", group))


def _asked(broker: Address, settings: Mapping[str, Any], group: str, left_s: float) -> StreamsGroup | None:
    """Ask a broker for the coordinator, and the coordinator for the group."""
    deadline = time.monotonic() + left_s
    with _GroupConnection(broker, settings, left_s) as any_broker:
        if not any_broker.describes_streams_groups(left_s):
            return None
        address = any_broker.coordinator(group, left_s)
    left_s = max(deadline - time.monotonic(), 1)
    with _GroupConnection(address, settings, left_s) as coordinator:
        return coordinator.described(group, left_s)


class _GroupConnection(Connection):
    """A connection for requests about groups."""

    def __enter__(self) -> _GroupConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describes_streams_groups(self, silence_s: float) -> bool:
        """Tell whether the broker knows the request."""
        self._send(*_API_VERSIONS, b"")
        return self._answered(silence_s, lambda data: _STREAMS_GROUP_DESCRIBE in _first_versions(FlexibleAnswer(data)))

    def coordinator(self, group: str, silence_s: float) -> Address:
        """Return where the group's coordinator is."""
        self._send(*_FIND_COORDINATOR, text(group.encode()) + _BYTE.pack(0))
        return self._answered(silence_s, lambda data: _coordinator(FlexibleAnswer(data)))

    def described(self, group: str, silence_s: float) -> StreamsGroup | None:
        """Ask the coordinator."""
        self._send(*_STREAMS_GROUP_DESCRIBE, describe_request([group]))
        found = self._answered(silence_s, described_groups)
        if found.keys() != {group}:
            raise ConnectionLostError(f"an answer about {len(found)} groups, expected one")
        described = found[group]
        if isinstance(described, int):
            if described == _NOT_A_STREAMS_GROUP:
                return None
            raise KafkaException(KafkaError(described))
        return described


def describe_request(groups: Sequence[str]) -> bytes:
    """Return a request for groups, from the end of the client id on: the header ends with tags, too."""
    names = (group.encode() for group in groups)
    asked = b"".join(_varint(len(name) + 1) + name for name in names)
    return _NO_TAGS + _varint(len(groups) + 1) + asked + b"\0" + _NO_TAGS


def described_groups(data: Bytes) -> dict[str, DescribedGroup]:
    """Read the answer about groups: each of them, or its error code."""
    answer = FlexibleAnswer(data)
    answer.tags()
    answer.number(INT)
    return dict(answer.each(_described))


def _first_versions(answer: FlexibleAnswer) -> set[tuple[int, int]]:
    """APIs that a broker has, each with its first version."""
    _check(answer.number(SHORT))
    found = [answer.numbers(_API) for _ in range(answer.number(INT))]
    return {(api, first) for api, first, _ in found}


def _coordinator(answer: FlexibleAnswer) -> Address:
    answer.number(INT)
    error = answer.number(SHORT)
    answer.text(answer.number(SHORT))
    _check(error)
    answer.number(INT)
    return answer.text(answer.number(SHORT)), answer.number(INT)


def _described(answer: FlexibleAnswer) -> tuple[str, DescribedGroup]:
    """Read one group; what is of no interest is read to get past it."""
    error = answer.number(SHORT)
    answer.name()  # error message
    name, state = answer.name(), answer.name()
    for _ in ("epoch", "epoch of assignment"):
        answer.number(INT)
    parts = _topology(answer) if answer.number(_BYTE) >= 0 else []
    members = tuple(sorted(answer.each(_member)))
    answer.number(INT)  # authorized operations
    answer.tags()
    if error:
        return name, error
    changelogs = {topic: part.number for part in parts for topic in part.changelogs}
    return name, StreamsGroup(members, changelogs, {part.number: part.sources for part in parts}, state)


class _Subtopology(NamedTuple):
    number: int
    sources: tuple[str, ...]
    changelogs: tuple[str, ...]


def _topology(answer: FlexibleAnswer) -> list[_Subtopology]:
    answer.number(INT)
    parts = answer.each(_subtopology)
    answer.tags()
    return parts


def _subtopology(answer: FlexibleAnswer) -> _Subtopology:
    number = int(answer.name())
    sources, _ = (
        answer.each(FlexibleAnswer.name),
        answer.each(FlexibleAnswer.name),
    )  # the latter: repartition topics written
    changelogs, repartitioned = answer.each(_topic), answer.each(_topic)
    answer.tags()
    return _Subtopology(number, (*sources, *repartitioned), tuple(changelogs))


def _topic(answer: FlexibleAnswer) -> str:
    name = answer.name()
    answer.number(INT)  # partitions
    answer.number(SHORT)  # replicas
    answer.each(_setting)
    answer.tags()
    return name


def _setting(answer: FlexibleAnswer) -> None:
    for _ in ("key", "value"):
        answer.name()
    answer.tags()


def _member(answer: FlexibleAnswer) -> str:
    answer.name()
    answer.number(INT)
    for _ in ("instance", "rack"):
        answer.name()
    client, host = answer.name(), answer.name()
    answer.number(INT)
    answer.name()
    if answer.number(_BYTE) >= 0:  # where others may ask it
        answer.name()
        answer.number(SHORT)
        answer.tags()
    answer.each(_setting)
    for _ in ("offsets", "end offsets"):
        answer.each(_task_offset)
    for _ in ("assignment", "what it is to be"):
        for _ in ("active", "standby", "warm-up"):
            answer.each(_tasks)
        answer.tags()
    answer.number(_BYTE)
    answer.tags()
    return f"{client} on {host}"


def _task_offset(answer: FlexibleAnswer) -> None:
    answer.name()
    answer.number(INT)
    answer.number(_LONG)
    answer.tags()


def _tasks(answer: FlexibleAnswer) -> None:
    answer.name()
    answer.each(lambda partitions: partitions.number(INT))
    answer.tags()


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


class FlexibleAnswer:
    """An answer that is read from its beginning to its end."""

    def __init__(self, data: Bytes) -> None:
        self._data = data.data
        self._at = 0

    def numbers(self, form: Struct) -> tuple[int, ...]:
        found = form.unpack_from(self._data, self._at)
        self._at += form.size
        return found

    def number(self, form: Struct) -> int:
        return self.numbers(form)[0]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.number(_BYTE)) < 0:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def text(self, size: int) -> str:
        """Text of a size in bytes; -1: null, which is returned as empty."""
        self._at += max(size, 0)
        return bytes(self._data[self._at - max(size, 0) : self._at]).decode()

    def skip(self, size: int) -> None:
        self._at += size

    def name(self) -> str:
        return self.text(self.varint() - 1)

    def count(self) -> int:
        return max(self.varint() - 1, 0)

    def each(self, read: Callable[[FlexibleAnswer], T]) -> list[T]:
        return [read(self) for _ in range(self.count())]

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.text(self.varint())


def _check(error: int) -> None:
    if error:
        raise KafkaException(KafkaError(error))
