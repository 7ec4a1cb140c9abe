"""Which segments of a window or session store are not compared with its changelog: those that one side has dropped."""

from __future__ import annotations

import pytest
from statestore_jobs.frame_exclusions import LogSegments, Segment, expired

from statestore.bulk.routing import Routing

MINUTE = 60_000
#: Segments of a minute, kept for a minute and a half.
ROUTING = Routing(suffix_bytes=12, interval_ms=MINUTE, retention_ms=90_000)


def _segments(*minutes: int) -> frozenset[Segment]:
    return frozenset(Segment(0, minute * MINUTE) for minute in minutes)


@pytest.mark.parametrize(
    ("here", "log", "stream_minute", "of_store", "of_log"),
    [
        pytest.param([9, 10], [9, 10], 10, [], [], id="all are live on both sides"),
        pytest.param([7, 9, 10], [10, 11], 11, [7], [], id="the store has one that the log's time has passed"),
        pytest.param([10], [8, 10], 10, [], [8], id="the store may have dropped one by its own time"),
        pytest.param([10], [9, 10], 10, [], [], id="the store lacks one that it cannot have dropped"),
        pytest.param([], [9, 10], 10, [], [], id="the store is empty, and so has dropped nothing"),
        pytest.param([9], [], None, [], [], id="the log is empty, and so tells no time"),
    ],
)
def test_segments_that_expired_on_one_side_are_left_out(here, log, stream_minute, of_store, of_log):
    times = {} if stream_minute is None else {0: stream_minute * MINUTE}
    found = expired({0: [minute * MINUTE for minute in here]}, LogSegments(_segments(*log), times), ROUTING)
    assert found == (_segments(*of_store), _segments(*of_log))


def test_each_partition_has_a_time_of_its_own():
    log = LogSegments(frozenset({Segment(0, 20 * MINUTE), Segment(1, 2 * MINUTE)}), {0: 21 * MINUTE, 1: 3 * MINUTE})
    here = {0: [2 * MINUTE, 20 * MINUTE], 1: [2 * MINUTE]}
    assert expired(here, log, ROUTING) == ({Segment(0, 2 * MINUTE)}, frozenset())
