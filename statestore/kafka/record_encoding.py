"""Encoding columns as the records of a batch: a loop that numba compiles. Layout: record_batch.py."""

from __future__ import annotations

import numpy as np

from statestore.compiled.batches import Address
from statestore.compiled.loops import compiled, inlined
from statestore.compiled.memory import Int, copy, is_null, load_i32, load_i64, store_u8

#: More than a record takes besides its key and value, if it has no headers.
RECORD_BYTES = 40


@inlined
def _zigzag(number: Int) -> Int:
    return np.uint64(number << 1) ^ np.uint64(number >> 63)


@inlined
def _size(number: Int) -> Int:
    """Bytes of a number as a zigzag varint."""
    left, size = _zigzag(number), np.int64(1)
    while left >= np.uint64(0x80):
        left >>= np.uint64(7)
        size += 1
    return size


@inlined
def _put(at: Int, number: Int) -> Int:
    """Write a number as a zigzag varint; return the address behind it."""
    left = _zigzag(number)
    while left >= np.uint64(0x80):
        store_u8(at, np.uint8((left & np.uint64(0x7F)) | np.uint64(0x80)))
        left >>= np.uint64(7)
        at += 1
    store_u8(at, np.uint8(left))
    return at + 1


@compiled
def encode(place: Address, first: Int, limit: Int, target: Int) -> tuple[Int, Int, Int]:
    """Encode rows from `first` on, as many as fit into `limit` bytes, and at least one.

    Parameters
    ----------
    place
        Of the columns. `offsets` is not read.
    target
        Address of at least `limit` bytes, and of enough for the first row. `RECORD_BYTES` bound what a row takes
        besides its key and value.

    Returns
    -------
    tuple
        The row behind the last one, the bytes written, and the largest timestamp (ms). Timestamps are told by their
        difference from the first row's.
    """
    base = load_i64(place.timestamps + 8 * first)
    at, row, latest = np.int64(target), np.int64(first), base
    while row < place.rows:
        timestamp = load_i64(place.timestamps + 8 * row)
        begin = np.int64(load_i32(place.key_ends + 4 * row))
        key, key_bytes = place.keys + begin, np.int64(load_i32(place.key_ends + 4 * row + 4)) - begin
        told_key = np.int64(-1) if is_null(place.keys_valid, place.keys_shift, row) else key_bytes
        begin = np.int64(load_i32(place.value_ends + 4 * row))
        value, value_bytes = place.values + begin, np.int64(load_i32(place.value_ends + 4 * row + 4)) - begin
        told_value = np.int64(-1) if is_null(place.values_valid, place.values_shift, row) else value_bytes
        key_bytes, value_bytes = max(told_key, np.int64(0)), max(told_value, np.int64(0))
        delta = np.int64(timestamp - base)
        size = 2 + _size(delta) + _size(row - first) + _size(told_key) + key_bytes + _size(told_value) + value_bytes
        if row > first and at - target + _size(size) + size > limit:
            break
        at = _put(at, size)
        store_u8(at, np.uint8(0))
        at = _put(at + 1, delta)
        at = _put(at, row - first)
        at = _put(at, told_key)
        copy(at, key, key_bytes)
        at = _put(at + key_bytes, told_value)
        copy(at, value, value_bytes)
        at += value_bytes
        store_u8(at, np.uint8(0))
        at += 1
        latest = max(latest, timestamp)
        row += 1
    return row, at - target, latest
