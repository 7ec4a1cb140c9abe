"""Builders: a typed store over what a supplier makes, with everything a user's own store may lack put around it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.formats.value_format import value_format
from statestore.model import StoreFormat, check_name
from statestore.stores.adapters import LegacyCheckpoint, TimestampProxy
from statestore.stores.api import BytesStore, TimestampedBytesStore
from statestore.stores.serdes import Serde
from statestore.stores.store_check import check_store
from statestore.stores.supplied import SuppliedStore, Supplier
from statestore.stores.suppliers import KeyValueSupplier, SessionSupplier, VersionedSupplier, WindowSupplier
from statestore.stores.typed import KeyValueStore, SessionStore, TypedStore, VersionedKeyValueStore, WindowStore

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=TypedStore[Any, Any, Any])


class StoreBuilder(Generic[S]):
    """Makes stores of one name and one set of types.

    Attributes
    ----------
    logged
        Whether changes go to a changelog topic; on unless switched off.
    """

    def __init__(
        self, kind: type[S], supplier: Any, store_format: StoreFormat, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> None:
        self.name = check_name(supplier.name)
        self.logged = True
        self._kind = kind
        self._supplier = supplier
        self._format = store_format
        self._serdes = key_serde, value_serde

    def with_logging_disabled(self) -> StoreBuilder[S]:
        """Have no changelog: a store that is lost is gone."""
        self.logged = False
        return self

    def build(self) -> S:
        """Return a new store, not yet open.

        Raises
        ------
        DefinitionError
            If the supplier's store contradicts itself.
        """
        inner = self._supplier.get()
        check_store(inner)
        if value_format(self._format).timestamped and not _knows_timestamps(inner):
            inner = TimestampProxy(inner)
        if inner.persistent and not inner.manages_offsets:
            inner = LegacyCheckpoint(inner)
        if isinstance(self._supplier, Supplier):
            inner = SuppliedStore(inner)
        return self._kind(inner, self._format, *self._serdes)


def key_value_store_builder(
    supplier: KeyValueSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[KeyValueStore[K, V]]:
    """Build key-value stores with plain values."""
    return StoreBuilder(KeyValueStore, supplier, StoreFormat.PLAIN, key_serde, value_serde)


def timestamped_key_value_store_builder(
    supplier: KeyValueSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[KeyValueStore[K, ValueAndTimestamp[V]]]:
    """Build key-value stores whose values carry timestamps."""
    return StoreBuilder(KeyValueStore, supplier, StoreFormat.TIMESTAMPED, key_serde, value_serde)


def window_store_builder(
    supplier: WindowSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[WindowStore[K, V]]:
    """Build window stores with plain values."""
    return StoreBuilder(WindowStore, supplier, StoreFormat.PLAIN, key_serde, value_serde)


def timestamped_window_store_builder(
    supplier: WindowSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[WindowStore[K, ValueAndTimestamp[V]]]:
    """Build window stores whose values carry timestamps."""
    return StoreBuilder(WindowStore, supplier, StoreFormat.TIMESTAMPED, key_serde, value_serde)


def session_store_builder(
    supplier: SessionSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[SessionStore[K, V]]:
    """Build session stores with plain values."""
    return StoreBuilder(SessionStore, supplier, StoreFormat.PLAIN, key_serde, value_serde)


def timestamped_session_store_builder(
    supplier: SessionSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[SessionStore[K, ValueAndTimestamp[V]]]:
    """Build session stores whose values carry timestamps (KIP-258)."""
    return StoreBuilder(SessionStore, supplier, StoreFormat.TIMESTAMPED, key_serde, value_serde)


def versioned_key_value_store_builder(
    supplier: VersionedSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[VersionedKeyValueStore[K, V]]:
    """Build versioned key-value stores (KIP-889)."""
    return StoreBuilder(VersionedKeyValueStore, supplier, StoreFormat.PLAIN, key_serde, value_serde)


def _knows_timestamps(store: BytesStore) -> bool:
    said = store.format is not None and value_format(store.format).timestamped
    told = said or isinstance(store, TimestampedBytesStore)
    return not store.persistent or told
