"""Byte layouts: values with timestamps, offsets, positions, the checkpoint file."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statestore.errors import StoreCorruptedError
from statestore.formats import checkpoint_file, offsets, position, timestamped_value
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import TopicPartition

INT64 = st.integers(-(2**63), 2**63 - 1)
TOPICS = st.text("abz._-09", min_size=1, max_size=20)
POSITIONS = st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1))


# -- values with timestamps


def test_f1_a_timestamped_value_is_eight_big_endian_bytes_and_the_plain_value():
    assert timestamped_value.encode(b"value", 258) == b"\0\0\0\0\0\0\x01\x02value"
    assert timestamped_value.encode(b"", -1) == b"\xff" * 8


@given(st.binary(), INT64)
def test_f1_a_timestamped_value_comes_back_as_it_went_in(value, timestamp):
    assert timestamped_value.decode(timestamped_value.encode(value, timestamp)) == ValueAndTimestamp(value, timestamp)


@given(st.binary(max_size=7))
def test_f1_a_value_without_room_for_a_timestamp_is_damage(raw):
    with pytest.raises(StoreCorruptedError, match="at least 8 bytes"):
        timestamped_value.decode(raw)


# -- offsets


@given(INT64)
def test_k1_an_offset_comes_back_as_it_went_in(offset):
    assert offsets.decode_int64(offsets.encode_int64(offset), "offset") == offset


def test_k1_offsets_are_laid_out_as_kafka_streams_does():
    assert offsets.offset_key(TopicPartition("bench-s-changelog", 0)) == b"bench-s-changelog-0"
    assert offsets.encode_int64(998_175) == bytes.fromhex("00000000000f3b1f")


@given(st.binary(max_size=20).filter(lambda raw: len(raw) != 8))
def test_an_offset_of_another_length_is_damage_and_names_what_it_is(raw):
    with pytest.raises(StoreCorruptedError, match=r"offset of app-s-changelog-0 should have 8 bytes"):
        offsets.decode_int64(raw, "offset of app-s-changelog-0")


# -- position


def test_a_position_is_laid_out_as_kafka_streams_does():
    raw = position.encode({TopicPartition("in", 1): 5, TopicPartition("in", 0): 258})
    assert raw == bytes.fromhex(
        "00 00000001 00000002 696e 00000002 00000000 0000000000000102 00000001 0000000000000005"
    )
    assert position.encode({}) == bytes(5)


@given(POSITIONS, st.integers(0, 9))
def test_a_position_comes_back_as_it_went_in_whatever_zeros_follow(found, zeros):
    assert position.decode(position.encode(found) + bytes(zeros)) == found


@given(POSITIONS.filter(bool), st.data())
def test_a_position_that_ends_early_is_damage(found, data):
    raw = position.encode(found)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(StoreCorruptedError):
        position.decode(raw[:cut])


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda raw: b"\0\0\0\0\x01" + raw))
def test_any_bytes_are_a_position_or_damage_and_nothing_else(raw):
    with suppress(StoreCorruptedError):
        assert isinstance(position.decode(raw), dict)


@pytest.mark.parametrize(
    "raw",
    [b"\0" + b"\xff" * 4, b"\0\0\0\0\x01\0\0\0\x01t" + b"\xff" * 4, b"\0\0\0\0\x01\xff\xff\xff\xff"],
    ids=["topics", "entries", "name"],
)
def test_a_negative_count_in_a_position_is_damage(raw):
    with pytest.raises(StoreCorruptedError):
        position.decode(raw)


def test_a_position_of_another_version_is_refused():
    with pytest.raises(StoreCorruptedError, match="version 1, expected 0"):
        position.decode(b"\x01" + bytes(4))


# -- checkpoint file

WHOLE = "0\n3\napp-s-changelog 0 1234\napp-s-changelog 1 -4\napp-t-changelog 0 77\n"


def test_l1_a_checkpoint_file_gives_offsets_and_unknown_as_none(tmp_path):
    (tmp_path / ".checkpoint").write_text(WHOLE)
    assert checkpoint_file.read(tmp_path / ".checkpoint") == {
        TopicPartition("app-s-changelog", 0): 1234,
        TopicPartition("app-s-changelog", 1): None,
        TopicPartition("app-t-changelog", 0): 77,
    }


def test_l1_a_checkpoint_file_without_entries_is_empty(tmp_path):
    (tmp_path / ".checkpoint").write_text("0\n0\n")
    assert checkpoint_file.read(tmp_path / ".checkpoint") == {}


@pytest.mark.behaviour("L5")
@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_l5_a_checkpoint_file_cut_anywhere_is_an_error_and_never_guessed(tmp_path, length):
    (tmp_path / ".checkpoint").write_text(WHOLE[:length])
    with pytest.raises(StoreCorruptedError):
        checkpoint_file.read(tmp_path / ".checkpoint")


@pytest.mark.behaviour("L5")
@given(st.binary(max_size=40))
@example(b"\xff\xfe")
@example(b"0\n1\n\xc3 0 1\n")
def test_l5_any_bytes_are_a_checkpoint_file_or_an_error(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("checkpoint") / ".checkpoint"
    path.write_bytes(raw)
    with suppress(StoreCorruptedError):
        assert isinstance(checkpoint_file.read(path), dict)


@pytest.mark.behaviour("L5")
@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n2\nt 0 1\n",
        "0\n1\nt 0 1\nt 1 1\n",
        "0\n1\nt 0 -3\n",
        "0\n1\nt 0\n",
        "0\n1\nt zero 1\n",
        "0\n1\nt -1 1\n",
        "0\n1\nt 0 1_000\n",
        "0\n2\nt 0 1\nt 0 2\n",
    ],
)
def test_l5_a_checkpoint_file_that_contradicts_itself_is_an_error_with_the_next_step(tmp_path, text):
    (tmp_path / ".checkpoint").write_text(text)
    with pytest.raises(StoreCorruptedError, match="remove it to have the stores' own offsets used"):
        checkpoint_file.read(tmp_path / ".checkpoint")
