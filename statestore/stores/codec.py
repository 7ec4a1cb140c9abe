"""A value as the user sees it, as it is stored, and as it is logged: plain, or with a timestamp (KIP-258).

The changelog has the plain value; the record's timestamp carries the other half.
"""

from __future__ import annotations

from struct import error as StructError
from typing import Any, Generic, Protocol, TypeVar

from statestore.formats.timestamped_value import (
    ValueAndTimestamp,
    pack_timestamp,
)
from statestore.formats.timestamped_value import decode as decode_timestamped
from statestore.formats.value_format import value_format
from statestore.model import StoreFormat
from statestore.stores.serdes import Serde

V = TypeVar("V")


class Codec(Protocol[V]):
    """How one format lays out values of one type."""

    def encode(self, value: V) -> bytes:
        """From the user's value to the stored one."""

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

    def encode(self, value: ValueAndTimestamp[V]) -> bytes:
        """Put the timestamp in front of the serialized value."""
        if not isinstance(value, ValueAndTimestamp):
            raise TypeError(f"a timestamped store's value is ValueAndTimestamp(value, ms), found {value!r:.80}")
        try:
            return pack_timestamp(value[1]) + self._serialize(value[0])
        except StructError as error:
            raise TypeError(f"a timestamp is ms in 64 bits, found {value[1]!r:.80}") from error

    def decode(self, stored: bytes) -> ValueAndTimestamp[V]:
        """Split a stored value."""
        raw, timestamp = decode_timestamped(stored)
        return ValueAndTimestamp(self._deserialize(raw), timestamp)


def codec(store_format: StoreFormat, serde: Serde[Any]) -> Codec[Any]:
    """Return the codec of a format."""
    return TimestampedCodec(serde) if value_format(store_format).timestamped else PlainCodec(serde)
