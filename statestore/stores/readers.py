"""Typed reads of stores, for a store's owner and for others.

A read-only store returns all rows that its owner wrote (read uncommitted, KIP-844's default), or only committed rows. A
read-only view of a timestamped store can return plain values (KIP-258).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from statestore.errors import StateStoreError
from statestore.formats.key_bounds import after_prefix
from statestore.formats.window_key import MAX_TIME
from statestore.stores.api import Windowed
from statestore.stores.table import Row
from statestore.stores.watched import Watched

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class IsolationLevel(StrEnum):
    """Which rows a read-only store returns."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class KeyValueReader(Protocol):
    """Source of the rows of a read-only key-value store."""

    def get(self, key: bytes) -> bytes | None:
        """Read a value."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many values."""

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop`."""


class WindowReader(Protocol):
    """Source of the rows of a read-only window store."""

    window_size_ms: int

    def fetch(self, key: bytes, window_start: int) -> bytes | None:
        """Read one window's value."""

    def fetch_range(
        self, key_from: bytes | None, key_to: bytes | None, time_from: int, time_to: int, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, int, bytes]]:
        """Windows of a range of keys and times."""


class SessionReader(Protocol):
    """Source of the rows of a read-only session store."""

    def fetch_session(self, key: bytes, start: int, end: int) -> bytes | None:
        """Read one session's value."""

    def find_sessions(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        earliest_end: int,
        latest_start: int,
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[Windowed[bytes], bytes]]:
        """Sessions of a range of keys with `end >= earliest_end` and `start <= latest_start`."""


class _ReadOnly(Watched, Generic[K, V, R]):
    """Where a store reads, and how it turns bytes into types."""

    def __init__(
        self, rows: R, key: Callable[[K], bytes], key_of: Callable[[bytes], K], decode: Callable[[bytes], V]
    ) -> None:
        self._rows = rows
        self.key_bytes = key
        self.key_of = key_of
        self.decode = decode


class ReadOnlyKeyValueStore(_ReadOnly[K, V, KeyValueReader]):
    """A key-value store that can only be read."""

    def get(self, key: K) -> V | None:
        """Read the value of a key. The owner of the store also reads its own uncommitted changes."""
        raw = self.key_bytes(key)
        try:
            stored = self._rows.get(raw)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        return None if stored is None else self.decode(stored)

    def get_many(self, keys: Sequence[K]) -> list[V | None]:
        """Read the values of many keys, in their order. This is faster than one by one."""
        decode = self.decode
        raw = [self.key_bytes(key) for key in keys]
        try:
            found = self._rows.get_many(raw)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        return [None if stored is None else decode(stored) for stored in found]

    def range(self, start: K | None = None, stop: K | None = None) -> Iterator[tuple[K, V]]:
        """Rows with `start <= key <= stop` in the order of the keys' bytes, both ends inclusive; None is an open end.

        The rows are those at the time of the call; later writes are not included.
        """
        return self._typed(self._watch(self._rows.scan, *self._bounds(start, stop)))

    def reverse_range(self, start: K | None = None, stop: K | None = None) -> Iterator[tuple[K, V]]:
        """Like `range`, from the largest key to the smallest."""
        return self._typed(self._watch(self._rows.scan, *self._bounds(start, stop), reverse=True))

    def all(self) -> Iterator[tuple[K, V]]:
        """All rows in key order."""
        return self.range()

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """All rows in reverse key order."""
        return self.reverse_range()

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, V]]:
        """Rows whose key's bytes start with the prefix, in key order."""
        if not isinstance(prefix, bytes):
            raise TypeError(f"a prefix is bytes, found {type(prefix).__name__}: encode it first")
        return self._typed(self._watch(self._rows.scan, prefix, after_prefix(prefix)))

    @property
    def is_empty(self) -> bool:
        """True if there are no rows."""
        return next(self._watch(self._rows.scan, None, None), None) is None

    def _bounds(self, start: K | None, stop: K | None) -> tuple[bytes | None, bytes | None]:
        return None if start is None else self.key_bytes(start), None if stop is None else self.key_bytes(stop) + b"\0"

    def _typed(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[K, V]]:
        key_of, decode = self.key_of, self.decode
        return ((key_of(key), decode(stored)) for key, stored in rows)


class ReadOnlyWindowStore(_ReadOnly[K, V, WindowReader]):
    """A window store that can only be read. Ranges are ordered by segment, then by key bytes, then by time."""

    def fetch(self, key: K, window_start: int) -> V | None:
        """Read the value of one window."""
        raw = self.key_bytes(key)
        try:
            stored = self._rows.fetch(raw, window_start)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        return None if stored is None else self.decode(stored)

    def fetch_between(self, key: K, time_from: int, time_to: int, *, backward: bool = False) -> Iterator[tuple[int, V]]:
        """(window start, value) of a key's windows with `time_from <= window start <= time_to`, in order of time."""
        raw = self.key_bytes(key)
        rows = self._watch(self._rows.fetch_range, raw, raw, time_from, time_to, reverse=backward)
        decode = self.decode
        return ((start, decode(stored)) for _, start, stored in rows)

    def fetch_range(
        self, key_from: K | None, key_to: K | None, time_from: int, time_to: int, *, backward: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Windows with `key_from <= key <= key_to` and `time_from <= window start <= time_to`; None is an open end."""
        first, last = (None if key is None else self.key_bytes(key) for key in (key_from, key_to))
        rows = self._watch(self._rows.fetch_range, first, last, time_from, time_to, reverse=backward)
        key_of, decode, size = self.key_of, self.decode, self._rows.window_size_ms
        return (
            (Windowed(key_of(key), start, min(start + size, MAX_TIME)), decode(stored)) for key, start, stored in rows
        )

    def fetch_all(self, time_from: int, time_to: int, *, backward: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Windows of all keys with `time_from <= window start <= time_to`."""
        return self.fetch_range(None, None, time_from, time_to, backward=backward)

    def all(self, *, backward: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """All windows."""
        return self.fetch_range(None, None, 0, MAX_TIME, backward=backward)

    @property
    def is_empty(self) -> bool:
        """True if there are no rows within the retention."""
        return next(self._watch(self._rows.fetch_range, None, None, 0, MAX_TIME), None) is None


class VersionedReader(Protocol):
    """Source of the rows of a read-only versioned store."""

    def get_version(self, key: bytes, as_of: int | None = None) -> tuple[bytes | None, int, int | None] | None:
        """Value of a key now or at a time (ms), with the times between which it is valid."""

    def history(
        self, key: bytes, time_from: int, time_to: int, *, descending: bool = True
    ) -> Sequence[tuple[bytes | None, int, int | None]]:
        """Values of a key within bounds."""

    def versions(self) -> Iterator[tuple[bytes, Sequence[tuple[bytes | None, int, int | None]]]]:
        """All stored values of each key."""


class VersionedRecord(NamedTuple, Generic[V]):
    """A value, valid from `timestamp` (ms) until before `valid_to`; None: it is the latest (KIP-889, KIP-968)."""

    value: V
    timestamp: int
    valid_to: int | None = None


class ReadOnlyVersionedStore(_ReadOnly[K, V, VersionedReader]):
    """A versioned store that can only be read (KIP-889)."""

    def get(self, key: K, as_of_timestamp: int | None = None) -> VersionedRecord[V] | None:
        """Return the value that a key has, or had at a time (ms).

        None if it had none, or if the time is before the retained history. Only the latest value is kept longer than
        the history.
        """
        raw = self.key_bytes(key)
        try:
            found = self._rows.get_version(raw, as_of_timestamp)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        return None if found is None else self._record(found)

    def history(
        self, key: K, time_from: int | None = None, time_to: int | None = None, *, descending: bool = True
    ) -> list[VersionedRecord[V]]:
        """Values that a key had at some time within bounds (ms, both inclusive), the newest first (KIP-968).

        Deletes are not included. They show as a `valid_to` at which no other value begins.
        """
        raw = self.key_bytes(key)
        first, last = 0 if time_from is None else time_from, MAX_TIME if time_to is None else time_to
        try:
            found = self._rows.history(raw, first, last, descending=descending)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        return [self._record(version) for version in found]

    def all(self) -> Iterator[tuple[K, VersionedRecord[V]]]:
        """All stored values, in the order of the keys' bytes; for each key, the oldest first."""
        for raw, versions in self._watch(self._rows.versions):
            key = self.key_of(raw)
            for version in versions:
                if version[0] is not None:
                    yield key, self._record(version)

    @property
    def is_empty(self) -> bool:
        """True if nothing is stored."""
        return next(self._watch(self._rows.versions), None) is None

    def _record(self, found: tuple[bytes | None, int, int | None]) -> VersionedRecord[V]:
        value, valid_from, valid_to = found
        assert value is not None, "a delete is no value"
        return VersionedRecord(self.decode(value), valid_from, valid_to)


class ReadOnlySessionStore(_ReadOnly[K, V, SessionReader]):
    """A session store that can only be read. Ranges are ordered by segment, then by key bytes, end, and start."""

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """Read the value of one session."""
        raw = self.key_bytes(key)
        try:
            stored = self._rows.fetch_session(raw, start, end)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        return None if stored is None else self.decode(stored)

    def find_sessions(
        self, key: K, earliest_end: int, latest_start: int, *, backward: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Sessions of a key with `end >= earliest_end` and `start <= latest_start`: they overlap this time range."""
        raw = self.key_bytes(key)  # where None is an error, and no open end
        return self._typed(
            self._watch(self._rows.find_sessions, raw, raw, earliest_end, latest_start, reverse=backward)
        )

    def find_sessions_range(
        self, key_from: K | None, key_to: K | None, earliest_end: int, latest_start: int, *, backward: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Like `find_sessions`, for `key_from <= key <= key_to`; None is an open end."""
        first, last = (None if key is None else self.key_bytes(key) for key in (key_from, key_to))
        return self._typed(
            self._watch(self._rows.find_sessions, first, last, earliest_end, latest_start, reverse=backward)
        )

    def _typed(self, rows: Iterator[tuple[Windowed[bytes], bytes]]) -> Iterator[tuple[Windowed[K], V]]:
        key_of, decode = self.key_of, self.decode
        return ((Windowed(key_of(found.key), found.start, found.end), decode(stored)) for found, stored in rows)

    def fetch(self, key: K, *, backward: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """All sessions of a key."""
        return self.find_sessions(key, 0, MAX_TIME, backward=backward)

    def fetch_range(
        self, key_from: K | None, key_to: K | None, *, backward: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """All sessions of a range of keys; None is an open end."""
        return self.find_sessions_range(key_from, key_to, 0, MAX_TIME, backward=backward)

    def all(self, *, backward: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """All sessions."""
        return self.fetch_range(None, None, backward=backward)

    @property
    def is_empty(self) -> bool:
        """True if there are no rows within the retention."""
        return next(self._watch(self._rows.find_sessions, None, None, 0, MAX_TIME), None) is None
