"""Formats of stores: layouts of values, where rows lie, and what becomes of older rows."""

from __future__ import annotations

import pytest

from statestore.errors import StoreCorruptedError
from statestore.formats.value_format import COLUMN_FAMILIES, newest_format, value_format
from statestore.model import StoreFormat

PLAIN, TIMESTAMPED = value_format(StoreFormat.PLAIN), value_format(StoreFormat.TIMESTAMPED)
SEVEN = b"\0\0\0\0\0\0\0\7"


def test_a_plain_value_is_stored_and_logged_as_it_is():
    assert PLAIN.stored(b"v", 7) == b"v"
    assert PLAIN.logged(b"v") == (b"v", None)
    assert PLAIN.logged(None) == (None, None)
    assert PLAIN.migrated(b"v") == b"v"
    assert not PLAIN.timestamped


def test_a_timestamped_value_has_its_timestamp_in_front_and_is_logged_without_it():
    assert TIMESTAMPED.stored(b"v", 7) == SEVEN + b"v"
    assert TIMESTAMPED.logged(SEVEN + b"v") == (b"v", 7)
    assert TIMESTAMPED.logged(SEVEN) == (b"", 7)
    assert TIMESTAMPED.logged(None) == (None, None)
    assert TIMESTAMPED.timestamped


def test_a_plain_value_in_a_timestamped_store_has_an_unknown_timestamp_and_is_logged_with_its_records():
    older = TIMESTAMPED.migrated(b"v")
    assert older == b"\xff" * 8 + b"v"
    assert TIMESTAMPED.logged(older) == (b"v", None)


def test_a_value_that_is_too_short_for_a_timestamp_is_refused():
    with pytest.raises(StoreCorruptedError, match=r"^a timestamped value has at least 8 bytes, found 7$"):
        TIMESTAMPED.logged(b"1234567")


def test_new_rows_are_written_to_the_formats_own_column_family():
    assert PLAIN.column_families == ("default",)
    assert TIMESTAMPED.column_families == COLUMN_FAMILIES == ("keyValueWithTimestamp", "default")


@pytest.mark.parametrize(
    ("families", "found"),
    [
        ({"default", "offsets"}, StoreFormat.PLAIN),
        ({"default", "keyValueWithTimestamp", "offsets"}, StoreFormat.TIMESTAMPED),
        ({"keyValueWithTimestamp"}, StoreFormat.TIMESTAMPED),
        (set(), StoreFormat.PLAIN),
    ],
)
def test_a_store_has_the_newest_format_that_it_has_a_column_family_of(families, found):
    assert newest_format(families) is found
