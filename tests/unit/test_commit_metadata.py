"""Metadata of committed offsets: Kafka Streams' bytes, and what is read from anything else."""

from __future__ import annotations

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.commit_metadata import UNKNOWN_TIME, CommitMetadata, Stamp, decode, encode, is_metadata

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=20), INT64, max_size=5)
BASE64 = string.ascii_letters + string.digits + "+/="
#: Length of the text up to the end of the partition's time.
HEAD_LENGTH = 12
#: Laid out by hand from Kafka Streams' TopicPartitionMetadata and ProcessorMetadata.
GOLDEN = [
    (CommitMetadata(), "02 ffffffffffffffff"),
    (CommitMetadata(1_700_000_000_000), "02 0000018bcfe56800"),
    (
        CommitMetadata(5, {"w": 3, "ü": -1}),
        "02 0000000000000005 00000002 00000001 77 0000000000000003 00000002 c3bc ffffffffffffffff",
    ),
]


@pytest.mark.parametrize(("metadata", "layout"), GOLDEN)
def test_the_bytes_are_those_of_kafka_streams(metadata, layout):
    text = base64.b64encode(bytes.fromhex(layout)).decode()
    assert encode(metadata) == text
    assert decode(text) == metadata


def test_text_that_kafka_streams_wrote_is_read():
    assert encode(CommitMetadata(1_700_000_000_000)) == "AgAAAYvP5WgA"
    assert decode("AQAAAYvP5WgA") == CommitMetadata(1_700_000_000_000)  # its version 1


@given(INT64, TIMES)
def test_what_was_encoded_is_decoded(partition_time, times):
    assert decode(encode(CommitMetadata(partition_time, times))) == CommitMetadata(partition_time, times)


def decode_layout(layout: str) -> CommitMetadata:
    """Decode bytes that are given in hexadecimal."""
    return decode(base64.b64encode(bytes.fromhex(layout)).decode())


@given(INT64, TIMES, st.text(max_size=40) | st.text(BASE64, max_size=40))
def test_what_lies_behind_the_entries_is_ignored(partition_time, times, rest):
    metadata = CommitMetadata(partition_time, {"w": 1, **times})
    assert decode(encode(metadata) + rest) == metadata


@given(INT64, st.text(max_size=40) | st.text(BASE64, max_size=40))
def test_what_lies_behind_a_time_without_entries_leaves_the_time_as_it_is(partition_time, rest):
    assert decode(encode(CommitMetadata(partition_time)) + rest).partition_time == partition_time


@pytest.mark.parametrize("rest", ["\0", "!", "1", "A", "a\x01", "AAA", "\ufffd\ufffd", "=", "AgAAAYvP5WgA"])
def test_what_was_in_memory_behind_a_time_is_not_taken_for_entries(rest):
    assert decode("AgAAAYvP5WgA" + rest) == CommitMetadata(1_700_000_000_000)
    assert decode("AQAAAYvP5WgA" + rest) == CommitMetadata(1_700_000_000_000)


def test_version_1_has_no_entries_whatever_follows():
    assert decode_layout("01 0000000000000005 00000001 00000001 77 0000000000000003") == CommitMetadata(5)


@given(INT64, TIMES, st.data())
def test_metadata_that_is_cut_off_has_the_time_or_nothing(partition_time, times, data):
    text = encode(CommitMetadata(partition_time, {"w": 1, **times})).rstrip("=")
    length = data.draw(st.integers(0, len(text) - 1))
    assert decode(text[:length]) == (CommitMetadata(partition_time) if length >= HEAD_LENGTH else CommitMetadata())


@pytest.mark.parametrize(
    "layout",
    ["", "02", "02 00000000000000", "03 0000000000000005", "00 0000000000000005", "ff 0000000000000005"],
)
def test_what_has_no_whole_time_or_is_of_another_version_says_nothing(layout):
    assert decode_layout(layout) == CommitMetadata(UNKNOWN_TIME, {})


@pytest.mark.parametrize(
    "entries",
    [
        "0000",
        "ffffffff",
        "00000001",
        "00000001 00000001 77 00000000000000",
        "00000002 00000001 77 0000000000000003",
        "00000001 7fffffff 77",
        "00000001 ffffffff 0000000000000003",
    ],
)
def test_entries_that_are_broken_leave_the_time_as_in_kafka_streams(entries):
    assert decode_layout(f"02 0000000000000005 {entries}") == CommitMetadata(5)


def test_a_name_that_is_not_utf_8_costs_no_other_entry():
    layout = "02 0000000000000005 00000002 00000001 ff 0000000000000003 00000001 77 0000000000000004"
    assert decode_layout(layout) == CommitMetadata(5, {"\ufffd": 3, "w": 4})


@pytest.mark.parametrize("text", ["=", "AgAAAYvP5Wg", "no base64", "ü", "AgAA\nAYvP5WgA"])
def test_what_is_no_base64_says_nothing(text):
    assert decode(text) == CommitMetadata(UNKNOWN_TIME, {})


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode()))
def test_any_text_can_be_read(text):
    assert isinstance(decode(text), CommitMetadata)


def test_a_name_may_be_empty():
    times = {"": 1, "w": 2}
    assert decode(encode(CommitMetadata(5, times))).times == times


def test_without_a_time_it_is_unknown_which_is_minus_one():
    assert CommitMetadata() == (-1, {}, None)


# -- the stamp


STAMPS = st.builds(
    Stamp,
    topic_id=st.text(BASE64, min_size=1, max_size=22),
    next_offset=st.integers(0, 1 << 62),
    sequence=st.integers(0, 1 << 62),
    written_ms=INT64,
    refreshed=st.booleans(),
    input_id=st.none() | st.text(BASE64, min_size=1, max_size=22),
)


@given(INT64, TIMES, STAMPS)
def test_a_stamp_comes_back_and_is_no_time(partition_time, times, stamp):
    metadata = CommitMetadata(partition_time, times, stamp)
    assert decode(encode(metadata)) == metadata


def test_a_stamp_counts_for_its_topic_and_its_offset_alone():
    stamp = Stamp("topic", 5, 1, 0)
    found = CommitMetadata(stamp=stamp)
    assert [found.stamp_for(*asked) for asked in [("topic", 5), ("topic", 6), ("other", 5)]] == [stamp, None, None]


def test_a_stamp_of_an_earlier_version_names_no_input_topic():
    text = encode(CommitMetadata(1, {"statestore/topic/id/5/7/refreshed": 9}))
    assert decode(text) == CommitMetadata(1, {}, Stamp("topic/id", 5, 7, 9, refreshed=True))


def test_a_stamp_for_which_there_is_no_room_is_left_out():
    times = {f"store-{number:03}": number for number in range(144)}
    text = encode(CommitMetadata(1, times, Stamp("topic", 5, 1, 0)))
    assert decode(text) == CommitMetadata(1, times)
    assert len(text) <= 4_096


def test_metadata_is_told_from_what_kafkas_tools_commit():
    assert is_metadata(encode(CommitMetadata()))
    assert not any(map(is_metadata, ["", "reset by hand", "AAAA"]))
