"""Metadata of a committed input offset: how far stream time had come (Kafka Streams' TopicPartitionMetadata).

0          1                9          13
+----------+----------------+----------+--- for each entry -----------------------+
| magic: 2 | int64          | int32    | int32 length | key in UTF-8 | int64       |    big-endian, in Base64
+----------+----------------+----------+------------------------------------------+

The first number is the partition's time: the largest record timestamp (ms) up to the offset, -1 if there was none. What
follows is there only if there are entries; Kafka Streams keeps its processors' times in them, we those of window and
session stores. Version 1 ends after the partition's time.

One more entry is the stamp. It says that a record of the same commit is in the application's topic of input offsets
(`input_offset.py`). Its value is a time of the brokers (ms), its key is text:

    statestore/<topic id>@<id of the input topic>/<input offset>/<sequence number of the commit>/committed or refreshed

Stamps of earlier versions name no input topic. With it, an offset of an input topic that was recreated since is known.
Kafka Streams copies entries that it does not know into its own commits. The input offset tells such a copy: a stamp
counts only for the offset that it names.

The layout tells where the metadata ends. The text may go on behind it: what Kafka Streams commits, librdkafka hands out
without an end, so what lies behind it in memory follows (its issue 4649).
"""

from __future__ import annotations

import base64
import re
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
#: Brokers' default of offset.metadata.max.bytes.
_MAX_BYTES = 4_096
_STAMP, _COMMITTED, _REFRESHED = "statestore/", "committed", "refreshed"
_NUMBER = "([0-9]{1,19})"
_STAMP_KEY = re.compile(rf"{_STAMP}([^@]+)(?:@([^@]+))?/{_NUMBER}/{_NUMBER}/({_COMMITTED}|{_REFRESHED})")


class Stamp(NamedTuple):
    """Names the record in the topic of input offsets that belongs to a committed offset.

    Attributes
    ----------
    topic_id
        Id of the topic of input offsets.
    next_offset
        The committed input offset, next to read.
    sequence
        Number of the commit, which grows with each commit of the task.
    written_ms
        Time of the brokers at which the group's offset was written, ms since the epoch.
    refreshed
        The group's offset was written again later, without a commit of the task.
    input_id
        Id of the input topic; None: not known.
    """

    topic_id: str
    next_offset: int
    sequence: int
    written_ms: int
    refreshed: bool = False
    input_id: str | None = None


class CommitMetadata(NamedTuple):
    """Stream time of a partition and times by name, all in ms, and the stamp, if any."""

    partition_time: int = UNKNOWN_TIME
    times: Mapping[str, int] = {}
    stamp: Stamp | None = None

    def stamp_for(self, topic_id: str, next_offset: int) -> Stamp | None:
        """Return the stamp if it is of this topic of input offsets and of this offset; None otherwise."""
        found = self.stamp
        return found if found is not None and (found.topic_id, found.next_offset) == (topic_id, next_offset) else None


def encode(metadata: CommitMetadata) -> str:
    """Lay out the metadata. A stamp for which brokers have no room is left out."""
    whole = _encode(metadata)
    return whole if len(whole) <= _MAX_BYTES or metadata.stamp is None else _encode(metadata._replace(stamp=None))


def _encode(metadata: CommitMetadata) -> str:
    parts = [_HEAD.pack(_MAGIC, metadata.partition_time)]
    entries = dict(metadata.times)
    if (stamp := metadata.stamp) is not None:
        kind = _REFRESHED if stamp.refreshed else _COMMITTED
        topics = stamp.topic_id if stamp.input_id is None else f"{stamp.topic_id}@{stamp.input_id}"
        entries[f"{_STAMP}{topics}/{stamp.next_offset}/{stamp.sequence}/{kind}"] = stamp.written_ms
    if entries:
        parts.append(_INT32.pack(len(entries)))
        for name, time in entries.items():
            raw = name.encode()
            parts += [_INT32.pack(len(raw)), raw, _INT64.pack(time)]
    return base64.b64encode(b"".join(parts)).decode("ascii")


def is_metadata(text: str) -> bool:
    """Return whether the text is metadata of this layout: Kafka's tools commit offsets without any."""
    raw = _decode_start(text)
    return len(raw) >= _HEAD.size and raw[0] in (1, _MAGIC)


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
    times = _times(raw[_HEAD.size :]) if magic == _MAGIC else {}
    stamps = [found for name in list(times) if (found := _STAMP_KEY.fullmatch(name)) is not None]
    stamp: Stamp | None = None
    for found in stamps:
        written_ms = times.pop(found[0])
        stamp = Stamp(found[1], int(found[3]), int(found[4]), written_ms, found[5] == _REFRESHED, found[2])
    return CommitMetadata(partition_time, times, stamp)


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
