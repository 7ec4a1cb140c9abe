"""Rows of versioned stores (KIP-889): their bytes, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import StoreCorruptedError
from statestore.formats import versioned_row
from statestore.formats.versioned_row import SegmentRow, Version

TIMES = st.lists(st.integers(0, (1 << 63) - 1), min_size=2, max_size=6, unique=True).map(lambda t: sorted(t)[::-1])
VALUES = st.none() | st.binary(max_size=5)


@st.composite
def rows(draw):
    first, *times = draw(TIMES)
    return SegmentRow(first, tuple(Version(time, draw(VALUES)) for time in times))


@given(rows())
def test_a_segments_row_is_read_as_it_was_written(row):
    assert versioned_row.decode_segment_row(versioned_row.encode_segment_row(row)) == row


def test_a_segments_row_has_the_bytes_of_kafka_streams():
    row = SegmentRow(30, (Version(20, b"new"), Version(15, None), Version(10, b"older")))
    assert versioned_row.encode_segment_row(row).hex() == (
        "000000000000001e000000000000000a"
        "000000000000001400000003000000000000000fffffffff000000000000000a00000005" + b"oldernew".hex()
    )


def test_a_degenerate_row_has_one_tombstone():
    row = SegmentRow(7, (Version(7, None),))
    assert row.degenerate
    assert versioned_row.decode_segment_row(versioned_row.encode_segment_row(row)) == row


@given(rows(), st.data())
def test_a_cut_row_is_damage(row, data):
    raw = versioned_row.encode_segment_row(row)
    with pytest.raises(StoreCorruptedError):
        versioned_row.decode_segment_row(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(StoreCorruptedError):
        versioned_row.decode_segment_row(raw + b".")


@pytest.mark.behaviour("V3")
@given(st.binary(max_size=80))
def test_hostile_bytes_are_read_or_refused(raw):
    for decode in (versioned_row.decode_segment_row, versioned_row.decode_latest, versioned_row.decode_row_key):
        try:
            found = decode(raw)
        except StoreCorruptedError:
            continue
        if isinstance(found, SegmentRow):
            times = [found.next_timestamp, *(version.timestamp for version in found.versions)]
            assert sorted(times, reverse=True) == times


@pytest.mark.parametrize(
    ("versions", "next_timestamp"),
    [
        ([(10, b"a"), (20, b"b")], 30),  # not newest first
        ([(10, b"a")], 10),  # of no time, and not a tombstone
        ([(10, b"a")], 5),  # ended before it began
        ([(-5, b"a")], 5),
    ],
)
def test_versions_that_are_not_in_order_are_damage(versions, next_timestamp):
    raw = versioned_row.encode_segment_row(SegmentRow(next_timestamp, tuple(Version(*each) for each in versions)))
    with pytest.raises(StoreCorruptedError):
        versioned_row.decode_segment_row(raw)


@pytest.mark.parametrize(
    ("retention_ms", "interval_ms"),
    [
        *((0, 2_000), (6_000, 2_000), (60_000, 20_000), (60_001, 20_000), (300_000, 60_000), (300_001, 60_000)),
        *((3_600_000, 300_000), (3_600_001, 300_000), (86_400_000, 3_600_000)),
    ],
)
def test_segments_are_as_long_as_kafka_streams_supplier_makes_them(retention_ms, interval_ms):
    assert versioned_row.default_segment_interval_ms(retention_ms) == interval_ms


def test_segments_of_times_before_1970_are_rounded_towards_zero():
    assert [versioned_row.segment_of(time, 10) for time in (-11, -10, -9, 0, 9, 10)] == [-1, -1, 0, 0, 0, 1]
