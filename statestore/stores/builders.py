"""Builders create a typed store around a supplier's store, and add the abilities that a custom store lacks."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from statestore.formats.headers_value import AggregationWithHeaders, ValueTimestampHeaders
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.formats.value_format import SESSION_HEADERS, AnyFormat, ValueFormat, value_format
from statestore.model import StoreFormat, check_name
from statestore.stores.adapters import LayoutProxy, LegacyCheckpoint, MarkedWhileOpen
from statestore.stores.api import BytesStore, HeadersBytesStore, TimestampedBytesStore
from statestore.stores.built_in import BuiltInBytes
from statestore.stores.serdes import Serde
from statestore.stores.store_check import check_store
from statestore.stores.supplied import SuppliedStore, Supplier
from statestore.stores.suppliers import KeyValueSupplier, SessionSupplier, VersionedSupplier, WindowSupplier
from statestore.stores.typed import KeyValueStore, SessionStore, TypedStore, VersionedKeyValueStore, WindowStore

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=TypedStore[Any, Any, Any])


class StoreBuilder(Generic[S]):
    """Builds stores with one name and one set of types.

    Attributes
    ----------
    logged
        Whether changes are logged to a changelog topic. The default is True.
    """

    def __init__(
        self, kind: type[S], supplier: Any, store_format: AnyFormat, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> None:
        self.name = check_name(supplier.name)
        self.logged = True
        self._kind = kind
        self._supplier = supplier
        self._layout = value_format(store_format)
        self._serdes = key_serde, value_serde

    def with_logging_disabled(self) -> StoreBuilder[S]:
        """Disable the changelog. A lost store cannot be rebuilt."""
        self.logged = False
        return self

    def build(self) -> S:
        """Return a new store, not yet open.

        Raises
        ------
        DefinitionError
            If the abilities of the supplier's store are inconsistent.
        """
        inner = self._supplier.get()
        check_store(inner)
        tells_last_use = inner.transactional or isinstance(inner, BuiltInBytes)
        if (known := _known_layout(inner, self._layout)) is not self._layout:
            inner = LayoutProxy(inner, self._layout, known)
        if inner.persistent and not inner.manages_offsets:
            inner = LegacyCheckpoint(inner)
        elif inner.persistent and not tells_last_use:
            inner = MarkedWhileOpen(inner)
        if isinstance(self._supplier, Supplier):
            inner = SuppliedStore(inner)
        return self._kind(inner, self._layout, *self._serdes)


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


def timestamped_key_value_store_with_headers_builder(
    supplier: KeyValueSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[KeyValueStore[K, ValueTimestampHeaders[V]]]:
    """Build key-value stores whose values carry timestamps and headers (KIP-1271)."""
    return StoreBuilder(KeyValueStore, supplier, StoreFormat.HEADERS, key_serde, value_serde)


def timestamped_window_store_with_headers_builder(
    supplier: WindowSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[WindowStore[K, ValueTimestampHeaders[V]]]:
    """Build window stores whose values carry timestamps and headers (KIP-1271)."""
    return StoreBuilder(WindowStore, supplier, StoreFormat.HEADERS, key_serde, value_serde)


def session_store_with_headers_builder(
    supplier: SessionSupplier, key_serde: Serde[K], value_serde: Serde[V]
) -> StoreBuilder[SessionStore[K, AggregationWithHeaders[V]]]:
    """Build session stores whose values carry headers (KIP-1271)."""
    return StoreBuilder(SessionStore, supplier, SESSION_HEADERS, key_serde, value_serde)


def _known_layout(store: BytesStore, wanted: ValueFormat) -> ValueFormat:
    """Return the layout that a store is given its values in: the wanted one, or an older one that it knows."""
    if not store.persistent or not (wanted.timestamped or wanted.keeps_headers):
        return wanted
    with_headers = store.format is StoreFormat.HEADERS or isinstance(store, HeadersBytesStore)
    if with_headers and wanted.keeps_headers:
        return wanted
    said = store.format is not None and value_format(store.format).timestamped
    timestamped = said or isinstance(store, TimestampedBytesStore)
    if timestamped and wanted.timestamped:
        return value_format(StoreFormat.TIMESTAMPED) if wanted.keeps_headers else wanted
    return value_format(StoreFormat.PLAIN)
