"""Value of the timestamped format (KIP-258).

0        8
+--------+-----------------+
| int64  | plain value ... |      big-endian, milliseconds; -1 = timestamp unknown
+--------+-----------------+
"""

from __future__ import annotations

from struct import Struct
from typing import Generic, NamedTuple, TypeVar

from statestore.errors import StoreCorruptedError

T = TypeVar("T")
V = TypeVar("V")

#: Surrogate timestamp of a value that was written without one (KIP-258).
UNKNOWN_TIMESTAMP = -1

TIMESTAMP_BYTES = 8
_TIMESTAMP = Struct(">q")
pack_timestamp = _TIMESTAMP.pack
#: Returns the timestamp of a stored value, in a tuple.
timestamp_of = _TIMESTAMP.unpack_from


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the timestamp (ms) of the record that wrote it."""

    value: V
    timestamp: int

    @staticmethod
    def make(value: T | None, timestamp: int) -> ValueAndTimestamp[T] | None:
        """Return the value with its timestamp (ms); None if the value is None (KIP-258)."""
        return None if value is None else ValueAndTimestamp(value, timestamp)

    @staticmethod
    def get_value_or_none(value_and_timestamp: ValueAndTimestamp[T] | None) -> T | None:
        """Return the value without its timestamp; None for None (KIP-258's `getValueOrNull`)."""
        return None if value_and_timestamp is None else value_and_timestamp.value


def encode(value: bytes, timestamp: int) -> bytes:
    """Put the timestamp (ms) in front of the plain value."""
    return pack_timestamp(timestamp) + value


def decode(raw: bytes) -> ValueAndTimestamp[bytes]:
    """Split a stored value.

    Raises
    ------
    StoreCorruptedError
        If there is no room for a timestamp.
    """
    if len(raw) < TIMESTAMP_BYTES:
        raise StoreCorruptedError(
            f"a timestamped value has at least {TIMESTAMP_BYTES} bytes, found {len(raw)}: "
            "the store was written in another format, or damaged"
        )
    return ValueAndTimestamp(raw[TIMESTAMP_BYTES:], _TIMESTAMP.unpack_from(raw)[0])
