"""Sorted runs of a range of a log, cut at keys into pieces for tasks that each merge one range of keys.

Cuts are row keys in the order of runs, by segment and then by key. Piece n has the records from cut n - 1 on and before
cut n. A piece is the file of a run (run_file.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.routing import Routing
from statestore.bulk.run_file import RunFacts, read_facts, read_run, write_run
from statestore.bulk.runs import Runs, sorted_records
from statestore.bulk.sorting import segment_of
from statestore.compiled.batches import Address, address_of
from statestore.compiled.loops import compiled
from statestore.compiled.memory import Int, compare, load_i32
from statestore.errors import StoreCorruptedError
from statestore.kafka.record_columns import SCHEMA

Place = tuple[int, bytes]


class RunPiece(NamedTuple):
    """One piece of a range's runs.

    Attributes
    ----------
    number
        Of the range of keys.
    row_bytes
        Bytes of its keys and values.
    """

    number: int
    path: Path
    row_bytes: int


def choose_cuts(sample: Iterable[pa.RecordBatch], count: int, routing: Routing) -> tuple[bytes, ...]:
    """Choose keys that cut a store into so many parts, of about the same number of bytes; fewer if few keys are known.

    Parameters
    ----------
    sample
        Records of the log with `changelog.reader.SCHEMA`, in offset order, from all over it. Those that have expired by
        the sample's latest time do not count.
    """
    sizes: dict[Place, int] = {}
    time = -1
    for batch in sample:
        value_bytes = pc.binary_length(batch.column(1)).fill_null(0).to_pylist()
        for key, size in zip(batch.column(0).to_pylist(), value_bytes, strict=True):
            if key is None or len(key) < routing.suffix_bytes:
                continue
            if routing.suffix_bytes:
                at = len(key) - routing.suffix_bytes
                time = max(time, int.from_bytes(key[at : at + 8], "big", signed=True))
            sizes[routing.place(key)] = len(key) + size
    oldest = routing.oldest_live(time)
    places = sorted(place for place in sizes if place[0] >= oldest)
    total, before = sum(sizes[place] for place in places), 0
    cuts: list[bytes] = []
    for place in places:
        if before and len(cuts) < count - 1 and before * count >= total * (len(cuts) + 1):
            cuts.append(place[1])
        before += sizes[place]
    return tuple(cuts)


def cut_runs(runs: Runs, cuts: Sequence[bytes], routing: Routing, directory: Path) -> Iterator[RunPiece]:
    """Write the pieces of a range's runs, one after the other, each into a directory of its own; none is empty.

    Raises
    ------
    StoreCorruptedError
        If a run is not as it was written.
    DiskSpaceError, StoreAccessError
        If a piece cannot be written.
    """
    facts = RunFacts(runs.start, runs.position, runs.records, runs.skipped, runs.last_offset, runs.stream_time)
    places = [routing.place(key) for key in cuts]
    for number, found in groupby(_cut(sorted_records(runs, routing), places, routing), key=lambda one: one[0]):
        size = _Size()
        path = write_run(directory / str(number), size.of(batch for _, batch in found), facts, routing)
        yield RunPiece(number, path, size.bytes)


class _Size:
    """Adds up the bytes of batches that pass."""

    def __init__(self) -> None:
        self.bytes = 0

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.bytes += batch.column(0).nbytes + batch.column(1).nbytes
            yield batch


def _cut(
    batches: Iterable[pa.RecordBatch], cuts: Sequence[Place], routing: Routing
) -> Iterator[tuple[int, pa.RecordBatch]]:
    number = 0
    for batch in batches:
        keys, first = batch.column(0), 0
        while number < len(cuts) and routing.place(keys[-1].as_py()) >= cuts[number]:
            at = bisect_left(keys, cuts[number], first, key=lambda key: routing.place(key.as_py()))
            if at > first:
                yield number, batch.slice(first, at - first)
            first, number = at, number + 1
        if first < batch.num_rows:
            yield number, batch.slice(first)


def require_piece(path: Path, number: int, cuts: Sequence[bytes], routing: Routing) -> None:
    """Refuse a piece that is not one of a range of keys, whoever wrote it; all of it is read.

    Loops that merge it take addresses from it, and their result relies on its order.

    Raises
    ------
    StoreCorruptedError
        Saying what is wrong.
    """
    lower = routing.place(cuts[number - 1]) if number else None
    upper = routing.place(cuts[number]) if number < len(cuts) else None
    before: Place | None = None
    try:
        if read_facts(path)[1] != routing:
            raise _refused(path, "it was made for a store of another kind or retention")
        for batch in read_run(path):
            if not batch.schema.equals(SCHEMA):
                raise _refused(path, f"its columns are {batch.schema.names}")
            batch.validate(full=True)
            if any(batch.column(at).null_count for at in (0, 2, 3)):
                raise _refused(path, "it has a record without a key, a timestamp, or an offset")
            if not batch.num_rows:
                continue
            if not _ordered(address_of(batch), routing.suffix_bytes, routing.interval_ms or 0):
                raise _refused(path, "its records are not in order, or a key is too short")
            first, last = (routing.place(batch.column(0)[at].as_py()) for at in (0, -1))
            if (before is not None and first <= before) or (lower is not None and first < lower):
                raise _refused(path, "it has keys of other pieces, or twice")
            before = last
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise _refused(path, str(error)) from error
    if upper is not None and before is not None and before >= upper:
        raise _refused(path, "it has keys of other pieces")


def _refused(path: Path, why: str) -> StoreCorruptedError:
    return StoreCorruptedError(f"{path} is not a piece of sorted runs: {why}; nothing of it is used")


@compiled
def _ordered(place: Address, suffix_bytes: Int, interval_ms: Int) -> bool:
    """True if each key is long enough, and comes after the one before."""
    for row in range(place.rows):
        ends = place.key_ends + 4 * row
        begin = load_i32(ends)
        key, size = place.keys + begin, load_i32(ends + 4) - begin
        if size < suffix_bytes:
            return False
        if row:
            begin = load_i32(ends - 4)
            earlier, earlier_size = place.keys + begin, load_i32(ends) - begin
            segment = segment_of(key, np.int64(size), suffix_bytes, interval_ms)
            earlier_segment = segment_of(earlier, np.int64(earlier_size), suffix_bytes, interval_ms)
            if segment < earlier_segment:
                return False
            if segment == earlier_segment and compare(earlier, earlier_size, key, size) >= 0:
                return False
    return True
