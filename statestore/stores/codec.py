"""A value for the user, and as stored: plain, with a timestamp (KIP-258), or with headers (KIP-1271).

The changelog has the plain value; timestamp and headers of the record carry the rest. A null value with a timestamp or
headers is a delete, as in Kafka Streams.
"""

from __future__ import annotations

from functools import partial
from struct import error as StructError
from typing import Any, Generic, Protocol, TypeVar

from statestore.formats import headers_value
from statestore.formats.headers_value import AggregationWithHeaders, ValueTimestampHeaders
from statestore.formats.timestamped_value import (
    TIMESTAMP_BYTES,
    ValueAndTimestamp,
    pack_timestamp,
    timestamp_of,
)
from statestore.formats.timestamped_value import decode as decode_timestamped
from statestore.formats.value_format import AnyFormat, value_format
from statestore.stores.serdes import Serde

V = TypeVar("V")
#: Makes a `ValueAndTimestamp` without a call of Python's.
_new: Any = partial(tuple.__new__, ValueAndTimestamp)


class Codec(Protocol[V]):
    """How one format lays out values of one type."""

    def encode(self, value: V) -> bytes | None:
        """From the user's value to the stored one; None deletes."""

    def decode(self, stored: bytes) -> V:
        """From the stored value to the user's."""


class PlainCodec(Generic[V]):
    """The stored value is the serialized one."""

    def __init__(self, serde: Serde[V]) -> None:
        self.encode = serde.serialize
        self.decode = serde.deserialize


class TimestampedCodec(Generic[V]):
    """The stored value is a timestamp (8 bytes, ms) and the serialized one; the user's is `ValueAndTimestamp`."""

    def __init__(self, serde: Serde[V]) -> None:
        self._serialize = serde.serialize
        self._deserialize = serde.deserialize

    def encode(self, value: ValueAndTimestamp[V]) -> bytes | None:
        """Put the timestamp in front of the serialized value."""
        if not isinstance(value, ValueAndTimestamp):
            raise TypeError(f"a timestamped store's value is ValueAndTimestamp(value, ms), found {value!r:.80}")
        if value[0] is None:
            return None
        try:
            return pack_timestamp(value[1]) + self._serialize(value[0])
        except StructError as error:
            raise TypeError(f"a timestamp is ms in 64 bits, found {value[1]!r:.80}") from error

    def decode(self, stored: bytes) -> ValueAndTimestamp[V]:
        """Split a stored value."""
        if len(stored) < TIMESTAMP_BYTES:
            decode_timestamped(stored)  # which says what is wrong
        found: ValueAndTimestamp[V] = _new((self._deserialize(stored[TIMESTAMP_BYTES:]), timestamp_of(stored)[0]))
        return found


class HeadersCodec(Generic[V]):
    """The stored value has headers, a timestamp and the serialized value; the user's is `ValueTimestampHeaders`."""

    def __init__(self, serde: Serde[V]) -> None:
        self._serialize = serde.serialize
        self._deserialize = serde.deserialize

    def encode(self, value: ValueTimestampHeaders[V]) -> bytes | None:
        """Put headers and timestamp in front of the serialized value."""
        if not isinstance(value, ValueTimestampHeaders):
            raise TypeError(
                f"a value of a store with headers is ValueTimestampHeaders(value, ms, headers), found {value!r:.80}"
            )
        if value.value is None:
            return None
        try:
            return headers_value.encode(self._serialize(value.value), value.timestamp, value.headers)
        except StructError as error:
            raise TypeError(f"a timestamp is ms in 64 bits, found {value.timestamp!r:.80}") from error

    def decode(self, stored: bytes) -> ValueTimestampHeaders[V]:
        """Split a stored value."""
        raw, timestamp, headers = headers_value.decode(stored)
        return ValueTimestampHeaders(self._deserialize(raw), timestamp, headers)


class AggregationCodec(Generic[V]):
    """The stored value has headers and the serialized value; the user's is `AggregationWithHeaders`."""

    def __init__(self, serde: Serde[V]) -> None:
        self._serialize = serde.serialize
        self._deserialize = serde.deserialize

    def encode(self, value: AggregationWithHeaders[V]) -> bytes | None:
        """Put headers in front of the serialized value."""
        if not isinstance(value, AggregationWithHeaders):
            raise TypeError(
                f"a value of a session store with headers is AggregationWithHeaders(aggregation, headers), found "
                f"{value!r:.80}"
            )
        if value.aggregation is None:
            return None
        return headers_value.encode(self._serialize(value.aggregation), None, value.headers)

    def decode(self, stored: bytes) -> AggregationWithHeaders[V]:
        """Split a stored value."""
        raw, headers = headers_value.decode_aggregation(stored)
        return AggregationWithHeaders(self._deserialize(raw), headers)


def codec(store_format: AnyFormat, serde: Serde[Any]) -> Codec[Any]:
    """Return the codec of a format."""
    layout = value_format(store_format)
    if layout.keeps_headers:
        return HeadersCodec(serde) if layout.timestamped else AggregationCodec(serde)
    return TimestampedCodec(serde) if layout.timestamped else PlainCodec(serde)
