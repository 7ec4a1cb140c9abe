"""Kinds of stores: what they say of row keys is what the formats of Kafka Streams say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError, StoreCorruptedError
from statestore.formats import session_key, window_key
from statestore.kinds.known import BUILT_IN, kind_of

WINDOW, SESSION, KEY_VALUE = BUILT_IN["window"], BUILT_IN["session"], BUILT_IN["key-value"]
KEYS = st.binary(max_size=12)
TIMES = st.integers(0, 2**63 - 1)
NUMBERS = st.integers(0, 2**31 - 1)


@given(KEYS, TIMES, TIMES, NUMBERS)
def test_a_row_key_has_the_numbers_that_its_format_has(key, one, other, number):
    assert WINDOW.suffix_bytes == len(window_key.encode(b"", 0))
    assert SESSION.suffix_bytes == len(session_key.encode(b"", 0, 0))
    assert WINDOW.row_time(window_key.encode(key, one, number)) == one
    assert SESSION.row_time(session_key.encode(key, one, other)) == other
    row_key = session_key.encode(key, one, other)
    at = len(row_key) - SESSION.first_time_bytes
    assert int.from_bytes(row_key[at : at + 8], "big") == one
    assert WINDOW.first_time_bytes == WINDOW.suffix_bytes


@given(KEYS, TIMES, TIMES)
def test_bounds_of_a_key_are_those_of_its_format(key, time_from, time_to):
    assert WINDOW.key_bounds(key, time_from, time_to) == window_key.key_bounds(key, time_from, time_to)
    assert SESSION.key_bounds(key, time_from, time_to) == session_key.key_bounds(key, time_from, time_to)
    assert KEY_VALUE.key_bounds(key, 0, 0) == (key, key + b"\0")


@given(st.none() | KEYS, st.none() | KEYS)
def test_bounds_of_a_range_of_keys_are_those_of_its_format(key_from, key_to):
    assert WINDOW.range_bounds(key_from, key_to) == window_key.range_bounds(key_from, key_to)
    assert SESSION.range_bounds(key_from, key_to) == session_key.range_bounds(key_from, key_to)
    assert KEY_VALUE.range_bounds(key_from, key_to) == (key_from, key_to)


@pytest.mark.parametrize("kind", [WINDOW, SESSION], ids=["window", "session"])
def test_what_is_too_short_for_a_row_key_is_refused(kind):
    with pytest.raises(StoreCorruptedError, match=f"a {kind.name} store's row key has at least {kind.suffix_bytes}"):
        kind.row_time(bytes(kind.suffix_bytes - 1))
    assert kind.row_time(bytes(kind.suffix_bytes)) == 0


def test_a_windows_segment_is_left_out_where_it_begins_too_late_and_a_sessions_is_not():
    assert WINDOW.may_be_in_segment(9, 10)
    assert not WINDOW.may_be_in_segment(10, 10)
    assert SESSION.may_be_in_segment(10, 10)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("no.such.module:KIND", "kind no.such.module:KIND cannot be used: ModuleNotFoundError"),
        ("statestore.model:TaskId", "kind statestore.model:TaskId is <class .*expected a StoreKind"),
    ],
)
def test_a_kind_that_cannot_be_loaded_is_refused_where_it_is_used(reference, said):
    store = StoreDefinition(name="s", kind=reference)  # reading a catalogue runs no code of the user's
    with pytest.raises(DefinitionError, match=said):
        _ = store.store_kind
    with pytest.raises(DefinitionError):
        kind_of(reference)
