"""The `offsets` column family (KIP-1035, Kafka Streams 4.3).

| key (UTF-8)           | value                                                                       |
|-----------------------|-----------------------------------------------------------------------------|
| `<topic>-<partition>` | int64 big-endian: offset of the last changelog record applied and committed |
| `status`              | int64 big-endian: 1 open, 0 closed cleanly                                  |
| `position`            | see formats/position.py                                                     |
"""

from __future__ import annotations

from struct import Struct

from statestore.errors import StoreCorruptedError
from statestore.model import TopicPartition

COLUMN_FAMILY = "offsets"
STATUS_KEY = b"status"
POSITION_KEY = b"position"
#: Kafka Streams' mark of an offset that is not known.
UNKNOWN_OFFSET = -4
STATUS_CLOSED = 0
STATUS_OPEN = 1

_INT64 = Struct(">q")
encode_int64 = _INT64.pack


def offset_key(topic_partition: TopicPartition) -> bytes:
    """Key under which a changelog partition's offset is stored."""
    return str(topic_partition).encode()


def decode_key(key: bytes, what: str) -> TopicPartition:
    """Read a changelog partition.

    Raises
    ------
    StoreCorruptedError
        If it is not `<topic>-<partition>`.
    """
    topic, _, partition = key.decode(errors="replace").rpartition("-")
    if not topic or not (partition.isascii() and partition.isdigit()):
        raise StoreCorruptedError(f"{what}: expected a key <topic>-<partition>, found {key[:80]!r}; restore the store")
    return TopicPartition(topic, int(partition))


def decode_int64(raw: bytes, what: str) -> int:
    """Read an offset or the status.

    Raises
    ------
    StoreCorruptedError
        If it is not eight bytes long.
    """
    if len(raw) != _INT64.size:
        raise StoreCorruptedError(f"{what} should have {_INT64.size} bytes, found {len(raw)}")
    value: int = _INT64.unpack(raw)[0]
    return value


def decode_offset(raw: bytes, what: str) -> int | None:
    """Read an offset; None if it is stored as unknown.

    Raises
    ------
    StoreCorruptedError
        If it is neither an offset nor the mark of an unknown one.
    """
    value = decode_int64(raw, what)
    if value == UNKNOWN_OFFSET:
        return None
    if value < 0:
        raise StoreCorruptedError(f"{what}: expected an offset, found {value}; restore the store")
    return value
