"""Sorting the addresses of records by the segment and the key of each.

Each record keeps one piece of eight bytes of its key beside its address, so that comparing touches no key. A large part
is dealt into bins by the first bits that differ in its pieces, a few records to a bin. Small parts are left to a
multikey quicksort. Where pieces are equal, the next ones are loaded.
"""

from __future__ import annotations

import numpy as np

from statestore.bulk.records import HEAD
from statestore.compiled.batches import Int64s, UInt64s
from statestore.compiled.loops import compiled, inlined
from statestore.compiled.memory import Int, compare, load_big_i64, load_big_u64, load_u32, mixed, prefetch

_SMALL = 12
#: More parts than can wait: of three the largest two do, so there are at most two for each halving.
_WAITING = 160
_AHEAD = 8
_SEGMENT_PIECE = -8
_SIGN = np.uint64(1 << 63)
_MORE = 9
_PICK = np.uint64(21)
_TWO_PICKS = np.uint64(42)
#: Parts of so many records are dealt: by so many bits at most, and so many records to a bin if their keys are random.
_LEAST_DEALT = 1024
_MOST_BITS = 16
_A_BIN = 4


def sort(places: Int64s, spare: UInt64s, suffix_bytes: int, interval_ms: int) -> None:
    """Sort the addresses of records.

    Parameters
    ----------
    places
        Addresses; sorted in place.
    spare
        Room for two numbers of each record, which is overwritten.
    suffix_bytes, interval_ms
        As of `Routing`; 0 in a key-value store.
    """
    count = len(places)
    bins = np.empty(1 << min((count // _A_BIN).bit_length(), _MOST_BITS), np.int64)
    large = np.empty((count // _LEAST_DEALT + 1, 3), np.int64)
    stack = np.empty((_WAITING, 3), np.int64)
    _sort(places, np.empty(count, np.uint64), spare, bins, large, stack, suffix_bytes, interval_ms)


@inlined
def segment_of(key: Int, key_bytes: Int, suffix_bytes: Int, interval_ms: Int) -> Int:
    """Start of the segment (ms) that the row key at an address belongs to; 0 in a key-value store."""
    if interval_ms == 0:
        return np.int64(0)
    time = load_big_i64(key + key_bytes - suffix_bytes)
    return time - time % interval_ms


@inlined
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


@inlined
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
def _sort(
    places: Int64s,
    pieces: UInt64s,
    spare: UInt64s,
    bins: Int64s,
    large: Int64s,
    stack: Int64s,
    suffix_bytes: Int,
    interval_ms: Int,
) -> None:
    """Sort; `large` and `stack` have rows for (begin, end, depth) of parts that wait."""
    depth = _SEGMENT_PIECE if interval_ms else 0
    _load(places, pieces, 0, len(places), depth, suffix_bytes, interval_ms)
    _push(large, 0, 0, len(places), depth)
    waiting = 1
    while waiting:
        waiting -= 1
        low, high, depth = large[waiting, 0], large[waiting, 1], large[waiting, 2]
        differing = np.uint64(0)
        for at in range(low, high):
            differing |= pieces[at] ^ pieces[low]
        if high - low < _LEAST_DEALT or (differing == 0 and _least_left(places, low, high, depth) < _MORE):
            _sort_part(places, pieces, stack, low, high, depth, suffix_bytes, interval_ms)
            continue
        if differing == 0:
            _load(places, pieces, low, high, depth + 8, suffix_bytes, interval_ms)
            _push(large, waiting, low, high, depth + 8)
            waiting += 1
            continue
        begin = low
        for number in range(_deal(places, pieces, spare, bins, low, high, differing)):
            end = bins[number]
            if end - begin >= _LEAST_DEALT:
                _push(large, waiting, begin, end, depth)
                waiting += 1
            elif end - begin > _SMALL:
                _sort_part(places, pieces, stack, begin, end, depth, suffix_bytes, interval_ms)
            else:
                _insert(places, pieces, begin, end, depth)
            begin = end


@compiled
def _load(
    places: Int64s, pieces: UInt64s, low: Int, high: Int, depth: Int, suffix_bytes: Int, interval_ms: Int
) -> None:
    for at in range(low, high):
        if at + _AHEAD < high:
            prefetch(places[at + _AHEAD] + HEAD + max(depth, 0))
        pieces[at] = _piece(places[at], depth, suffix_bytes, interval_ms)


@compiled
def _least_left(places: Int64s, low: Int, high: Int, depth: Int) -> Int:
    least = np.int64(_MORE)
    for at in range(low, high):
        least = min(least, _left(places[at], depth))
    return least


@compiled
def _deal(places: Int64s, pieces: UInt64s, spare: UInt64s, bins: Int64s, low: Int, high: Int, differing: Int) -> Int:
    """Order a part by the first bits that differ in it; return how many bins that makes. `bins` has their ends."""
    wanted, passed = 0, np.int64(0)
    while 1 << (wanted + 1) <= len(bins) and _A_BIN << wanted < high - low:
        wanted += 1
    for bit in range(64):
        passed += np.int64((differing >> np.uint64(bit)) & np.uint64(1))
    passed -= wanted
    # Bits that all move down by as much are taken together.
    downs, masks = np.empty(_MOST_BITS, np.uint64), np.zeros(_MOST_BITS, np.uint64)
    groups = bits = 0
    for bit in range(64):
        if (differing >> np.uint64(bit)) & np.uint64(1):
            if passed > 0:
                passed -= 1
                continue
            if groups == 0 or downs[groups - 1] != np.uint64(bit - bits):
                downs[groups] = bit - bits
                groups += 1
            masks[groups - 1] |= np.uint64(1) << np.uint64(bits)
            bits += 1
    downs, masks = downs[:groups], masks[:groups]
    count = 1 << bits
    bins[:count] = 0
    for at in range(low, high):
        bins[_bin(pieces[at], downs, masks)] += 1
    begin = low
    for number in range(count):
        size = bins[number]
        bins[number] = begin
        begin += size
    behind = len(places)
    for at in range(low, high):
        number = _bin(pieces[at], downs, masks)
        spare[bins[number]], spare[behind + bins[number]] = pieces[at], np.uint64(places[at])
        bins[number] += 1
    for at in range(low, high):
        pieces[at], places[at] = spare[at], np.int64(spare[behind + at])
    return count


@inlined
def _bin(piece: Int, downs: UInt64s, masks: UInt64s) -> Int:
    number = np.uint64(0)
    for group in range(len(downs)):
        number |= (piece >> downs[group]) & masks[group]
    return np.int64(number)


@compiled
def _sort_part(
    places: Int64s,
    pieces: UInt64s,
    stack: Int64s,
    low: Int,
    high: Int,
    depth: Int,
    suffix_bytes: Int,
    interval_ms: Int,
) -> None:
    """Sort a part by multikey quicksort."""
    height = 0
    while True:
        while high - low > _SMALL:
            first, behind = _split(places, pieces, low, high, depth)
            alike = behind if _left(places[first], depth) == _MORE else first
            _load(places, pieces, first, alike, depth + 8, suffix_bytes, interval_ms)
            _push(stack, height, low, first, depth)
            _push(stack, height + 1, first, alike, depth + 8)
            _push(stack, height + 2, behind, high, depth)
            # The smallest part is next and the largest waits longest: so few parts wait, whatever the keys are.
            _larger_first(stack, height, height + 1)
            _larger_first(stack, height + 1, height + 2)
            _larger_first(stack, height, height + 1)
            height += 2
            low, high, depth = stack[height, 0], stack[height, 1], stack[height, 2]
        _insert(places, pieces, low, high, depth)
        if height == 0:
            return
        height -= 1
        low, high, depth = stack[height, 0], stack[height, 1], stack[height, 2]


@inlined
def _insert(places: Int64s, pieces: UInt64s, low: Int, high: Int, depth: Int) -> None:
    """Sort a small part."""
    for at in range(low + 1, high):
        piece, place = pieces[at], places[at]
        to = at
        while to > low and _before(piece, place, pieces[to - 1], places[to - 1], depth):
            pieces[to], places[to] = pieces[to - 1], places[to - 1]
            to -= 1
        pieces[to], places[to] = piece, place


@inlined
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
