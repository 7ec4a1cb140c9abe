"""Records of the topics of input offsets: their values are read as they were written, and by later versions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.commit_metadata import CommitMetadata
from statestore.formats.input_offset import InputOffset, decode

NAMES, TIMES = st.text(max_size=5), st.integers(-1, (1 << 63) - 1)
OFFSETS = st.builds(
    InputOffset.of,
    st.integers(0, 1 << 62),
    st.none() | NAMES,
    st.integers(0, 1 << 62),
    st.builds(CommitMetadata, TIMES, st.dictionaries(NAMES, TIMES, max_size=3)),
    st.dictionaries(NAMES, NAMES, max_size=3),
)


@given(OFFSETS)
def test_what_was_written_is_read(offset):
    assert decode(offset.encode()) == offset
    assert offset.times == CommitMetadata(offset.stream_time, offset.store_times)


def test_a_value_is_the_json_that_other_versions_read():
    offset = InputOffset.of(42, "orders-id", 7, CommitMetadata(1_700, {"totals": 1_600}), {"totals": "log-id"})
    assert json.loads(offset.encode()) == {
        "version": 1,
        "offset": 42,
        "topic_id": "orders-id",
        "sequence": 7,
        "stream_time": 1_700,
        "store_times": {"totals": 1_600},
        "changelogs": {"totals": "log-id"},
    }
    assert decode(b'{"offset": 42, "sequence": 7, "more": 1}') == InputOffset(offset=42, sequence=7)


@pytest.mark.parametrize(
    "value", [b"", b"{", b"{}", b'{"version": 2, "offset": 1, "sequence": 1}', b'{"offset": -1, "sequence": 1}']
)
def test_a_value_of_another_layout_is_refused(value):
    with pytest.raises(ValueError, match="InputOffset"):
        decode(value)


@pytest.mark.parametrize(
    ("of", "topic_id", "expected"),
    [("a", "a", True), ("a", "b", False), (None, "b", True), ("a", None, True), (None, None, True)],
)
def test_an_offset_is_of_another_topic_only_if_both_are_known_and_differ(of, topic_id, expected):
    assert InputOffset(offset=1, topic_id=of, sequence=1).is_of(topic_id) is expected
