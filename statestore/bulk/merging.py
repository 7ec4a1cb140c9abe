"""Merging sorted runs: of each key the record of the latest run, in the order of segments and keys.

Sources are in offset order: of two with one key, the later one wins. They are read batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from statestore.bulk.columns import Buffers, buffers
from statestore.bulk.ordering import BATCH_ROWS
from statestore.bulk.routing import Routing
from statestore.bulk.sorting import segment_of
from statestore.compiled.batches import Int64s, address_of
from statestore.compiled.loops import compiled
from statestore.compiled.memory import (
    Int,
    compare,
    copy,
    is_null,
    load_big_u64,
    load_i32,
    load_i64,
    load_u8,
    shared_prefix,
)

_AT_END = -1
_SIGN = np.uint64(1 << 63)


#: What is known of a source: its batch's rows, where they lie (as in `Address`), the row it is at, that row's segment,
#: and the first eight bytes of its key that the keys of all batches do not have in common.
(
    _ROWS,
    _KEY_ENDS,
    _KEYS,
    _VALUE_ENDS,
    _VALUES,
    _VALUES_VALID,
    _VALUES_SHIFT,
    _TIMESTAMPS,
    _OFFSETS,
    _ROW,
    _SEGMENT,
    _PIECE,
) = range(12)
_FACTS = 12


def merge(
    sources: Sequence[Iterator[pa.RecordBatch]],
    routing: Routing,
    batch_bytes: int,
    oldest: int,
    *,
    with_deletes: bool,
    across_segments: bool = False,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches of about so many bytes, each with the segment that it is of.

    Across segments, batches are of several; else what is in a segment before `oldest` is left out.
    """
    suffix_bytes, interval_ms = routing.suffix_bytes, routing.interval_ms or 0
    heads = np.zeros((len(sources), _FACTS), np.int64)
    held: list[pa.RecordBatch | None] = [None] * len(sources)  # what the addresses are of
    heap = np.empty(len(sources), np.int64)
    chosen = np.empty((BATCH_ROWS, 2), np.int64)
    _load(sources, held, heads)
    waiting, shared = _heaped(heads, heap, suffix_bytes, interval_ms)
    while waiting:
        waiting, count, segment, key_bytes, value_bytes, ended = _choose(
            heads,
            heap,
            waiting,
            shared,
            chosen,
            batch_bytes,
            oldest,
            with_deletes,
            across_segments,
            suffix_bytes,
            interval_ms,
        )
        if count:
            room = buffers(count, key_bytes, value_bytes)
            _gather(heads, chosen, room)
            yield int(segment), room.batch(with_nulls=with_deletes)
        if ended:
            _load(sources, held, heads)
            waiting, shared = _heaped(heads, heap, suffix_bytes, interval_ms)


def count_merged(sources: Sequence[Iterator[pa.RecordBatch]]) -> int:
    """Return how many rows `merge` gives of sources without segments: of each key, the later source's, if no delete."""
    heads = np.zeros((len(sources), _FACTS), np.int64)
    held: list[pa.RecordBatch | None] = [None] * len(sources)
    heap = np.empty(len(sources), np.int64)
    rows = 0
    while True:
        _load(sources, held, heads)
        waiting, shared = _heaped(heads, heap, 0, 0)
        if not waiting:
            return rows
        rows += int(_count(heads, heap, waiting, shared))


def _load(sources: Sequence[Iterator[pa.RecordBatch]], held: list[pa.RecordBatch | None], heads: np.ndarray) -> None:
    """Advance each source at the end of its batch to the next one. A source without one has no rows."""
    through = (heads[:, _ROW] >= heads[:, _ROWS]) & (heads[:, _ROW] != _AT_END)
    for at in np.flatnonzero(through).tolist():
        held[at] = batch = next((found for found in sources[at] if found.num_rows), None)
        if batch is None:
            heads[at] = 0
            heads[at, _ROW] = _AT_END
            continue
        place = address_of(batch)
        heads[at] = [
            place.rows,
            place.key_ends,
            place.keys,
            place.value_ends,
            place.values,
            place.values_valid,
            place.values_shift,
            place.timestamps,
            place.offsets,
            *(0, 0, 0),
        ]


@compiled
def _key(heads: Int64s, source: Int) -> tuple[Int, Int]:
    """Address and bytes of the key that a source is at."""
    ends = heads[source, _KEY_ENDS] + 4 * heads[source, _ROW]
    begin = np.int64(load_i32(ends))
    return heads[source, _KEYS] + begin, np.int64(load_i32(ends + 4)) - begin


@compiled
def _value_bytes(heads: Int64s, source: Int, row: Int) -> Int:
    ends = heads[source, _VALUE_ENDS] + 4 * row
    return np.int64(load_i32(ends + 4)) - np.int64(load_i32(ends))


@compiled
def _piece(key: Int, key_bytes: Int, shared: Int) -> Int:
    """Eight bytes of a key as a signed number that sorts as they do; zeros behind the key's end."""
    left = key_bytes - shared
    if left >= 8:
        return np.int64(load_big_u64(key + shared) ^ _SIGN)
    piece = np.uint64(0)
    for at in range(left):
        piece |= np.uint64(load_u8(key + shared + at)) << np.uint64(56 - 8 * at)
    return np.int64(piece ^ _SIGN)


@compiled
def _look(heads: Int64s, source: Int, shared: Int, suffix_bytes: Int, interval_ms: Int) -> None:
    """Take down what the row that a source is at is ordered by."""
    key, key_bytes = _key(heads, source)
    heads[source, _SEGMENT] = segment_of(key, key_bytes, suffix_bytes, interval_ms)
    heads[source, _PIECE] = _piece(key, key_bytes, shared)


@compiled
def _before(heads: Int64s, one: Int, other: Int, shared: Int) -> Int:
    """True where the source `one` comes first: by segment, by key, and of equal keys the later source."""
    if heads[one, _SEGMENT] != heads[other, _SEGMENT]:
        return heads[one, _SEGMENT] < heads[other, _SEGMENT]
    if heads[one, _PIECE] != heads[other, _PIECE]:
        return heads[one, _PIECE] < heads[other, _PIECE]
    one_key, one_bytes = _key(heads, one)
    other_key, other_bytes = _key(heads, other)
    found = compare(one_key + shared, one_bytes - shared, other_key + shared, other_bytes - shared)
    return found < 0 or (found == 0 and one > other)


@compiled
def _sink(heads: Int64s, heap: Int64s, waiting: Int, at: Int, shared: Int) -> None:
    source = heap[at]
    while 2 * at + 1 < waiting:
        child = 2 * at + 1
        if child + 1 < waiting and _before(heads, heap[child + 1], heap[child], shared):
            child += 1
        if _before(heads, source, heap[child], shared):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = source


@compiled
def _shared(heads: Int64s, interval_ms: Int) -> Int:
    """How many bytes all keys of all batches begin with; 0 with segments, as keys are in order only within each."""
    shared = np.int64(-1)
    first = np.int64(0)
    for source in range(len(heads)):
        if heads[source, _ROWS] == 0 or interval_ms:
            continue
        for row in (heads[source, _ROW], heads[source, _ROWS] - 1):
            begin = np.int64(load_i32(heads[source, _KEY_ENDS] + 4 * row))
            key_bytes = np.int64(load_i32(heads[source, _KEY_ENDS] + 4 * row + 4)) - begin
            key = heads[source, _KEYS] + begin
            if shared < 0:
                first, shared = key, key_bytes
            shared = shared_prefix(first, key, min(shared, key_bytes))
    return max(shared, np.int64(0))


@compiled
def _heaped(heads: Int64s, heap: Int64s, suffix_bytes: Int, interval_ms: Int) -> tuple[Int, Int]:
    """Make a heap of the sources that have rows; return how many they are, and what their keys have in common."""
    shared = _shared(heads, interval_ms)
    waiting = 0
    for source in range(len(heads)):
        if heads[source, _ROWS] > 0:
            _look(heads, source, shared, suffix_bytes, interval_ms)
            heap[waiting] = source
            waiting += 1
    for at in range(waiting // 2 - 1, -1, -1):
        _sink(heads, heap, waiting, at, shared)
    return waiting, shared


@compiled
def _advance(heads: Int64s, heap: Int64s, waiting: Int, shared: Int, suffix_bytes: Int, interval_ms: Int) -> Int:
    """Advance the first source by a row; return how many sources still have rows."""
    source = heap[0]
    heads[source, _ROW] += 1
    if heads[source, _ROW] == heads[source, _ROWS]:
        waiting -= 1
        heap[0] = heap[waiting]
    else:
        _look(heads, source, shared, suffix_bytes, interval_ms)
    if waiting > 1:
        _sink(heads, heap, waiting, 0, shared)
    return waiting


@compiled
def _choose(
    heads: Int64s,
    heap: Int64s,
    waiting: Int,
    shared: Int,
    chosen: Int64s,
    batch_bytes: Int,
    oldest: Int,
    with_deletes: bool,
    across_segments: bool,
    suffix_bytes: Int,
    interval_ms: Int,
) -> tuple[Int, ...]:
    """Choose (source, row) for the next batch; ends early where a source is through with its own."""
    count = 0
    current = all_key_bytes = all_value_bytes = np.int64(0)
    ended = False
    while waiting and not ended and count < len(chosen) and all_key_bytes + all_value_bytes < batch_bytes:
        source = heap[0]
        row, segment, piece = heads[source, _ROW], heads[source, _SEGMENT], heads[source, _PIECE]
        deleted = is_null(heads[source, _VALUES_VALID], heads[source, _VALUES_SHIFT], row)
        key, key_bytes = _key(heads, source)
        if (with_deletes or not deleted) and (across_segments or segment >= oldest):
            if count == 0:
                current = segment
            elif segment != current and not across_segments:
                break
            value_bytes = np.int64(0) if deleted else _value_bytes(heads, source, row)
            if count and all_key_bytes + all_value_bytes + key_bytes + value_bytes >= 1 << 31:
                break
            chosen[count, 0], chosen[count, 1] = source, row
            count += 1
            all_key_bytes += key_bytes
            all_value_bytes += value_bytes
        before = waiting
        waiting = _advance(heads, heap, waiting, shared, suffix_bytes, interval_ms)
        ended = waiting < before
        while waiting and heads[heap[0], _PIECE] == piece:  # what earlier sources have under the same key
            other, other_bytes = _key(heads, heap[0])
            if other_bytes != key_bytes or compare(other, other_bytes, key, key_bytes) != 0:
                break
            before = waiting
            waiting = _advance(heads, heap, waiting, shared, suffix_bytes, interval_ms)
            ended = ended or waiting < before
    return waiting, count, current, all_key_bytes, all_value_bytes, ended


@compiled
def _count(heads: Int64s, heap: Int64s, waiting: Int, shared: Int) -> Int:
    """Count rows until a source is through with its batch."""
    rows = np.int64(0)
    ended = False
    while not ended:
        source, before = heap[0], waiting
        passed = _rows_before_others(heads, heap, waiting, shared)
        if passed:
            first = heads[source, _ROW]
            for row in range(first, first + passed):
                rows += not is_null(heads[source, _VALUES_VALID], heads[source, _VALUES_SHIFT], row)
            heads[source, _ROW] += passed - 1
            waiting = _advance(heads, heap, waiting, shared, 0, 0)
        else:  # earlier sources have the key, too
            rows += not is_null(heads[source, _VALUES_VALID], heads[source, _VALUES_SHIFT], heads[source, _ROW])
            key, key_bytes = _key(heads, source)
            waiting = _advance(heads, heap, waiting, shared, 0, 0)
            while waiting:
                other, other_bytes = _key(heads, heap[0])
                if other_bytes != key_bytes or compare(other, other_bytes, key, key_bytes) != 0:
                    break
                waiting = _advance(heads, heap, waiting, shared, 0, 0)
        ended = waiting < before
    return rows


@compiled
def _rows_before_others(heads: Int64s, heap: Int64s, waiting: Int, shared: Int) -> Int:
    """How many rows of the first source's batch, from where it is, have keys below those of all other sources."""
    source = heap[0]
    first, end = heads[source, _ROW], heads[source, _ROWS]
    if waiting == 1:
        return end - first
    other = heap[1] if waiting == 2 or _before(heads, heap[1], heap[2], shared) else heap[2]
    limit, limit_bytes = _key(heads, other)
    limit_piece = heads[other, _PIECE]
    ends = heads[source, _KEY_ENDS]
    for row in range(first, end):
        begin = np.int64(load_i32(ends + 4 * row))
        key, key_bytes = heads[source, _KEYS] + begin, np.int64(load_i32(ends + 4 * row + 4)) - begin
        piece = _piece(key, key_bytes, shared)
        if piece > limit_piece:
            return row - first
        if piece == limit_piece and compare(key, key_bytes, limit, limit_bytes) >= 0:
            return row - first
    return end - first


@compiled
def _gather(heads: Int64s, chosen: Int64s, room: Buffers) -> None:
    keys, values = room.keys.ctypes.data, room.values.ctypes.data
    key_end = value_end = np.int64(0)
    for at in range(len(room.timestamps)):
        source, row = chosen[at, 0], chosen[at, 1]
        ends = heads[source, _KEY_ENDS] + 4 * row
        begin = np.int64(load_i32(ends))
        size = np.int64(load_i32(ends + 4)) - begin
        copy(keys + key_end, heads[source, _KEYS] + begin, size)
        key_end += size
        room.key_ends[at + 1] = key_end
        if is_null(heads[source, _VALUES_VALID], heads[source, _VALUES_SHIFT], row):
            room.nulls[at] = True
        else:
            begin = np.int64(load_i32(heads[source, _VALUE_ENDS] + 4 * row))
            size = _value_bytes(heads, source, row)
            copy(values + value_end, heads[source, _VALUES] + begin, size)
            value_end += size
        room.value_ends[at + 1] = value_end
        room.timestamps[at] = load_i64(heads[source, _TIMESTAMPS] + 8 * row)
        room.offsets[at] = load_i64(heads[source, _OFFSETS] + 8 * row)
