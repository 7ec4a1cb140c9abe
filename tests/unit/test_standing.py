"""Where a store stands against its log, from offsets alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.changelog.standing import next_offset, standing
from statestore.kafka.topics import LogRange
from statestore.reports import Status

DAY_MS = 86_400_000
LOGS = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)).map(lambda ends: LogRange(*sorted(ends)))


def judged(
    committed, log, *, empty=False, recorded="id", caught_up_ms=DAY_MS - 1, now_ms=DAY_MS, retention=DAY_MS, **more
):
    """Standing of a store that was whole a moment ago, unless told otherwise."""
    return standing(
        committed,
        log,
        empty=empty,
        topic_id="id",
        recorded_topic_id=recorded,
        caught_up_ms=caught_up_ms,
        delete_retention_ms=retention,
        now_ms=now_ms,
        **more,
    )


@pytest.mark.behaviour("K5")
def test_k5_a_store_at_n_is_to_read_from_n_plus_one():
    status, detail, catches_up = judged(4, LogRange(0, 10, 10))
    assert (status, catches_up) == (Status.LAGGING, True)
    assert "offsets 5 to 9 are to be read" in detail


@pytest.mark.behaviour("R3")
def test_k2_r3_a_store_without_offset_and_rows_stands_well_with_an_empty_log():
    assert judged(None, LogRange(0, 0, 0), empty=True)[::2] == (Status.OK, False)
    assert judged(None, LogRange(7, 7, 7), empty=True)[::2] == (Status.OK, False)


def test_k2_a_store_without_offset_and_rows_reads_the_log_from_its_start():
    assert judged(None, LogRange(0, 7, 7), empty=True, caught_up_ms=None)[::2] == (Status.LAGGING, True)


@given(LOGS)
def test_k10_rows_without_an_offset_are_never_replayed_over(log):
    assert judged(None, log, empty=False)[::2] == (Status.LAGGING, False)


@pytest.mark.behaviour("R7")
@pytest.mark.parametrize("beyond", [0, 1, 1000])
def test_r7_an_offset_at_or_beyond_the_high_watermark_is_ahead(beyond):
    assert judged(10 + beyond, LogRange(0, 10, 10))[::2] == (Status.AHEAD, False)


@pytest.mark.behaviour("R7")
def test_r7_an_offset_within_an_open_transaction_is_not_ahead():
    assert judged(9, LogRange(0, 5, 10))[::2] == (Status.OK, False)


@pytest.mark.behaviour("R7")
def test_r7_an_emptied_log_puts_the_store_ahead():
    assert judged(0, LogRange(0, 0, 0))[::2] == (Status.AHEAD, False)


@pytest.mark.behaviour("R7")
@given(st.none() | st.integers(0, 40), LOGS, st.booleans())
def test_r7_a_recreated_topic_is_replaced_whatever_the_offsets_say(committed, log, empty):
    assert judged(committed, log, empty=empty, recorded="other")[::2] == (Status.REPLACED, False)


def test_a_topic_id_that_was_not_recorded_proves_nothing():
    assert judged(9, LogRange(0, 10, 10), recorded=None)[::2] == (Status.OK, False)


def test_an_offset_before_the_logs_start_is_truncated_only_if_a_record_is_missing():
    assert judged(4, LogRange(6, 10, 10))[::2] == (Status.TRUNCATED, False)
    assert judged(5, LogRange(6, 10, 10))[::2] == (Status.LAGGING, True)


@pytest.mark.parametrize("caught_up_ms", [None, 0, -DAY_MS])
def test_r6_a_store_not_known_whole_within_the_tombstones_life_is_rebuilt(caught_up_ms):
    assert judged(4, LogRange(0, 10, 10), caught_up_ms=caught_up_ms)[::2] == (Status.LAGGING, False)


@pytest.mark.behaviour("V4")
@pytest.mark.parametrize("caught_up_ms", [None, 0])
def test_a_store_that_its_log_may_not_give_again_gets_its_tail_however_old_that_is(caught_up_ms):
    status, detail, catches_up = judged(4, LogRange(0, 10, 10), caught_up_ms=caught_up_ms, may_be_rebuilt=False)
    assert (status, catches_up) == (Status.LAGGING, True)
    assert "offsets 5 to 9 are to be read" in detail
    assert "deletes are gone" in detail


def test_r6_a_store_whole_just_within_the_tombstones_life_is_caught_up():
    assert judged(4, LogRange(0, 10, 10), caught_up_ms=1)[::2] == (Status.LAGGING, True)


@given(st.none() | st.integers(0, 40), LOGS, st.booleans(), st.none() | st.integers(0, 3 * DAY_MS))
def test_a_tail_is_only_read_where_nothing_can_have_been_missed(committed, log, empty, caught_up_ms):
    status, detail, catches_up = judged(committed, log, empty=empty, caught_up_ms=caught_up_ms, now_ms=2 * DAY_MS)
    assert bool(detail) or status is Status.OK
    if catches_up:
        assert status is Status.LAGGING
        if committed is None:
            assert empty
        else:
            assert log.start <= committed + 1 < log.last_stable
            assert caught_up_ms is not None
            assert 2 * DAY_MS - caught_up_ms < DAY_MS


@given(LOGS.filter(lambda log: log.high_watermark > 0), st.data())
def test_a_store_is_ok_exactly_where_the_log_has_nothing_more(log, data):
    committed = data.draw(st.integers(max(log.start - 1, 0), log.high_watermark - 1))
    assert (judged(committed, log).status is Status.OK) == (committed + 1 >= log.last_stable)


@pytest.mark.parametrize("caught_up_ms", [None, 0])
def test_a_log_that_is_not_compacted_has_every_delete_so_its_tail_is_always_right(caught_up_ms):
    lagging = judged(4, LogRange(0, 10, 10), caught_up_ms=caught_up_ms, compacted=False)
    assert lagging[::2] == (Status.LAGGING, True)
    assert judged(4, LogRange(6, 10, 10), caught_up_ms=caught_up_ms, compacted=False).status is Status.TRUNCATED
    assert judged(None, LogRange(0, 7, 7), caught_up_ms=caught_up_ms, compacted=False).catches_up is False


@pytest.mark.parametrize(
    ("committed", "log", "more", "said"),
    [
        (9, LogRange(0, 10, 10), {}, ""),
        (None, LogRange(7, 7, 7), {"empty": True}, "nothing logged yet"),
        (None, LogRange(0, 7, 7), {"empty": True}, "nothing of the changelog is in the store yet"),
        (None, LogRange(0, 7, 7), {}, "the store has rows, but how far it is was never committed"),
        (4, LogRange(0, 10, 12), {}, "offsets 5 to 9 are to be read"),
        (12, LogRange(0, 10, 12), {}, "committed offset 12 is at or beyond the log's end 12"),
        (10, LogRange(0, 10, 12), {"seen_end": 13}, "the last offset seen, 12, is at or beyond the log's end 12"),
        (12, LogRange(0, 10, 12), {"seen_end": 13}, "committed offset 12 is at or beyond the log's end 12"),
        (4, LogRange(0, 10, 12), {"seen_end": 8}, "offsets 8 to 9 are to be read"),
        (4, LogRange(9, 10, 12), {"seen_end": 8}, "offsets 8 to 8 are gone from the log: what they held may be lost"),
        (4, LogRange(9, 10, 12), {}, "offsets 5 to 8 are gone from the log: what they held may be lost"),
        (
            4,
            LogRange(0, 10, 10),
            {"recorded": "other"},
            "the changelog has topic id id, the store belongs to other: the topic was recreated",
        ),
        (
            4,
            LogRange(0, 10, 10),
            {"caught_up_ms": None},
            "the store was last known intact never, tombstones are kept for 86400 s: deletes may be gone from the log, "
            "so replaying its tail could bring deleted keys back",
        ),
        (
            4,
            LogRange(0, 10, 10),
            {"caught_up_ms": DAY_MS - 7_000, "retention": 5_999},
            "the store was last known intact 7 s ago, tombstones are kept for 5 s: deletes may be gone from the log, "
            "so replaying its tail could bring deleted keys back",
        ),
    ],
)
def test_the_reason_names_the_offsets_and_times_that_decided(committed, log, more, said):
    assert judged(committed, log, **more).detail == said


def test_r2_given_a_log_end_that_was_recorded_then_the_markers_before_it_are_no_lag():
    assert judged(4, LogRange(0, 8, 8)).status is Status.LAGGING
    assert judged(4, LogRange(0, 8, 8), seen_end=8).status is Status.OK
    assert judged(4, LogRange(0, 8, 8), seen_end=9).status is Status.AHEAD
    assert judged(4, LogRange(6, 10, 10), seen_end=6).status is Status.LAGGING


@pytest.mark.parametrize(
    ("committed", "seen_end", "expected"), [(4, None, 5), (4, 3, 5), (4, 5, 5), (4, 9, 9), (-1, None, 0)]
)
def test_the_next_offset_is_behind_the_last_record_and_behind_all_that_was_seen(committed, seen_end, expected):
    assert next_offset(committed, seen_end) == expected
