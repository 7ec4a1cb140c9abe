"""Headers of records, by themselves or laid out with values (record_headers.py, stored_values.py): compiled loops."""

from __future__ import annotations

import numpy as np

from statestore.compiled.batches import Address, Bytes, Int64s
from statestore.compiled.loops import compiled
from statestore.compiled.memory import Int, copy, is_null, load_i32, load_i64, store_big_i64, store_u8

_TIMESTAMP_BYTES = 8


@compiled
def _varint_bytes(number: Int) -> Int:
    """Bytes of a number as a zigzag varint."""
    left = np.uint64((number << 1) ^ (number >> 63))
    size = 1
    while left > np.uint64(0x7F):
        left >>= np.uint64(7)
        size += 1
    return size


@compiled
def _read(data: Bytes, at: Int, end: Int) -> tuple[Int, Int, bool]:
    """Read a varint; return it, where it ends (-1: not before `end`), and whether it has no superfluous byte."""
    begin = at
    found = np.uint64(0)
    shift = np.uint64(0)
    while at < end and at - begin < 5:
        byte = np.uint64(data[at])
        at += 1
        found |= (byte & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
        if byte < np.uint64(0x80):
            found &= np.uint64(0xFFFFFFFF)
            number = np.int64(found >> np.uint64(1)) ^ -np.int64(found & np.uint64(1))
            return number, at, _varint_bytes(number) == at - begin
    return np.int64(0), np.int64(-1), False


@compiled
def locate(data: Bytes, headers: Int64s, address: Int, sections: Int64s, odd: Bytes) -> Int:
    """Find the headers of records, with their number in front.

    Parameters
    ----------
    data
        Bytes of the records.
    headers
        Row by row, as `record_kernels.decode` leaves it.
    address
        Where `data` lies in memory.
    sections
        By row of the batch, to fill: address and bytes of its headers; 0 where it has none.
    odd
        To set for each row of `headers` that is to be encoded anew.

    Returns
    -------
    int
        The row of `headers` whose record does not have the headers that it says; -1: there is none.
    """
    for record in range(len(headers)):
        begin, end, count = headers[record, 0], headers[record, 1], headers[record, 2]
        at = begin
        plain = True
        for _ in range(count):
            size, at, short = _read(data, at, end)
            if at < 0 or size < 0 or size > end - at:
                return record
            plain = plain and short
            for place in range(at, at + size):
                plain = plain and data[place] < 0x80
            at += size
            size, at, short = _read(data, at, end)
            if at < 0 or size > end - at:
                return record
            plain = plain and short and size >= -1
            at += max(size, np.int64(0))
        if at != end:
            return record
        count_bytes = _varint_bytes(count)
        number, after, short = _read(data, begin - count_bytes, begin)
        if not plain or after != begin or not short or number != count:
            odd[record] = 1
        else:
            sections[headers[record, 3], 0] = address + begin - count_bytes
            sections[headers[record, 3], 1] = end - begin + count_bytes
    return -1


@compiled
def entries(data: Bytes, headers: Int64s, found: Int64s) -> Int:
    """Find the name and the value of each header.

    Parameters
    ----------
    data
        Bytes of the records.
    headers
        Row by row, as `record_kernels.decode` leaves it.
    found
        To fill, a row for each header: row of its record in the columns, where its name begins, the name's bytes, where
        its value begins, the value's bytes (-1: null).

    Returns
    -------
    int
        The row of `headers` whose record does not have the headers that it says; -1: there is none.
    """
    known = 0
    for record in range(len(headers)):
        at, end = headers[record, 0], headers[record, 1]
        for _ in range(headers[record, 2]):
            size, at, _short = _read(data, at, end)
            if at < 0 or size < 0 or size > end - at:
                return record
            found[known, 0], found[known, 1], found[known, 2] = headers[record, 3], at, size
            at += size
            size, at, _short = _read(data, at, end)
            if at < 0 or size > end - at:
                return record
            found[known, 3], found[known, 4] = at, max(size, np.int64(-1))
            at += max(size, np.int64(0))
            known += 1
        if at != end:
            return record
    return -1


@compiled
def measure(place: Address, sections: Int64s, timestamped: bool, ends: Int64s) -> None:
    """Find where each value ends once it is laid out; the first of `ends` is 0."""
    fixed = _TIMESTAMP_BYTES if timestamped else 0
    at = np.int64(0)
    for row in range(place.rows):
        if not is_null(place.values_valid, place.values_shift, row):
            size = np.int64(load_i32(place.value_ends + 4 * row + 4)) - np.int64(load_i32(place.value_ends + 4 * row))
            at += _varint_bytes(sections[row, 1]) + sections[row, 1] + fixed + size
        ends[row + 1] = at


@compiled
def lay_out(place: Address, sections: Int64s, timestamped: bool, ends: Int64s, values: Bytes) -> None:
    """Write values as they are stored: size of the headers, headers, timestamp where there is one, plain value."""
    target = values.ctypes.data
    for row in range(place.rows):
        if is_null(place.values_valid, place.values_shift, row):
            continue
        at = target + ends[row]
        size = sections[row, 1]
        left = np.uint64(size << 1)
        while left > np.uint64(0x7F):
            store_u8(at, np.uint8((left & np.uint64(0x7F)) | np.uint64(0x80)))
            left >>= np.uint64(7)
            at += 1
        store_u8(at, np.uint8(left))
        at += 1
        copy(at, sections[row, 0], size)
        at += size
        if timestamped:
            store_big_i64(at, load_i64(place.timestamps + 8 * row))
            at += _TIMESTAMP_BYTES
        begin = np.int64(load_i32(place.value_ends + 4 * row))
        copy(at, place.values + begin, np.int64(load_i32(place.value_ends + 4 * row + 4)) - begin)
