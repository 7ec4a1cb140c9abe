"""A run in memory: its records, sorted by segment and key, as batches."""

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
from statestore.bulk.sorting import segment_of, sort
from statestore.compiled.batches import Int64s
from statestore.compiled.loops import compiled
from statestore.compiled.memory import Int, copy, load_i32, load_i64, load_u32, prefetch

_AHEAD = 8
BATCH_ROWS = 8192


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
        sort(places, self.latest.give_table(), self._routing.suffix_bytes, self._routing.interval_ms or 0)
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
            for line in range(0, 192, 64):
                prefetch(places[at + _AHEAD] + line)
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
