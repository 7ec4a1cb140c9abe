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
from statestore.compiled.loops import compiled, inlined
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
    """Take records from row `first` on; return the row behind the last that was taken, and why.

    All in one function, and what changes with each record in its variables: it takes half the time.
    """
    mask = np.uint64(len(table) - 1)
    slots = table.ctypes.data
    rows, row, stop = place.rows, np.int64(first), DONE
    used, keys, dead, records, skipped = state[USED], state[KEYS], state[DEAD], state[RECORDS], state[SKIPPED]
    stream_time = state[STREAM_TIME]
    while row < rows and stop == DONE:
        ahead = min(AHEAD, rows - row, len(table) // 2 - keys)
        if ahead <= 0:
            stop = TABLE_FULL
        for at in range(ahead):
            begin = load_i32(place.key_ends + 4 * (row + at))
            size = load_i32(place.key_ends + 4 * (row + at) + 4) - begin
            hashes[at] = xxh64(place.keys + begin, size) >> np.uint64(32)
            prefetch(slots + 8 * np.int64(hashes[at] & mask))
        for at in range(ahead):
            entry = table[hashes[at] & mask]
            if entry != 0:
                known = place_in(memory, entry)
                prefetch(known)
                prefetch(known + 64)
                prefetch(known + 128)
        for at in range(ahead):
            value_null = is_null(place.values_valid, place.values_shift, row)
            if is_null(place.keys_valid, place.keys_shift, row):
                skipped += 1
                row += 1
                continue
            begin = load_i32(place.key_ends + 4 * row)
            key, key_bytes = place.keys + begin, np.int64(load_i32(place.key_ends + 4 * row + 4) - begin)
            if key_bytes < suffix_bytes:
                stop = SHORT_KEY
                break
            if suffix_bytes:
                stream_time = max(stream_time, load_big_i64(key + key_bytes - suffix_bytes))
            if value_null and ignores_deletes:
                skipped += 1
                row += 1
                continue
            begin = load_i32(place.value_ends + 4 * row)
            value, value_bytes = place.values + begin, np.int64(load_i32(place.value_ends + 4 * row + 4) - begin)
            if value_null:
                value_bytes = np.int64(0)
            slot, target = find(hashes[at], key, key_bytes, memory, table, mask)
            if target == 0 or np.int64(load_u32(target + 24)) < value_bytes:
                room = (HEAD + key_bytes + value_bytes + 7) & ~7
                if used + room > limit:
                    state[NEEDED] = room
                    stop = FULL
                    break
                if target == 0:
                    keys += 1
                else:
                    store_i32(target + 20, np.int32(_MOVED))
                    dead += (HEAD + key_bytes + np.int64(load_u32(target + 24)) + 7) & ~7
                target = memory + used
                table[slot] = (hashes[at] << np.uint64(32)) | np.uint64((used >> 3) + 1)
                used += room
                store_u32(target + 16, np.uint32(key_bytes))
                store_u32(target + 24, np.uint32(room - HEAD - key_bytes))
                store_u32(target + 28, np.uint32(hashes[at]))
                copy(target + HEAD, key, key_bytes)
            store_i64(target, load_i64(place.timestamps + 8 * row))
            store_i64(target + 8, load_i64(place.offsets + 8 * row))
            store_i32(target + 20, np.int32(DELETE) if value_null else np.int32(value_bytes))
            copy(target + HEAD + key_bytes, value, value_bytes)
            records += 1
            row += 1
    state[USED], state[KEYS], state[DEAD], state[RECORDS], state[SKIPPED] = used, keys, dead, records, skipped
    state[STREAM_TIME] = stream_time
    if row > first:
        state[LAST_OFFSET] = load_i64(place.offsets + 8 * (row - 1))
    return row, stop


@inlined
def place_in(memory: Int, entry: Int) -> Int:
    """Address of the record that an entry of the table is of."""
    return memory + 8 * (np.int64(entry & np.uint64(0xFFFFFFFF)) - 1)


@inlined
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
