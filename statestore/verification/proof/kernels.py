"""Loops over rows and records for the proof, compiled by numba. Rows are addresses of Arrow buffers.

Two hashes of 64 bits identify a key. A row is compared by a hash of its bytes without its timestamp, and by that
timestamp. A table of facts has one row for each key. A hash table with open addressing has the numbers of these rows:
`tag << 32 | number + 1` for each key, and 0 in free slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from statestore.bulk.sorting import segment_of
from statestore.compiled.batches import Address, Bytes, Int64s, UInt64s
from statestore.compiled.loops import compiled, inlined
from statestore.compiled.memory import (
    Int,
    is_null,
    load_big_i64,
    load_i32,
    load_i64,
    load_u8,
    load_u64,
    mixed,
    prefetch,
    xxh64,
)
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, UNKNOWN_TIMESTAMP
from statestore.verification.kernels import NO_TIMES, TIMES_BEHIND_HEADERS, TIMES_IN_FRONT, headers_end

#: Columns of the facts about a key, all int64, together one cache line:
#: its two hashes; the hash of its row without the timestamp, with the flags below instead of its last bits; that
#: timestamp (ms); the start (ms) of its segment; the offset with which its current interval begins, which is the latest
#: run of records that the row equals; the offset of the first required record after it that differs; and the offset of
#: its last required record.
LOW, HIGH, PRINT, TIME, SEGMENT, FIRST, FOLLOWING, LAST = range(8)
COLUMNS = 8
#: Flags in `PRINT`: the store has a row; its current interval begins with a record that need not be in the store.
STORED, BY_OPTIONAL = 1, 2
_FLAGS = 3
#: Values that are no offsets: of `FIRST`, if no record explains the row; of `LAST`, without a required record; of
#: `FOLLOWING`, if no later record differs.
UNEXPLAINED = NO_RECORD = -(1 << 62)
OPEN = (1 << 63) - 1
#: In `SEGMENT`: several partitions of a global table's topic have the key.
SHARED = -1
#: Memory for each key while it grows, and how many times the memory of a sorted run all of them may have.
KEY_BYTES = 110
RUNS_OF_MEMORY = 6
Facts = npt.NDArray[np.int64]
#: Number of keys that are hashed at once, so that their memory is prefetched before it is used.
AHEAD = 64
#: Why a loop ended.
DONE, KEYS_FULL, INTERVALS_FULL, SHORT_KEY, SHORT_VALUE = range(5)
#: Counters that the loops carry from batch to batch: keys; closed intervals; rows of the store that occur twice, or in
#: the segment of another time; records; records without a key; and the largest time in row keys.
KEYS, INTERVALS, MISPLACED, STREAM_TIME = range(4)
STATES = 4


class Intervals(NamedTuple):
    """Earlier intervals of keys whose rows several runs of records explain: the key's number, `FIRST`, `FOLLOWING`."""

    keys: Int64s
    first: Int64s
    following: Int64s


class Layout(NamedTuple):
    """How rows are compared.

    Attributes
    ----------
    times
        Where their timestamps are, as of `verification.kernels.times_of`.
    suffix_bytes, interval_ms, ignores_deletes
        As of `Routing`; `interval_ms` is 0 in a key-value store.
    part, parts
        Only keys whose second hash leaves this remainder are taken.
    """

    times: int
    suffix_bytes: int
    interval_ms: int
    ignores_deletes: bool
    part: int
    parts: int


@compiled
def second_hash(address: Int, size: Int) -> Int:
    """Hash bytes independently of XXH64: with it, a key has 128 bits."""
    end = address + size
    found = np.uint64(0x27D4EB2F165667C5) ^ np.uint64(size)
    if 8 <= size <= 16:
        found = (found ^ load_u64(address)) * np.uint64(0x9E3779B97F4A7C15)
        return mixed((found ^ (found >> np.uint64(29)) ^ load_u64(end - 8)) * np.uint64(0xBF58476D1CE4E5B9))
    while address + 8 <= end:
        found = (found ^ load_u64(address)) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
        address += 8
    tail = np.uint64(0)
    while address < end:
        tail = (tail << np.uint64(8)) | np.uint64(load_u8(address))
        address += 1
    return mixed((found ^ tail) * np.uint64(0xBF58476D1CE4E5B9))


@inlined
def _number_of(low: Int, high: Int, facts: Facts, table: UInt64s) -> tuple[Int, Int]:
    """Find a key's number, or -1, and its slot, or the free one for it."""
    mask = np.uint64(len(table) - 1)
    tag = low >> np.uint64(32)
    slot = low & mask
    while True:
        entry = table[slot]
        if entry == 0:
            return np.int64(-1), slot
        if entry >> np.uint64(32) == tag:
            number = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
            if facts[number, LOW] == np.int64(low) and facts[number, HIGH] == np.int64(high):
                return number, slot
        slot = (slot + np.uint64(1)) & mask


@inlined
def _is_of_part(high: Int, layout: Layout) -> bool:
    return bool(layout.parts == 1 or high % np.uint64(layout.parts) == np.uint64(layout.part))


@compiled
def rebuild(facts: Facts, count: Int, table: UInt64s) -> None:
    """Enter all keys into an empty table."""
    mask = np.uint64(len(table) - 1)
    for number in range(count):
        low = np.uint64(facts[number, LOW])
        slot = low & mask
        while table[slot] != 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = (low >> np.uint64(32)) << np.uint64(32) | np.uint64(number + 1)


@compiled
def _split(value: Int, size: Int, times: Int) -> tuple[Int, Int, Int]:
    """Return a stored value's hash without its timestamp, that timestamp, and 1 if it has room for it."""
    if times == TIMES_IN_FRONT:
        if size < TIMESTAMP_BYTES:
            return np.uint64(0), np.int64(0), 0
        return xxh64(value + TIMESTAMP_BYTES, size - TIMESTAMP_BYTES), load_big_i64(value), 1
    if times == TIMES_BEHIND_HEADERS:
        front = headers_end(value, size)
        if front + TIMESTAMP_BYTES > size:
            return np.uint64(0), np.int64(0), 0
        behind = front + TIMESTAMP_BYTES
        found = mixed(xxh64(value, front)) + xxh64(value + behind, size - behind)
        return found, load_big_i64(value + front), 1
    return xxh64(value, size), np.int64(0), 1


@compiled
def add_rows(
    place: Address,
    begin: Int,
    segment: Int,
    layout: Layout,
    facts: Facts,
    table: UInt64s,
    hashes: UInt64s,
    state: Int64s,
) -> tuple[Int, Int]:
    """Enter rows of a store, with values as they are stored; return the next row, and why the loop ended."""
    mask = np.uint64(len(table) - 1)
    slots = table.ctypes.data
    count = state[KEYS]
    row, hashed = np.int64(begin), np.int64(begin - AHEAD)
    while row < place.rows:
        if row == hashed + AHEAD:
            hashed = row
            ahead: Int = min(AHEAD, place.rows - row)
            for at in range(ahead):
                key_at = load_i32(place.key_ends + 4 * (row + at))
                hashes[at] = xxh64(place.keys + key_at, load_i32(place.key_ends + 4 * (row + at) + 4) - key_at)
                prefetch(slots + 8 * np.int64(hashes[at] & mask))
        if count >= len(facts) or 2 * (count + 1) > len(table):
            state[KEYS] = count
            return row, KEYS_FULL
        at = load_i32(place.key_ends + 4 * row)
        key, size = place.keys + at, np.int64(load_i32(place.key_ends + 4 * row + 4) - at)
        if size < layout.suffix_bytes:
            state[KEYS] = count
            return row, SHORT_KEY
        at = load_i32(place.value_ends + 4 * row)
        value, value_size = place.values + at, np.int64(load_i32(place.value_ends + 4 * row + 4) - at)
        found, time, fits = _split(value, value_size, layout.times)
        if not fits:
            state[KEYS] = count
            return row, SHORT_VALUE
        low, high = hashes[row - hashed], second_hash(key, size)
        row += 1
        if not _is_of_part(high, layout):
            continue
        number, slot = _number_of(low, high, facts, table)
        if number >= 0 or segment_of(key, size, layout.suffix_bytes, layout.interval_ms) != segment:
            state[MISPLACED] += 1
            continue
        number = count
        count += 1
        table[slot] = (low >> np.uint64(32)) << np.uint64(32) | np.uint64(number + 1)
        facts[number, LOW], facts[number, HIGH] = np.int64(low), np.int64(high)
        facts[number, PRINT] = (np.int64(found) & ~_FLAGS) | STORED
        facts[number, TIME] = time
        facts[number, SEGMENT] = segment
        facts[number, FIRST] = UNEXPLAINED
        facts[number, FOLLOWING] = OPEN
        facts[number, LAST] = NO_RECORD
    state[KEYS] = count
    return row, DONE


@compiled
def take_records(
    place: Address,
    begin: Int,
    start: Int,
    home: Int,
    required: bool,
    times_count: bool,
    layout: Layout,
    facts: Facts,
    intervals: Intervals,
    table: UInt64s,
    hashes: UInt64s,
    state: Int64s,
) -> tuple[Int, Int]:
    """Take records of the log in their order; return the next row, and why the loop ended.

    Parameters
    ----------
    start
        First offset of the log: an absent key is explained from the offset before it on.
    home
        Number of the partition, from 1, which is noted instead of a segment; 0 if the store is not global.
    required
        Whether their transactions are committed; other records may explain a row, and end no interval.
    times_count
        Whether their timestamps are their producers', and so those of the rows.
    """
    mask = np.uint64(len(table) - 1)
    slots = table.ctypes.data
    count, closed, stream_time = state[KEYS], state[INTERVALS], state[STREAM_TIME]
    row, stop = np.int64(begin), DONE
    while row < place.rows and stop == DONE:
        ahead: Int = min(AHEAD, place.rows - row)
        for at in range(ahead):
            key_at = load_i32(place.key_ends + 4 * (row + at))
            size = load_i32(place.key_ends + 4 * (row + at) + 4) - key_at
            hashes[at] = xxh64(place.keys + key_at, size)
            prefetch(slots + 8 * np.int64(hashes[at] & mask))
        for at in range(ahead):
            entry = table[hashes[at] & mask]
            if entry != 0:
                number = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
                prefetch(facts.ctypes.data + 8 * COLUMNS * number)
        for at in range(ahead):
            if count >= len(facts) or 2 * (count + 1) > len(table):
                stop = KEYS_FULL
                break
            if closed >= len(intervals.keys):
                stop = INTERVALS_FULL
                break
            if is_null(place.keys_valid, place.keys_shift, row):
                row += 1
                continue
            key_at = load_i32(place.key_ends + 4 * row)
            key, size = place.keys + key_at, np.int64(load_i32(place.key_ends + 4 * row + 4) - key_at)
            if size < layout.suffix_bytes:
                stop = SHORT_KEY
                break
            deletes = is_null(place.values_valid, place.values_shift, row)
            if required and layout.suffix_bytes:
                stream_time = max(stream_time, load_big_i64(key + size - layout.suffix_bytes))
            if deletes and layout.ignores_deletes:
                row += 1
                continue
            low, high = hashes[at], second_hash(key, size)
            if not _is_of_part(high, layout):
                row += 1
                continue
            number, slot = _number_of(low, high, facts, table)
            if number < 0:
                number = count
                count += 1
                table[slot] = (low >> np.uint64(32)) << np.uint64(32) | np.uint64(number + 1)
                facts[number, LOW], facts[number, HIGH] = np.int64(low), np.int64(high)
                facts[number, PRINT] = 0
                facts[number, SEGMENT] = (
                    home if home != 0 else segment_of(key, size, layout.suffix_bytes, layout.interval_ms)
                )
                facts[number, FIRST] = start - 1
                facts[number, FOLLOWING] = OPEN
                facts[number, LAST] = NO_RECORD
            elif home != 0 and facts[number, SEGMENT] != home:
                facts[number, SEGMENT] = home if facts[number, SEGMENT] == 0 else SHARED
            stored = facts[number, PRINT] & STORED != 0
            same = deletes and not stored
            if not deletes and stored:
                value_at = load_i32(place.value_ends + 4 * row)
                value = place.values + value_at
                value_size = np.int64(load_i32(place.value_ends + 4 * row + 4) - value_at)
                if layout.times == TIMES_BEHIND_HEADERS:
                    found, time, fits = _split(value, value_size, layout.times)
                    same = fits == 1 and np.int64(found) | _FLAGS == facts[number, PRINT] | _FLAGS
                else:
                    time = load_i64(place.timestamps + 8 * row)
                    same = True
                if same and layout.times != NO_TIMES and times_count:
                    same = facts[number, TIME] == time or facts[number, TIME] == UNKNOWN_TIMESTAMP
                if same and layout.times != TIMES_BEHIND_HEADERS:  # most records differ in their times
                    same = np.int64(xxh64(value, value_size)) | _FLAGS == facts[number, PRINT] | _FLAGS
            offset = load_i64(place.offsets + 8 * row)
            if same:
                explained = facts[number, FIRST] != UNEXPLAINED
                if not explained or facts[number, FOLLOWING] != OPEN:
                    if explained:
                        intervals.keys[closed] = number
                        intervals.first[closed] = facts[number, FIRST]
                        intervals.following[closed] = facts[number, FOLLOWING]
                        closed += 1
                    facts[number, FIRST] = offset
                    facts[number, FOLLOWING] = OPEN
                    facts[number, PRINT] = (facts[number, PRINT] & ~BY_OPTIONAL) | (0 if required else BY_OPTIONAL)
                elif required:
                    facts[number, PRINT] &= ~BY_OPTIONAL
            elif required and facts[number, FOLLOWING] == OPEN:
                facts[number, FOLLOWING] = offset
            if required:
                facts[number, LAST] = offset
            row += 1
    state[KEYS], state[INTERVALS], state[STREAM_TIME] = count, closed, stream_time
    return row, stop


@compiled
def find_orphans(place: Address, facts: Facts, table: UInt64s, marks: Bytes) -> None:
    """Mark the rows of a store whose keys have no required record."""
    for row in range(place.rows):
        at = load_i32(place.key_ends + 4 * row)
        key, size = place.keys + at, np.int64(load_i32(place.key_ends + 4 * row + 4) - at)
        number, _ = _number_of(xxh64(key, size), second_hash(key, size), facts, table)
        marks[row] = number >= 0 and facts[number, LAST] == NO_RECORD
