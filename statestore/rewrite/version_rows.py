"""Versions of a versioned store's keys on their way into a store, and the changelog records that they become.

A versioned store is the fold of all its records, not of the last one of each key. So versions are put in the order of
their times: then no record comes too late, and Kafka Streams, whose stream time begins anew in a restore, keeps the
same ones.

row key    key, time (8)                          the key of the changelog and the record's timestamp, in ms
value      until when it is valid (8), value      -1: it is the latest; null: a delete

A DataFrame has no rows for deletes: where a version ends and no other begins, there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore import kill_switch
from statestore.bulk.digest import Digest
from statestore.bulk.routing import Routing
from statestore.bulk.runs import Runs, RunWriter, merged
from statestore.compiled.batches import Int64s, big_endian, int64_column, lengths
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_tree
from statestore.errors import InputError
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY
from statestore.formats.versioned_row import segment_of
from statestore.kafka.record_columns import SCHEMA
from statestore.kinds.versioned import VERSIONED
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.row_stage import ROW_SCHEMA, AttemptWriter, RowStage
from statestore.statedir.record import read_record
from statestore.stores.scan import ScannedDatabase
from statestore.stores.versioned import newest_time_in, segments_in, versions_in
from statestore.verification.kernels import numbers_in

#: A version that is valid until now.
OPEN = -1
_TIME_BYTES = 8
_LENGTH_BYTES = 4
#: End of a slice of values that go to their ends; without one, pyarrow fails.
_LONGEST = (1 << 31) - 1
_JOINED = pa.scalar(b"", pa.binary())
_BATCH_ROWS = 10_000
_ANY = Routing()


def version_rows(keys: pa.Array, values: pa.Array, valid_from: Int64s, valid_to: Int64s) -> pa.RecordBatch:
    """Return versions with `ROW_SCHEMA`; those without a value are deletes.

    Parameters
    ----------
    valid_from, valid_to
        In ms; `OPEN` for the latest.
    """
    times, ends = big_endian(valid_from, 8), big_endian(valid_to, 8)
    columns = [_joined(keys, times), _joined(ends, values)]
    return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def version_records(rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array, Int64s]:
    """Return keys, values and timestamps (ms) of the records that rows become."""
    keys, values = rows.columns
    return (
        _users(keys),
        pc.binary_slice(values, _TIME_BYTES, _LONGEST),
        version_times(keys),
    )


def version_times(keys: pa.Array) -> Int64s:
    """Return from when on (ms) versions are valid, by their row keys."""
    return numbers_in(keys, back=_TIME_BYTES)


def add_versions(digest: Digest, rows: pa.RecordBatch) -> None:
    """Add versions to a digest; the deletes among them are told by the ends of the versions before them."""
    kept = rows.filter(pc.is_valid(rows.column(1)))
    digest.add_stored(kept.column(0), kept.column(1))


def versions_digest(store: StorePartitionSpec, directory: Path) -> Digest:
    """Return the digest of all versions in a database.

    Raises
    ------
    StoreCorruptedError
        If a row cannot be read.
    """
    digest = Digest(store.store.values)
    with ScannedDatabase(directory, store.store.values) as database:
        rows = (
            (key + _time(valid_from), _time(OPEN if valid_to is None else valid_to) + value)
            for key, versions in versions_in(database.family(DEFAULT_COLUMN_FAMILY))
            for value, valid_from, valid_to in versions
            if value is not None
        )
        while some := list(islice(rows, _BATCH_ROWS)):
            digest.add_stored(*zip(*some, strict=True))
    return digest


def history_of(store: StorePartitionSpec) -> tuple[int, list[int]]:
    """Return the stream time of a store's versions, and the starts of its segments (ms).

    Raises
    ------
    StoreCorruptedError
        If a row cannot be read.
    """
    record = read_record(store.paths, store.store.name)
    now = 0 if record is None else record.stream_time or 0
    if not store.live.exists():
        return now, []
    with ScannedDatabase(store.live, store.store.values) as database:
        rows = database.family(DEFAULT_COLUMN_FAMILY)
        segments = segments_in(rows)
        now = max(now, newest_time_in(rows))
    interval_ms = VERSIONED.segment_interval_ms(store.store)
    return now, [segment * interval_ms for segment in segments]


def first_segment(store: StoreDefinition, stream_time_ms: int) -> int:
    """Return the start (ms) of the first segment that has not expired at a stream time."""
    interval_ms = VERSIONED.segment_interval_ms(store)
    return max(segment_of(stream_time_ms - (store.retention_ms or 0), interval_ms), 0) * interval_ms


def as_records(stage: RowStage, stores: Sequence[StorePartitionSpec], run_bytes: int, *, whole: bool) -> RowStage:
    """Return the rows of records, in the order that they must have in the changelog; they lie in the same directory.

    Parameters
    ----------
    run_bytes
        Bound of a sorted run in memory.
    whole
        The versions are all that a store gets: where one ends and no other begins, there is a delete. If not, each
        is a record, whatever its end.

    Raises
    ------
    InputError
        If versions of a key overlap, or the store would not keep some.
    """
    scratch = stage.directory / "sorting"
    with AttemptWriter(stage.directory, len(stores)) as attempt:
        for store in stores:
            number = store.task.partition
            rows: Iterable[pa.RecordBatch] = stage.batches(number)
            if whole:
                _require_kept(store, stage)
                by_key = _sorted(map(_by_key, rows), scratch / "keys", run_bytes // 2)
                rows = _with_deletes(store, (_from_key(batch) for batch in by_key))
            for batch in _sorted(map(_by_time, rows), scratch / "times", run_bytes // 2):
                attempt.add_to(number, _from_time(batch))
            remove_tree(scratch)
            kill_switch.reached("rewrite, versions sorted")
    return RowStage(stage.directory, [attempt.staged])


def _require_kept(store: StorePartitionSpec, stage: RowStage) -> None:
    """Refuse versions that ended before the history that the store keeps."""
    number, latest = store.task.partition, 0
    for batch in stage.batches(number):
        latest = max(latest, int(version_times(batch.column(0)).max()), int(_ends(batch.column(1)).max()))
    oldest, expired = first_segment(store.store, latest), 0
    for batch in stage.batches(number):
        ends = _ends(batch.column(1))
        expired += int(np.count_nonzero((ends != OPEN) & (ends < oldest)))
    if expired:
        raise InputError(
            f"{store.store_partition}: {expired} versions ended before the history that the store keeps, of "
            f"{store.store.retention_ms} ms up to {latest}, the latest time of their partition. Leave out versions "
            f"with valid_to before {oldest}. Nothing was changed"
        )


def _with_deletes(store: StorePartitionSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield versions, which come by key and time, with the deletes between them and behind the last of a key."""
    left: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        some = batch if left is None else pa.concat_batches([left, batch])
        left = some.slice(some.num_rows - 1)
        yield from _followed(store, some)
    if left is not None:
        yield left
        yield _deletes(left, _ends(left.column(1)) != OPEN)


def _followed(store: StorePartitionSpec, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield all versions but the last, each compared with the one behind it."""
    keys = _users(rows.column(0))
    before = rows.slice(0, rows.num_rows - 1)
    if not before.num_rows:
        return
    same = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1)).to_numpy(zero_copy_only=False)
    following, ends = version_times(rows.column(0))[1:], _ends(before.column(1))
    wrong = np.flatnonzero(same & ((ends == OPEN) | (ends > following)))
    if len(wrong):
        at = int(wrong[0])
        until = "null, the latest" if ends[at] == OPEN else ends[at]
        raise InputError(
            f"{store.store_partition}: key {keys[at].as_py()!r:.120} has a version with valid_from "
            f"{version_times(before.column(0))[at]} and valid_to {until}, and another with valid_from {following[at]}. "
            "Expected versions of a key that do not overlap. Nothing was changed"
        )
    yield before
    yield _deletes(before, (ends != OPEN) & ~(same & (ends == following)))


def _deletes(rows: pa.RecordBatch, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.RecordBatch:
    """Return the deletes at the ends of some versions."""
    some = rows.filter(pa.array(chosen))
    keys = _users(some.column(0))
    ends = pc.binary_slice(some.column(1), 0, _TIME_BYTES)
    return pa.RecordBatch.from_arrays([_joined(keys, ends), pa.nulls(len(keys), pa.binary())], schema=ROW_SCHEMA)


# -- sorting ----------------------------------------------------------------------------------------------------------


def _sorted(batches: Iterable[pa.RecordBatch], scratch: Path, run_bytes: int) -> Iterator[pa.RecordBatch]:
    writer, rows = RunWriter(scratch, _ANY, run_bytes, start=0), 0
    for batch in batches:
        offsets = int64_column(np.arange(rows, rows + batch.num_rows))
        writer.add(pa.RecordBatch.from_arrays([*batch.columns, offsets, offsets], schema=SCHEMA))
        rows += batch.num_rows
    found: Runs = writer.finish(rows)
    for some in merged([found], _ANY, with_deletes=True):
        yield pa.RecordBatch.from_arrays(some.batch.columns[:2], schema=ROW_SCHEMA)


def _by_key(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Put the length in front of each key, so that no key's versions lie between those of another."""
    keys = rows.column(0)
    return _keyed(rows, _joined(big_endian(lengths(keys), _LENGTH_BYTES), keys))


def _from_key(rows: pa.RecordBatch) -> pa.RecordBatch:
    return _keyed(rows, pc.binary_slice(rows.column(0), _LENGTH_BYTES, _LONGEST))


def _by_time(rows: pa.RecordBatch) -> pa.RecordBatch:
    keys = rows.column(0)
    times = big_endian(version_times(keys), _TIME_BYTES)
    return _keyed(rows, _joined(times, _users(keys)))


def _from_time(rows: pa.RecordBatch) -> pa.RecordBatch:
    keys = rows.column(0)
    return _keyed(rows, _joined(pc.binary_slice(keys, _TIME_BYTES, _LONGEST), pc.binary_slice(keys, 0, _TIME_BYTES)))


def _keyed(rows: pa.RecordBatch, keys: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([keys, rows.column(1)], schema=ROW_SCHEMA)


# -- columns ----------------------------------------------------------------------------------------------------------


def _users(keys: pa.Array) -> pa.Array:
    return pc.binary_slice(keys, 0, -_TIME_BYTES)


def _ends(values: pa.Array) -> Int64s:
    return numbers_in(values)


def _joined(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(one, other, _JOINED)


def _time(time_ms: int) -> bytes:
    return time_ms.to_bytes(_TIME_BYTES, "big", signed=True)
