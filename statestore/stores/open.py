"""Opening a store from its definition: the composition that a definition's kind, format and engine name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statestore.definitions.store import StoreDefinition
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreFormat, TaskId
from statestore.stores import builders, suppliers
from statestore.stores.api import StoreContext
from statestore.stores.serdes import BYTES, Serde
from statestore.stores.supplied import Supplier
from statestore.stores.suppliers import BuiltIn, DslStore
from statestore.stores.typed import AnyStore, KeyValueStore

#: A key-value store of bytes in either format; the definition says which.
AnyKeyValueStore = KeyValueStore[bytes, bytes] | KeyValueStore[bytes, ValueAndTimestamp[bytes]]


def supplier_of(definition: StoreDefinition) -> BuiltIn[Any] | Supplier:
    """Return the supplier of the store that a definition describes.

    Raises
    ------
    DefinitionError
        If it is one of the user's own that cannot be used.
    """
    if definition.supplier is not None:
        return Supplier(definition)
    name, engine, kind = definition.name, DslStore(definition.engine), definition.format
    persistent, transactional = engine.persistent, engine.transactional
    if not definition.segmented:
        return suppliers.key_value_supplier(name, kind, persistent, transactional)
    retention_ms = definition.retention_ms or 0
    if definition.kind == "session":
        return suppliers.session_supplier(name, kind, retention_ms, persistent, transactional)
    size_ms, duplicates = definition.window_size_ms or 0, definition.retain_duplicates
    return suppliers.window_supplier(name, kind, retention_ms, size_ms, duplicates, persistent, transactional)


def build_store(
    definition: StoreDefinition, key_serde: Serde[Any] = BYTES, value_serde: Serde[Any] = BYTES
) -> AnyStore:
    """Return the store that a definition describes, not yet open; of bytes unless serdes are given."""
    build = {
        ("key-value", StoreFormat.PLAIN): builders.key_value_store_builder,
        ("key-value", StoreFormat.TIMESTAMPED): builders.timestamped_key_value_store_builder,
        ("window", StoreFormat.PLAIN): builders.window_store_builder,
        ("window", StoreFormat.TIMESTAMPED): builders.timestamped_window_store_builder,
        ("session", StoreFormat.PLAIN): builders.session_store_builder,
        ("session", StoreFormat.TIMESTAMPED): builders.timestamped_session_store_builder,
    }[definition.kind, definition.format]
    store: AnyStore = build(supplier_of(definition), key_serde, value_serde).build()  # type: ignore[operator]
    return store


def open_key_value_store(definition: StoreDefinition, directory: Path, *, read_only: bool = False) -> Any:
    """Open a key-value store in a directory of its own, outside of a task: offsets in it are not checked.

    Parameters
    ----------
    directory
        The store's database; made if it is not there and not only read.

    Raises
    ------
    StoreCorruptedError
        If RocksDB cannot open it.
    UnknownFormatError
        If it was written in a format that this definition does not have.
    """
    context = StoreContext(
        application="none",
        task=TaskId(0, 0),
        task_directory=directory.parent,
        own_directory=directory.parent / f".{directory.name}.own",
        changelogs=None,
        exactly_once=False,
        directories={definition.name: directory},
        read_only=read_only,
    )
    store = build_store(definition)
    store.init(context)
    return store
