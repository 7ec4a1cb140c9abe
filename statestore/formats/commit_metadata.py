"""Metadata of a committed input offset: how far stream time had come (Kafka Streams' TopicPartitionMetadata).

0          1                9          13
+----------+----------------+----------+--- for each entry -----------------------+
| magic: 2 | int64          | int32    | int32 length | key in UTF-8 | int64       |    big-endian, in Base64
+----------+----------------+----------+------------------------------------------+

The first number is the partition's time: the largest record timestamp (ms) up to the offset, -1 if there was none. What
follows is there only if there are entries; Kafka Streams keeps its processors' times in them, we those of window and
session stores. Version 1 ends after the partition's time.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

_HEAD = Struct(">bq")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_MAGIC = 2
UNKNOWN_TIME = -1


class CommitMetadata(NamedTuple):
    """Stream time of a partition and times by name, all in ms."""

    partition_time: int = UNKNOWN_TIME
    times: Mapping[str, int] = {}


def encode(metadata: CommitMetadata) -> str:
    """Lay out the metadata."""
    parts = [_HEAD.pack(_MAGIC, metadata.partition_time)]
    if metadata.times:
        parts.append(_INT32.pack(len(metadata.times)))
        for name, time in metadata.times.items():
            raw = name.encode()
            parts += [_INT32.pack(len(raw)), raw, _INT64.pack(time)]
    return base64.b64encode(b"".join(parts)).decode("ascii")


def decode(text: str) -> CommitMetadata:
    """Read the metadata; what is empty or not in this format says nothing, as in Kafka Streams."""
    try:
        raw = base64.b64decode(text, validate=True)
        magic, partition_time = _HEAD.unpack_from(raw)
        if magic not in (1, _MAGIC):
            return CommitMetadata()
        return CommitMetadata(partition_time, _times(raw[_HEAD.size :]))
    except (binascii.Error, StructError, ValueError):
        return CommitMetadata()


def _times(raw: bytes) -> dict[str, int]:
    if not raw:
        return {}
    (count,) = _INT32.unpack_from(raw)
    at, times = _INT32.size, {}
    for _ in range(count):
        (length,) = _INT32.unpack_from(raw, at)
        if length < 0:
            raise ValueError(f"a name cannot have {length} bytes")
        at += _INT32.size
        name = raw[at : at + length].decode()
        at += length
        (times[name],) = _INT64.unpack_from(raw, at)
        at += _INT64.size
    return times
