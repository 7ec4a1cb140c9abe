"""Looks up a store's rows in the records of its log, if all of them are in memory.

It tells one thing, whether all is the same, and for that nothing needs to be sorted. What differs is then found by
comparing both in key order (comparison.py).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.bulk.digest import Digest, add_row
from statestore.bulk.last_records import LastRecords
from statestore.bulk.records import AHEAD, DELETE, HEAD, find, place_in, record_bytes
from statestore.bulk.routing import Routing
from statestore.bulk.sorting import segment_of
from statestore.compiled.batches import UInt64s
from statestore.compiled.loops import compiled
from statestore.compiled.memory import Int, compare, equal, load_big_i64, load_i32, load_i64, load_u32, prefetch, xxh64
from statestore.formats.timestamped_value import TIMESTAMP_BYTES
from statestore.formats.value_format import AnyFormat, value_format
from statestore.reports import Contents
from statestore.verification.kernels import column


class InMemoryComparison:
    """Finds a store's rows in its log.

    Parameters
    ----------
    latest
        The last record of every key of the log.
    """

    def __init__(self, latest: LastRecords, routing: Routing, store_format: AnyFormat) -> None:
        self._latest = latest
        self._suffix_bytes = routing.suffix_bytes
        self._interval_ms = routing.interval_ms or 0
        self._timestamped = value_format(store_format).timestamp_in_front
        self._digest = Digest(store_format)
        self._hashes = np.empty(AHEAD, np.uint64)
        self._before: tuple[int, bytes] | None = None

    def finds(self, segment: int, batch: pa.RecordBatch) -> bool:
        """Say whether all rows of a batch with `scan.STORED_SCHEMA` are in the log, and are as the log has them.

        Parameters
        ----------
        segment
            Start (ms) of the segment that they are in, 0 in a key-value store. Segments, and the rows of each, are
            given in their order: so none is counted twice.
        """
        rows = batch.num_rows
        if not rows:
            return True
        keys, values = batch.columns
        if self._before is not None and self._before >= (segment, keys[0].as_py()):
            return False
        self._before = segment, keys[-1].as_py()
        self._digest.rows += rows
        return bool(
            _all_found(
                column(keys), column(values), rows, self._latest.memory.ctypes.data, self._latest.table, self._hashes,
                self._timestamped, self._suffix_bytes, self._interval_ms, segment, self._digest.sums,
            )
        )  # fmt: skip

    def all_found(self, oldest: int) -> Contents | None:
        """What both have, if they have the same; None if the log has a row in a segment from `oldest` on besides."""
        live = _live(self._latest.memory.ctypes.data, self._latest.used, self._suffix_bytes, self._interval_ms, oldest)
        rows, digest = self._digest.rows, self._digest.hexdigest()
        if live != rows:
            return None
        return Contents(
            store_rows=rows,
            log_rows=rows,
            equal=rows,
            other_value=0,
            only_in_store=0,
            only_in_log=0,
            not_judged=0,
            store_digest=digest,
            log_digest=digest,
            sample=None,
            first=(),
        )


# -- loops, compiled --------------------------------------------------------------------------------------------------


@compiled
def _all_found(
    keys: tuple[int, int],
    values: tuple[int, int],
    rows: Int,
    memory: Int,
    table: UInt64s,
    hashes: UInt64s,
    timestamped: bool,
    suffix_bytes: Int,
    interval_ms: Int,
    segment: Int,
    sums: UInt64s,
) -> bool:
    mask = np.uint64(len(table) - 1)
    slots = table.ctypes.data
    first = 0
    while first < rows:
        ahead = min(AHEAD, rows - first)
        for at in range(ahead):
            begin = load_i32(keys[0] + 4 * (first + at))
            hashes[at] = xxh64(keys[1] + begin, load_i32(keys[0] + 4 * (first + at) + 4) - begin)
            prefetch(slots + 8 * np.int64((hashes[at] >> np.uint64(32)) & mask))
        for at in range(ahead):
            entry = table[(hashes[at] >> np.uint64(32)) & mask]
            if entry != 0:
                prefetch(place_in(memory, entry))
                prefetch(place_in(memory, entry) + 64)
        for at in range(ahead):
            row = first + at
            begin = load_i32(keys[0] + 4 * row)
            key, key_bytes = keys[1] + begin, np.int64(load_i32(keys[0] + 4 * row + 4) - begin)
            if row:
                before = load_i32(keys[0] + 4 * row - 4)
                if compare(keys[1] + before, np.int64(begin - before), key, key_bytes) >= 0:
                    return False
            if key_bytes < suffix_bytes or segment_of(key, key_bytes, suffix_bytes, interval_ms) != segment:
                return False
            _, place = find(hashes[at] >> np.uint64(32), key, key_bytes, memory, table, mask)
            if place == 0:
                return False
            begin = load_i32(values[0] + 4 * row)
            value, size = values[1] + begin, np.int64(load_i32(values[0] + 4 * row + 4) - begin)
            time = np.int64(0)
            if timestamped:
                if size < TIMESTAMP_BYTES:
                    return False
                time = load_big_i64(value)
                if time != load_i64(place):
                    return False
                value += TIMESTAMP_BYTES
                size -= TIMESTAMP_BYTES
            # A delete's size is below 0.
            if np.int64(load_i32(place + 20)) != size or not equal(place + HEAD + key_bytes, value, size):
                return False
            add_row(hashes[at], xxh64(value, size), time, sums)
        first += ahead
    return True


@compiled
def _live(memory: Int, used: Int, suffix_bytes: Int, interval_ms: Int, oldest: Int) -> Int:
    """Count the rows that a store restored from the log has in segments from `oldest` (ms) on."""
    live = at = np.int64(0)
    while at < used:
        place = memory + at
        if load_i32(place + 20) > DELETE:
            key_bytes = np.int64(load_u32(place + 16))
            live += segment_of(place + HEAD, key_bytes, suffix_bytes, interval_ms) >= oldest
        at += record_bytes(place)
    return live
