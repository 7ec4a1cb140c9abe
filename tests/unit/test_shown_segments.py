"""Which segments of a window or session store are shown: as in Kafka Streams, no expired ones."""

from __future__ import annotations

import pytest

from statestore.discovery.row_range import RowRange, shown_segments
from statestore.kinds.known import BUILT_IN

HOUR = 3_600_000
HALF = HOUR // 2
WINDOW = BUILT_IN["window"]


def shown(starts, retention_ms=HOUR, left_over=(), *, wanted=None, **how):
    is_shown = shown_segments(starts, wanted or RowRange(WINDOW), retention_ms, left_over, **how)
    after = dict(zip(starts, [*starts[1:], None], strict=False))
    return [start // HALF for start in starts if is_shown(start, after[start])]


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        (3, [1, 2, 3]),  # rows of 1 may be as new as the end of it
        (4, [2, 3, 4]),
        (9, [9]),
    ],
)
def test_a_segment_is_hidden_once_all_of_its_rows_have_expired(newest, expected):
    starts = [number * HALF for number in sorted({0, *range(1, min(newest, 5)), newest})]
    assert shown(starts) == expected
    assert len(shown(starts, expired=True)) == len(starts)


def test_without_a_retention_no_segment_is_hidden():
    assert shown([0, 100 * HALF], None) == [0, 100]


def test_the_only_segment_is_shown():
    assert shown([0]) == [0]
    assert shown([]) == []


def test_left_over_segments_are_hidden_and_end_no_other_segment():
    starts = [0, HALF, 2 * HALF, 16 * HALF]
    left_over = [HALF, 2 * HALF]
    assert shown(starts, 8 * HOUR, left_over) == [0, 16]
    assert shown(starts, 8 * HOUR, left_over, expired=True) == [0, 1, 2, 16]
    late = RowRange(WINDOW, time_from=3 * HALF)
    assert shown(starts, 8 * HOUR, left_over, wanted=late) == [0, 16]


def test_a_segment_that_was_made_later_is_shown():
    is_shown = shown_segments([0, HALF], RowRange(WINDOW), HOUR)
    assert is_shown(2 * HALF, None)
