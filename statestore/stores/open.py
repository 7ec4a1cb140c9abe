"""Opening a store from its definition: the composition that a definition's kind, format and engine name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from statestore.definitions.store import StoreDefinition
from statestore.model import TaskId
from statestore.stores.api import StoreContext
from statestore.stores.builders import StoreBuilder
from statestore.stores.serdes import BYTES, Serde
from statestore.stores.storage import storage_of
from statestore.stores.supplied import Supplier
from statestore.stores.suppliers import BuiltIn
from statestore.stores.typed import AnyStore


def supplier_of(definition: StoreDefinition) -> BuiltIn[Any] | Supplier:
    """Return the supplier of the store that a definition describes.

    Raises
    ------
    DefinitionError
        If it is one of the user's own that cannot be used.
    """
    if definition.supplier is not None:
        return Supplier(definition, storage_of(definition).methods)
    return BuiltIn(definition.name, partial(storage_of(definition).make, definition))


def build_store(
    definition: StoreDefinition, key_serde: Serde[Any] = BYTES, value_serde: Serde[Any] = BYTES
) -> AnyStore:
    """Return the store that a definition describes, not yet open; of bytes unless serdes are given."""
    typed = storage_of(definition).typed
    return StoreBuilder(typed, supplier_of(definition), definition.values, key_serde, value_serde).build()


@contextmanager
def opened(definition: StoreDefinition, context: StoreContext) -> Iterator[AnyStore]:
    """Open a store to read it.

    Raises
    ------
    StoreCorruptedError
        If it cannot be opened or read.
    """
    store = build_store(definition)
    store.init(context)
    try:
        yield store
    finally:
        store.close(clean=False)


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
