"""A value as the user sees it, as it is stored, and as it is logged: plain, or with a timestamp (KIP-258).

The changelog has the plain value; the record's timestamp carries the other half.
"""

from __future__ import annotations

from struct import error as StructError
from typing import Any, Generic, Protocol, TypeVar

from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import (
    TIMESTAMP_BYTES,
    UNKNOWN_TIMESTAMP,
    ValueAndTimestamp,
    pack_timestamp,
)
from statestore.formats.timestamped_value import decode as decode_timestamped
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
    return PlainCodec(serde) if store_format is StoreFormat.PLAIN else TimestampedCodec(serde)


def stored_value(store_format: StoreFormat, plain: bytes, timestamp: int) -> bytes:
    """Lay out a changelog record's value (timestamp in ms) as a store of this format keeps it."""
    return plain if store_format is StoreFormat.PLAIN else pack_timestamp(timestamp) + plain


def logged_value(store_format: StoreFormat, stored: bytes | None) -> tuple[bytes | None, int | None]:
    """Split a stored value as it is logged: plain value and timestamp (ms); None is that of the record processed."""
    if stored is None or store_format is StoreFormat.PLAIN:
        return stored, None
    if len(stored) < TIMESTAMP_BYTES:
        raise StoreCorruptedError(f"a timestamped value has at least {TIMESTAMP_BYTES} bytes, found {len(stored)}")
    timestamp = int.from_bytes(stored[:TIMESTAMP_BYTES], "big", signed=True)
    return stored[TIMESTAMP_BYTES:], None if timestamp == UNKNOWN_TIMESTAMP else timestamp
