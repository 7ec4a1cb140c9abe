"""Key of a session store's row (Kafka Streams' SessionKeySchema).

0           n                n+8              n+16
+-----------+----------------+----------------+
| key bytes | int64          | int64          |     big-endian: session end, session start (ms, both inclusive)
+-----------+----------------+----------------+
"""

from __future__ import annotations

from struct import Struct

from statestore.errors import StoreCorruptedError

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
