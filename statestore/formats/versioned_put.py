"""The changes of a put to the rows of its key in a versioned store (KIP-889; as Kafka Streams' RocksDBVersionedStore).

A version lies in the segment of the time at which it stops being valid. So a put looks for the earliest version that
begins behind it, from the newest segment on: first among the latest values, then row by row. It may make the version
before it end earlier, which then moves to an earlier segment.

Nothing here knows of a database: the rows of a key come from whoever has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from statestore.formats.versioned_row import SegmentRow, Version, segment_of

#: What a put returns instead of the time until which its value is valid, with Kafka Streams' numbers.
PUT_RETURN_CODE_VALID_TO_UNDEFINED = -1
PUT_RETURN_CODE_NOT_PUT = -(1 << 63)


class RowsOfKey(Protocol):
    """The rows that a key has."""

    def latest(self) -> Version | None:
        """The latest value; None if there is none."""

    def set_latest(self, version: Version) -> None:
        """Replace the latest value; one that is None is removed."""

    def segments_from(self, segment: int) -> Iterable[int]:
        """Segments from one on that may have a row, the newest first."""

    def bounds(self, segment: int) -> tuple[int, int] | None:
        """Next and min timestamp (ms) of a row; None if there is none."""

    def row(self, segment: int) -> SegmentRow | None:
        """The row of a segment."""

    def set_row(self, segment: int, row: SegmentRow) -> None:
        """Write the row of a segment."""


def put(rows: RowsOfKey, new: Version, interval_ms: int, live_from: int, oldest_ms: int) -> int:
    """Write a version of a key; None deletes.

    Parameters
    ----------
    interval_ms
        Length of a segment.
    live_from
        The first segment that has not expired.
    oldest_ms
        The first time whose history is kept.

    Returns
    -------
    int
        Until when (ms) it is valid; PUT_RETURN_CODE_VALID_TO_UNDEFINED if it is the latest, and PUT_RETURN_CODE_NOT_PUT
        if only history that has expired would have it.
    """
    valid_to: int | None = None
    if (latest := rows.latest()) is not None:
        if new.timestamp >= latest.timestamp:
            if new.timestamp > latest.timestamp:
                _append(rows, latest, new.timestamp, interval_ms, live_from)
            rows.set_latest(new)
            return PUT_RETURN_CODE_VALID_TO_UNDEFINED
        valid_to = latest.timestamp
    for segment in rows.segments_from(segment_of(new.timestamp, interval_ms)):
        if (found := rows.bounds(segment)) is None:
            continue
        next_timestamp, min_timestamp = found
        if next_timestamp <= new.timestamp:
            break
        if min_timestamp <= new.timestamp:
            return _put_among(rows, segment, new, interval_ms, live_from)
        if min_timestamp < oldest_ms:
            return PUT_RETURN_CODE_NOT_PUT
        valid_to = min_timestamp
    if valid_to is not None:
        return valid_to if _put_before(rows, new, valid_to, interval_ms, live_from) else PUT_RETURN_CODE_NOT_PUT
    if new.value is not None:
        rows.set_latest(new)
    elif not _append(rows, None, new.timestamp, interval_ms, live_from):
        return PUT_RETURN_CODE_NOT_PUT
    return PUT_RETURN_CODE_VALID_TO_UNDEFINED


def _put_among(rows: RowsOfKey, segment: int, new: Version, interval_ms: int, live_from: int) -> int:
    """Put a version among those of a row, in whose time it begins; return until when it is valid."""
    row = rows.row(segment)
    assert row is not None, "its bounds were read"
    versions = row.versions
    at = next(index for index, version in enumerate(versions) if version.timestamp <= new.timestamp)
    valid_to = versions[at - 1].timestamp if at else row.next_timestamp
    rest = versions[at + 1 :]
    if versions[at].timestamp != new.timestamp:
        if segment_of(new.timestamp, interval_ms) == segment:
            rest = versions[at:]
        else:  # what was valid until now ends in the time of an earlier segment
            _append(rows, versions[at], new.timestamp, interval_ms, live_from)
    rows.set_row(segment, SegmentRow(row.next_timestamp, (*versions[:at], new, *rest)))
    return valid_to


def _put_before(rows: RowsOfKey, new: Version, valid_to: int, interval_ms: int, live_from: int) -> bool:
    """Put a version that ends where the earliest known one behind it begins; False if that has expired."""
    segment = segment_of(valid_to, interval_ms)
    if segment < live_from:
        return False
    row = rows.row(segment)
    if row is None:
        rows.set_row(segment, SegmentRow(valid_to, (new,)))
    elif row.next_timestamp <= new.timestamp:
        _append(rows, new, valid_to, interval_ms, live_from)
    else:
        earlier = () if row.degenerate else row.versions
        rows.set_row(segment, SegmentRow(row.next_timestamp, (*earlier, new)))
    return True


def _append(rows: RowsOfKey, ended: Version | None, valid_to: int, interval_ms: int, live_from: int) -> bool:
    """Keep a version that ended at a time as the newest of its segment; None: only that the key was deleted then.

    False if the segment has expired.
    """
    segment = segment_of(valid_to, interval_ms)
    if segment < live_from:
        return False
    row = rows.row(segment)
    if (changed := appended(row, ended, valid_to)) is not row:
        rows.set_row(segment, changed)
    return True


def appended(row: SegmentRow | None, ended: Version | None, valid_to: int) -> SegmentRow:
    """Return a row with a version more, its newest; None: only that the key was deleted at `valid_to`."""
    if row is None:
        return SegmentRow(valid_to, (Version(valid_to, None) if ended is None else ended,))
    if ended is None:
        if row.next_timestamp == valid_to:
            return row
        ended = Version(row.next_timestamp, None)
    versions = () if row.degenerate else row.versions
    if row.next_timestamp > ended.timestamp:
        # Killed between two writes, Kafka Streams leaves a version in both segments: here it ends twice.
        versions = tuple(version for version in versions if version.timestamp < ended.timestamp)
    elif row.next_timestamp < ended.timestamp:
        versions = (Version(row.next_timestamp, None), *versions)
    return SegmentRow(valid_to, (ended, *versions))
