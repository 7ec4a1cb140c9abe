"""Key of a session store's row (Kafka Streams' SessionKeySchema).

0           n                n+8              n+16
+-----------+----------------+----------------+
| key bytes | int64          | int64          |     big-endian: session end, session start (ms, both inclusive)
+-----------+----------------+----------------+
"""

from __future__ import annotations

from struct import Struct

from statestore.errors import StoreCorruptedError
from statestore.formats.key_bounds import upper_bound

_SUFFIX = Struct(">qq")
SUFFIX_BYTES = _SUFFIX.size
MAX_TIME = (1 << 63) - 1


def encode(key: bytes, start: int, end: int) -> bytes:
    """Row key of the session from `start` to `end` (ms)."""
    return key + _SUFFIX.pack(end, start)


def decode(row_key: bytes) -> tuple[bytes, int, int]:
    """Split a row key into key, session start and session end (ms).

    Raises
    ------
    StoreCorruptedError
        If it is too short to be one.
    """
    if len(row_key) < SUFFIX_BYTES:
        raise StoreCorruptedError(f"a session store's row key has at least {SUFFIX_BYTES} bytes, found {len(row_key)}")
    end, start = _SUFFIX.unpack_from(row_key, len(row_key) - SUFFIX_BYTES)
    return row_key[:-SUFFIX_BYTES], start, end


def key_bounds(key: bytes, earliest_end: int, latest_start: int) -> tuple[bytes, bytes]:
    """Row keys `start <= row key < stop` between which the sessions of one key lie."""
    return encode(key, 0, max(earliest_end, 0)), encode(key, max(latest_start, 0), MAX_TIME) + b"\0"


def range_bounds(key_from: bytes | None, key_to: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Row keys `start <= row key < stop` between which all sessions of a range of keys lie; None is an open end."""
    stop = None if key_to is None else upper_bound(key_to, _SUFFIX.pack(MAX_TIME, MAX_TIME)) + b"\0"
    return key_from, stop
