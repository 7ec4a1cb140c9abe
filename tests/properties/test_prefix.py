"""The offsets that the proof finds are those at which a fold of the log, made record by record, gives the rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.bulk.routing import Routing
from statestore.compiled.batches import Int64s
from statestore.kafka.record_columns import batch_of
from statestore.model import StoreFormat
from statestore.stores.scan import STORED_SCHEMA
from statestore.verification.proof.key_table import KeyTable
from statestore.verification.proof.prefix import Prefix, find_prefix
from statestore.verification.proof.unproven import MissingOffsets

_KEYS = [b"", b"a", b"b", b"\0" * 9, b"c" * 70]
_VALUES = [None, b"", b"1", b"2" * 40]


class Record(NamedTuple):
    """A record; its offset is its place in the log, which has holes for markers."""

    offset: int
    key: bytes
    value: bytes | None
    time: int
    required: bool


Row = tuple[bytes, int]


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Logs of a few keys, with repeated values, markers, and records of aborted transactions."""
    found, offset = [], draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 14))):
        key, value = draw(st.sampled_from(_KEYS)), draw(st.sampled_from(_VALUES))
        found.append(Record(offset, key, value, draw(st.integers(0, 2)), draw(st.integers(0, 4)) > 0))
        offset += draw(st.integers(1, 2))
    return found


def fold(log: list[Record], upto: int, *, timestamped: bool) -> dict[bytes, Row]:
    """Return the rows that the required records up to an offset give."""
    rows: dict[bytes, Row] = {}
    for record in log:
        if record.offset > upto or not record.required:
            continue
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.value, record.time if timestamped else 0
    return rows


def prefix_of(
    rows: dict[bytes, Row], log: list[Record], end: int, *, timestamped: bool, missing: Int64s | None = None
) -> Prefix:
    """Find the prefix with the code under test."""
    form = StoreFormat.TIMESTAMPED if timestamped else StoreFormat.PLAIN
    table = KeyTable(Routing(), form)
    values = [time.to_bytes(8, "big", signed=True) + value if timestamped else value for value, time in rows.values()]
    stored = [pa.array(column, pa.binary()) for column in (list(rows), values)]
    table.add_rows(0, pa.RecordBatch.from_arrays(stored, schema=STORED_SCHEMA))
    for record in log:
        batch = batch_of([record.key], [record.value], [record.time], [record.offset])
        table.take(batch, required=record.required)
    return find_prefix(table.found, end, missing=missing)


def explained_at(row: Row | None, log: list[Record], key: bytes, upto: int, *, timestamped: bool) -> bool:
    """Return whether a row is what some choice of the key's optional records leaves at an offset. Slow, and plain."""
    possible: list[Row | None] = [None]
    for record in (record for record in log if record.key == key and record.offset <= upto):
        put = None if record.value is None else (record.value, record.time if timestamped else 0)
        possible = [put] if record.required else [*possible, put]
    return row in possible


@pytest.mark.parametrize("timestamped", [False, True])
@given(log=logs(), data=st.data())
def test_a_prefix_is_found_at_all_offsets_that_give_its_rows_and_at_no_other(
    log: list[Record], data: st.DataObject, timestamped: bool
) -> None:
    end = max((record.offset for record in log), default=-1) + data.draw(st.integers(1, 3))
    rows = fold(log, data.draw(st.integers(-1, end - 1)), timestamped=timestamped)
    found = prefix_of(rows, log, end, timestamped=timestamped)
    keys = {record.key for record in log}
    expected = [
        upto
        for upto in range(-1, end)
        if all(explained_at(rows.get(key), log, key, upto, timestamped=timestamped) for key in keys)
    ]
    assert found.is_prefix
    assert [upto for upto in range(-1, end) if found.equals_at(upto)] == expected


@pytest.mark.parametrize("timestamped", [False, True])
@given(log=logs(), data=st.data())
def test_replaying_the_tail_corrects_every_explained_row(
    log: list[Record], data: st.DataObject, timestamped: bool
) -> None:
    end = max((record.offset for record in log), default=-1) + 1
    whole = fold(log, end, timestamped=timestamped)
    torn: dict[bytes, Row] = {}
    for key in {record.key for record in log}:  # each key has another position
        position = data.draw(st.integers(-1, end))
        row = fold([record for record in log if record.key == key], position, timestamped=timestamped).get(key)
        if row is not None:
            torn[key] = row
    changed = data.draw(st.sampled_from([None, *_KEYS]))
    if changed is not None:
        torn[changed] = b"changed", 7
    found = prefix_of(torn, log, end, timestamped=timestamped)
    repaired = dict(torn)
    for record in log:
        if record.required and record.offset >= found.replay_from:
            if record.value is None:
                repaired.pop(record.key, None)
            else:
                repaired[record.key] = record.value, record.time if timestamped else 0
    assert found.unexplained == (changed is not None)
    left = {key for key in {*repaired, *whole} if repaired.get(key) != whole.get(key)}
    assert len(left) == found.orphans
    assert left <= {changed}


def compacted(data: st.DataObject, log: list[Record]) -> list[Record]:
    """Remove some records that have a later required one of their key."""
    last = {record.key: record.offset for record in log if record.required}
    gone = [record for record in log if record.required and record.offset < last[record.key]]
    return [record for record in log if record not in gone or data.draw(st.booleans())]


def missing_in(log: list[Record], start: int, markers: list[int], data: st.DataObject) -> Int64s:
    """Find the missing offsets with the code under test; records come in batches of any size."""
    found, left = MissingOffsets(start), [record.offset for record in log]
    cut = data.draw(st.integers(0, len(left)))
    for part in (left[:cut], left[cut:]):
        found.add(np.array(part, np.int64))
    return found.found(markers)


@pytest.mark.parametrize("timestamped", [False, True])
@given(log=logs(), data=st.data())
def test_a_key_that_compaction_makes_wrong_at_an_offset_is_counted_as_unproven_there(
    log: list[Record], data: st.DataObject, timestamped: bool
) -> None:
    end = max((record.offset for record in log), default=-1) + 1
    start = min((record.offset for record in log), default=0)
    markers = sorted(set(range(start, end)) - {record.offset for record in log})
    rows = fold(log, data.draw(st.integers(-1, end - 1)), timestamped=timestamped)
    left = compacted(data, log)
    missing = missing_in(left, start, markers, data)
    removed = {record.offset for record in log} - {record.offset for record in left}
    assert set(missing.tolist()) <= removed
    assert bool(len(missing)) == any(offset < max((r.offset for r in left), default=-1) for offset in removed)
    found = prefix_of(rows, left, end, timestamped=timestamped, missing=missing)
    keys = {record.key for record in log}
    for upto in (upto for upto in range(-1, end) if found.equals_at(upto)):
        wrong = [key for key in keys if not explained_at(rows.get(key), log, key, upto, timestamped=timestamped)]
        assert len(wrong) <= found.doubts.count_at(upto)
        if not removed:
            assert found.doubts.count_at(upto) == 0
        if all(record.offset <= upto for record in log):
            assert (wrong, found.doubts.count_at(upto)) == ([], 0)


def test_a_row_of_an_aborted_record_is_replayed_from_the_last_committed_one() -> None:
    log = [
        Record(0, b"a", b"1", 0, required=True),
        Record(1, b"b", b"1", 0, required=True),
        Record(2, b"a", b"2", 0, required=False),
        Record(3, b"c", b"2", 0, required=False),
    ]
    found = prefix_of({b"a": (b"2", 0), b"b": (b"1", 0), b"c": (b"2", 0)}, log, 5, timestamped=False)
    assert (found.replay_from, found.by_optional, found.orphans) == (0, 2, 1)
