"""Values with headers: what Kafka Streams writes is read, and what is no such value is refused by name."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import StoreCorruptedError
from statestore.formats import headers_value
from statestore.formats.headers_value import AggregationWithHeaders, ValueTimestampHeaders

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=200)), max_size=5).map(tuple)
TIMES = st.integers(-(1 << 63), (1 << 63) - 1)
SEVEN = b"\0\0\0\0\0\0\0\7"


@pytest.mark.behaviour("H1")
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), b"\x00"),
        ((("", b""),), b"\x06\x02\x00\x00"),
        ((("a", None), ("a", b"\xff")), b"\x10\x04\x02a\x01\x02a\x02\xff"),
        ((("\u00fc", b"1"),), b"\x0c\x02\x04\xc3\xbc\x021"),
        ((("k", b"v" * 64),), b"\x8a\x01\x02\x02k\x80\x01" + b"v" * 64),
        ((("k", b"v" * 8192),), b"\x8c\x80\x01\x02\x02k\x80\x80\x01" + b"v" * 8192),
    ],
    ids=["none", "empty", "twice, null", "not ASCII", "two bytes of size", "three bytes of size"],
)
def test_headers_are_the_bytes_of_kafka_streams(headers: headers_value.Headers, expected: bytes) -> None:
    assert headers_value.encode(b"value", 7, headers) == expected + SEVEN + b"value"
    assert headers_value.decode(expected + SEVEN + b"value") == ValueTimestampHeaders(b"value", 7, headers)


@pytest.mark.behaviour("H1")
@given(HEADERS, TIMES, st.binary())
def test_what_is_written_is_read(headers: headers_value.Headers, time: int, value: bytes) -> None:
    stored = headers_value.encode(value, time, headers)
    assert headers_value.decode(stored) == (value, time, headers)
    session = headers_value.encode(value, None, headers)
    assert headers_value.decode_aggregation(session) == AggregationWithHeaders(value, headers)
    end = headers_value.headers_end(stored)
    assert headers_value.headers_end(session) == end
    assert (stored[:end], stored[end + 8 :]) == (session[:end], value)


@pytest.mark.behaviour("H2")
@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(raw: bytes) -> None:
    for decode in (headers_value.decode, headers_value.decode_aggregation):
        with suppress(StoreCorruptedError):
            decode(raw)


@pytest.mark.behaviour("H2")
@given(HEADERS.filter(bool), st.data())
def test_a_value_that_was_cut_off_is_refused(headers: headers_value.Headers, data: st.DataObject) -> None:
    stored = headers_value.encode(b"", 7, headers)
    cut = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(StoreCorruptedError):
        headers_value.decode(stored[:cut])


@pytest.mark.behaviour("H2")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "the size of its headers as a varint"),
        (b"\xff" * 9, "the size of its headers as a varint of at most 5 bytes, found 'ffffffffff'"),
        (b"\x01", "the size of its headers, found -1, where 0 bytes follow"),
        (b"\x0a\x02", "the size of its headers, found 5, where 1 bytes follow"),
        (b"\x02\x80" + SEVEN, "has the number of its headers as a varint of at most 5 bytes, found '80'"),
        (b"\x02\x7f" + SEVEN, "the number of its headers, found -64"),
        (b"\x02\x02" + SEVEN, "the number of its headers, found 1, where 0 bytes follow"),
        (b"\x04\x02\x80" + SEVEN, "the length of the name of header 0 as a varint"),
        (b"\x06\x02\x01\x00" + SEVEN, "the name of header 0, found none"),
        (b"\x06\x02\x04a" + SEVEN, "the name of header 0 in 2 bytes, found 1"),
        (b"\x08\x02\x02\xff\x00" + SEVEN, "the name of header 0 in UTF-8"),
        (b"\x08\x02\x00\x00\x00" + SEVEN, "1 headers that end at byte 5, found their end at byte 4"),
        (b"\x04\x02", "the size of its headers, found 2, where 1 bytes follow"),
        (b"\x06\x02\x03\x00" + SEVEN, "the name of header 0 in -2 bytes, found 1"),
        (b"\x06\x02\x00\x06" + SEVEN, "the value of header 0 in 3 bytes, found 0"),
        (b"\x00" + SEVEN[1:], "a timestamp of 8 bytes behind its headers, found 7"),
    ],
)
def test_it_is_said_what_was_expected_and_found(raw: bytes, message: str) -> None:
    with pytest.raises(StoreCorruptedError, match=message):
        headers_value.decode(raw)


@pytest.mark.behaviour("H2")
def test_numbers_may_have_more_bytes_than_they_need_and_headers_none_of_them() -> None:
    for none in (b"\x00", b"\x80\x00", b"\x02\x00"):
        assert headers_value.headers_end(none + SEVEN) == len(none)
        assert headers_value.decode(none + SEVEN) == (b"", 7, ())
        assert headers_value.decode_aggregation(none) == (b"", ())


@pytest.mark.behaviour("H2")
def test_headers_without_a_size_are_refused_also_where_their_end_is_given() -> None:
    with pytest.raises(StoreCorruptedError, match=r"^a value with headers has the size of its headers as a varint"):
        headers_value.decode_headers(b"\xff" * 9, 9)


@pytest.mark.parametrize("wrong", [("a", "text"), (b"a", b"b"), ("\ud800", b"b"), (None, None)])
def test_what_is_no_header_cannot_be_written(wrong: tuple[object, object]) -> None:
    with pytest.raises(TypeError, match="header"):
        headers_value.encode_headers([wrong])  # type: ignore[list-item]
