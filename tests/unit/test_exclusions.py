"""Which rows and segments are not judged when a store is compared with its log."""

from __future__ import annotations

import pytest

from statestore import clock
from statestore.bulk.routing import Routing
from statestore.verification.exclusions import FOREVER, LiveSegments, deletes_may_be_gone, gone_before_ms, live_segments

MINUTE = 60_000
NOW = 1_000 * MINUTE
BY_TIME = {"cleanup.policy": "compact,delete", "retention.ms": str(100 * MINUTE)}


@pytest.mark.parametrize(
    ("log_start", "config", "by_time", "expected"),
    [
        pytest.param(0, BY_TIME, True, 0, id="the log has all"),
        pytest.param(
            5, BY_TIME, True, NOW - 100 * MINUTE + clock.BROKERS_DIFFER_MS, id="older ones, clocks allowed for"
        ),
        pytest.param(5, BY_TIME, False, FOREVER, id="keys that tell no time"),
        pytest.param(5, BY_TIME | {"cleanup.policy": "compact"}, True, FOREVER, id="cut by hand"),
        pytest.param(5, BY_TIME | {"retention.bytes": "10"}, True, FOREVER, id="cut by size"),
        pytest.param(5, BY_TIME | {"retention.ms": "-1"}, True, FOREVER, id="kept for ever, cut by hand"),
        pytest.param(5, {}, True, FOREVER, id="an unknown configuration"),
    ],
)
def test_rows_that_retention_may_have_removed(log_start, config, by_time, expected):
    assert gone_before_ms(log_start, config, by_time=by_time, now_ms=NOW) == expected


@pytest.mark.parametrize(("reading_ms", "expected"), [(99.9, False), (100, True)])
def test_deletes_may_be_gone_once_reading_took_as_long_as_they_are_kept(reading_ms, expected):
    assert deletes_may_be_gone(reading_ms, 100) is expected


def test_segments_are_live_at_the_logs_time_and_at_that_of_the_stores_newest_segment():
    routing = Routing(suffix_bytes=12, interval_ms=MINUTE, retention_ms=90_000)
    live = live_segments([9 * MINUTE, 10 * MINUTE], 10 * MINUTE, routing)
    assert live == LiveSegments(oldest=8 * MINUTE, droppable_before=9 * MINUTE)
    assert (live.excludes_stored(8 * MINUTE), live.excludes_stored(7 * MINUTE)) == (False, True)
    assert [live.excludes_logged(minute * MINUTE, stored=False) for minute in (7, 8, 9)] == [True, True, False]
    assert [live.excludes_logged(minute * MINUTE, stored=True) for minute in (7, 8)] == [True, False]


def test_a_key_value_store_has_one_segment_and_an_empty_store_has_dropped_none():
    assert live_segments([0], -1, Routing()) == LiveSegments(0, 0)
    assert live_segments([], 10 * MINUTE, Routing(12, MINUTE, 90_000)).droppable_before == 0
