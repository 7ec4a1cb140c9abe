"""Formats of stores: layouts of values, where rows lie, and what becomes of older rows."""

from __future__ import annotations

import pytest

from statestore.errors import StoreCorruptedError
from statestore.formats.value_format import (
    COLUMN_FAMILIES,
    SESSION_HEADERS,
    TIME_ORDERED_SESSION_HEADERS,
    TIME_ORDERED_WINDOW_HEADERS,
    newest_format,
    value_format,
)
from statestore.model import StoreFormat

PLAIN, TIMESTAMPED, HEADERS = map(value_format, (StoreFormat.PLAIN, StoreFormat.TIMESTAMPED, StoreFormat.HEADERS))
SEVEN = b"\0\0\0\0\0\0\0\7"


def test_a_plain_value_is_stored_and_logged_as_it_is():
    assert PLAIN.stored(b"v", 7) == b"v"
    assert PLAIN.logged(b"v") == (b"v", None)
    assert PLAIN.logged(None) == (None, None)
    assert PLAIN.migrated("default", b"v") == b"v"
    assert not PLAIN.timestamped


def test_a_timestamped_value_has_its_timestamp_in_front_and_is_logged_without_it():
    assert TIMESTAMPED.stored(b"v", 7) == SEVEN + b"v"
    assert TIMESTAMPED.logged(SEVEN + b"v") == (b"v", 7)
    assert TIMESTAMPED.logged(SEVEN) == (b"", 7)
    assert TIMESTAMPED.logged(None) == (None, None)
    assert TIMESTAMPED.timestamped


def test_a_plain_value_in_a_timestamped_store_has_an_unknown_timestamp_and_is_logged_with_its_records():
    assert TIMESTAMPED.timestamp_at(SEVEN + b"v") == 0
    older = TIMESTAMPED.migrated("default", b"v")
    assert older == b"\xff" * 8 + b"v"
    assert TIMESTAMPED.logged(older) == (b"v", None)


def test_a_value_that_is_too_short_for_a_timestamp_is_refused():
    with pytest.raises(StoreCorruptedError, match=r"^a timestamped value has at least 8 bytes, found 7$"):
        TIMESTAMPED.logged(b"1234567")


def test_new_rows_are_written_to_the_formats_own_column_family():
    assert PLAIN.column_families == ("default",)
    assert TIMESTAMPED.column_families == TIMESTAMPED.made_families == ("keyValueWithTimestamp", "default")
    assert HEADERS.column_families == ("keyValueWithTimestampAndHeaders", "keyValueWithTimestamp", "default")
    assert SESSION_HEADERS.column_families == ("sessionKeyValueWithHeaders", "default")
    assert TIME_ORDERED_WINDOW_HEADERS.column_families == ("windowKeyValueWithHeaders", "default")
    assert TIME_ORDERED_SESSION_HEADERS.column_families == ("sessionKeyValueWithHeaders",)
    with_headers = HEADERS, SESSION_HEADERS, TIME_ORDERED_WINDOW_HEADERS
    assert set(COLUMN_FAMILIES) == {family for known in with_headers for family in known.column_families}


def test_a_new_store_has_no_column_family_of_a_format_between_its_own_and_the_plain_one():
    """Kafka Streams refuses plain rows beside the family of timestamped ones, also where that has none."""
    assert HEADERS.made_families == ("keyValueWithTimestampAndHeaders", "default")
    assert PLAIN.made_families == ("default", "default")


def test_a_value_with_headers_has_them_and_its_timestamp_in_front_and_is_logged_with_them():
    stored = b"\x0c\x02\x02a\x04bc" + SEVEN + b"v"
    assert HEADERS.stored(b"v", 7, (("a", b"bc"),)) == stored
    assert HEADERS.logged(stored) == (b"v", 7, (("a", b"bc"),))
    assert HEADERS.logged(None) == (None, None)
    assert HEADERS.stored_as_read(stored, 9) == stored, "the log's reader has laid it out"
    assert HEADERS.timestamp_at(stored) == 7
    assert HEADERS.timestamped
    assert not HEADERS.timestamp_in_front


def test_a_session_with_headers_has_no_timestamp():
    assert SESSION_HEADERS.stored(b"v", 7, (("a", None),)) == b"\x08\x02\x02a\x01v"
    assert SESSION_HEADERS.logged(b"\x08\x02\x02a\x01v") == (b"v", None, (("a", None),))
    assert SESSION_HEADERS.logged(b"\0") == (b"", None, ())
    assert not SESSION_HEADERS.timestamped


def test_an_older_value_has_no_headers_and_a_plain_one_an_unknown_timestamp():
    assert HEADERS.migrated("keyValueWithTimestamp", SEVEN + b"v") == b"\0" + SEVEN + b"v"
    assert HEADERS.migrated("default", b"v") == b"\0" + b"\xff" * 8 + b"v"
    assert HEADERS.logged(HEADERS.migrated("default", b"v")) == (b"v", None, ())
    assert SESSION_HEADERS.migrated("default", b"v") == b"\0v"
    assert TIME_ORDERED_WINDOW_HEADERS.migrated("default", SEVEN + b"v") == b"\0" + SEVEN + b"v"


@pytest.mark.parametrize(
    ("families", "found"),
    [
        ({"default", "offsets"}, StoreFormat.PLAIN),
        ({"default", "keyValueWithTimestamp", "offsets"}, StoreFormat.TIMESTAMPED),
        ({"keyValueWithTimestamp"}, StoreFormat.TIMESTAMPED),
        ({"default", "keyValueWithTimestamp", "keyValueWithTimestampAndHeaders"}, StoreFormat.HEADERS),
        ({"default", "sessionKeyValueWithHeaders", "offsets"}, StoreFormat.HEADERS),
        (set(), StoreFormat.PLAIN),
    ],
)
def test_a_store_has_the_newest_format_that_it_has_a_column_family_of(families, found):
    assert newest_format(families) is found
