"""What users write aggregations with, and how they are put to work."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from statestore.definitions.aggregation import AggregationDefinition, Sessions, TimeWindows
from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError
from statestore.formats import session_key, window_key
from statestore.kafka.record_columns import SCHEMA
from statestore.model import TaskId
from statestore.stores.api import StoreContext
from statestore.stores.open import build_store
from statestore.stores.serdes import INT64, JSON, UTF8
from statestore.tasks import sums
from statestore.tasks.aggregates import aggregate, count, latest, load_aggregate, reduce_by, sum_of
from statestore.tasks.aggregation import aggregation, require_capable

HOUR = TimeWindows(size_ms=3_600_000)
LARGEST = (1 << 63) - 1


def int64(number):
    return number.to_bytes(8, "big", signed=True)


class AtWork:
    """An aggregation over a store in memory."""

    def __init__(self, tmp_path, made, **definition):
        self.definition = AggregationDefinition(store="s", **definition)
        self.store = build_store(StoreDefinition(name="s", engine="in_memory", **self.definition.default_store()))
        self.store.init(StoreContext("app", TaskId(0, 0), tmp_path / "0_0", tmp_path / "own"))
        self.forwarded, self.poison, self.stream_time, self.offset = [], [], -1, 0
        self.made = aggregation(self.definition, made, self.store, self.forward, self.on_poison)

    def forward(self, keys, values, timestamps):
        self.forwarded += zip(keys, values, timestamps, strict=True)

    def on_poison(self, offset, error):
        self.poison.append((offset, str(error)))

    def add(self, *records):
        """Take (key, value, timestamp) in, with offsets from 0 on."""
        keys, values, timestamps = zip(*records, strict=True)
        offsets = range(self.offset, self.offset + len(records))
        self.offset += len(records)
        columns = zip((keys, values, timestamps, offsets), SCHEMA.types, strict=True)
        batch = pa.record_batch([pa.array(list(column), kind) for column, kind in columns], schema=SCHEMA)
        self.made.add(batch, self.stream_time)
        self.stream_time = max(self.stream_time, *timestamps)
        return self

    def flush(self):
        self.made.flush()
        return self


# -- loading ------------------------------------------------------------------------------------------------------


@pytest.fixture
def module(monkeypatch):
    """A module of the user's."""
    made = ModuleType("users_aggregates")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_count_is_known_by_its_name_and_others_by_their_reference(module):
    module.total = sum_of(value=INT64)
    assert load_aggregate("count").counts
    assert load_aggregate("latest").by_time
    assert load_aggregate("users_aggregates:total") is module.total


def test_a_reference_to_something_else_than_an_aggregate_is_refused_with_what_to_write(module):
    module.total = sum_of
    with pytest.raises(DefinitionError, match=r"users_aggregates:total is a function, expected one made with count"):
        load_aggregate("users_aggregates:total")
    with pytest.raises(DefinitionError, match=r"users_aggregates:absent cannot be used: AttributeError"):
        load_aggregate("users_aggregates:absent")


def test_sessions_need_an_aggregate_that_can_merge_them(tmp_path):
    with pytest.raises(DefinitionError, match=r"has no merger; give it one"):
        AtWork(tmp_path, aggregate(int, lambda key, value, total: total), sessions=Sessions(gap_ms=1))


@pytest.mark.parametrize(
    "unfit", [{"format": "plain"}, {"kind": "session", "retention_ms": 1}], ids=["plain", "session"]
)
def test_latest_needs_a_store_with_timestamps(unfit):
    definition = AggregationDefinition(store="s", aggregate="latest")
    with pytest.raises(DefinitionError, match=r"latest compares a record with the timestamp of the stored one"):
        require_capable(definition, latest(), StoreDefinition(name="s", **unfit).values)


# -- results ------------------------------------------------------------------------------------------------------


def test_a_count_is_stored_and_forwarded_as_a_java_long_with_the_largest_timestamp(tmp_path):
    run = AtWork(tmp_path, count()).add((b"a", b"1", 7), (b"b", b"1", 3), (b"a", b"1", 5)).flush()
    assert run.store.get(b"a") == (int64(2), 7)
    run.add((b"a", b"1", 6)).flush()
    assert run.forwarded == [(b"a", int64(2), 7), (b"b", int64(1), 3), (b"a", int64(3), 7)]


@pytest.mark.behaviour("F11")
def test_a_late_record_does_not_replace_a_newer_value_and_of_equal_times_the_last_wins(tmp_path):
    run = AtWork(tmp_path, latest()).add((b"a", b"one", 7), (b"b", b"x", 3), (b"a", b"late", 5)).flush()
    assert run.store.get(b"a") == (b"one", 7)
    run.add((b"a", b"later still", 6), (b"b", b"same time", 3)).flush()
    assert run.store.get(b"a") == (b"one", 7)
    run.add((b"a", b"two", 7), (b"a", b"three", 7), (b"b", None, 9)).flush()
    assert run.forwarded == [(b"a", b"one", 7), (b"b", b"x", 3), (b"b", b"same time", 3), (b"a", b"three", 7)]
    assert (run.made.dropped_records, run.poison) == (1, [])


def test_records_without_a_key_or_a_value_are_dropped_and_counted_but_move_stream_time(tmp_path):
    run = AtWork(tmp_path, count(), windows=TimeWindows(size_ms=10))
    run.add((b"a", None, 5), (None, b"1", 50), (b"a", b"1", 45), (b"a", b"1", 51)).flush()
    assert (run.made.dropped_records, run.made.late_records) == (2, 1)
    assert run.forwarded == [(b"a" + int64(50), int64(1), 51)]


def test_what_was_discarded_is_neither_stored_nor_counted(tmp_path):
    run = AtWork(tmp_path, count(), windows=TimeWindows(size_ms=10)).add(
        (b"a", b"1", 50), (b"a", b"1", 1), (None, b"1", 1)
    )
    assert run.made.pending_bytes > 0
    run.made.discard()
    run.flush()
    assert (run.made.pending_bytes, run.made.late_records, run.made.dropped_records) == (0, 0, 0)
    assert (run.forwarded, list(run.store.all())) == ([], [])


@pytest.mark.long
def test_the_memory_of_counts_does_not_grow_with_records_of_the_same_keys(tmp_path):
    run = AtWork(tmp_path, count())
    records = [(b"%d" % (number % 10), b"1", 1) for number in range(40_000)]
    sizes = [run.add(*records).made.pending_bytes for _ in range(12)]
    assert max(sizes[6:]) <= max(sizes[:6])
    run.flush()
    assert {value for _, (value, _) in run.store.all()} == {int64(48_000)}


def test_hopping_windows_are_forwarded_by_key_and_start_and_a_late_record_reaches_those_still_open(tmp_path):
    run = AtWork(tmp_path, count(), windows=TimeWindows(size_ms=10, advance_ms=5)).add((b"a", b"1", 12)).flush()
    assert [key for key, _, _ in run.forwarded] == [b"a" + int64(5), b"a" + int64(10)]
    run.add((b"b", b"1", 9), (b"b", b"1", 4)).flush()
    assert run.forwarded[2:] == [(b"b" + int64(5), int64(1), 9)]
    assert run.made.late_records == 1


def test_sessions_that_become_one_are_replaced_and_forwarded_with_their_ends(tmp_path):
    run = AtWork(tmp_path, count(), sessions=Sessions(gap_ms=10, grace_ms=100))
    run.add((b"a", b"1", 10), (b"a", b"1", 30)).flush()
    run.forwarded.clear()
    run.add((b"a", b"1", 20)).flush()
    assert run.forwarded == [
        (session_key.encode(b"a", 10, 10), None, 10),
        (session_key.encode(b"a", 30, 30), None, 30),
        (session_key.encode(b"a", 10, 30), int64(3), 30),
    ]
    assert [tuple(session) for session, _ in run.store.all()] == [(b"a", 10, 30)]


def test_a_result_of_none_deletes_and_the_next_record_begins_anew(tmp_path):
    last_but = aggregate(list, lambda key, value, seen: None if value == "end" else [*seen, value], value=UTF8)
    run = AtWork(tmp_path, last_but).add((b"a", b"x", 9), (b"a", b"end", 8)).flush()
    assert run.store.get(b"a") is None
    assert run.forwarded == [(b"a", None, 9)]
    run.add((b"a", b"end", 1), (b"a", b"y", 3)).flush()
    assert run.store.get(b"a") == (b'["y"]', 3)


# -- poison -------------------------------------------------------------------------------------------------------


def test_poison_is_told_in_the_order_of_offsets_and_leaves_no_trace_in_an_accumulator_it_has_changed(tmp_path):
    def collect(key, value, seen):
        seen.append(value)
        return seen if value >= 0 else 1 // 0

    run = AtWork(tmp_path, aggregate(list, collect, value=JSON))
    run.add((b"b", b"1", 1), (b"b", b"-1", 99), (b"a", b"?", 1), (b"b", b"2", 2), (b"a", b"-3", 1)).flush()
    assert [offset for offset, _ in run.poison] == [1, 2, 4]
    assert [run.store.get(key) for key in (b"a", b"b")] == [None, (b"[1,2]", 2)]


def test_a_record_that_is_poison_in_one_window_is_left_out_of_all(tmp_path):
    first_only = aggregate(list, lambda key, value, seen: [*seen, value] if not seen else seen["x"], value=JSON)
    run = AtWork(tmp_path, first_only, windows=TimeWindows(size_ms=10, advance_ms=5))
    run.add((b"a", b"1", 3), (b"a", b"2", 7)).flush()
    assert [offset for offset, _ in run.poison] == [1]
    assert [key for key, _, _ in run.forwarded] == [b"a" + int64(0)]


def test_if_poison_stops_everything_nothing_was_written(tmp_path):
    run = AtWork(tmp_path, sum_of(value=INT64))

    def stop(offset, error):
        raise error

    run.made = aggregation(run.definition, sum_of(value=INT64), run.store, run.forward, stop)
    run.add((b"a", int64(1), 1), (b"b", b"short", 1))
    with pytest.raises(ValueError, match="expected 8 bytes"):
        run.flush()
    assert (list(run.store.all()), run.forwarded) == ([], [])


@pytest.mark.parametrize(
    "kind", [{}, {"windows": HOUR}, {"sessions": Sessions(gap_ms=5)}], ids=["key", "window", "session"]
)
def test_a_record_that_takes_a_sum_beyond_64_bits_is_poison_and_the_sum_goes_on_without_it(tmp_path, kind):
    run = AtWork(tmp_path, sum_of(value=INT64), **kind)
    run.add((b"a", int64(LARGEST - 1), 1), (b"b", int64(1), 1), (b"a", int64(2), 1), (b"a", int64(1), 2)).flush()
    assert run.poison == [(2, f"a sum of {LARGEST + 1} does not fit into 64 bits")]
    run.add((b"a", int64(1), 2), (b"a", int64(-5), 2)).flush()
    assert [offset for offset, _ in run.poison] == [2, 4]
    assert {value for key, value, _ in run.forwarded[-1:]} == {int64(LARGEST - 5)}


def test_a_sum_of_something_else_than_whole_numbers_is_poison(tmp_path):
    run = AtWork(tmp_path, sum_of(lambda order: order["cents"]))
    run.add((b"a", b'{"cents":3}', 1), (b"a", b'{"cents":1.5}', 1), (b"a", b"{}", 1), (b"a", b'{"cents":4}', 1)).flush()
    assert run.poison == [(1, "a sum adds int, found float: 1.5"), (2, "'cents'")]
    assert run.store.get(b"a") == (int64(7), 1)


@pytest.mark.parametrize(
    "made", [count(), sum_of(value=INT64), reduce_by(max, value=INT64)], ids=["count", "sum", "reduce"]
)
def test_a_store_that_another_aggregate_wrote_is_refused_and_no_record_is_blamed(tmp_path, made):
    run = AtWork(tmp_path, made)
    run.store.put_rows([b"a"], [b"no number"], [1])
    run.add((b"a", int64(1), 1))
    with pytest.raises(DefinitionError, match=r"s holds .*another aggregate wrote"):
        run.flush()
    assert run.poison == []


# -- in columns ---------------------------------------------------------------------------------------------------


def test_int64_values_are_read_in_columns_without_the_serde(tmp_path):
    values = pa.array([b"x", int64(-1), b"", int64(LARGEST), b"123456789"], pa.binary())
    amounts, unknown = sums.amounts(sum_of(value=INT64), values.slice(1))
    assert amounts[~unknown].tolist() == [-1, LARGEST]
    assert unknown.tolist() == [False, True, False, True]
    assert sums.amounts(sum_of(value=INT64), values.slice(5))[0].tolist() == []


def test_a_window_far_from_the_epoch_takes_part_in_no_overflow(tmp_path):
    run = AtWork(
        tmp_path, count(), windows=TimeWindows(size_ms=(1 << 62) - 1, advance_ms=1 << 60, grace_ms=(1 << 62) - 1)
    )
    latest = int(np.iinfo(np.int64).max)
    run.add((b"a", b"1", latest), (b"a", b"1", 0)).flush()
    starts = [window_key.decode(key + bytes(4))[1] for key, _, _ in run.forwarded]
    assert starts == [5 << 60, 6 << 60, 7 << 60]
    assert run.made.late_records == 1
