"""Databases that lack more of the log than their memtables hold: these changes were in files, and are lost.

RocksDB writes its memtables to files when they are full, and stops writes when too many are full. So if a database has
applied its log up to some offset, all but the last changes are in its files. The files of another segment show up to
where the store has applied its log: a store has one writer, which applies the log in order.

The bound is conservative. A change counts with the bytes of its key and value, and a memtable needs more. A key counts
once, because a transaction may keep only its last change. Only committed records count. A store that is killed during
a commit can have a whole transaction in the files of one segment, and nothing of it in another one. So a segment has
lost rows only if it lacks more than memtables with the largest transaction of the log. Without transactions, nothing is
known of the size of a commit, so no segment counts as damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.routing import routing_of
from statestore.changelog.reader import ChangelogReader
from statestore.compiled.batches import Int64s, UInt64s
from statestore.discovery.options_file import Memtables, memtables_in_options_files
from statestore.kafka.topics import LogRange
from statestore.partition.spec import StorePartitionSpec
from statestore.verification.kernels import hashes_of, numbers_in
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import Proof
from statestore.verification.proof.records import bytes_of

#: Bytes that one write adds to a memtable, and that wait for a commit, if the log has no larger transaction: Kafka
#: Streams' defaults are 64 MiB (`statestore.uncommitted.max.bytes`), and 50 MiB for a poll of a restore
#: (`fetch.max.bytes`).
LARGEST_WRITE_BYTES = 64 << 20
_HASHES_HELD = 1 << 20


class BehindMemory(NamedTuple):
    """A database that lacks more of its log than its memtables hold.

    Attributes
    ----------
    segment
        Start of its segment (ms); 0 if the store has one database.
    position
        Last offset that its rows can be those of.
    until
        The log up to this offset does not fit into its memtables.
    limit
        Bytes that its memtables hold at most.
    was_applied
        Another segment shows that the store had applied the log up to there.
    """

    segment: int
    position: int
    until: int
    limit: int
    was_applied: bool


def memory_limit(memtables: Memtables | None, largest_transaction: int = 0) -> int:
    """Return how many bytes of keys and values a database can have applied without having them in its files.

    Parameters
    ----------
    memtables
        The memtables by its options; None if the directory is missing, which the first change creates.
    largest_transaction
        Bytes of the largest transaction of its log.
    """
    write = max(LARGEST_WRITE_BYTES, largest_transaction)
    if memtables is None:
        return write
    # A memtable may exceed its size by one write, and by a part of a block of its memory, which is an eighth of it.
    each = memtables.bytes_each + memtables.bytes_each // 8 + write
    return (memtables.number + 1) * each + write


def find_behind_memory(
    spec: StorePartitionSpec, proof: Proof, log: LogRange, options: VerifyOptions
) -> list[BehindMemory]:
    """Find the databases that lack more of the log than their memtables hold; those that lost something come first.

    Parameters
    ----------
    proof
        Made with `name_suspects`.
    """
    if spec.store.store_kind.has_history:  # a versioned store refuses late records, which are logged all the same
        return []
    here = spec.segments_used(spec.store.store_kind.segments(spec.live))
    found = []
    for segment, ranges in proof.ranges.items():
        if not ranges:
            continue
        if segment in proof.digests and segment not in here:  # it has expired since the rows were read
            continue
        position = ranges[-1].last
        memtables = None if segment not in here else memtables_in_options_files(here[segment])
        if (segment in here and memtables is None) or proof.bytes_after(position) <= memory_limit(memtables):
            continue
        others = (suspects.reached for at, suspects in proof.suspects.items() if at != segment)
        applied = max(others, default=-1)
        for until, was_applied in ((applied, True), (log.last_stable - 1, False)):
            limit = memory_limit(memtables, proof.logged.largest_transaction if was_applied else 0)
            if _logged_more(spec, Span(position + 1, min(until + 1, log.last_stable), segment), limit, options):
                found.append(BehindMemory(segment, position, until, limit, was_applied))
                break
    return sorted(found, key=lambda each: (not each.was_applied, each.segment))


class Span(NamedTuple):
    """Offsets from `start` to before `end`, and the segment (ms) whose records count."""

    start: int
    end: int
    segment: int


def _logged_more(spec: StorePartitionSpec, span: Span, limit: int, options: VerifyOptions) -> bool:
    """Return whether the keys with committed records in a span, each with its smallest value, exceed so many bytes."""
    if span.start >= span.end:
        return False
    hashes, sizes = np.empty(0, np.uint64), np.empty(0, np.int64)
    held: list[tuple[UInt64s, Int64s]] = []
    values = spec.store.values
    with ChangelogReader(spec.cluster, spec.partition) as reader:
        for batch in reader.read(span.start, span.end, values):
            options.give_way()
            options.pace(batch.nbytes)
            held.append(_sizes_of(batch, spec, span.segment))
            if sum(len(found) for found, _ in held) > _HASHES_HELD:
                hashes, sizes = _smallest([(hashes, sizes), *held])
                held = []
                if int(sizes.sum()) > limit:
                    return True
    return int(_smallest([(hashes, sizes), *held])[1].sum()) > limit


def _sizes_of(batch: pa.RecordBatch, spec: StorePartitionSpec, segment: int) -> tuple[UInt64s, Int64s]:
    """Return the hash of each record's key in a segment, and the bytes of its key and value."""
    routing = routing_of(spec.store)
    keys, values = batch.column(0), batch.column(1)
    chosen = pc.is_valid(keys).to_numpy(zero_copy_only=False)
    if routing.interval_ms is not None:
        times = numbers_in(keys, back=routing.suffix_bytes)
        chosen &= times - times % routing.interval_ms == segment
    return hashes_of(keys)[chosen], (bytes_of(keys) + bytes_of(values))[chosen]


def _smallest(parts: list[tuple[UInt64s, Int64s]]) -> tuple[UInt64s, Int64s]:
    """Return each hash once, in order, with the smallest of its sizes."""
    hashes, sizes = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((sizes, hashes))
    hashes, sizes = hashes[order], sizes[order]
    first = np.ones(len(hashes), np.bool_)
    first[1:] = hashes[1:] != hashes[:-1]
    return hashes[first], sizes[first]


def describe(found: BehindMemory, directories: Mapping[int, Path], live: Path) -> str:
    """Return what is known of such a database, in a sentence."""
    where = directories.get(found.segment, live)
    mib = found.limit >> 20
    said = f"the rows in {where} are those of offset {found.position}"
    if found.segment not in directories:
        said = f"{live} has no directory for the segment that begins at {found.segment} ms"
    if found.was_applied:
        return (
            f"{said}, but those of another segment have offset {found.until}, and what was logged in between exceeds "
            f"the {mib} MiB that memtables can hold: rows that were on disk are lost"
        )
    return (
        f"{said}, and what was logged since exceeds the {mib} MiB that memtables can hold. Either the store is being "
        "restored, or is a standby that is behind, or its task has moved, or an older copy was put back"
    )
