"""What a session store does, whatever its format, engine and transactions."""

from __future__ import annotations

from itertools import product

import pytest

from statestore.formats import session_key
from statestore.stores.api import Windowed
from statestore.stores.readers import IsolationLevel
from tests.compositions import CHANGELOG, HOUR_MS, compositions

sessions = compositions(kind="session")
#: Sessions of keys whose rows interleave, in two segments (by their end).
SESSIONS = [
    Windowed(key, start, end)
    for key in ("a", "a\0", "ab", "b")
    for start, end in [(0, 0), (0, 10), (20, 30), (HOUR_MS, 4 * HOUR_MS), (5 * HOUR_MS, 5 * HOUR_MS)]
]


@pytest.fixture(params=["committed", "staged"])
def filled(request, store):
    """Each session with a value that tells which it is."""
    for session in SESSIONS:
        store.store.put(session, store.value(repr(session)))
    if request.param == "committed":
        store.store.commit({CHANGELOG: 15})
    return store


def in_order(chosen):
    """Sessions as a store returns them: by segment, key, end, and start."""
    return sorted(
        chosen,
        key=lambda one: (one.end // (3 * HOUR_MS), session_key.encode(one.key.encode(), one.start, one.end)),
    )


@sessions
@pytest.mark.behaviour("S1")
def test_one_session_is_fetched_by_key_start_and_end(filled):
    for session in SESSIONS:
        assert filled.store.fetch_session(*session) == filled.value(repr(session))
    assert filled.store.fetch_session("a", 0, 11) is None
    assert filled.store.fetch_session("absent", 0, 10) is None


@sessions
@pytest.mark.behaviour("S1")
def test_sessions_that_overlap_a_time_come_by_segment_key_end_and_start_or_backward(filled):
    ranges = [("a", "a"), ("b", "b"), ("a\0", "ab"), (None, "a"), ("ab", None), (None, None)]
    last = 5 * HOUR_MS
    times = [(0, last), (10, 20), (11, 19), (30, 0), (31, HOUR_MS), (4 * HOUR_MS + 1, last), (last, 0)]
    for (low, high), (earliest_end, latest_start) in product(ranges, times):
        expected = in_order(
            one
            for one in SESSIONS
            if one.end >= earliest_end
            and one.start <= latest_start
            and (low is None or one.key >= low)
            and (high is None or one.key <= high)
        )
        rows = list(filled.store.find_sessions_range(low, high, earliest_end, latest_start))
        assert rows == [(one, filled.value(repr(one))) for one in expected]
        backward = filled.store.find_sessions_range(low, high, earliest_end, latest_start, backward=True)
        assert list(backward) == rows[::-1]
        if low is not None and low == high:
            assert list(filled.store.find_sessions(low, earliest_end, latest_start)) == rows


@sessions
@pytest.mark.behaviour("S1")
def test_sessions_of_a_key_of_a_range_of_keys_and_all_of_them(filled):
    for rows, chosen in [
        (filled.store.fetch, ("a",)),
        (filled.store.fetch_range, ("a\0", "ab")),
        (filled.store.all, ()),
    ]:
        low, high = (chosen[0], chosen[-1]) if chosen else ("", "z")
        expected = in_order(one for one in SESSIONS if low <= one.key <= high)
        assert [session for session, _ in rows(*chosen)] == expected
        assert [session for session, _ in rows(*chosen, backward=True)] == expected[::-1]
    assert list(filled.store.fetch_range("b", "a")) == []


@sessions
@pytest.mark.behaviour("S2")
def test_a_session_whose_segment_has_expired_is_dropped_counted_and_not_logged(store):
    logged = []
    store.store.log_changes_to(lambda *change: logged.append(change))
    store.store.put(Windowed("a", 0, 10 * HOUR_MS), store.value("x"))
    store.store.put(Windowed("a", 0, 3 * HOUR_MS - 1), store.value("late"))
    store.store.remove(Windowed("a", 0, 1))
    assert store.store.expired_records == 2
    store.store.put(Windowed("a", 0, 3 * HOUR_MS), store.value("live"))
    assert store.store.expired_records == 2
    assert [session_key.decode(key)[2] for key, *_ in logged] == [10 * HOUR_MS, 3 * HOUR_MS]


@sessions
@pytest.mark.behaviour("S2")
def test_sessions_that_ended_before_the_retention_are_not_shown_while_their_segment_lives(store):
    for end in (4 * HOUR_MS, 4 * HOUR_MS + 1, 10 * HOUR_MS):
        store.store.put(Windowed("a", 0, end), store.value("x"))
    store.store.commit({CHANGELOG: 2})
    assert [session.end for session, _ in store.store.fetch("a")] == [4 * HOUR_MS + 1, 10 * HOUR_MS]
    assert store.store.fetch_session("a", 0, 4 * HOUR_MS) is None
    assert store.store.fetch_session("a", 0, 4 * HOUR_MS + 1) == store.value("x")
    assert list(store.reader(IsolationLevel.READ_COMMITTED).all()) == list(store.store.all())


def read_as(store, value):
    layout = store.composition.layout
    return layout.stored(value, 1_001) if layout.keeps_headers else value


@sessions
@pytest.mark.behaviour("S3")
def test_a_restored_batch_first_advances_stream_time_to_its_maximum(store):
    rows = [(0, 1), (0, 3 * HOUR_MS), (0, 12 * HOUR_MS)]
    keys = [session_key.encode(b"a", start, end) for start, end in rows]
    assert store.store.apply_changelog(keys, [read_as(store, b"x")] * 3, [1_001] * 3) == 2
    assert [session for session, _ in store.store.all()] == [Windowed("a", 0, 12 * HOUR_MS)]


@sessions
@pytest.mark.behaviour("S7")
def test_sessions_that_a_record_joins_become_one_and_those_merged_away_are_deleted_in_store_and_changelog(store):
    gap = 10
    for start, end in [(0, 5), (20, 30), (60, 70)]:
        store.store.put(Windowed("a", start, end), store.value("1"))
    store.store.put(Windowed("b", 12, 12), store.value("1"))
    logged = []
    store.store.log_changes_to(lambda key, value, *_: logged.append((session_key.decode(key), value)))
    at = 13
    joined = [session for session, _ in store.store.find_sessions("a", at - gap, at + gap)]
    assert joined == [Windowed("a", 0, 5), Windowed("a", 20, 30)]
    for session in joined:
        store.store.remove(session)
    store.store.put(Windowed("a", 0, 30), store.value("3"))
    expected = [Windowed("a", 0, 30), Windowed("a", 60, 70), Windowed("b", 12, 12)]
    assert [session for session, _ in store.store.all()] == expected
    assert logged == [((b"a", 0, 5), None), ((b"a", 20, 30), None), ((b"a", 0, 30), b"3")]
    store.store.commit({CHANGELOG: 6})
    if store.composition.persistent:
        store.reopen()
        assert [session for session, _ in store.store.all()] == expected
