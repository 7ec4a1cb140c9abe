"""Loops over rows of stores and logs, compiled by numba. Rows are addresses of Arrow buffers (compiled/memory.py)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore.compiled.batches import Bytes, Int32s, Int64s, UInt64s
from statestore.compiled.loops import compiled
from statestore.compiled.memory import Int, compare, equal, load_big_i64, load_i32, load_i64, load_u8, xxh64
from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP
from statestore.formats.value_format import ValueFormat

OTHER_VALUE, ONLY_IN_STORE, ONLY_IN_LOG = 1, 2, 3

#: Where the timestamps of a store's rows are: nowhere, in front of their values, or behind headers, as in its log's.
NO_TIMES, TIMES_IN_FRONT, TIMES_BEHIND_HEADERS = range(3)


def times_of(layout: ValueFormat) -> int:
    """Return where the timestamps of rows in a layout are."""
    if not layout.timestamped:
        return NO_TIMES
    return TIMES_BEHIND_HEADERS if layout.keeps_headers else TIMES_IN_FRONT


class Column(NamedTuple):
    """Where a binary array without nulls lies: its first row's end offset (int32), and its bytes."""

    ends: int
    data: int


def column(array: pa.Array) -> Column:
    """Return where an array lies; valid while the array lives."""
    _, ends, data = array.buffers()
    return Column(ends.address + 4 * array.offset if ends else 0, data.address if data else 0)


def numbers(array: pa.Array) -> int:
    """Address of an array of int64."""
    data = array.buffers()[1]
    return data.address + 8 * array.offset if data else 0


@compiled
def headers_end(value: Int, size: Int) -> Int:
    """Where the headers of a stored value end (formats/headers_value.py); behind its end, if they are none."""
    found = np.uint64(0)
    shift = np.uint64(0)
    for at in range(min(size, 5)):
        byte = np.uint64(load_u8(value + at))
        found |= (byte & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
        if byte < np.uint64(0x80):
            end = at + 1 + np.int64(found >> np.uint64(1))
            return end if found & np.uint64(1) == 0 and end <= size else size + 1
    return size + 1


@compiled
def merge_rows(
    store_keys: tuple[int, int],
    store_values: tuple[int, int],
    store_at: int,
    store_end: int,
    log_keys: tuple[int, int],
    log_values: tuple[int, int],
    log_times: int,
    log_at: int,
    log_end: int,
    store_ended: bool,
    log_ended: bool,
    times: int,
    kinds: Bytes,
    store_index: Int32s,
    log_index: Int32s,
) -> tuple[int, int, int, int]:
    """Compare rows of a store and of a log, each in key order, until one of the two has no more here.

    Where it has no more anywhere (`ended`), the rest of the other differs. Of each row that differs `kinds` gets the
    kind, and the indexes where it is (-1: nowhere). A store's timestamp of -1 is unknown and equal to any. Returns
    where both are then, how many rows were the same, and how many differ.
    """
    same = differing = 0
    while store_at < store_end and log_at < log_end:
        key = store_keys[1] + load_i32(store_keys[0] + 4 * store_at)
        key_size = store_keys[1] + load_i32(store_keys[0] + 4 * store_at + 4) - key
        log_key = log_keys[1] + load_i32(log_keys[0] + 4 * log_at)
        log_key_size = log_keys[1] + load_i32(log_keys[0] + 4 * log_at + 4) - log_key
        order = compare(key, key_size, log_key, log_key_size)
        if order == 0:
            value = store_values[1] + load_i32(store_values[0] + 4 * store_at)
            size = store_values[1] + load_i32(store_values[0] + 4 * store_at + 4) - value
            log_value = log_values[1] + load_i32(log_values[0] + 4 * log_at)
            log_size = log_values[1] + load_i32(log_values[0] + 4 * log_at + 4) - log_value
            fits = True
            if times == TIMES_IN_FRONT:
                fits = size >= 8
                if fits:
                    time = load_big_i64(value)
                    fits = time == UNKNOWN_TIMESTAMP or time == load_i64(log_times + 8 * log_at)
                    value += 8
                    size -= 8
            elif times == TIMES_BEHIND_HEADERS and size == log_size:
                front = headers_end(value, size)
                if front + 8 <= size and load_big_i64(value + front) == UNKNOWN_TIMESTAMP:
                    fits = equal(value, log_value, front)
                    value += front + 8
                    log_value += front + 8
                    size -= front + 8
                    log_size -= front + 8
            if fits and size == log_size and equal(value, log_value, size):
                same += 1
            else:
                kinds[differing] = OTHER_VALUE
                store_index[differing] = store_at
                log_index[differing] = log_at
                differing += 1
            store_at += 1
            log_at += 1
        elif order < 0:
            kinds[differing] = ONLY_IN_STORE
            store_index[differing] = store_at
            log_index[differing] = -1
            differing += 1
            store_at += 1
        else:
            kinds[differing] = ONLY_IN_LOG
            store_index[differing] = -1
            log_index[differing] = log_at
            differing += 1
            log_at += 1
    while log_ended and store_at < store_end:
        kinds[differing] = ONLY_IN_STORE
        store_index[differing] = store_at
        log_index[differing] = -1
        differing += 1
        store_at += 1
    while store_ended and log_at < log_end:
        kinds[differing] = ONLY_IN_LOG
        store_index[differing] = -1
        log_index[differing] = log_at
        differing += 1
        log_at += 1
    return store_at, log_at, same, differing


@compiled
def _hash_rows(ends: int, data: int, rows: int, cut: int, hashes: UInt64s) -> None:
    for at in range(rows):
        start = load_i32(ends + 4 * at)
        hashes[at] = xxh64(data + start, max(load_i32(ends + 4 * at + 4) - start - cut, 0))


def hashes_of(array: pa.Array, *, cut: int = 0) -> UInt64s:
    """XXH64 of each row of a binary array without so many bytes of its end; of a null it is that of no bytes."""
    hashes = np.empty(len(array), np.uint64)
    if len(array):
        _hash_rows(*column(array), len(array), cut, hashes)
    return hashes


@compiled
def _read_numbers(ends: int, data: int, rows: int, behind: int, back: int, otherwise: int, found: Int64s) -> None:
    for at in range(rows):
        start = load_i32(ends + 4 * at)
        end = load_i32(ends + 4 * at + 4)
        where = end - back if back else start + behind
        fits = start <= where and where + 8 <= end
        found[at] = load_big_i64(data + where) if fits else otherwise


def numbers_in(array: pa.Array, *, behind: int = 0, back: int = 0, otherwise: int = -1) -> Int64s:
    """Read a big-endian int64 in each row of a binary array.

    Parameters
    ----------
    behind
        Bytes in front of it.
    back
        Bytes from it to the row's end, itself included; 0: it is told by `behind`.
    otherwise
        What a row has that is too short.
    """
    found = np.empty(len(array), np.int64)
    if len(array):
        _read_numbers(*column(array), len(array), behind, back, otherwise, found)
    return found


@compiled
def _read_times(ends: int, data: int, rows: int, found: Int64s) -> None:
    for at in range(rows):
        value = data + load_i32(ends + 4 * at)
        size = np.int64(data + load_i32(ends + 4 * at + 4) - value)
        front = headers_end(value, size)
        found[at] = load_big_i64(value + front) if front + 8 <= size else UNKNOWN_TIMESTAMP


def stored_times(array: pa.Array, times: int) -> Int64s:
    """Return the timestamp (ms) of each stored value, which is `times` there; -1 where it has none."""
    if times == TIMES_IN_FRONT:
        return numbers_in(array)
    found = np.full(len(array), UNKNOWN_TIMESTAMP, np.int64)
    if len(array) and times == TIMES_BEHIND_HEADERS:
        _read_times(*column(array), len(array), found)
    return found


@compiled
def _mark_rows(
    ends: int,
    data: int,
    rows: int,
    bound_ends: int,
    bounds: int,
    bound_rows: int,
    cut: int,
    chosen: Bytes,
    marks: Bytes,
) -> None:
    for at in range(rows):
        start = load_i32(ends + 4 * at)
        size = max(load_i32(ends + 4 * at + 4) - start - cut, 0)
        low, high = 0, bound_rows  # how many bounds are at or below the key
        while low < high:
            middle = (low + high) // 2
            bound = load_i32(bound_ends + 4 * middle)
            bound_size = load_i32(bound_ends + 4 * middle + 4) - bound
            if compare(bounds + bound, bound_size, data + start, size) <= 0:
                low = middle + 1
            else:
                high = middle
        marks[at] = chosen[low]
        if cut and low < bound_rows:
            bound = load_i32(bound_ends + 4 * low)
            bound_size = load_i32(bound_ends + 4 * low + 4) - bound
            if bound_size > size and equal(bounds + bound, data + start, size):
                marks[at] = 0


def rows_within(array: pa.Array, bounds: pa.Array, chosen: Bytes, *, cut: int = 0) -> Bytes:
    """For each key: the `chosen` of the range it is in, 0 being what is below the first bound (1-byte flags).

    Parameters
    ----------
    cut
        Bytes of the keys' ends that do not count. Keys that are the same without them get the same flag, also where a
        bound begins as they do and lies between them: 0.
    """
    marks = np.empty(len(array), np.uint8)
    if len(array):
        _mark_rows(*column(array), len(array), *column(bounds), len(bounds), cut, chosen, marks)
    return marks
