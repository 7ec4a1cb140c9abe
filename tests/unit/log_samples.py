"""Logs of stores of all kinds, what is left of them, and runs made of them."""

from __future__ import annotations

import struct

from hypothesis import strategies as st
from samples import batches

from statestore.bulk.routing import Routing, routing_of
from statestore.bulk.runs import RunWriter
from statestore.definitions.store import StoreDefinition

KEY_VALUE = Routing()
WINDOW = routing_of(StoreDefinition(name="w", kind="window", retention_ms=200_000, window_size_ms=1_000))
SESSION = routing_of(StoreDefinition(name="s", kind="session", retention_ms=120_000))
ROUTINGS = {"key-value": KEY_VALUE, "window": WINDOW, "session": SESSION}
USER_KEYS = (
    st.sampled_from([b"", b"\0", b"a", b"a\0", b"a\0\0", b"ab", b"\xff", b"\xff" * 9, b"prefix--", b"prefix--\0"])
    | st.binary(max_size=3)
    | st.binary(min_size=6, max_size=40)
    | st.integers(0, 30).map(b"a-long-prefix-%04d".__mod__)
)
TIMES = st.integers(0, 700_000) | st.sampled_from([0, 99_999, 100_000, 1 << 40])
VALUES = st.none() | st.binary(max_size=30) | st.integers(1, 3000).map(bytes)
SIZES = st.lists(st.integers(1, 20), max_size=30)


@st.composite
def logs(draw, routing):
    """Records as a store with this routing logs them."""
    suffix = bytes(routing.suffix_bytes - 8) if routing.suffix_bytes else b""
    keys = USER_KEYS
    if routing.suffix_bytes:
        keys = st.tuples(USER_KEYS, TIMES).map(lambda row: row[0] + struct.pack(">q", row[1]) + suffix)
    return draw(st.lists(st.tuples(st.none() | keys, VALUES, st.integers(0, 1 << 41)), max_size=80))


def time_of(key, routing):
    return struct.unpack(">q", key[-routing.suffix_bytes :][:8])[0]


def folded(log, routing, first_offset=0):
    """(segment, key, value, timestamp, offset) of what is left of a log, in order: what is expected of `merged`."""
    latest, stream_time = {}, -1
    for offset, (key, value, timestamp) in enumerate(log, first_offset):
        if key is None:
            continue
        if routing.suffix_bytes:
            stream_time = max(stream_time, time_of(key, routing))
        if value is not None or not routing.ignores_deletes:
            latest[key] = value, timestamp, offset
    rows, oldest = [], routing.oldest_live(stream_time)
    for key, (value, timestamp, offset) in latest.items():
        segment = 0
        if routing.interval_ms:
            segment = time_of(key, routing) // routing.interval_ms * routing.interval_ms
        if value is not None and segment >= oldest:
            rows.append((segment, key, value, timestamp, offset))
    return sorted(rows)


def written(log, sizes, directory, run_bytes, routing=KEY_VALUE, first_offset=0, **options):
    writer = RunWriter(directory, routing, run_bytes, start=first_offset, **options)
    for batch in batches(log, sizes, first_offset):
        writer.add(batch)
    return writer.finish(first_offset + len(log))
