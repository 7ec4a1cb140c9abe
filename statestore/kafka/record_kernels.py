"""Decoding records into columns, and looking at their headers, positions above all: loops that numba compiles.

Layout: record_batch.py. Whoever calls answers for the batches being whole (their checksums were compared), and leaves
SLACK bytes behind the last of them: lengths are checked before what they measure is touched, but not every varint.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic

from statestore.compiled.loops import compiled

_VERSION_HEADER, _POSITION_HEADER = ord("v"), ord("c")


def _copy(typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any, length: Any) -> Any:
    """Copy bytes from array to array: a loop that could overlap takes ten times as long as the rest of `decode`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(number: int) -> Any:
            array = context.make_array(signature.args[number])(context, builder, arguments[number])
            return builder.gep(array.data, [arguments[number + 1]])

        raw_memcpy(builder, place(0), place(2), arguments[4], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


_copy_bytes: Any = intrinsic(_copy)


@compiled
def _varint(data: Any, at: int) -> Any:
    byte = data[at]
    at += 1
    found = byte & 0x7F
    shift = 7
    while byte >= 0x80 and shift < 70:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
    return ((found >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(found & 1), at  # the shift is one of signed numbers


@compiled
def decode(
    data: Any, batches: Any, start: int, end: int, keys: Any, values: Any, timestamps: Any, offsets: Any, headers: Any
) -> Any:
    """Decode the records with `start <= offset < end`.

    Parameters
    ----------
    data
        Bytes of the records of all batches.
    batches
        Row by row: where its records begin and end, their number, base offset, base timestamp, append time or -1.
    start, end
        Offsets.
    keys, values
        Columns to fill: bytes, ends (the first is 0), validity bits (all 0).
    timestamps, offsets
        Columns to fill.
    headers
        To fill for records that have headers: where those begin and end, how many they are, and the record's row.

    Returns
    -------
    tuple
        Records, keys and values that are null, records with headers, and the number of the batch that is malformed,
        or -1.
    """
    key_bytes, key_ends, key_bits = keys
    value_bytes, value_ends, value_bits = values
    rows = null_keys = null_values = with_headers = key_at = value_at = 0
    for number in range(len(batches)):
        at, stop, count, base_offset, base_timestamp, append_time = batches[number]
        for _ in range(count):
            length, at = _varint(data, at)
            if length < 0 or length > stop - at:
                return rows, null_keys, null_values, with_headers, number
            record_end = at + length
            delta, at = _varint(data, at + 1)
            timestamp = base_timestamp + delta if append_time < 0 else append_time
            delta, at = _varint(data, at)
            offset = base_offset + delta
            if offset < start:
                at = record_end
                continue
            if offset >= end:
                at = stop
                break
            key_length, at = _varint(data, at)
            if key_length > record_end - at:
                return rows, null_keys, null_values, with_headers, number
            if key_length >= 0:
                _copy_bytes(key_bytes, key_at, data, at, key_length)
                at += key_length
                key_at += key_length
                key_bits[rows >> 3] |= 1 << (rows & 7)
            else:
                null_keys += 1
            value_length, at = _varint(data, at)
            if value_length > record_end - at:
                return rows, null_keys, null_values, with_headers, number
            if value_length >= 0:
                _copy_bytes(value_bytes, value_at, data, at, value_length)
                at += value_length
                value_at += value_length
                value_bits[rows >> 3] |= 1 << (rows & 7)
            else:
                null_values += 1
            header_count, at = _varint(data, at)
            if at > record_end or header_count < 0:
                return rows, null_keys, null_values, with_headers, number
            if header_count:
                headers[with_headers, 0] = at
                headers[with_headers, 1] = record_end
                headers[with_headers, 2] = header_count
                headers[with_headers, 3] = rows
                with_headers += 1
            rows += 1
            key_ends[rows] = key_at
            value_ends[rows] = value_at
            timestamps[rows - 1] = timestamp
            offsets[rows - 1] = offset
            at = record_end
        if at != stop:
            return rows, null_keys, null_values, with_headers, number
    return rows, null_keys, null_values, with_headers, -1


@compiled
def _int(data: Any, at: int, size: int) -> Any:
    """Return a big-endian signed integer."""
    found = -1 if data[at] & 0x80 else 0
    for i in range(size):
        found = found << 8 | data[at + i]
    return found


@compiled
def _position_of(data: Any, at: int, end: int, count: int) -> Any:
    """Return where the position in a record's headers begins and ends; 0 and 0 if there is none."""
    begin = stop = 0
    versioned = False
    for _ in range(count):
        length, at = _varint(data, at)
        if length < 0 or length > end - at:
            return 0, 0
        name = data[at] if length == 1 else 0
        at += length
        length, at = _varint(data, at)
        if length > end - at:
            return 0, 0
        length = max(length, 0)
        if name == _VERSION_HEADER:
            versioned = length > 0 and data[at] == 0
        elif name == _POSITION_HEADER:
            begin, stop = at, at + length
        at += length
    return (begin, stop) if versioned else (0, 0)


@compiled
def foreign_header(data: Any, headers: Any) -> Any:
    """Find the first header that is not one of a position.

    Parameters
    ----------
    data
        Bytes of the records.
    headers
        Row by row, as `decode` leaves it.

    Returns
    -------
    tuple
        Where its name begins, and the name's length; -1 if there is none.
    """
    for record in range(len(headers)):
        at, end = headers[record, 0], headers[record, 1]
        for _ in range(headers[record, 2]):
            length, name = _varint(data, at)
            if length < 0 or length > end - name:
                break
            size, at = _varint(data, name + length)
            if size > end - at:
                break
            position = length == 1 and data[name] == _POSITION_HEADER
            version = length == 1 and data[name] == _VERSION_HEADER and size == 1 and data[at] == 0
            if not position and not version:
                return name, length
            at += max(size, 0)
    return 0, -1


@compiled
def _row_of(found: Any, known: int, data: Any, name: int, length: int, partition: int) -> int:
    """Return the row of a topic and partition, `known` if they have none yet."""
    for row in range(known):
        if found[row, 1] == length and found[row, 2] == partition:
            same = 0
            while same < length and data[found[row, 0] + same] == data[name + same]:
                same += 1
            if same == length:
                return row
    return known


@compiled
def has_position(data: Any, header: Any) -> Any:
    """Whether a record has a position in its headers; `header` is its row as `decode` leaves it."""
    at, end = _position_of(data, header[0], header[1], header[2])
    return end - at >= 5 and data[at] == 0


@compiled
def merge_positions(data: Any, headers: Any, first: int, found: Any) -> Any:
    """Merge the positions in records' headers (formats/position.py): the last offset of each topic and partition.

    What cannot be read as a position is none: a source topic may use the same names for something else.

    Parameters
    ----------
    data
        Bytes of the records.
    headers
        Row by row, as `decode` leaves it.
    first
        The row to begin with.
    found
        To fill, row by row: where the topic's name begins, its length, partition, offset.

    Returns
    -------
    tuple
        Rows of `found` that are filled, and the row of `headers` to go on with when there is room again.
    """
    known = 0
    for record in range(first, len(headers)):
        at, end = _position_of(data, headers[record, 0], headers[record, 1], headers[record, 2])
        topics = _int(data, at + 1, 4) if end - at >= 5 and data[at] == 0 else 0
        at += 5
        for _ in range(topics):
            length = _int(data, at, 4) if end - at >= 8 else -1
            name = at + 4
            at = name + length + 4
            if length < 0 or at > end:
                break
            entries = _int(data, at - 4, 4)
            if entries < 0 or entries * 12 > end - at:
                break
            for _ in range(entries):
                row = _row_of(found, known, data, name, length, _int(data, at, 4))
                if row == len(found):
                    return known, record
                if row == known:
                    known += 1
                    found[row, 0], found[row, 1], found[row, 2] = name, length, _int(data, at, 4)
                    found[row, 3] = _int(data, at + 4, 8)
                else:
                    found[row, 3] = _int(data, at + 4, 8)
                at += 12
    return known, len(headers)
