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
    said = f"at least 8 bytes, found {len(raw)}: the store was written in another format, or damaged"
    with pytest.raises(StoreCorruptedError, match=said):
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


@given(TOPICS, st.integers(0, 2**31 - 1))
def test_k1_a_changelog_partition_comes_back_from_its_key_whatever_dashes_the_topic_has(topic, partition):
    changelog = TopicPartition(topic, partition)
    assert offsets.decode_key(offsets.offset_key(changelog), "key") == changelog


@pytest.mark.parametrize("key", ["", "topic", "-3", "topic-", "topic-x", "topic-1x", "topic-\u00b2", "topic-3 "])
def test_a_key_that_is_no_topic_and_partition_is_damage_and_is_shown(key):
    with pytest.raises(StoreCorruptedError, match=r"offsets of s: expected a key <topic>-<partition>, found b'"):
        offsets.decode_key(key.encode(), "offsets of s")


def test_of_a_damaged_key_no_more_than_a_line_is_shown():
    with pytest.raises(StoreCorruptedError, match=f"found b'{'x' * 80}'; restore the store"):
        offsets.decode_key(b"x" * 81, "offsets of s")
    assert offsets.decode_key(b"\xff-1", "offsets of s").partition == 1


def test_an_offset_is_a_number_from_0_or_the_mark_of_an_unknown_one():
    for stored, offset in ((0, 0), (5, 5), (2**63 - 1, 2**63 - 1), (-4, None)):
        assert offsets.decode_offset(offsets.encode_int64(stored), "offset") == offset
    for stored in (-1, -3, -5):
        with pytest.raises(StoreCorruptedError, match=f"offset of s: expected an offset, found {stored}; restore"):
            offsets.decode_offset(offsets.encode_int64(stored), "offset of s")
    with pytest.raises(StoreCorruptedError, match="offset of s should have 8 bytes, found 7"):
        offsets.decode_offset(bytes(7), "offset of s")


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


def test_a_position_of_another_version_is_refused():
    with pytest.raises(StoreCorruptedError, match="version 1, expected 0"):
        position.decode(b"\x01" + bytes(4))


def test_a_damaged_position_says_where_it_is_damaged():
    one_topic = b"\0\0\0\0\x01"
    for raw, said in (
        (one_topic + b"\0\0\0\x05abc", "ends inside a topic name at byte 9 of 12"),
        (one_topic + b"\xff\xff\xff\xff", "ends inside a topic name at byte 9 of 9"),
        (b"\0\xff\xff\xff\xff", "counts -1 topics or entries, expected 0 or more"),
        (one_topic + b"\0\0\0\x01t\xff\xff\xff\xfe", "counts -2 topics or entries"),
        (one_topic + b"\0\0\0\x01\xff" + bytes(4), None),  # without entries nobody needs the name
        (one_topic + bytes(8), None),
        (one_topic + b"\0\0\0\x01\xff\0\0\0\x01" + bytes(12), "position of 26 bytes cannot be read: .*utf-8"),
        (b"\0\0", "position of 2 bytes cannot be read"),
    ):
        if said is None:
            assert position.decode(raw) == {}
            continue
        with pytest.raises(StoreCorruptedError, match=said):
            position.decode(raw)


def test_topics_and_partitions_of_a_position_are_in_order_whatever_order_they_came_in():
    found = {TopicPartition(topic, number): number for topic in "ba" for number in (10, 9)}
    assert position.encode(found) == position.encode(dict(sorted(found.items())))
    assert list(position.decode(position.encode(found))) == sorted(found)


# -- checkpoint file

WHOLE = "0\n3\napp-s-changelog 0 1234\napp-s-changelog 1 -4\napp-t-changelog 0 77\n"


def test_l1_a_checkpoint_file_gives_offsets_and_unknown_as_none(tmp_path):
    (tmp_path / ".checkpoint").write_text(WHOLE)
    assert checkpoint_file.read(tmp_path / ".checkpoint") == {
        TopicPartition("app-s-changelog", 0): 1234,
        TopicPartition("app-s-changelog", 1): None,
        TopicPartition("app-t-changelog", 0): 77,
    }


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
    ("raw", "said"),
    [
        (b"0\n0", "its last line has no end"),
        (b"", "its last line has no end"),
        (b"1\n0\n", "version '1' with 0 of '0' entries"),
        (b"0\n2\nt 0 1\n", "version '0' with 1 of '2' entries"),
        (b"0\n1\nt 0 1\nt 1 1\n", "version '0' with 2 of '1' entries"),
        *(
            (f"0\n1\n{entry}\n".encode(), f"entry '{entry}'")
            for entry in ("t 0", "t zero 1", "t -1 1", "t 0 -3", "t 0 1_0")
        ),
        (b"0\n2\nt 0 1\nt 0 2\n", "t-0 twice"),
        (b"\xff\n", "utf-8"),
        (b"0\n", "not enough values"),
    ],
)
def test_l5_a_damaged_checkpoint_file_says_what_is_wrong_with_it(tmp_path, raw, said):
    path = tmp_path / ".checkpoint"
    path.write_bytes(raw)
    with pytest.raises(StoreCorruptedError) as caught:
        checkpoint_file.read(path)
    begin, end = (
        f"{path} is not a complete checkpoint file of version 0 (",
        "); remove it to have the stores' own offsets used",
    )
    cause = str(caught.value).removeprefix(begin).removesuffix(end)
    assert str(caught.value) == f"{begin}{cause}{end}"
    assert cause == said or (said in cause and said in ("utf-8", "not enough values"))  # what Python says


@given(
    st.dictionaries(
        st.builds(TopicPartition, TOPICS, st.integers(0, 10**9 - 1)), st.none() | st.integers(0, 10**18 - 1)
    )
)
def test_a_checkpoint_file_comes_back_as_it_was_written(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("checkpoint") / ".checkpoint"
    path.write_text(checkpoint_file.write(found))
    assert checkpoint_file.read(path) == found


def test_l1_a_checkpoint_file_is_laid_out_as_kafka_streams_does():
    found = {TopicPartition("app-s-changelog", 0): 1234, TopicPartition("app-s-changelog", 1): None}
    assert checkpoint_file.write(found) == "0\n2\napp-s-changelog 0 1234\napp-s-changelog 1 -4\n"
    assert checkpoint_file.write({}) == "0\n0\n"
