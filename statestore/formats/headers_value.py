"""Value of the formats with headers (KIP-1271, KIP-1285).

0           v         v+n       v+n+8
+-----------+---------+---------+-----------------+
| varint n  | headers | int64   | plain value ... |      sessions have no timestamp
+-----------+---------+---------+-----------------+

headers      varint count, then of each: varint length, name in UTF-8, varint length, value
             none: no bytes, so that n is a single 00

Varints are those of Kafka's records, in zigzag; a null value has the length -1 (01). The headers of a log's record are
the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, pack_timestamp
from statestore.formats.varint import varint

V = TypeVar("V")

#: Names and values of a record's headers, in their order; a name may be there more than once.
Headers = tuple[tuple[str, bytes | None], ...]

#: A value without headers.
NO_HEADERS = b"\0"
#: Kafka reads no longer varint of 32 bits.
_VARINT_BYTES = 5
_NULL = b"\x01"


class ValueTimestampHeaders(NamedTuple, Generic[V]):
    """A value, the timestamp (ms) of the record that wrote it, and that record's headers (KIP-1271)."""

    value: V
    timestamp: int
    headers: Headers = ()


class AggregationWithHeaders(NamedTuple, Generic[V]):
    """The value of a session and its headers; sessions have no timestamp (KIP-1271)."""

    aggregation: V
    headers: Headers = ()


def encode_varint(number: int) -> bytes:
    """Return a signed number of 32 bits as a zigzag varint."""
    return varint((number << 1) ^ (number >> 31))


def encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Return headers with their size in front, as a value begins with them.

    Raises
    ------
    TypeError
        If a name is no str, or a value neither bytes nor None.
    """
    encoded = bytearray()
    count = 0
    for name, value in headers:
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError(f"a header is a name (str) and its value (bytes or None), found {(name, value)!r:.120}")
        try:
            raw = name.encode()
        except UnicodeEncodeError as error:
            raise TypeError(f"a header's name is text that UTF-8 has, found {name!r:.120}") from error
        encoded += encode_varint(len(raw)) + raw
        encoded += _NULL if value is None else encode_varint(len(value)) + value
        count += 1
    if not count:
        return NO_HEADERS
    whole = encode_varint(count) + encoded
    return encode_varint(len(whole)) + whole


def encode(value: bytes, timestamp: int | None, headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Lay out a value with its headers; None is no timestamp (ms)."""
    return encode_headers(headers) + (b"" if timestamp is None else pack_timestamp(timestamp)) + value


def headers_end(stored: bytes) -> int:
    """Return where the headers of a stored value end, which are not looked at.

    Raises
    ------
    StoreCorruptedError
        If their size is none, or more than there is.
    """
    if stored[:1] == NO_HEADERS:
        return 1
    size, at = _varint(stored, 0, len(stored), "the size of its headers")
    if not 0 <= size <= len(stored) - at:
        raise _damaged(f"the size of its headers, found {size}, where {len(stored) - at} bytes follow")
    return at + size


def decode_headers(stored: bytes, end: int) -> Headers:
    """Return the headers of a stored value, which end as `headers_end` says.

    Raises
    ------
    StoreCorruptedError
        If they are not headers, all of them.
    """
    if end == 1:
        return ()
    _, at = _varint(stored, 0, end, "the size of its headers")
    if at == end:
        return ()
    count, at = _varint(stored, at, end, "the number of its headers")
    if not 0 <= count <= end - at:
        raise _damaged(f"the number of its headers, found {count}, where {end - at} bytes follow")
    headers = []
    for number in range(count):
        raw, at = _bytes(stored, at, end, f"the name of header {number}")
        if raw is None:
            raise _damaged(f"the name of header {number}, found none")
        value, at = _bytes(stored, at, end, f"the value of header {number}")
        try:
            headers.append((raw.decode(), value))
        except UnicodeDecodeError as error:
            raise _damaged(f"the name of header {number} in UTF-8, found {raw!r:.80}") from error
    if at != end:
        raise _damaged(f"{count} headers that end at byte {end}, found their end at byte {at}")
    return tuple(headers)


def timestamp_behind(stored: bytes, end: int) -> int:
    """Return the timestamp (ms) behind headers.

    Raises
    ------
    StoreCorruptedError
        If there is no room for one.
    """
    if len(stored) - end < TIMESTAMP_BYTES:
        raise _damaged(f"a timestamp of {TIMESTAMP_BYTES} bytes behind its headers, found {len(stored) - end}")
    return int.from_bytes(stored[end : end + TIMESTAMP_BYTES], "big", signed=True)


def decode(stored: bytes) -> ValueTimestampHeaders[bytes]:
    """Split a stored value with a timestamp.

    Raises
    ------
    StoreCorruptedError
        Saying what was expected, and what was found.
    """
    end = headers_end(stored)
    timestamp = timestamp_behind(stored, end)
    return ValueTimestampHeaders(stored[end + TIMESTAMP_BYTES :], timestamp, decode_headers(stored, end))


def decode_aggregation(stored: bytes) -> AggregationWithHeaders[bytes]:
    """Split the stored value of a session; raises as `decode` does."""
    end = headers_end(stored)
    return AggregationWithHeaders(stored[end:], decode_headers(stored, end))


def _varint(raw: bytes, at: int, end: int, what: str) -> tuple[int, int]:
    found = shift = 0
    for position in range(at, min(at + _VARINT_BYTES, end)):
        byte = raw[position]
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            found &= 0xFFFFFFFF
            return (found >> 1) ^ -(found & 1), position + 1
        shift += 7
    raise _damaged(f"{what} as a varint of at most {_VARINT_BYTES} bytes, found {raw[at:end][:_VARINT_BYTES].hex()!r}")


def _bytes(raw: bytes, at: int, end: int, what: str) -> tuple[bytes | None, int]:
    size, at = _varint(raw, at, end, f"the length of {what}")
    if not -1 <= size <= end - at:
        raise _damaged(f"{what} in {size} bytes, found {end - at}")
    return (None, at) if size < 0 else (raw[at : at + size], at + size)


def _damaged(expected: str) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"a value with headers has {expected}: the store was written in another format, or damaged"
    )
