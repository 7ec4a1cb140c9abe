"""Key of a window store's row (Kafka Streams' WindowKeySchema).

0           n                n+8          n+12
+-----------+----------------+------------+
| key bytes | int64          | int32      |     big-endian: window start (ms), sequence number
+-----------+----------------+------------+

The sequence number is 0 unless the store retains duplicates. Row keys of one user key are in time order, but keys of
different length interleave, so a range of rows may hold rows of other keys: readers check what they decode.
"""

from __future__ import annotations

from struct import Struct

from statestore.errors import StoreCorruptedError

_SUFFIX = Struct(">qi")
SUFFIX_BYTES = _SUFFIX.size
SEQUENCE_BYTES = 4
MAX_TIME = (1 << 63) - 1
MAX_SEQUENCE = (1 << 31) - 1


def encode(key: bytes, start: int, sequence: int = 0) -> bytes:
    """Row key of a window that starts at `start` (ms)."""
    return key + _SUFFIX.pack(start, sequence)


def decode(row_key: bytes) -> tuple[bytes, int, int]:
    """Split a row key into key, window start (ms) and sequence number.

    Raises
    ------
    StoreCorruptedError
        If it is too short to be one.
    """
    if len(row_key) < SUFFIX_BYTES:
        raise StoreCorruptedError(f"a window store's row key has at least {SUFFIX_BYTES} bytes, found {len(row_key)}")
    start, sequence = _SUFFIX.unpack_from(row_key, len(row_key) - SUFFIX_BYTES)
    return row_key[:-SUFFIX_BYTES], start, sequence
