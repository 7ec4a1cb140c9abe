"""A member of a group of `group.protocol=streams` (KIP-1071), which joins with a topology and nothing else.

Neither confluent-kafka nor kafka-python has its request, so it is written here: StreamsGroupHeartbeat 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack
from uuid import uuid4

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from statestore.formats.varint import varint
from statestore.kafka.client import client_config
from statestore.kafka.connection import Connection

_HEARTBEAT, _VERSION = 88, 0
_NO_TAGS, _NONE, _EMPTY = b"\0", b"\0", b"\1"


class _Member(Connection):
    def join(self, group: str, input_topic: str, changelogs: Mapping[str, int]) -> int:
        """Return the error code of the answer; 0: none."""
        by_part = {part: [name for name, of in changelogs.items() if of == part] for part in changelogs.values()}
        parts = b"".join(
            _text(str(part)) + _array(_text(input_topic)) + _EMPTY + _array(*map(_topic, names)) + _EMPTY * 3 + _NO_TAGS
            for part, names in by_part.items()
        )
        topology = b"\1" + pack(">i", 0) + varint(len(by_part) + 1) + parts + _NO_TAGS
        body = _text(group) + _text(str(uuid4())) + pack(">ii", 0, 0) + _NONE * 2 + pack(">i", 60_000) + topology
        body += _EMPTY * 3 + _text(str(uuid4())) + b"\xff" + _EMPTY + _NONE * 2 + b"\0" + _NO_TAGS
        self._send(_HEARTBEAT, _VERSION, _NO_TAGS + body)
        # After the tags of its head: i32 throttled (ms) | i16 error
        return self._answered(60, lambda data: int.from_bytes(bytes(data.data[5:7]), "big", signed=True))


def join_streams_group(servers: str, group: str, input_topic: str, changelogs: Mapping[str, int]) -> None:
    """Join a group once. Without another heartbeat, the brokers drop the member later, and keep the group.

    Parameters
    ----------
    changelogs
        By changelog topic: the number of the sub-topology that logs to it.
    """
    for broker in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=60).brokers.values():
        member = _Member((broker.host, broker.port), client_config(servers), 60)
        try:
            error = member.join(group, input_topic, changelogs)
        finally:
            member.close()
        if error == 0:
            return
        assert error == KafkaError.NOT_COORDINATOR
    raise AssertionError(f"no broker is the coordinator of {group}")


def _text(value: str) -> bytes:
    return varint(len(value.encode()) + 1) + value.encode()


def _array(*items: bytes) -> bytes:
    return varint(len(items) + 1) + b"".join(items)


def _topic(name: str) -> bytes:
    return _text(name) + pack(">ih", 0, 0) + _EMPTY + _NO_TAGS
