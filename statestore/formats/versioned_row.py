"""Rows of a versioned store (KIP-889; Kafka Streams' RocksDBVersionedStore).

All rows of a store lie in one database. A row key begins with the number of its segment, big-endian; segment -1 has the
latest value of each key, unless that is a tombstone.

0          8
+----------+---------------+          0           8
| segment  | key bytes ... |          +-----------+-----------+
+----------+---------------+   -1 ->  | timestamp | value ... |
                                      +-----------+-----------+

Every other segment has a row for each key with the versions that were replaced in its time: the segment's number is the
time at which a version stopped being valid, divided by the segment interval. Versions are listed newest first, their
values oldest first. A tombstone has the size -1.

0                8               16          24     28
+----------------+---------------+-----------+------+------ ... +---------------------------- ...
| next timestamp | min timestamp | timestamp | size | ...       | values, those of the oldest version first
+----------------+---------------+-----------+------+------ ... +---------------------------- ...

A version is valid until the one listed before it begins, the newest until the next timestamp. The last of the list
begins at the min timestamp. A row is degenerate if its next and its min timestamp are the same: it has one tombstone,
of a key that had no value when it was deleted.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from statestore.errors import StoreCorruptedError

#: Segment of the latest values.
LATEST = -1
SEGMENT_BYTES = 8
TOMBSTONE = -1
_INT64 = Struct(">q")
_BOUNDS = Struct(">qq")
_ENTRY = Struct(">qi")
#: History retentions (ms) up to one: into how many segments they are divided, and how long (ms) these are at least.
_INTERVALS = ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000))
_LONGEST = (24, 300_000)


class Version(NamedTuple):
    """A value of a key from a time (ms) on; None: it was deleted."""

    timestamp: int
    value: bytes | None


class SegmentRow(NamedTuple):
    """Versions of a key that were replaced in the time of a segment.

    Attributes
    ----------
    next_timestamp
        When (ms) the newest of them stopped being valid.
    versions
        Newest first.
    """

    next_timestamp: int
    versions: tuple[Version, ...]

    @property
    def min_timestamp(self) -> int:
        """When (ms) the oldest version began."""
        return self.versions[-1].timestamp

    @property
    def degenerate(self) -> bool:
        """True if all it tells is that a key without a value was deleted."""
        return self.next_timestamp == self.versions[-1].timestamp


def default_segment_interval_ms(history_retention_ms: int) -> int:
    """Length (ms) of a segment where none is said, as Kafka Streams' supplier chooses it."""
    parts, least_ms = _LONGEST
    for longest_ms, *found in _INTERVALS:
        if history_retention_ms <= longest_ms:
            parts, least_ms = found
            break
    return max(history_retention_ms // parts, least_ms)


def segment_of(timestamp: int, interval_ms: int) -> int:
    """Number of the segment of a time (ms); rounded towards zero, as Java divides."""
    return timestamp // interval_ms if timestamp >= 0 else -(-timestamp // interval_ms)


def row_key(segment: int, key: bytes) -> bytes:
    """Put the segment in front of a key."""
    return _INT64.pack(segment) + key


def decode_row_key(raw: bytes) -> tuple[int, bytes]:
    """Split a row key into segment and key.

    Raises
    ------
    StoreCorruptedError
        If it is too short to be one, or if there is no such segment.
    """
    if len(raw) < SEGMENT_BYTES:
        raise StoreCorruptedError(f"a versioned store's row key has at least {SEGMENT_BYTES} bytes, found {len(raw)}")
    (segment,) = _INT64.unpack_from(raw)
    if segment < LATEST:
        raise StoreCorruptedError(f"a versioned store has segments from {LATEST} on, found a row of segment {segment}")
    return segment, raw[SEGMENT_BYTES:]


def encode_latest(value: bytes, timestamp: int) -> bytes:
    """Put the timestamp (ms) in front of a key's latest value."""
    return _INT64.pack(timestamp) + value


def decode_latest(raw: bytes) -> tuple[int, bytes]:
    """Split a latest value into timestamp (ms) and value.

    Raises
    ------
    StoreCorruptedError
        If there is no room for a timestamp, or if it is negative.
    """
    if len(raw) < _INT64.size:
        raise StoreCorruptedError(f"a latest value has at least {_INT64.size} bytes, found {len(raw)}")
    (timestamp,) = _INT64.unpack_from(raw)
    if timestamp < 0:
        raise StoreCorruptedError(f"a latest value has the timestamp {timestamp}, expected 0 or later")
    return timestamp, raw[_INT64.size :]


def encode_segment_row(row: SegmentRow) -> bytes:
    """Return a segment's row as it is stored."""
    listed, values = [_BOUNDS.pack(row.next_timestamp, row.min_timestamp)], []
    for timestamp, value in row.versions:
        listed.append(_ENTRY.pack(timestamp, TOMBSTONE if value is None else len(value)))
        values.append(value or b"")
    return b"".join([*listed, *reversed(values)])


def bounds(raw: bytes) -> tuple[int, int]:
    """Next and min timestamp (ms) of a segment's row, without reading its versions.

    Raises
    ------
    StoreCorruptedError
        If it is too short to have them.
    """
    if len(raw) < _BOUNDS.size + _ENTRY.size:
        raise _damaged(f"at least {_BOUNDS.size + _ENTRY.size} bytes", f"{len(raw)}")
    found = _BOUNDS.unpack_from(raw)
    return found[0], found[1]


def decode_segment_row(raw: bytes) -> SegmentRow:
    """Read a segment's row.

    Raises
    ------
    StoreCorruptedError
        If it is none, or if its versions are not in order.
    """
    next_timestamp, min_timestamp = bounds(raw)
    at, end, later = _BOUNDS.size, len(raw), next_timestamp
    versions: list[Version] = []
    while True:
        if at + _ENTRY.size > end:
            raise _damaged(f"a version that begins at {min_timestamp}", f"none in {len(raw)} bytes")
        timestamp, size = _ENTRY.unpack_from(raw, at)
        at += _ENTRY.size
        alone = not versions and size < 0 and timestamp == next_timestamp == min_timestamp
        if not (min_timestamp <= timestamp < later or alone) or timestamp < 0:
            raise _damaged(f"a version from {max(min_timestamp, 0)} on, before {later}", f"one at {timestamp}")
        if size < 0:
            versions.append(Version(timestamp, None))
        else:
            end -= size
            if end < at:
                raise _damaged(f"a value of {size} bytes for the version at {timestamp}", f"{len(raw)} bytes in all")
            versions.append(Version(timestamp, raw[end : end + size]))
        if timestamp == min_timestamp:
            break
        later = timestamp
    if at != end:
        raise _damaged(f"{at + len(raw) - end} bytes", f"{len(raw)}")
    return SegmentRow(next_timestamp, tuple(versions))


def _damaged(expected: str, found: str) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"a row of a versioned store's segment is damaged: expected {expected}, found {found}; restore the store"
    )
