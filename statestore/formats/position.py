"""`Position` of IQv2: up to which input offsets a store has been written. Big-endian.

    u8 version (0) | i32 topics | then per topic:
    i32 length | name (UTF-8) | i32 entries | entries x (i32 partition, i64 offset)

Kafka Streams may leave zero bytes after the last entry; they are ignored. A changelog record carries a position in two
headers (KIP-796): `v` is one byte 0, and `c` is the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from struct import error as StructError

from statestore.errors import StoreCorruptedError
from statestore.model import TopicPartition

_VERSION = 0
_HEAD = Struct(">Bi")
_INT = Struct(">i")
_ENTRY = Struct(">iq")


def encode(position: Mapping[TopicPartition, int]) -> bytes:
    """Serialise input offsets by topic partition, topics and partitions in order."""
    topics: dict[str, list[tuple[int, int]]] = {}
    for topic_partition, offset in sorted(position.items()):
        topics.setdefault(topic_partition.topic, []).append((topic_partition.partition, offset))
    parts = [_HEAD.pack(_VERSION, len(topics))]
    for topic, entries in topics.items():
        name = topic.encode()
        parts += [_INT.pack(len(name)), name, _INT.pack(len(entries))]
        parts += [_ENTRY.pack(*entry) for entry in entries]
    return b"".join(parts)


def position_headers(position: Mapping[TopicPartition, int]) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of a changelog record with this position; none if it is empty."""
    return (("v", b"\0"), ("c", encode(position))) if position else ()


def decode(raw: bytes) -> dict[TopicPartition, int]:
    """Read a serialised position.

    Raises
    ------
    StoreCorruptedError
        If the version is not known or the bytes end early.
    """
    position: dict[TopicPartition, int] = {}
    try:
        version, topics = _HEAD.unpack_from(raw)
        if version != _VERSION:
            raise StoreCorruptedError(f"position has version {version}, expected {_VERSION}")
        _check_count(topics)
        at = _HEAD.size
        for _ in range(topics):
            (length,) = _INT.unpack_from(raw, at)
            at += _INT.size
            name = raw[at : at + length]
            if length < 0 or len(name) != length:
                raise StoreCorruptedError(f"position ends inside a topic name at byte {at} of {len(raw)}")
            at += length
            (entries,) = _INT.unpack_from(raw, at)
            _check_count(entries)
            at += _INT.size
            for _ in range(entries):
                partition, offset = _ENTRY.unpack_from(raw, at)
                at += _ENTRY.size
                position[TopicPartition(name.decode(), partition)] = offset
    except (StructError, UnicodeDecodeError) as error:
        raise StoreCorruptedError(f"position of {len(raw)} bytes cannot be read: {error}") from error
    return position


def _check_count(count: int) -> None:
    if count < 0:
        raise StoreCorruptedError(f"position counts {count} topics or entries, expected 0 or more")
