"""Suppliers create the store of bytes for a builder. Their names are those of KIP-844.

A custom supplier is any object with a `name` and a `get()` that returns a new store (`api.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Generic, Protocol, TypeVar

from statestore.formats.value_format import SESSION_HEADERS, AnyFormat
from statestore.model import StoreFormat, check_name
from statestore.stores.api import KeyValueBytesStore, SessionBytesStore, WindowBytesStore
from statestore.stores.key_value import KeyValueBytes
from statestore.stores.session import SessionBytes
from statestore.stores.versioned import VersionedBytes
from statestore.stores.window import WindowBytes

S_co = TypeVar("S_co", covariant=True)


class StoreSupplier(Protocol[S_co]):
    """Creates stores of bytes with one name."""

    @property
    def name(self) -> str:
        """Name of the store."""

    def get(self) -> S_co:
        """Return a new store, not yet open."""


@dataclass(frozen=True)
class BuiltIn(Generic[S_co]):
    """A supplier of a built-in store."""

    name: str
    make: Callable[[], S_co]

    def get(self) -> S_co:
        """Return a new store, not yet open."""
        return self.make()


class DslStore(StrEnum):
    """Engine of stores whose definition names none: Kafka Streams' `default.dsl.store`, with KIP-844's value."""

    ROCKS_DB = "rocksDB"
    IN_MEMORY = "in_memory"
    TXN_ROCKS_DB = "txn_rocksDB"

    @property
    def persistent(self) -> bool:
        """Whether the stores are on disk."""
        return self is not DslStore.IN_MEMORY

    @property
    def transactional(self) -> bool:
        """Whether only a commit makes writes part of a store."""
        return self is DslStore.TXN_ROCKS_DB


def persistent_key_value_store(
    name: str,
    *,
    transactional: bool = False,
    store_format: AnyFormat = StoreFormat.PLAIN,
    persistent: bool = True,
) -> BuiltIn[KeyValueBytes]:
    """A plain key-value store in RocksDB."""
    engine = {"persistent": persistent, "transactional": transactional}
    return BuiltIn(check_name(name), partial(KeyValueBytes, name, store_format, **engine))


persistent_timestamped_key_value_store = partial(persistent_key_value_store, store_format=StoreFormat.TIMESTAMPED)
"""A timestamped key-value store in RocksDB (KIP-258)."""
persistent_timestamped_key_value_store_with_headers = partial(
    persistent_key_value_store, store_format=StoreFormat.HEADERS
)
"""A key-value store in RocksDB whose values have timestamps and headers (KIP-1271)."""
in_memory_key_value_store = partial(persistent_key_value_store, persistent=False)
"""A key-value store in memory, for values in any format."""


def persistent_window_store(
    name: str,
    retention_period: timedelta,
    window_size: timedelta,
    retain_duplicates: bool = False,
    *,
    transactional: bool = False,
    store_format: AnyFormat = StoreFormat.PLAIN,
    persistent: bool = True,
) -> BuiltIn[WindowBytes]:
    """A plain window store in RocksDB.

    Parameters
    ----------
    retention_period
        How long windows are kept: at least the length of a window plus its grace period.
    retain_duplicates
        Whether a put adds a value instead of replacing the previous one. If so, None is ignored.

    Raises
    ------
    ValueError
        If a duration is negative, or the retention is shorter than a window.
    """
    retention_ms = _milliseconds(retention_period, "retention_period")
    window_size_ms = _milliseconds(window_size, "window_size")
    if retention_ms < window_size_ms:
        raise ValueError(
            f"window store {name}: its retention_period of {retention_ms} ms is shorter than its window_size of "
            f"{window_size_ms} ms; expected at least as long"
        )
    engine = {"persistent": persistent, "transactional": transactional}
    make = partial(
        WindowBytes, name, store_format, retention_ms, window_size_ms, retain_duplicates=retain_duplicates, **engine
    )
    return BuiltIn(check_name(name), make)


persistent_timestamped_window_store = partial(persistent_window_store, store_format=StoreFormat.TIMESTAMPED)
"""A timestamped window store in RocksDB; see `persistent_window_store`."""
persistent_timestamped_window_store_with_headers = partial(persistent_window_store, store_format=StoreFormat.HEADERS)
"""A window store in RocksDB whose values have timestamps and headers (KIP-1271); see `persistent_window_store`."""
in_memory_window_store = partial(persistent_window_store, persistent=False)
"""A window store in memory; see `persistent_window_store`."""


def persistent_session_store(
    name: str,
    retention_period: timedelta,
    *,
    transactional: bool = False,
    store_format: AnyFormat = StoreFormat.PLAIN,
    persistent: bool = True,
) -> BuiltIn[SessionBytes]:
    """A plain session store in RocksDB.

    Parameters
    ----------
    retention_period
        How long sessions are kept: at least the inactivity gap plus the grace period.

    Raises
    ------
    ValueError
        If the retention period is negative.
    """
    retention_ms = _milliseconds(retention_period, "retention_period")
    engine = {"persistent": persistent, "transactional": transactional}
    return BuiltIn(check_name(name), partial(SessionBytes, name, store_format, retention_ms, **engine))


persistent_timestamped_session_store = partial(persistent_session_store, store_format=StoreFormat.TIMESTAMPED)
"""A timestamped session store in RocksDB (KIP-258; Kafka Streams has none); see `persistent_session_store`."""
persistent_session_store_with_headers = partial(persistent_session_store, store_format=SESSION_HEADERS)
"""A session store in RocksDB whose values have headers (KIP-1271); see `persistent_session_store`."""
in_memory_session_store = partial(persistent_session_store, persistent=False)
"""A session store in memory; see `persistent_session_store`."""


def persistent_versioned_key_value_store(
    name: str,
    history_retention: timedelta,
    segment_interval: timedelta | None = None,
    *,
    transactional: bool = False,
    persistent: bool = True,
) -> BuiltIn[VersionedBytes]:
    """A versioned key-value store in RocksDB (KIP-889).

    Parameters
    ----------
    history_retention
        How long replaced values are kept, and how late a put can be.
    segment_interval
        Length of a segment. The default is that of Kafka Streams.

    Raises
    ------
    ValueError
        If the retention is negative, or the interval shorter than 1 ms.
    """
    retention_ms = _milliseconds(history_retention, "history_retention")
    interval_ms = None if segment_interval is None else _milliseconds(segment_interval, "segment_interval")
    if interval_ms == 0:
        raise ValueError(f"segment_interval is at least 1 ms, found {segment_interval}")
    engine = {"persistent": persistent, "transactional": transactional}
    return BuiltIn(
        check_name(name), partial(VersionedBytes, name, StoreFormat.PLAIN, retention_ms, interval_ms, **engine)
    )


in_memory_versioned_key_value_store = partial(persistent_versioned_key_value_store, persistent=False)
"""A versioned store in memory (Kafka Streams has none); see `persistent_versioned_key_value_store`."""


def _milliseconds(duration: timedelta, what: str) -> int:
    if not isinstance(duration, timedelta):
        raise ValueError(f"{what} is a datetime.timedelta, found {duration!r}")
    result = duration // timedelta(milliseconds=1)
    if result < 0:
        raise ValueError(f"{what} cannot be negative, found {duration}")
    return result


#: Suppliers of any of our stores, and of users' stores.
KeyValueSupplier = StoreSupplier[KeyValueBytesStore]
VersionedSupplier = StoreSupplier[VersionedBytes]
WindowSupplier = StoreSupplier[WindowBytesStore]
SessionSupplier = StoreSupplier[SessionBytesStore]
