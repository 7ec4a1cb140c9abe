"""Which of the group's offset and the record in the topic of input offsets says where a task continues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from statestore.changelog.input_offsets import Continuation, continuation, is_confirmed, stamped
from statestore.formats import commit_metadata, input_offset
from statestore.formats.commit_metadata import CommitMetadata
from statestore.formats.input_offset import InputOffset
from statestore.kafka.groups import GroupOffset

TOPIC = "topic-id"
OFFSETS = st.builds(
    InputOffset,
    offset=st.integers(0, 1 << 62),
    topic_id=st.none() | st.text(max_size=5),
    sequence=st.integers(0, 1 << 62),
    stream_time=st.integers(-1, 1 << 62),
    store_times=st.dictionaries(st.text(max_size=5), st.integers(-1, 1 << 62), max_size=3),
)


def kept(offset: int, sequence: int, time: int = -1) -> InputOffset:
    return InputOffset(offset=offset, sequence=sequence, stream_time=time)


def group(offset: int, sequence: int, *, refreshed: bool = False, topic: str = TOPIC) -> GroupOffset:
    return stamped(kept(offset, sequence), topic, 0, refreshed=refreshed)


BY_TOOLS = GroupOffset(2)
BY_KAFKA_STREAMS = GroupOffset(9, commit_metadata.encode(CommitMetadata(5)))


@pytest.mark.parametrize(
    ("committed", "record", "expected"),
    [
        (None, None, None),
        (None, kept(5, 3), Continuation(5, sequence=3)),
        (group(5, 3), None, Continuation(5, sequence=3, recorded=True)),
        (group(5, 3), kept(5, 3), Continuation(5, sequence=3, recorded=True)),
        (group(5, 3, refreshed=True), kept(5, 3), Continuation(5, sequence=3, recorded=True)),
        (group(5, 3, refreshed=True), kept(7, 4), Continuation(7, sequence=4)),
        (group(5, 3, refreshed=True), kept(2, 4), Continuation(2, sequence=4)),
        (group(7, 4), kept(5, 3), Continuation(7, sequence=4, recorded=True)),
        (group(7, 4, refreshed=True), None, Continuation(7, sequence=4)),
        (group(7, 4, topic="before"), None, Continuation(7)),
        (BY_TOOLS, None, Continuation(2)),
        (BY_TOOLS, kept(5, 3), Continuation(2, sequence=3, moved_from=5)),
        (BY_TOOLS, kept(2, 3), Continuation(2, sequence=3)),
        (BY_KAFKA_STREAMS, kept(5, 3), Continuation(9, CommitMetadata(5), sequence=3)),
    ],
)
def test_the_latest_evidence_says_where_to_continue(committed, record, expected):
    assert continuation(committed, record, TOPIC) == expected


def test_a_stamp_that_kafka_streams_has_copied_into_a_later_commit_counts_for_nothing():
    found = commit_metadata.decode(group(5, 3).metadata)
    copied = GroupOffset(9, commit_metadata.encode(found))
    assert not is_confirmed(copied, TOPIC)
    assert continuation(copied, kept(5, 3), TOPIC) == Continuation(9, sequence=3)


@given(st.integers(-1, 1 << 40), st.integers(-1, 1 << 40), st.booleans())
def test_time_never_goes_back(of_group, of_record, by_tools):
    text = "" if by_tools else commit_metadata.encode(CommitMetadata(of_group, {"w": of_group}))
    record = InputOffset(offset=5, sequence=3, stream_time=of_record, store_times={"w": of_record})
    found = continuation(GroupOffset(2, text), record, TOPIC)
    assert found is not None
    expected = of_record if by_tools else max(of_group, of_record)
    assert (found.times.partition_time, found.times.times["w"]) == (expected, expected)


@given(OFFSETS)
def test_a_record_comes_back_as_it_was_written(found):
    assert input_offset.decode(found.encode()) == found


@pytest.mark.parametrize("value", [b"", b"{}", b"no json", b'{"version": 2, "offset": 1, "sequence": 1}'])
def test_a_record_of_another_layout_is_refused(value):
    with pytest.raises(ValidationError):
        input_offset.decode(value)
