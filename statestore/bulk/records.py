"""Records in memory, the last of every key, and the table that finds them by their key.

Records lie one behind the other in one block of memory, each at a multiple of 8 bytes:

0           8        16          20            24         28            32    32+k
+-----------+--------+-----------+-------------+----------+-------------+-----+--------+
| timestamp | offset | key bytes | value bytes | capacity | fingerprint | key | value  |
+-----------+--------+-----------+-------------+----------+-------------+-----+--------+
  int64       int64    uint32      int32         uint32     uint32

Value bytes are -1 for a delete, and -2 for a record that lies elsewhere by now, because a longer value came. The table
has open addressing, and `fingerprint << 32 | place / 8 + 1` for each key, 0 where it is free: 32 GiB can be addressed.
"""

from __future__ import annotations

import numpy as np

from statestore.compiled.batches import Address, Int64s, UInt64s
from statestore.compiled.loops import compiled
from statestore.compiled.memory import (
    Int,
    copy,
    equal,
    is_null,
    load_big_i64,
    load_i32,
    load_i64,
    load_u32,
    move,
    prefetch,
    store_i32,
    store_i64,
    store_u32,
    xxh64,
)

HEAD = 32
DELETE = -1
_MOVED = -2
ADDRESSABLE_BYTES = 1 << 35
#: So many records are looked up at once, so that the memory that they need is on its way when it is needed.
AHEAD = 64

#: Why `take` ended.
DONE, FULL, TABLE_FULL, SHORT_KEY = range(4)

#: What `take` keeps from batch to batch: bytes of memory that are used; keys; bytes of records that lie elsewhere by
#: now; records with a key, and without; the last one's offset; the largest time in keys; bytes that a record needs.
USED, KEYS, DEAD, RECORDS, SKIPPED, LAST_OFFSET, STREAM_TIME, NEEDED = range(8)
STATES = 8


@compiled
def take(
    place: Address,
    first: Int,
    memory: Int,
    limit: Int,
    table: UInt64s,
    hashes: UInt64s,
    state: Int64s,
    suffix_bytes: Int,
    ignores_deletes: bool,
) -> tuple[Int, Int]:
    """Take records from row `first` on; return the row behind the last that was taken, and why."""
    mask = np.uint64(len(table) - 1)
    slots = table.ctypes.data
    rows = place.rows
    row = first
    while row < rows:
        free = len(table) // 2 - state[KEYS]
        if free <= 0:
            return row, TABLE_FULL
        ahead = min(AHEAD, rows - row, free)
        for at in range(ahead):
            begin = load_i32(place.key_ends + 4 * (row + at))
            size = load_i32(place.key_ends + 4 * (row + at) + 4) - begin
            hashes[at] = xxh64(place.keys + begin, size) >> np.uint64(32)
            prefetch(slots + 8 * np.int64(hashes[at] & mask))
        for at in range(ahead):
            entry = table[hashes[at] & mask]
            if entry != 0:
                prefetch(place_in(memory, entry))
                prefetch(place_in(memory, entry) + 64)
        for at in range(ahead):
            stop = _take_one(
                place, row + at, hashes[at], memory, limit, table, mask, state, suffix_bytes, ignores_deletes
            )
            if stop != DONE:
                return row + at, stop
        row += ahead
    return row, DONE


@compiled
def _take_one(
    place: Address,
    row: Int,
    fingerprint: Int,
    memory: Int,
    limit: Int,
    table: UInt64s,
    mask: Int,
    state: Int64s,
    suffix_bytes: Int,
    ignores_deletes: bool,
) -> Int:
    value_null = is_null(place.values_valid, place.values_shift, row)
    offset = load_i64(place.offsets + 8 * row)
    if is_null(place.keys_valid, place.keys_shift, row):
        state[SKIPPED] += 1
        state[LAST_OFFSET] = offset
        return DONE
    begin = load_i32(place.key_ends + 4 * row)
    key_bytes = np.int64(load_i32(place.key_ends + 4 * row + 4) - begin)
    key = place.keys + begin
    if key_bytes < suffix_bytes:
        return SHORT_KEY
    if suffix_bytes:
        state[STREAM_TIME] = max(state[STREAM_TIME], load_big_i64(key + key_bytes - suffix_bytes))
    if value_null and ignores_deletes:
        state[SKIPPED] += 1
        state[LAST_OFFSET] = offset
        return DONE
    begin = load_i32(place.value_ends + 4 * row)
    value = place.values + begin
    value_bytes = np.int64(0) if value_null else np.int64(load_i32(place.value_ends + 4 * row + 4) - begin)
    slot, target = find(fingerprint, key, key_bytes, memory, table, mask)
    if target == 0 or np.int64(load_u32(target + 24)) < value_bytes:
        room = (HEAD + key_bytes + value_bytes + 7) & ~7
        if state[USED] + room > limit:
            state[NEEDED] = room
            return FULL
        if target == 0:
            state[KEYS] += 1
        else:
            store_i32(target + 20, np.int32(_MOVED))
            state[DEAD] += (HEAD + key_bytes + np.int64(load_u32(target + 24)) + 7) & ~7
        target = memory + state[USED]
        table[slot] = (fingerprint << np.uint64(32)) | np.uint64((state[USED] >> 3) + 1)
        state[USED] += room
        store_u32(target + 16, np.uint32(key_bytes))
        store_u32(target + 24, np.uint32(room - HEAD - key_bytes))
        store_u32(target + 28, np.uint32(fingerprint))
        copy(target + HEAD, key, key_bytes)
    store_i64(target, load_i64(place.timestamps + 8 * row))
    store_i64(target + 8, offset)
    store_i32(target + 20, np.int32(DELETE) if value_null else np.int32(value_bytes))
    copy(target + HEAD + key_bytes, value, value_bytes)
    state[RECORDS] += 1
    state[LAST_OFFSET] = offset
    return DONE


@compiled
def place_in(memory: Int, entry: Int) -> Int:
    """Address of the record that an entry of the table is of."""
    return memory + 8 * (np.int64(entry & np.uint64(0xFFFFFFFF)) - 1)


@compiled
def find(fingerprint: Int, key: Int, key_bytes: Int, memory: Int, table: UInt64s, mask: Int) -> tuple[Int, Int]:
    """Find the record of a key: its slot in the table, or the free one for it, and its address (0: there is none)."""
    slot = fingerprint & mask
    while True:
        entry = table[slot]
        if entry == 0:
            return slot, np.int64(0)
        if entry >> np.uint64(32) == fingerprint:
            place = place_in(memory, entry)
            if np.int64(load_u32(place + 16)) == key_bytes and equal(place + HEAD, key, key_bytes):
                return slot, place
        slot = (slot + np.uint64(1)) & mask


@compiled
def resized(table: UInt64s, slots: Int) -> UInt64s:
    """Return the table with another number of slots."""
    result = np.zeros(slots, np.uint64)
    mask = np.uint64(slots - 1)
    for entry in table:
        if entry != 0:
            slot = (entry >> np.uint64(32)) & mask
            while result[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            result[slot] = entry
    return result


@compiled
def record_bytes(place: Int) -> Int:
    """Memory that the record at an address takes."""
    return (HEAD + np.int64(load_u32(place + 16)) + np.int64(load_u32(place + 24)) + 7) & ~7


@compiled
def compact(memory: Int, table: UInt64s, state: Int64s) -> None:
    """Move the records together over those that lie elsewhere by now."""
    table[:] = 0
    mask = np.uint64(len(table) - 1)
    at = kept = np.int64(0)
    while at < state[USED]:
        room = record_bytes(memory + at)
        if load_i32(memory + at + 20) != _MOVED:
            move(memory + kept, memory + at, room)
            fingerprint = np.uint64(load_u32(memory + kept + 28))
            slot = fingerprint & mask
            while table[slot] != 0:
                slot = (slot + np.uint64(1)) & mask
            table[slot] = (fingerprint << np.uint64(32)) | np.uint64((kept >> 3) + 1)
            kept += room
        at += room
    state[USED] = kept
    state[DEAD] = 0


@compiled
def collect(memory: Int, used: Int, places: Int64s) -> None:
    """Find the addresses of all records."""
    at, count = np.int64(0), 0
    while at < used:
        if load_i32(memory + at + 20) != _MOVED:
            places[count] = memory + at
            count += 1
        at += record_bytes(memory + at)
