"""Read-only stores over an open one, with isolation and with or without timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statestore.errors import InvalidStateError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.stores.adapters import TimestampProxy
from statestore.stores.api import Windowed
from statestore.stores.key_value import KeyValueBytes
from statestore.stores.readers import (
    IsolationLevel,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
)
from statestore.stores.session import SessionBytes
from statestore.stores.typed import AnyStore, KeyValueStore, WindowStore
from statestore.stores.window import WindowBytes

ReadOnlyStore = ReadOnlyKeyValueStore[Any, Any] | ReadOnlyWindowStore[Any, Any] | ReadOnlySessionStore[Any, Any]


def read_only(
    store: AnyStore,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    timestamps: bool = True,
) -> ReadOnlyStore:
    """Return a store of the same kind that can only be read.

    Parameters
    ----------
    isolation
        With `READ_COMMITTED` uncommitted changes do not show.
    timestamps
        False: a timestamped store is read as a plain one (KIP-258).

    Raises
    ------
    InvalidStateError
        If it is a transactional store of your own, which cannot be read as committed through this interface.
    """
    committed = isolation is IsolationLevel.READ_COMMITTED and store.transactional
    decode = store.decode if timestamps else _without_timestamp(store)
    types = (store.key_bytes, store.key_of, decode)
    reader: Any = store.inner
    if committed:
        proxied = isinstance(reader, TimestampProxy)
        reader = _committed(store.name, reader.wrapped if proxied else reader)
        reader = TimestampProxy(reader) if proxied else reader
    if isinstance(store, KeyValueStore):
        return ReadOnlyKeyValueStore(reader, *types)
    if isinstance(store, WindowStore):
        return ReadOnlyWindowStore(reader, *types)
    return ReadOnlySessionStore(reader, *types)


def _committed(name: str, inner: Any) -> Any:
    if isinstance(inner, KeyValueBytes):
        return inner.committed()
    if isinstance(inner, WindowBytes):
        return _CommittedWindow(inner)
    if isinstance(inner, SessionBytes):
        return _CommittedSession(inner)
    raise InvalidStateError(f"store {name} is not one of ours: its committed rows cannot be told apart")


class _CommittedWindow:
    def __init__(self, store: WindowBytes) -> None:
        self._store = store
        self.window_size_ms = store.window_size_ms

    def fetch(self, key: bytes, window_start: int) -> bytes | None:
        return self._store.fetch(key, window_start, committed=True)

    def fetch_range(
        self, key_from: bytes | None, key_to: bytes | None, time_from: int, time_to: int, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, int, bytes]]:
        return self._store.fetch_range(key_from, key_to, time_from, time_to, reverse=reverse, committed=True)


class _CommittedSession:
    def __init__(self, store: SessionBytes) -> None:
        self._store = store

    def fetch_session(self, key: bytes, start: int, end: int) -> bytes | None:
        return self._store.fetch_session(key, start, end, committed=True)

    def find_sessions(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        earliest_end: int,
        latest_start: int,
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[Windowed[bytes], bytes]]:
        return self._store.find_sessions(key_from, key_to, earliest_end, latest_start, reverse=reverse, committed=True)


def _without_timestamp(store: AnyStore) -> Any:
    def decode(stored: bytes) -> Any:
        value = store.decode(stored)
        return value.value if isinstance(value, ValueAndTimestamp) else value

    return decode
