"""Our session store of bytes: rows by key, session end and session start, in segments by end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from statestore.formats import session_key
from statestore.kinds.session import SESSION
from statestore.stores.api import SessionBytesStore, Windowed
from statestore.stores.readers import SessionReader
from statestore.stores.segmented import SegmentedBytes


class SessionBytes(SegmentedBytes, SessionBytesStore):
    """A session store in one format.

    Results come segment by segment, in each by key bytes, then end, then start, as from Kafka Streams' RocksDB store.
    Sessions that ended before the retention are not shown, also while their segment is still there.
    """

    kind = SESSION

    def put(self, key: bytes, start: int, end: int, value: bytes | None) -> bool:
        """Write a session's value, None deletes; return False if it was dropped because it had expired."""
        return self.put_row(session_key.encode(key, start, end), end, value)

    def fetch_session(self, key: bytes, start: int, end: int, *, committed: bool = False) -> bytes | None:
        """Read one session's value."""
        return self.get_row(session_key.encode(key, start, end), end, committed=committed)

    def committed(self) -> SessionReader:
        """Where to read without what is not committed; reading migrates nothing."""
        return _CommittedSessions(self)

    def find_sessions(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        earliest_end: int,
        latest_start: int,
        *,
        latest_end: int = session_key.MAX_TIME,
        reverse: bool = False,
        committed: bool = False,
    ) -> Iterator[tuple[Windowed[bytes], bytes]]:
        """Sessions of a range of keys that end from `earliest_end` to `latest_end` and start at `latest_start` at most.

        All ends are inclusive; a key of None is an open end.
        """
        segments = self.opened
        earliest_end = max(earliest_end, segments.oldest_visible(committed=committed), 0)
        if key_from is not None and key_from == key_to:
            bounds: tuple[bytes | None, bytes | None] = self.kind.key_bounds(key_from, earliest_end, latest_start)
        else:
            bounds = self.kind.range_bounds(key_from, key_to)
        scans = [
            (segment.committed if committed else segment.rows).scan(*bounds, reverse=reverse)
            for segment in segments.between(earliest_end, latest_end, reverse=reverse)
        ]
        return _sessions(scans, key_from, key_to, earliest_end, latest_end, latest_start)


class _CommittedSessions:
    def __init__(self, store: SessionBytes) -> None:
        self.fetch_session = partial(store.fetch_session, committed=True)
        self.find_sessions = partial(store.find_sessions, committed=True)


def _sessions(
    scans: list[Iterator[tuple[bytes, bytes]]],
    key_from: bytes | None,
    key_to: bytes | None,
    earliest_end: int,
    latest_end: int,
    latest_start: int,
) -> Iterator[tuple[Windowed[bytes], bytes]]:
    for scan in scans:
        for row_key, value in scan:
            key, start, end = session_key.decode(row_key)
            if (
                earliest_end <= end <= latest_end
                and start <= latest_start
                and (key_from is None or key >= key_from)
                and (key_to is None or key <= key_to)
            ):
                yield Windowed(key, start, end), value
