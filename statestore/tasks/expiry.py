"""Finds the rows of a store that are older than its ttl by reading its changelog, not by scanning its rows.

A changelog in the order of its offsets is nearly in the order of time. A cursor therefore passes over it once:

    deleted or replaced, or old: its row is deleted     the cursor           not old enough yet     newer
    ------------------------------------------------|  first record that  |------------------------------->
                                                        is not old enough

An old record only names a key. The row is deleted if its own timestamp is before stream time minus the ttl, so a row
that was written again meanwhile stays. A late record waits for the records before it, for the ttl at most. The cursor
passes a record that is later than stream time, because this record could hold up all others for years. The cursor
returns to the first of these records when one of them is old.

If the cursor is lost or recorded too early, a run only reads more. If it were recorded too late, rows would be skipped.
Therefore, it is recorded after the deletes are committed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP
from statestore.formats.value_format import ValueFormat
from statestore.statedir.record import ExpiryCursor

#: For each store, a run reads at most `LEAST_RECORDS` changelog records, or `PER_LOGGED` for each record that it has
#: logged, if this is more. A row is logged when it is written and when it is deleted, so a backlog shrinks.
LEAST_RECORDS, PER_LOGGED = 50_000, 4


class Passed(NamedTuple):
    """Records that a cursor has passed.

    Attributes
    ----------
    keys
        Keys of old records; their rows may be newer.
    stopped
        Whether it met a record that is not old enough.
    """

    cursor: ExpiryCursor
    keys: list[bytes]
    stopped: bool


def is_due(cursor: ExpiryCursor, limit: int) -> bool:
    """Return whether records may be older than the limit (ms)."""
    return limit > 0 and (cursor.time is None or cursor.time < limit or _is_woken(cursor, limit))


def returned(cursor: ExpiryCursor, limit: int) -> ExpiryCursor:
    """Return the cursor at the first record that it passed because it was in the future, if one of them is old now."""
    if cursor.skipped_offset is None or not _is_woken(cursor, limit):
        return cursor
    return ExpiryCursor(offset=min(cursor.offset, cursor.skipped_offset))


def _is_woken(cursor: ExpiryCursor, limit: int) -> bool:
    return cursor.skipped_time is not None and cursor.skipped_time < limit


def pass_records(cursor: ExpiryCursor, records: pa.RecordBatch, limit: int, stream_time: int) -> Passed:
    """Move a cursor over records of the changelog, up to the first that is not old enough.

    Parameters
    ----------
    records
        `SCHEMA` of `kafka/reader.py`, from the cursor on.
    limit
        Rows with a smaller timestamp (ms) are deleted.
    """
    if not records.num_rows:
        return Passed(cursor, [], stopped=False)
    timestamps, offsets = records.column("timestamp").to_numpy(), records.column("offset").to_numpy()
    rows = (records.column("key").is_valid().to_numpy(False)) & (records.column("value").is_valid().to_numpy(False))
    young = np.flatnonzero(rows & (timestamps >= limit) & (timestamps <= stream_time))
    end = int(young[0]) if len(young) else len(timestamps)
    old = np.flatnonzero(rows[:end] & (timestamps[:end] < limit))
    future = np.flatnonzero(rows[:end] & (timestamps[:end] > stream_time))
    skipped_offset, skipped_time = cursor.skipped_offset, cursor.skipped_time
    if len(future):
        earliest = int(timestamps[future].min())
        skipped_offset = int(offsets[future[0]]) if skipped_offset is None else skipped_offset
        skipped_time = earliest if skipped_time is None else min(skipped_time, earliest)
    moved = ExpiryCursor(
        offset=int(offsets[end]) if len(young) else int(offsets[-1]) + 1,
        time=int(timestamps[end]) if len(young) else None,
        skipped_offset=skipped_offset,
        skipped_time=skipped_time,
    )
    keys = records.column("key").take(pa.array(old)).unique().to_pylist()
    return Passed(moved, keys, bool(len(young)))


def is_old(stored: bytes | None, layout: ValueFormat, limit: int) -> bool:
    """Return whether a stored value is older than the limit (ms).

    One of an unknown time is not: it came from a plain store, and its record may be a later one.
    """
    if stored is None:
        return False
    at = layout.timestamp_at(stored)
    return UNKNOWN_TIMESTAMP < int.from_bytes(stored[at : at + 8], "big", signed=True) < limit
