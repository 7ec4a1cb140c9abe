"""Read-only stores over an open store, with an isolation level, and with or without timestamps and headers."""

from __future__ import annotations

from typing import Any

from statestore.errors import InvalidStateError
from statestore.formats.headers_value import AggregationWithHeaders, ValueTimestampHeaders
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.stores.adapters import LayoutProxy
from statestore.stores.built_in import BuiltInBytes
from statestore.stores.readers import (
    IsolationLevel,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedStore,
    ReadOnlyWindowStore,
)
from statestore.stores.typed import AnyStore, KeyValueStore, VersionedKeyValueStore, WindowStore

ReadOnlyStore = (
    ReadOnlyKeyValueStore[Any, Any]
    | ReadOnlyWindowStore[Any, Any]
    | ReadOnlySessionStore[Any, Any]
    | ReadOnlyVersionedStore[Any, Any]
)


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
        With `READ_COMMITTED`, uncommitted changes are not returned.
    timestamps
        False: return plain values of a store with timestamps or headers (KIP-258, KIP-1271).

    Raises
    ------
    InvalidStateError
        If it is a custom transactional store, whose committed rows cannot be read through this interface.
    """
    committed = isolation is IsolationLevel.READ_COMMITTED and store.transactional
    decode = store.decode if timestamps else _plain(store)
    types = (store.key_bytes, store.key_of, decode)
    reader: Any = store.inner
    if committed:
        proxy = reader if isinstance(reader, LayoutProxy) else None
        reader = _committed(store.name, reader if proxy is None else proxy.wrapped)
        reader = reader if proxy is None else proxy.around(reader)
    if isinstance(store, KeyValueStore):
        return ReadOnlyKeyValueStore(reader, *types)
    if isinstance(store, VersionedKeyValueStore):
        return ReadOnlyVersionedStore(reader, *types)
    if isinstance(store, WindowStore):
        return ReadOnlyWindowStore(reader, *types)
    return ReadOnlySessionStore(reader, *types)


def _committed(name: str, inner: Any) -> Any:
    if isinstance(inner, BuiltInBytes):
        return inner.committed()
    raise InvalidStateError(f"store {name} is not a built-in store: its committed rows cannot be told apart")


def _plain(store: AnyStore) -> Any:
    def decode(stored: bytes) -> Any:
        value = store.decode(stored)
        if isinstance(value, AggregationWithHeaders):
            return value.aggregation
        return value.value if isinstance(value, ValueAndTimestamp | ValueTimestampHeaders) else value

    return decode
