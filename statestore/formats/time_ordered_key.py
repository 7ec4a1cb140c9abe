"""Row keys of time-ordered stores (Kafka Streams' PrefixedWindowKeySchemas and PrefixedSessionKeySchemas).

The DSL makes them for `EmitStrategy.onWindowClose` (KIP-825). Their changelogs have the ordinary keys, those of
window_key.py and session_key.py.

row of a window     00 | int64 start | key bytes | int32 sequence number
  its index         01 | key bytes | int64 start | int32 sequence number
row of a session    00 | int64 end | int64 start | key bytes
  its index         01 | key bytes | int64 end | int64 start

Integers are big-endian, times in ms. An index row is the ordinary row key behind its prefix, and has an empty value.
Tumbling and hopping windows have no index.
"""

from __future__ import annotations

from typing import NamedTuple

from statestore.formats import session_key, window_key

ROW, INDEX = 0, 1
PREFIX_BYTES = 1
#: Row keys `start <= key < stop` between which all rows lie, and no index row.
ROWS_WITHOUT_INDEX = (bytes([ROW]), bytes([INDEX]))


class KeyLayout(NamedTuple):
    """Bytes of a row key before and behind the user's key, the prefix not counted."""

    before: int
    behind: int


WINDOW = KeyLayout(window_key.SUFFIX_BYTES - window_key.SEQUENCE_BYTES, window_key.SEQUENCE_BYTES)
SESSION = KeyLayout(session_key.SUFFIX_BYTES, 0)


def ordinary(row_key: bytes, layout: KeyLayout) -> bytes | None:
    """Return the ordinary row key of a time-ordered one, of a row or of an index row; None if it is neither."""
    if len(row_key) < PREFIX_BYTES + sum(layout):
        return None
    rest = row_key[PREFIX_BYTES:]
    if row_key[0] == INDEX:
        return rest
    if row_key[0] != ROW:
        return None
    times, end = layout.before, len(rest) - layout.behind
    return rest[times:end] + rest[:times] + rest[end:]


def row(ordinary_key: bytes, layout: KeyLayout) -> bytes:
    """Row key of a window or session with its times in front, by its ordinary row key."""
    end = len(ordinary_key) - layout.behind
    times = end - layout.before
    return bytes([ROW]) + ordinary_key[times:end] + ordinary_key[:times] + ordinary_key[end:]


def is_index(row_key: bytes) -> bool:
    """Tell whether a time-ordered row key is that of an index row."""
    return row_key[:PREFIX_BYTES] == bytes([INDEX])


def index(ordinary_key: bytes) -> bytes:
    """Row key of the index row of a window or session, by its ordinary row key."""
    return bytes([INDEX]) + ordinary_key


def has_key(ordinary_key: bytes, layout: KeyLayout) -> bool:
    """Tell whether an ordinary row key has more than times: without a key, 00 and 01 may be all of a key themselves."""
    return len(ordinary_key) > sum(layout)
