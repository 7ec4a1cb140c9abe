"""Row keys of window and session stores: Kafka Streams' bytes, and the bounds between which the rows of keys lie."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statestore.errors import StoreCorruptedError
from statestore.formats import session_key, time_ordered_key, window_key
from statestore.formats.key_bounds import after_prefix, upper_bound
from statestore.kinds.key_value import KEY_VALUE
from statestore.kinds.session import SESSION
from statestore.kinds.window import WINDOW

TIMES = st.integers(0, 2**63 - 1)
SEQUENCES = st.integers(0, 2**31 - 1)
#: Few different bytes, so that keys are prefixes of each other and of suffixes.
BYTES = st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])).map(bytes)
KEYS = BYTES.filter(lambda key: len(key) <= 12)

# -- bytes ------------------------------------------------------------------------------------------------------------


def test_a_window_key_is_the_key_the_start_and_the_sequence_number_big_endian():
    assert window_key.encode(b"key", 258, 3) == b"key" + bytes.fromhex("0000000000000102 00000003")
    assert window_key.encode(b"key", 258) == b"key" + bytes.fromhex("0000000000000102 00000000")


def test_a_session_key_is_the_key_the_end_and_the_start_big_endian():
    assert session_key.encode(b"key", 258, 772) == b"key" + bytes.fromhex("0000000000000304 0000000000000102")


@given(BYTES, TIMES, SEQUENCES)
def test_a_window_key_comes_back_as_it_went_in(key, start, sequence):
    assert window_key.decode(window_key.encode(key, start, sequence)) == (key, start, sequence)


@given(BYTES, TIMES, TIMES)
def test_a_session_key_comes_back_as_it_went_in(key, start, end):
    assert session_key.decode(session_key.encode(key, start, end)) == (key, start, end)


@pytest.mark.parametrize(("schema", "least"), [(window_key, 12), (session_key, 16)])
def test_a_row_key_with_no_room_for_its_suffix_is_damage_and_one_with_just_enough_has_an_empty_key(schema, least):
    with pytest.raises(StoreCorruptedError, match=f"has at least {least} bytes, found {least - 1}"):
        schema.decode(bytes(least - 1))
    assert schema.decode(bytes(least)) == (b"", 0, 0)


# -- bounds of one key ------------------------------------------------------------------------------------------------


def test_the_windows_of_a_key_lie_from_its_first_start_to_the_last_sequence_number_of_its_last():
    start, stop = WINDOW.key_bounds(b"k", 5, 9)
    assert start == window_key.encode(b"k", 5)
    assert stop == window_key.encode(b"k", 9, 2**31 - 1) + b"\0"
    assert WINDOW.key_bounds(b"k", -1, 9)[0] == window_key.encode(b"k", 0)
    assert WINDOW.key_bounds(b"k", 0, 9)[0] == window_key.encode(b"k", 0)
    for late in (2**63 - 1, 2**63, 2**70):  # as somebody asks who wants all
        assert WINDOW.key_bounds(b"k", 0, late)[1] == window_key.encode(b"k", 2**63 - 1, 2**31 - 1) + b"\0"


def test_the_sessions_of_a_key_lie_from_their_earliest_end_to_the_latest_start_of_the_last():
    start, stop = SESSION.key_bounds(b"k", 5, 9)
    assert start == session_key.encode(b"k", 0, 5)
    assert stop == session_key.encode(b"k", 9, 2**63 - 1) + b"\0"
    for negative in (-1, -100):
        start, stop = SESSION.key_bounds(b"k", negative, negative)
        assert start == session_key.encode(b"k", 0, 0)
        assert stop == session_key.encode(b"k", 0, 2**63 - 1) + b"\0"


# -- bounds of many keys ----------------------------------------------------------------------------------------------


@given(KEYS, KEYS.filter(bool))
@example(b"\x01\x7f\x80", b"\x01")  # the suffix itself, and something larger behind it
@example(b"\x80" * 5, b"\x01")
def test_the_bound_of_keys_up_to_one_is_the_largest_of_its_prefixes_with_the_largest_suffix(key_to, largest):
    prefixes = [key_to[:end] for end in range(len(key_to) + 1)]
    assert upper_bound(key_to, largest) == max(prefix + largest for prefix in prefixes)


@given(KEYS, KEYS, TIMES, SEQUENCES)
def test_no_window_of_a_key_in_a_range_lies_behind_its_bounds(one, other, start, sequence):
    key_from, key_to = sorted((one, other))
    first, stop = WINDOW.range_bounds(key_from, key_to)
    for key in (key_from, key_to):
        assert first <= window_key.encode(key, start, sequence) < stop
    last = window_key.encode(key_to, 2**63 - 1, 2**31 - 1)
    assert last < stop


@given(KEYS, KEYS, TIMES, TIMES)
def test_no_session_of_a_key_in_a_range_lies_behind_its_bounds(one, other, start, end):
    key_from, key_to = sorted((one, other))
    first, stop = SESSION.range_bounds(key_from, key_to)
    for key in (key_from, key_to):
        assert first <= session_key.encode(key, start, end) < stop
    assert session_key.encode(key_to, 2**63 - 1, 2**63 - 1) < stop


@pytest.mark.parametrize(
    ("kind", "largest"), [(WINDOW, "7fffffffffffffff 7fffffff"), (SESSION, "7fffffffffffffff" * 2)]
)
def test_a_range_that_is_open_at_an_end_has_no_bound_there_and_no_row_fits_behind_the_other(kind, largest):
    assert kind.range_bounds(None, None) == (None, None)
    assert kind.range_bounds(b"a", None) == (b"a", None)
    assert kind.range_bounds(None, b"\x80") == (None, b"\x80" + bytes.fromhex(largest) + b"\0")
    assert kind.range_bounds(None, b"a") == (None, bytes.fromhex(largest) + b"\0")  # of the empty key


def test_a_key_of_a_key_value_store_is_its_row_key():
    assert KEY_VALUE.key_bounds(b"k", 0, 0) == (b"k", b"k\0")
    for bounds in ((None, None), (b"a", None), (None, b"a"), (b"a", b"b")):
        assert KEY_VALUE.range_bounds(*bounds) == bounds


@pytest.mark.parametrize(
    ("prefix", "after"),
    [(b"a", b"b"), (b"ab", b"ac"), (b"aX\xff\xff", b"aY"), (b"\xff", None), (b"", None)],
)
def test_behind_a_prefix_comes_the_next_one_that_is_not_above_anything_else(prefix, after):
    assert after_prefix(prefix) == after


# -- times in front ---------------------------------------------------------------------------------------------------


def test_a_time_ordered_window_is_behind_00_and_its_index_behind_01():
    ordinary = window_key.encode(b"key", 258, 3)
    row = bytes.fromhex("00 0000000000000102") + b"key" + bytes.fromhex("00000003")
    index = bytes.fromhex("01") + b"key" + bytes.fromhex("0000000000000102 00000003")
    assert (
        time_ordered_key.ordinary(row, time_ordered_key.WINDOW)
        == time_ordered_key.ordinary(index, time_ordered_key.WINDOW)
        == ordinary
    )
    assert time_ordered_key.index(ordinary) == index
    assert (time_ordered_key.is_index(row), time_ordered_key.is_index(index)) == (False, True)


def test_a_time_ordered_session_is_behind_00_and_its_index_behind_01():
    ordinary = session_key.encode(b"key", 258, 772)
    row = bytes.fromhex("00 0000000000000304 0000000000000102") + b"key"
    index = bytes.fromhex("01") + b"key" + bytes.fromhex("0000000000000304 0000000000000102")
    assert (
        time_ordered_key.ordinary(row, time_ordered_key.SESSION)
        == time_ordered_key.ordinary(index, time_ordered_key.SESSION)
        == ordinary
    )
    assert time_ordered_key.index(ordinary) == index


@pytest.mark.parametrize(("layout", "suffix"), [(time_ordered_key.WINDOW, 12), (time_ordered_key.SESSION, 16)])
def test_a_time_ordered_key_has_a_prefix_and_room_for_its_times(layout, suffix):
    for prefix in (b"\0", b"\1"):
        assert time_ordered_key.ordinary(prefix + bytes(suffix), layout) == bytes(suffix)
        assert time_ordered_key.ordinary(prefix + bytes(suffix - 1), layout) is None
    for prefix in (b"\2", b"\xff"):
        assert time_ordered_key.ordinary(prefix + bytes(suffix), layout) is None
    assert not time_ordered_key.has_key(bytes(suffix), layout)
    assert time_ordered_key.has_key(bytes(suffix + 1), layout)


def test_no_key_is_that_of_an_index():
    assert not time_ordered_key.is_index(b"")
