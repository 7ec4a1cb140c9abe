"""Rows of versioned stores (KIP-889): their bytes, and what is refused."""

from __future__ import annotations

import struct

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


@pytest.mark.parametrize(("next_timestamp", "value"), [(5, b""), (5, None), (0, None)])
def test_a_version_may_begin_with_1970(next_timestamp, value):
    row = SegmentRow(next_timestamp, (Version(0, value),))
    assert versioned_row.decode_segment_row(versioned_row.encode_segment_row(row)) == row


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
        *((299_999, 59_999), (3_600_000, 300_000), (3_600_001, 300_000), (86_400_000, 3_600_000)),
    ],
)
def test_segments_are_as_long_as_kafka_streams_supplier_makes_them(retention_ms, interval_ms):
    assert versioned_row.default_segment_interval_ms(retention_ms) == interval_ms


def test_segments_of_times_before_1970_are_rounded_towards_zero():
    assert [versioned_row.segment_of(time, 10) for time in (-11, -10, -9, 0, 9, 10)] == [-1, -1, 0, 0, 0, 1]


def row_of(next_timestamp, min_timestamp, *versions, values=b""):
    """Bytes of a row with these entries: timestamp and size of each."""
    listed = b"".join(struct.pack(">qi", timestamp, size) for timestamp, size in versions)
    return struct.pack(">qq", next_timestamp, min_timestamp) + listed + values


@pytest.mark.parametrize(
    ("raw", "expected", "found"),
    [
        (b"", "at least 28 bytes", "0"),
        (bytes(27), "at least 28 bytes", "27"),
        (row_of(30, 10, (20, -1)), "a version that begins at 10", "none in 28 bytes"),
        (row_of(30, 10, (20, -1), values=bytes(11)), "a version that begins at 10", "none in 39 bytes"),
        (row_of(30, 10, (30, 1), values=b"v"), "a version from 10 on, before 30", "one at 30"),
        (row_of(30, 10, (9, 1), values=b"v"), "a version from 10 on, before 30", "one at 9"),
        (row_of(30, 10, (20, -1), (20, -1)), "a version from 10 on, before 20", "one at 20"),
        (row_of(30, 30, (30, 0)), "a version from 30 on, before 30", "one at 30"),
        (row_of(30, 20, (30, -1)), "a version from 20 on, before 30", "one at 30"),
        (row_of(-1, -1, (-1, -1)), "a version from 0 on, before -1", "one at -1"),
        (row_of(5, -5, (-5, -1)), "a version from 0 on, before 5", "one at -5"),
        (row_of(30, 10, (10, 4), values=b"val"), "a value of 4 bytes for the version at 10", "31 bytes in all"),
        (row_of(30, 10, (10, 3), values=b"value"), "31 bytes", "33"),
        (row_of(30, 10, (20, -1), (10, -1), values=b"v"), "40 bytes", "41"),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else value,
)
def test_it_is_said_what_a_damaged_row_should_have_and_what_was_found(raw, expected, found):
    with pytest.raises(StoreCorruptedError) as raised:
        versioned_row.decode_segment_row(raw)
    said = f"a row of a versioned store's segment is damaged: expected {expected}, found {found}; restore the store"
    assert str(raised.value) == said


def test_the_bounds_of_a_row_are_read_without_its_versions():
    assert versioned_row.bounds(struct.pack(">qq", 30, 10) + bytes(12)) == (30, 10)
    with pytest.raises(StoreCorruptedError, match="expected at least 28 bytes, found 27;"):
        versioned_row.bounds(bytes(27))


def test_the_key_of_a_row_has_its_segment_in_front():
    assert versioned_row.row_key(-1, b"key") == b"\xff" * 8 + b"key"
    assert versioned_row.row_key(258, b"") == b"\0\0\0\0\0\0\1\2"
    assert versioned_row.decode_row_key(b"\xff" * 8 + b"key") == (-1, b"key")
    assert versioned_row.decode_row_key(b"\0\0\0\0\0\0\1\2") == (258, b"")
    for raw, said in (
        (bytes(7), "a versioned store's row key has at least 8 bytes, found 7"),
        (b"\xff" * 7 + b"\xfekey", "a versioned store has segments from -1 on, found a row of segment -2"),
    ):
        with pytest.raises(StoreCorruptedError, match=f"^{said}$"):
            versioned_row.decode_row_key(raw)


def test_a_latest_value_has_its_timestamp_in_front():
    assert versioned_row.encode_latest(b"v", 258) == b"\0\0\0\0\0\0\1\2v"
    assert versioned_row.decode_latest(b"\0\0\0\0\0\0\1\2v") == (258, b"v")
    assert versioned_row.decode_latest(bytes(8)) == (0, b"")
    for raw, said in (
        (bytes(7), "a latest value has at least 8 bytes, found 7"),
        (b"\xff" * 8 + b"v", "a latest value has the timestamp -1, expected 0 or later"),
    ):
        with pytest.raises(StoreCorruptedError, match=f"^{said}$"):
            versioned_row.decode_latest(raw)
