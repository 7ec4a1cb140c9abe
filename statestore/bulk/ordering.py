"""Sorting the records of a run by segment and key, and giving them out in that order.

Multikey quicksort over pieces of eight bytes: each record keeps one piece of its key beside its address, so that
comparing touches no key; where pieces are equal, the next ones are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NoReturn

import numpy as np
import pyarrow as pa

from statestore.bulk.columns import Buffers, buffers
from statestore.bulk.last_records import LastRecords
from statestore.bulk.records import DELETE, HEAD
from statestore.bulk.routing import Routing
from statestore.compiled.batches import Int64s, UInt64s
from statestore.compiled.loops import compiled
from statestore.compiled.memory import (
    Int,
    compare,
    copy,
    load_big_i64,
    load_big_u64,
    load_i32,
    load_i64,
    load_u32,
    mixed,
    prefetch,
)

_SMALL = 12
#: More parts than can wait: of three the largest two do, so there are at most two for each halving.
_WAITING = 160
_AHEAD = 8
_SEGMENT_PIECE = -8
BATCH_ROWS = 8192
_SIGN = np.uint64(1 << 63)
_MORE = 9
_PICK = np.uint64(21)
_TWO_PICKS = np.uint64(42)


class SortedRun:
    """A run in memory; it is put in order when its rows are first asked for.

    Attributes
    ----------
    latest
        Its records.
    """

    def __init__(self, latest: LastRecords, routing: Routing) -> None:
        self.latest = latest
        self._routing = routing

    def __reduce__(self) -> NoReturn:
        raise TypeError("a run in memory stays in its process; have RunWriter keep none in memory")

    @cached_property
    def _places(self) -> Int64s:
        places = self.latest.places()
        pieces = np.empty(len(places), np.uint64)
        stack = np.empty((_WAITING, 3), np.int64)
        _sort(places, pieces, stack, self._routing.suffix_bytes, self._routing.interval_ms or 0)
        return places

    def batches(self, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield all records, deletes included, as batches of about so many bytes."""
        for _, batch in self._cut(batch_bytes, 0, with_deletes=True, across_segments=True):
            yield batch

    def rows(self, batch_bytes: int, oldest: int, *, with_deletes: bool) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield what is in no segment before `oldest`, deletes only if asked for: batches, each of one segment."""
        return self._cut(batch_bytes, oldest, with_deletes=with_deletes, across_segments=False)

    def _cut(
        self, batch_bytes: int, oldest: int, *, with_deletes: bool, across_segments: bool
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        suffix_bytes, interval_ms = self._routing.suffix_bytes, self._routing.interval_ms or 0
        chosen = np.empty(min(BATCH_ROWS, len(self._places)), np.int64)
        at = 0
        while True:
            at, count, segment, key_bytes, value_bytes = _choose(
                self._places,
                at,
                chosen,
                batch_bytes,
                oldest,
                with_deletes,
                across_segments,
                suffix_bytes,
                interval_ms,
            )
            if not count:
                return
            room = buffers(count, key_bytes, value_bytes)
            _gather(chosen, room)
            yield int(segment), room.batch(with_nulls=with_deletes)


@compiled
def segment_of(key: Int, key_bytes: Int, suffix_bytes: Int, interval_ms: Int) -> Int:
    """Start of the segment (ms) that the row key at an address belongs to; 0 in a key-value store."""
    if interval_ms == 0:
        return np.int64(0)
    time = load_big_i64(key + key_bytes - suffix_bytes)
    return time - time % interval_ms


@compiled
def _piece(place: Int, depth: Int, suffix_bytes: Int, interval_ms: Int) -> Int:
    """Eight bytes of the key of a record as a number that sorts as they do; zeros behind the key's end."""
    size = np.int64(load_u32(place + 16))
    if depth == _SEGMENT_PIECE:
        return np.uint64(segment_of(place + HEAD, size, suffix_bytes, interval_ms)) ^ _SIGN
    left = size - depth
    if left <= 0:
        return np.uint64(0)
    piece = load_big_u64(place + HEAD + depth)
    return piece if left >= 8 else (piece >> np.uint64(64 - 8 * left)) << np.uint64(64 - 8 * left)


@compiled
def _left(place: Int, depth: Int) -> Int:
    """Bytes that the key has from `depth` on, as far as they tell keys with one piece apart."""
    if depth == _SEGMENT_PIECE:
        return np.int64(_MORE)
    return min(max(np.int64(load_u32(place + 16)) - depth, 0), _MORE)


@compiled
def _before(piece: Int, place: Int, other_piece: Int, other: Int, depth: Int) -> Int:
    if piece != other_piece:
        return piece < other_piece
    from_byte = max(depth, 0)
    one_size, other_size = np.int64(load_u32(place + 16)), np.int64(load_u32(other + 16))
    if min(one_size, other_size) < from_byte:
        return one_size < other_size
    return compare(place + HEAD + from_byte, one_size - from_byte, other + HEAD + from_byte, other_size - from_byte) < 0


@compiled
def _sort(places: Int64s, pieces: UInt64s, stack: Int64s, suffix_bytes: Int, interval_ms: Int) -> None:
    """Sort the addresses of records; `stack` has rows for (begin, end, depth) of parts that wait."""
    depth = _SEGMENT_PIECE if interval_ms else 0
    for at in range(len(places)):
        pieces[at] = _piece(places[at], depth, suffix_bytes, interval_ms)
    low, high, height = np.int64(0), len(places), 0
    while True:
        while high - low > _SMALL:
            first, behind = _split(places, pieces, low, high, depth)
            alike = behind if _left(places[first], depth) == _MORE else first
            for at in range(first, alike):
                if at + _AHEAD < alike:
                    prefetch(places[at + _AHEAD] + HEAD + depth + 8)
                pieces[at] = _piece(places[at], depth + 8, suffix_bytes, interval_ms)
            _push(stack, height, low, first, depth)
            _push(stack, height + 1, first, alike, depth + 8)
            _push(stack, height + 2, behind, high, depth)
            # The smallest part is next and the largest waits longest: so few parts wait, whatever the keys are.
            _larger_first(stack, height, height + 1)
            _larger_first(stack, height + 1, height + 2)
            _larger_first(stack, height, height + 1)
            height += 2
            low, high, depth = stack[height, 0], stack[height, 1], stack[height, 2]
        for at in range(low + 1, high):
            piece, place = pieces[at], places[at]
            to = at
            while to > low and _before(piece, place, pieces[to - 1], places[to - 1], depth):
                pieces[to], places[to] = pieces[to - 1], places[to - 1]
                to -= 1
            pieces[to], places[to] = piece, place
        if height == 0:
            return
        height -= 1
        low, high, depth = stack[height, 0], stack[height, 1], stack[height, 2]


@compiled
def _push(stack: Int64s, height: Int, low: Int, high: Int, depth: Int) -> None:
    stack[height, 0], stack[height, 1], stack[height, 2] = low, high, depth


@compiled
def _larger_first(stack: Int64s, one: Int, other: Int) -> None:
    if stack[one, 1] - stack[one, 0] < stack[other, 1] - stack[other, 0]:
        for at in range(3):
            stack[one, at], stack[other, at] = stack[other, at], stack[one, at]


@compiled
def _one_of(low: Int, high: Int, spread: Int) -> Int:
    picked = spread & np.uint64(0x1FFFFF)
    return low + np.int64((picked * np.uint64(high - low)) >> _PICK)


@compiled
def _split(places: Int64s, pieces: UInt64s, low: Int, high: Int, depth: Int) -> tuple[Int, Int]:
    """Part what is below, like and above a pivot; return where what is like it begins and ends."""
    spread = mixed(np.uint64(low) ^ (np.uint64(high) << np.uint64(32)))  # so that no order of keys is a bad one
    one, two, three = (
        _one_of(low, high, spread),
        _one_of(low, high, spread >> _PICK),
        _one_of(low, high, spread >> _TWO_PICKS),
    )
    if (pieces[one] <= pieces[two]) == (pieces[two] <= pieces[three]):
        pivot = two
    elif (pieces[two] <= pieces[one]) == (pieces[one] <= pieces[three]):
        pivot = one
    else:
        pivot = three
    piece, left = pieces[pivot], _left(places[pivot], depth)
    first, at, behind = low, low, high
    while at < behind:
        found = pieces[at]
        order = np.int64(found > piece) - np.int64(found < piece)
        if order == 0:
            order = _left(places[at], depth) - left
        if order < 0:
            pieces[at], pieces[first] = pieces[first], pieces[at]
            places[at], places[first] = places[first], places[at]
            first += 1
            at += 1
        elif order > 0:
            behind -= 1
            pieces[at], pieces[behind] = pieces[behind], pieces[at]
            places[at], places[behind] = places[behind], places[at]
        else:
            at += 1
    return first, behind


@compiled
def _choose(
    places: Int64s,
    at: Int,
    chosen: Int64s,
    batch_bytes: Int,
    oldest: Int,
    with_deletes: bool,
    across_segments: bool,
    suffix_bytes: Int,
    interval_ms: Int,
) -> tuple[Int, ...]:
    """Choose the records of the next batch: of one segment that is not before `oldest`, or all there are."""
    count = 0
    current = key_bytes = value_bytes = np.int64(0)
    while at < len(places) and count < len(chosen) and key_bytes + value_bytes < batch_bytes:
        if at + _AHEAD < len(places):
            prefetch(places[at + _AHEAD])
        place = places[at]
        size = np.int64(load_i32(place + 20))
        if size == DELETE and not with_deletes:
            at += 1
            continue
        size = max(size, np.int64(0))
        if not across_segments:
            segment = segment_of(place + HEAD, np.int64(load_u32(place + 16)), suffix_bytes, interval_ms)
            if segment < oldest:
                at += 1
                continue
            if count == 0:
                current = segment
            elif segment != current:
                break
        key_size = np.int64(load_u32(place + 16))
        if count and key_bytes + value_bytes + key_size + size >= 1 << 31:
            break
        chosen[count] = place
        count += 1
        key_bytes += key_size
        value_bytes += size
        at += 1
    return at, count, current, key_bytes, value_bytes


@compiled
def _gather(chosen: Int64s, room: Buffers) -> None:
    keys, values = room.keys.ctypes.data, room.values.ctypes.data
    key_end = value_end = np.int64(0)
    for row in range(len(room.timestamps)):
        place = chosen[row]
        key_bytes, value_bytes = np.int64(load_u32(place + 16)), np.int64(load_i32(place + 20))
        room.timestamps[row] = load_i64(place)
        room.offsets[row] = load_i64(place + 8)
        copy(keys + key_end, place + HEAD, key_bytes)
        key_end += key_bytes
        room.key_ends[row + 1] = key_end
        if value_bytes >= 0:
            copy(values + value_end, place + HEAD + key_bytes, value_bytes)
            value_end += value_bytes
        else:
            room.nulls[row] = True
        room.value_ends[row + 1] = value_end
