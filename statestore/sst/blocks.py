"""Data blocks of an SST file (layout.py), filled from columns, and the entries of the index for them."""

from __future__ import annotations

import numpy as np

from statestore.compiled.batches import Address, Int32s, Int64s, UInt32s
from statestore.compiled.loops import compiled
from statestore.compiled.memory import (
    Int,
    copy,
    is_null,
    load_i32,
    load_i64,
    load_u8,
    shared_prefix,
    store_big_i64,
    store_i64,
    store_u8,
    store_u32,
    xxh64,
)
from statestore.formats.timestamped_value import TIMESTAMP_BYTES
from statestore.sst.layout import DELETE, KIND_BYTES, PUT, TRAILER_BYTES

_BLOCK_BYTES = 4096
_RESTART_INTERVAL = 16
#: More than a block can have: an entry has 11 bytes or more.
MOST_RESTARTS = 64
VARINT_BYTES = 10

#: Why a loop ended.
DONE, BUFFER_FULL, INDEX_FULL, FILE_FULL = range(4)

#: What the loops keep from batch to batch: bytes of the buffer that are used, and before the block that is filled;
#: bytes of the file before the buffer; rows and restarts of the block; bytes and blocks of the index; rows of the file,
#: bytes of their keys and values; bytes of room that are needed to go on; deletes among the rows.
USED, BLOCK, FLUSHED, BLOCK_ROWS, RESTARTS, INDEX_USED, BLOCKS, ROWS, KEY_BYTES, VALUE_BYTES, ROOM, DELETES = range(12)
STATES = 12


@compiled
def checksum_of(block: Int, size: Int) -> Int:
    """Checksum of a block and of the compression byte behind it."""
    return xxh64(block, size + 1) & np.uint64(0xFFFFFFFF)


@compiled
def _put_varint(target: Int, number: Int) -> Int:
    """Write a varint; return the address behind it."""
    while number > 0x7F:
        store_u8(target, np.uint8(number & 0x7F | 0x80))
        target += 1
        number >>= 7
    store_u8(target, np.uint8(number))
    return target + 1


@compiled
def fill(
    place: Address,
    row: Int,
    last: Int,
    last_bytes: Int,
    timestamped: bool,
    file_bytes: Int,
    buffer: Int,
    buffer_bytes: Int,
    restarts: Int32s,
    index: Int,
    index_bytes: Int,
    index_restarts: UInt32s,
    state: Int64s,
) -> tuple[Int, Int, Int, Int]:
    """Write rows from `row` on, deletes where the value is null.

    Returns the row behind the last that was written, why, and where its key lies.
    """
    while row < place.rows:
        begin = np.int64(load_i32(place.key_ends + 4 * row))
        key, key_bytes = place.keys + begin, load_i32(place.key_ends + 4 * row + 4) - begin
        begin = np.int64(load_i32(place.value_ends + 4 * row))
        value, value_bytes = place.values + begin, load_i32(place.value_ends + 4 * row + 4) - begin
        deleted = is_null(place.values_valid, place.values_shift, row)
        stored_bytes = value_bytes + TIMESTAMP_BYTES if timestamped else value_bytes
        if deleted:
            value_bytes = stored_bytes = np.int32(0)
        entry_bytes = 3 * 5 + key_bytes + KIND_BYTES + stored_bytes
        if state[BLOCK_ROWS] and state[USED] - state[BLOCK] + entry_bytes > _BLOCK_BYTES:
            stop = cut(
                last,
                last_bytes,
                key,
                key_bytes,
                buffer,
                buffer_bytes,
                restarts,
                index,
                index_bytes,
                index_restarts,
                state,
            )
            if stop != DONE:
                return row, stop, last, last_bytes
            if state[FLUSHED] + state[USED] >= file_bytes:
                return row, FILE_FULL, last, last_bytes
        if state[USED] + entry_bytes > buffer_bytes:
            state[ROOM] = entry_bytes
            return row, BUFFER_FULL, last, last_bytes
        shared = np.int64(0)
        if state[BLOCK_ROWS] % _RESTART_INTERVAL == 0:
            restarts[state[RESTARTS]] = state[USED] - state[BLOCK]
            state[RESTARTS] += 1
        else:
            shared = shared_prefix(last, key, min(last_bytes, key_bytes))
        at = _put_varint(buffer + state[USED], shared)
        at = _put_varint(at, key_bytes + KIND_BYTES - shared)
        at = _put_varint(at, stored_bytes)
        copy(at, key + shared, key_bytes - shared)
        at += key_bytes - shared
        store_i64(at, DELETE if deleted else PUT)
        at += KIND_BYTES
        if timestamped and not deleted:
            store_big_i64(at, load_i64(place.timestamps + 8 * row))
            at += TIMESTAMP_BYTES
        copy(at, value, value_bytes)
        state[USED] = at + value_bytes - buffer
        state[BLOCK_ROWS] += 1
        state[ROWS] += 1
        state[DELETES] += deleted
        state[KEY_BYTES] += key_bytes + KIND_BYTES
        state[VALUE_BYTES] += stored_bytes
        last, last_bytes = key, key_bytes
        row += 1
    return row, DONE, last, last_bytes


@compiled
def cut(
    last: Int,
    last_bytes: Int,
    key: Int,
    key_bytes: Int,
    buffer: Int,
    buffer_bytes: Int,
    restarts: Int32s,
    index: Int,
    index_bytes: Int,
    index_restarts: UInt32s,
    state: Int64s,
) -> Int:
    """End a block behind the key `last`; `key` is the next block's first, of no bytes at the end of the file."""
    tail = 4 * state[RESTARTS] + 4 + TRAILER_BYTES
    if state[USED] + tail > buffer_bytes:
        state[ROOM] = tail
        return BUFFER_FULL
    if state[INDEX_USED] + last_bytes + 4 * VARINT_BYTES > index_bytes or state[BLOCKS] == len(index_restarts):
        state[ROOM] = last_bytes + 4 * VARINT_BYTES
        return INDEX_FULL
    at = buffer + state[USED]
    for restart in range(state[RESTARTS]):
        store_u32(at, np.uint32(restarts[restart]))
        at += 4
    store_u32(at, np.uint32(state[RESTARTS]))
    store_u8(at + 4, np.uint8(0))
    block = buffer + state[BLOCK]
    size = at + 4 - block
    store_u32(at + 5, np.uint32(checksum_of(block, size)))
    state[USED] += tail

    kept, raised = _separator(last, last_bytes, key, key_bytes)
    index_restarts[state[BLOCKS]] = state[INDEX_USED]
    begin = index + state[INDEX_USED]
    store_u8(begin, np.uint8(0))
    at = _put_varint(begin + 1, kept)
    copy(at, last, kept)
    if raised:
        store_u8(at + kept - 1, np.uint8(load_u8(at + kept - 1) + 1))
    at = _put_varint(at + kept, state[FLUSHED] + state[BLOCK])
    at = _put_varint(at, size)
    state[INDEX_USED] = at - index
    state[BLOCKS] += 1
    state[BLOCK] = state[USED]
    state[BLOCK_ROWS] = 0
    state[RESTARTS] = 0
    return DONE


@compiled
def _separator(last: Int, last_bytes: Int, key: Int, key_bytes: Int) -> tuple[Int, bool]:
    """How much of `last` makes a short key from it on and below `key`, and whether its last byte goes up by one."""
    shared = shared_prefix(last, key, min(last_bytes, key_bytes))
    if shared >= last_bytes or shared >= key_bytes:
        return last_bytes, False
    if np.int64(load_u8(last + shared)) + 1 < np.int64(load_u8(key + shared)):
        return shared + 1, True
    for at in range(shared + 1, last_bytes - 1):
        if load_u8(last + at) != 0xFF:
            return at + 1, True
    return last_bytes, False
