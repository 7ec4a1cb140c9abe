"""Metadata of a committed input offset: how far stream time had come (Kafka Streams' TopicPartitionMetadata).

0          1                9          13
+----------+----------------+----------+--- for each entry -----------------------+
| magic: 2 | int64          | int32    | int32 length | key in UTF-8 | int64       |    big-endian, in Base64
+----------+----------------+----------+------------------------------------------+

The first number is the partition's time: the largest record timestamp (ms) up to the offset, -1 if there was none. What
follows is there only if there are entries; Kafka Streams keeps its processors' times in them, we those of window and
session stores. Version 1 ends after the partition's time.

The layout tells where the metadata ends. The text may go on behind it: what Kafka Streams commits, librdkafka hands out
without an end, so what lies behind it in memory follows (its issue 4649).
"""

from __future__ import annotations

import base64
import string
from collections.abc import Mapping
from itertools import takewhile
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

_HEAD = Struct(">bq")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_MAGIC = 2
_BASE64 = frozenset(string.ascii_letters + string.digits + "+/")
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
    """Read the metadata as Kafka Streams does: without a time it says nothing, broken entries leave the time.

    Parameters
    ----------
    text
        The metadata, with anything behind it.
    """
    raw = _decode_start(text)
    if len(raw) < _HEAD.size:
        return CommitMetadata()
    magic, partition_time = _HEAD.unpack_from(raw)
    if magic not in (1, _MAGIC):
        return CommitMetadata()
    return CommitMetadata(partition_time, _times(raw[_HEAD.size :]) if magic == _MAGIC else {})


def _decode_start(text: str) -> bytes:
    """Return the bytes that the text has in Base64 before its padding, or before what is no Base64."""
    digits = "".join(takewhile(_BASE64.__contains__, text))
    return base64.b64decode(digits + "A" * (-len(digits) % 4))[: len(digits) * 3 // 4]


def _times(raw: bytes) -> dict[str, int]:
    """Return the entries that the bytes begin with; none if they are not whole, or if there is only what lay behind."""
    try:
        (count,) = _INT32.unpack_from(raw)
        at, times = _INT32.size, {}
        for _ in range(count):
            (length,) = _INT32.unpack_from(raw, at)
            if length < 0:
                return {}
            at += _INT32.size
            name = raw[at : at + length].decode(errors="replace")
            at += length
            (times[name],) = _INT64.unpack_from(raw, at)
            at += _INT64.size
    except StructError:
        return {}
    return times
