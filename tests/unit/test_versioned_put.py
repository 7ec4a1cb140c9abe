"""Puts to a versioned store: each version is kept in the segment of its end (KIP-889)."""

from __future__ import annotations

import pytest

from statestore.formats.versioned_put import (
    PUT_RETURN_CODE_NOT_PUT,
    PUT_RETURN_CODE_VALID_TO_UNDEFINED,
    appended,
    put,
)
from statestore.formats.versioned_row import SegmentRow, Version

INTERVAL_MS = 10
LATEST, NOT_PUT = PUT_RETURN_CODE_VALID_TO_UNDEFINED, PUT_RETURN_CODE_NOT_PUT


class Rows:
    """The rows of a key in memory, and the segments that were written."""

    def __init__(self, latest=None, segments=()):
        self.newest = None if latest is None else Version(*latest)
        self.segments = {number: row(*versions) for number, versions in dict(segments).items()}
        self.written = []

    def latest(self):
        return self.newest

    def set_latest(self, version):
        self.written.append("latest")
        self.newest = None if version.value is None else version

    def segments_from(self, segment):
        return [number for number in range(9, -1, -1) if number >= segment]

    def bounds(self, segment):
        found = self.segments.get(segment)
        return None if found is None else (found.next_timestamp, found.min_timestamp)

    def row(self, segment):
        return self.segments.get(segment)

    def set_row(self, segment, row):
        self.written.append(segment)
        self.segments[segment] = row


def row(next_timestamp, *versions):
    return SegmentRow(next_timestamp, tuple(Version(*version) for version in versions))


A, B, C, D = b"a", b"b", b"c", b"d"


@pytest.mark.parametrize(
    ("latest", "segments", "new", "valid_to", "then_latest", "then_segments", "written"),
    [
        pytest.param(None, {}, (5, A), LATEST, (5, A), {}, ["latest"], id="the first value"),
        pytest.param(None, {}, (15, None), LATEST, None, {1: (15, (15, None))}, [1], id="a delete of nothing"),
        pytest.param(
            *(None, {1: (15, (15, None))}, (15, None), LATEST, None),
            *({1: (15, (15, None))}, []),
            id="the same delete again",
        ),
        pytest.param(
            *(None, {1: (15, (15, None))}, (17, None), LATEST, None),
            *({1: (17, (15, None))}, [1]),
            id="a later delete of nothing",
        ),
        pytest.param(
            *((5, A), {}, (25, B), LATEST, (25, B)),
            *({2: (25, (5, A))}, [2, "latest"]),
            id="a newer value",
        ),
        pytest.param(
            *((5, A), {}, (25, None), LATEST, None),
            *({2: (25, (5, A))}, [2, "latest"]),
            id="a newer delete",
        ),
        pytest.param((5, A), {}, (5, B), LATEST, (5, B), {}, ["latest"], id="another value of the same time"),
        pytest.param((5, A), {}, (5, None), LATEST, None, {}, ["latest"], id="a delete at the same time"),
        pytest.param(
            *((15, B), {1: (15, (5, A))}, (18, C), LATEST, (18, C)),
            *({1: (18, (15, B), (5, A))}, [1, "latest"]),
            id="a second one that ends in a segment",
        ),
        pytest.param(
            *((17, B), {1: (15, (5, A))}, (18, C), LATEST, (18, C)),
            *({1: (18, (17, B), (15, None), (5, A))}, [1, "latest"]),
            id="one that ends behind a time without a value",
        ),
        pytest.param((25, A), {}, (5, B), 25, (25, A), {2: (25, (5, B))}, [2], id="an older value"),
        pytest.param((25, A), {}, (5, None), 25, (25, A), {2: (25, (5, None))}, [2], id="an older delete"),
        pytest.param(
            *((35, A), {3: (35, (25, B))}, (5, C), 25, (35, A)),
            *({3: (35, (25, B)), 2: (25, (5, C))}, [2]),
            id="one that ends in an earlier segment than all others",
        ),
        pytest.param(
            *((28, A), {2: (28, (22, B))}, (5, C), 22, (28, A)),
            *({2: (28, (22, B), (5, C))}, [2]),
            id="the oldest of its segment",
        ),
        pytest.param(
            *(None, {2: (28, (28, None))}, (5, C), 28, None),
            *({2: (28, (5, C))}, [2]),
            id="one that a delete of nothing ends",
        ),
        pytest.param(
            *((28, A), {2: (22, (12, B))}, (25, C), 28, (28, A)),
            *({2: (28, (25, C), (22, None), (12, B))}, [2]),
            id="the newest of its segment",
        ),
        pytest.param(
            *((28, A), {2: (22, (12, B))}, (22, C), 28, (28, A)),
            *({2: (28, (22, C), (12, B))}, [2]),
            id="one that begins where the newest of its segment ended",
        ),
        pytest.param(
            *((28, A), {2: (22, (12, B))}, (25, None), 28, (28, A)),
            *({2: (28, (25, None), (22, None), (12, B))}, [2]),
            id="a delete that is the newest of its segment",
        ),
        pytest.param(
            *((35, A), {3: (35, (25, B))}, (25, C), 35, (35, A)),
            *({3: (35, (25, C))}, [3]),
            id="one of the same time as another that ended",
        ),
        pytest.param(
            *((35, A), {3: (35, (5, B))}, (25, C), 35, (35, A)),
            *({3: (35, (25, C)), 2: (25, (5, B))}, [2, 3]),
            id="one that makes another end in an earlier segment",
        ),
        pytest.param(
            *((39, A), {3: (39, (31, B))}, (35, C), 39, (39, A)),
            *({3: (39, (35, C), (31, B))}, [3]),
            id="one that makes another end in the same segment",
        ),
        pytest.param(
            *((39, A), {3: (39, (37, D), (33, B), (31, C))}, (35, None), 37, (39, A)),
            *({3: (39, (37, D), (35, None), (33, B), (31, C))}, [3]),
            id="one in the middle",
        ),
        pytest.param(
            *((39, A), {3: (39, (37, D), (33, B), (11, C))}, (25, A), 33, (39, A)),
            *({3: (39, (37, D), (33, B), (25, A)), 2: (25, (11, C))}, [2, 3]),
            id="one in the middle that makes the oldest end earlier",
        ),
        pytest.param(
            *((39, A), {3: (39, (37, D), (33, B), (31, C))}, (33, A), 37, (39, A)),
            *({3: (39, (37, D), (33, A), (31, C))}, [3]),
            id="one of the same time in the middle",
        ),
        pytest.param(
            *(None, {1: (15, (5, A))}, (15, B), LATEST, (15, B)),
            *({1: (15, (5, A))}, ["latest"]),
            id="a value right at a delete",
        ),
        pytest.param(
            *(None, {1: (15, (5, A))}, (15, None), LATEST, None),
            *({1: (15, (5, A))}, []),
            id="a delete that is known already",
        ),
        pytest.param(
            *(None, {1: (15, (5, A)), 3: (35, (25, B))}, (20, C), 25, None),
            *({1: (15, (5, A)), 2: (25, (20, C)), 3: (35, (25, B))}, [2]),
            id="one between two segments of a deleted key",
        ),
        pytest.param(
            *(None, {2: (25, (15, A)), 3: (35, (28, B))}, (5, C), 15, None),
            *({1: (15, (5, C)), 2: (25, (15, A)), 3: (35, (28, B))}, [1]),
            id="one before all of a deleted key",
        ),
        pytest.param(
            *((55, A), {3: (35, (31, C)), 5: (55, (45, B))}, (33, D), 35, (55, A)),
            *({3: (35, (33, D), (31, C)), 5: (55, (45, B))}, [3]),
            id="one behind segments without a row",
        ),
    ],
)
def test_a_version_lies_in_the_segment_of_its_end(latest, segments, new, valid_to, then_latest, then_segments, written):
    rows = Rows(latest, segments)
    assert put(rows, Version(*new), INTERVAL_MS, 0, 0) == valid_to
    assert rows.newest == (None if then_latest is None else Version(*then_latest))
    assert rows.segments == {number: row(*versions) for number, versions in then_segments.items()}
    assert rows.written == written


@pytest.mark.parametrize(
    ("latest", "segments", "new", "live_from", "oldest_ms"),
    [
        (None, {}, (15, None), 2, 0),
        ((25, A), {}, (5, B), 3, 0),
        ((35, A), {3: (35, (25, B))}, (5, C), 0, 26),
    ],
    ids=["a delete", "a value that ends there", "a value before what is kept"],
)
def test_nothing_is_put_into_a_segment_that_has_expired(latest, segments, new, live_from, oldest_ms):
    rows = Rows(latest, segments)
    assert put(rows, Version(*new), INTERVAL_MS, live_from, oldest_ms) == NOT_PUT
    assert rows.written == []


@pytest.mark.parametrize(
    ("latest", "segments", "new", "live_from", "oldest_ms", "valid_to", "written"),
    [
        (None, {}, (15, None), 1, 0, LATEST, [1]),
        ((25, A), {}, (5, B), 2, 0, 25, [2]),
        ((35, A), {3: (35, (25, B))}, (5, C), 0, 25, 25, [2]),
        ((5, A), {}, (15, B), 1, 0, LATEST, [1, "latest"]),
        ((5, A), {}, (15, B), 2, 0, LATEST, ["latest"]),  # the older one has expired
        ((35, A), {3: (35, (5, B))}, (15, C), 1, 0, 35, [1, 3]),
        ((35, A), {3: (35, (5, B))}, (15, C), 2, 0, 35, [3]),  # the older one has expired
    ],
)
def test_the_first_segment_and_time_that_are_kept_are_still_written(
    latest, segments, new, live_from, oldest_ms, valid_to, written
):
    rows = Rows(latest, segments)
    assert put(rows, Version(*new), INTERVAL_MS, live_from, oldest_ms) == valid_to
    assert rows.written == written


@pytest.mark.parametrize(
    ("before", "ended", "valid_to", "after"),
    [
        (None, None, 15, (15, (15, None))),
        (None, (5, A), 15, (15, (5, A))),
        ((15, (5, A)), None, 15, (15, (5, A))),
        ((15, (5, A)), None, 18, (18, (15, None), (5, A))),
        ((15, (15, None)), None, 18, (18, (15, None))),
        ((15, (5, A)), (15, B), 18, (18, (15, B), (5, A))),
        ((15, (5, A)), (17, B), 18, (18, (17, B), (15, None), (5, A))),
        ((15, (12, B), (5, A)), (12, C), 18, (18, (12, C), (5, A))),
        ((15, (12, B), (5, A)), (9, C), 18, (18, (9, C), (5, A))),
        ((15, (15, None)), (16, A), 18, (18, (16, A), (15, None))),
        ((15, (15, None)), (15, A), 18, (18, (15, A))),
        ((15, (15, None)), (12, A), 18, (18, (12, A))),
    ],
)
def test_a_row_gets_the_version_that_ended_as_its_newest(before, ended, valid_to, after):
    found = appended(None if before is None else row(*before), None if ended is None else Version(*ended), valid_to)
    assert found == row(*after)
