"""What a window store does, whatever its format, engine and transactions."""

from __future__ import annotations

from itertools import product

import pytest
from store_under_test import StoreUnderTest

from statestore.formats import window_key
from statestore.stores.api import Windowed
from statestore.stores.readers import IsolationLevel
from tests.compositions import CHANGELOG, HOUR_MS, MINUTE_MS, compositions

windows = compositions(kind="window")
#: Keys whose rows interleave: the suffix of a shorter one sorts among the bytes of a longer one.
KEYS = ["a", "a\0", "a\0\0\0", "ab", "b"]
STARTS = [0, MINUTE_MS, 2 * HOUR_MS, 4 * HOUR_MS, 5 * HOUR_MS]


@pytest.fixture(params=["committed", "staged"])
def filled(request, store):
    """Each key at each start, in two segments."""
    for start in STARTS:
        for key in KEYS:
            store.store.put(key, store.value(f"{key}@{start}"), start)
    if request.param == "committed":
        store.store.commit({CHANGELOG: 24})
    return store


def found(rows):
    """(key, window start) of windows."""
    return [(window.key, window.start) for window, _ in rows]


def in_order(pairs):
    """(key, start) pairs as a store returns them: by segment, key, and time."""
    return sorted(pairs, key=lambda pair: (pair[1] // (3 * HOUR_MS), window_key.encode(pair[0].encode(), pair[1])))


@windows
@pytest.mark.behaviour("S1")
def test_one_window_is_fetched_by_key_and_start(filled):
    for key in KEYS:
        assert filled.store.fetch(key, 2 * HOUR_MS) == filled.value(f"{key}@{2 * HOUR_MS}")
    assert filled.store.fetch("a", 1) is None
    assert filled.store.fetch("absent", 0) is None


@windows
@pytest.mark.behaviour("S1")
def test_the_windows_of_a_key_between_two_times_come_in_order_of_time_or_backward(filled):
    last = STARTS[-1]
    for key, (time_from, time_to) in product(KEYS, [(0, last), (1, 4 * HOUR_MS), (0, 0), (last, last), (1, 2), (9, 3)]):
        expected = [start for start in STARTS if time_from <= start <= time_to]
        rows = list(filled.store.fetch_between(key, time_from, time_to))
        assert rows == [(start, filled.value(f"{key}@{start}")) for start in expected]
        assert list(filled.store.fetch_between(key, time_from, time_to, backward=True)) == rows[::-1]


@windows
@pytest.mark.behaviour("S1")
def test_windows_of_a_range_of_keys_and_times_come_by_segment_key_and_time_or_backward(filled):
    ranges = [("a", "a\0"), ("a\0", "ab"), (None, "a"), ("ab", None), (None, None), ("b", "a")]
    for (low, high), times in product(ranges, [(0, 5 * HOUR_MS), (1, 4 * HOUR_MS)]):
        expected = in_order(
            (key, start)
            for key, start in product(KEYS, STARTS)
            if (low is None or key >= low) and (high is None or key <= high) and times[0] <= start <= times[1]
        )
        rows = list(filled.store.fetch_range(low, high, *times))
        assert found(rows) == expected
        assert list(filled.store.fetch_range(low, high, *times, backward=True)) == rows[::-1]
        if (low, high) == (None, None):
            assert list(filled.store.fetch_all(*times)) == rows
            assert list(filled.store.fetch_all(*times, backward=True)) == rows[::-1]


@windows
@pytest.mark.behaviour("S1")
def test_a_window_ends_its_size_after_its_start(store):
    store.store.put("a", store.value("x"), HOUR_MS)
    assert list(store.store.all()) == [(Windowed("a", HOUR_MS, HOUR_MS + MINUTE_MS), store.value("x"))]
    store.store.put("a", store.value("y"), window_key.MAX_TIME)
    assert [window.end for window, _ in store.store.all()] == [window_key.MAX_TIME]


@windows
def test_a_put_replaces_and_none_deletes(filled):
    filled.store.put("a", filled.value("new"), 0)
    filled.store.put("b", None, 0)
    assert filled.store.fetch("a", 0) == filled.value("new")
    assert filled.store.fetch("b", 0) is None
    assert len(list(filled.store.all())) == len(KEYS) * len(STARTS) - 1


@windows
@pytest.mark.behaviour("S2")
def test_a_window_whose_segment_has_expired_is_dropped_counted_and_not_logged(store):
    logged = []
    store.store.log_changes_to(lambda *change: logged.append(change))
    store.store.put("a", store.value("x"), 10 * HOUR_MS)  # live from here: the segment that starts at 3 h
    store.store.put("a", store.value("late"), 3 * HOUR_MS - 1)
    store.store.put("a", None, 0)
    assert store.store.expired_records == 2
    store.store.put("a", store.value("live"), 3 * HOUR_MS)
    assert store.store.expired_records == 2
    assert [window_key.decode(key)[1] for key, *_ in logged] == [10 * HOUR_MS, 3 * HOUR_MS]


@windows
@pytest.mark.behaviour("S2")
def test_rows_older_than_the_retention_are_not_shown_while_their_segment_lives(store):
    for start in (4 * HOUR_MS, 4 * HOUR_MS + 1, 10 * HOUR_MS):
        store.store.put("a", store.value("x"), start)
    store.store.commit({CHANGELOG: 2})
    assert [start for start, _ in store.store.fetch_between("a", 0, 10 * HOUR_MS)] == [4 * HOUR_MS + 1, 10 * HOUR_MS]
    assert store.store.fetch("a", 4 * HOUR_MS) is None
    assert store.store.fetch("a", 4 * HOUR_MS + 1) == store.value("x")
    assert [start for _, start in found(store.store.all())] == [4 * HOUR_MS + 1, 10 * HOUR_MS]
    committed = store.reader(IsolationLevel.READ_COMMITTED)
    assert list(committed.all()) == list(store.store.all())


def read_as(store, value):
    layout = store.composition.layout
    return layout.stored(value, 1_001) if layout.keeps_headers else value


@windows
@pytest.mark.behaviour("S3")
def test_a_restored_batch_first_advances_stream_time_to_its_maximum(store):
    """Else the row at 0 would be written before the one that makes it expire came."""
    rows = [("a", 0), ("a", 3 * HOUR_MS), ("a", 12 * HOUR_MS), ("b", HOUR_MS)]
    keys = [window_key.encode(key.encode(), start) for key, start in rows]
    assert store.store.apply_changelog(keys, [read_as(store, b"x")] * 4, [1_001] * 4) == 3
    assert found(store.store.all()) == [("a", 12 * HOUR_MS)]
    store.store.commit({CHANGELOG: 3})
    if store.composition.persistent:
        store.reopen()
        assert found(store.store.all()) == [("a", 12 * HOUR_MS)], "and nothing expired is on disk"


@windows
@pytest.mark.behaviour("S8")
def test_where_duplicates_are_retained_a_null_deletes_nothing_by_any_way(composition, home):
    store = StoreUnderTest(composition, home, supplier=composition.supplier(duplicates=True))
    logged = []
    store.store.log_changes_to(lambda key, value, *_: logged.append((key, value)))
    keys = [window_key.encode(b"a", HOUR_MS, number) for number in (1, 2, 3)]
    later = window_key.encode(b"a", 2 * HOUR_MS, 1)

    def texts():
        return [
            value if isinstance(value, str) else value[0] for _, value in store.store.fetch_between("a", 0, HOUR_MS)
        ]

    store.store.put_rows(keys[:2], [b"1", b"2"], [1_001, 1_001])
    store.store.put("a", None, HOUR_MS)
    store.store.put_rows(keys, [None, b"new", None], [1_001] * 3)
    assert store.store.inner.put_rows(keys, [None] * 3) == []
    assert texts() == ["1", "new"]
    assert logged == [(keys[0], b"1"), (keys[1], b"2"), (keys[1], b"new")]
    values = [None, read_as(store, b"3"), None]
    assert store.store.apply_changelog([keys[0], keys[2], later], values, [1_001] * 3) == 0
    assert store.store.inner.stream_time == 2 * HOUR_MS, "as in Kafka Streams, the null advances stream time"
    assert store.store.restore([(keys[0], None)]) == 0
    assert texts() == ["1", "new", "3"]
    store.store.commit({CHANGELOG: 2})
    if composition.persistent:
        store.reopen()
        assert texts() == ["1", "new", "3"]
    store.close(clean=False)


@windows
@pytest.mark.behaviour("T12")
def test_where_duplicates_are_retained_every_put_adds_and_none_is_ignored(composition, home):
    store = StoreUnderTest(composition, home, supplier=composition.supplier(duplicates=True))
    logged = []
    store.store.log_changes_to(lambda key, *_: logged.append(key))
    values = [store.value(text) for text in ("1", "2", "3", "4")]
    for value in (values[0], values[1], None):
        store.store.put("a", value, HOUR_MS)
    store.store.put("b", values[2], HOUR_MS)
    assert store.store.fetch("b", HOUR_MS) == values[2]
    assert len(set(logged)) == len(logged) == 3
    store.store.commit({CHANGELOG: 2})
    if composition.persistent:
        store.reopen()
        store.store.put("a", values[3], HOUR_MS)
        kept = [*values[:2], values[3]]
    else:
        kept = values[:2]
    assert [value for _, value in store.store.fetch_between("a", 0, HOUR_MS)] == kept
    assert [value for _, value in store.store.fetch_between("a", 0, HOUR_MS, backward=True)] == kept[::-1]
    store.close(clean=False)
