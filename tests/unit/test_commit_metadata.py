"""Metadata of committed offsets: Kafka Streams' bytes, and what is read from anything else."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.commit_metadata import UNKNOWN_TIME, CommitMetadata, decode, encode

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
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


@given(INT64, st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=20), INT64, max_size=5))
def test_what_was_encoded_is_decoded(partition_time, times):
    assert decode(encode(CommitMetadata(partition_time, times))) == CommitMetadata(partition_time, times)


@pytest.mark.parametrize(
    "layout",
    [
        "",
        "02",
        "02 00000000000000",
        "03 0000000000000005",
        "00 0000000000000005",
        "ff 0000000000000005",
        "02 0000000000000005 0000",
        "02 0000000000000005 00000001",
        "02 0000000000000005 00000001 00000001 77 00000000000000",
        "02 0000000000000005 00000002 00000001 77 0000000000000003",
        "02 0000000000000005 00000001 7fffffff 77",
        "02 0000000000000005 00000001 00000001 ff 0000000000000003",
    ],
)
def test_what_is_not_whole_or_of_another_version_says_nothing(layout):
    assert decode(base64.b64encode(bytes.fromhex(layout)).decode()) == CommitMetadata(UNKNOWN_TIME, {})


@pytest.mark.parametrize("text", ["=", "AgAAAYvP5Wg", "no base64", "ü", "AgAA\nAYvP5WgA"])
def test_what_is_no_base64_says_nothing(text):
    assert decode(text) == CommitMetadata(UNKNOWN_TIME, {})


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode()))
def test_any_text_can_be_read(text):
    assert isinstance(decode(text), CommitMetadata)


def test_a_name_may_be_empty_and_a_time_may_follow_no_name_that_is_longer_than_its_bytes():
    times = {"": 1, "w": 2}
    assert decode(encode(CommitMetadata(5, times))).times == times
    negative = "02 0000000000000005 00000001 ffffffff 0000000000000003"
    assert decode(base64.b64encode(bytes.fromhex(negative)).decode()) == CommitMetadata()


def test_without_a_time_it_is_unknown_which_is_minus_one():
    assert CommitMetadata() == (-1, {})
