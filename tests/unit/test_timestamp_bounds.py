"""Timestamps that topics take: what they do not is found before it is sent."""

from __future__ import annotations

import time

import numpy as np
import pytest

from statestore.tasks.timestamp_bounds import ANY_TIMESTAMP, TimestampBounds, bounds_of

AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
HOUR = 3_600_000
FOREVER = 2**63 - 1


@pytest.fixture
def now():
    return int(time.time() * 1000)


def test_the_narrowest_bounds_of_the_topics_hold():
    configs = [{AFTER: str(HOUR), BEFORE: str(FOREVER)}, {AFTER: "10", BEFORE: "20"}, {}]
    assert bounds_of(configs) == TimestampBounds(before_ms=20, after_ms=10)
    assert bounds_of([{}]) == ANY_TIMESTAMP


def test_what_is_out_of_bounds_is_refused_with_what_the_topic_takes(now):
    bounds = TimestampBounds(before_ms=HOUR, after_ms=HOUR)
    for taken in (now - HOUR + 60_000, now, now + HOUR - 60_000):
        bounds.check(taken)
    with pytest.raises(ValueError, match=rf"in the future; .* at most {HOUR} ms \({AFTER}\)"):
        bounds.check(now + 2 * HOUR)
    with pytest.raises(ValueError, match=rf"in the past; .* at most {HOUR} ms \({BEFORE}\)"):
        bounds.check(now - 2 * HOUR)
    with pytest.raises(ValueError, match="above 0"):
        ANY_TIMESTAMP.check(0)
    ANY_TIMESTAMP.check(FOREVER)


def test_the_first_of_many_that_is_refused_is_told(now):
    bounds = TimestampBounds(after_ms=HOUR)
    assert bounds.first_refused(np.array([now, 1, now])) is None
    refused = bounds.first_refused(np.array([now, now + 2 * HOUR, 0]))
    assert refused is not None
    assert refused[0] == 1


def test_the_nearest_timestamp_that_is_taken(now):
    bounds = TimestampBounds(before_ms=HOUR, after_ms=HOUR)
    assert bounds.nearest(now, 5) == now
    assert bounds.nearest(2**62, now) == now
    assert abs(bounds.nearest(2**62, 2**62) - now - HOUR) < 60_000
    assert abs(bounds.nearest(0, -1) - now + HOUR) < 60_000
    assert ANY_TIMESTAMP.nearest(0, -1) == 1
