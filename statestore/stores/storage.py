"""The classes that implement the stores of a kind: the other half of a `StoreKind`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError
from statestore.formats import session_key, window_key
from statestore.reference import load
from statestore.stores.built_in import BuiltInBytes
from statestore.stores.key_value import KeyValueBytes
from statestore.stores.session import SessionBytes
from statestore.stores.suppliers import DslStore
from statestore.stores.table import Row
from statestore.stores.typed import KeyValueStore, SessionStore, TypedStore, VersionedKeyValueStore, WindowStore
from statestore.stores.versioned import VersionedBytes
from statestore.stores.window import WindowBytes


class Storage(NamedTuple):
    """Stores of one kind.

    Attributes
    ----------
    typed
        The store that a processor uses. It wraps a store of bytes.
    inner
        The built-in store of bytes. It is created with its name and format. Keyword arguments are the required settings
        of the kind's definitions, `retain_duplicates` if the kind allows it, and the settings of the engine.
    methods
        Methods that a supplier's store of bytes must have.
    rows
        Returns all rows of a supplier's store of bytes, in any order: row keys and stored values.
    """

    typed: type[TypedStore[Any, Any, Any]]
    inner: Callable[..., BuiltInBytes[Any]]
    methods: tuple[str, ...]
    rows: Callable[[Any], Iterator[Row]]

    def make(self, store: StoreDefinition) -> BuiltInBytes[Any]:
        """Return the built-in store of bytes for a definition, not yet open."""
        kind, engine = store.store_kind, DslStore(store.engine)
        settings = {name: getattr(store, name) for name in kind.settings}
        return self.inner(
            store.name, store.values, **settings, persistent=engine.persistent, transactional=engine.transactional
        )


def storage_of(definition: StoreDefinition) -> Storage:
    """Return the storage of this definition's kind.

    Raises
    ------
    DefinitionError
        If it is a custom kind that cannot be loaded.
    """
    kind = definition.store_kind
    found = load(kind.storage, f"storage of kind {definition.kind}", "a Storage")
    if not isinstance(found, Storage):
        raise DefinitionError(f"storage {kind.storage} of kind {definition.kind} is {found!r:.120}, expected a Storage")
    return found


def _windows(store: Any) -> Iterator[Row]:
    for key, start, value in store.fetch_range(None, None, 0, window_key.MAX_TIME):
        yield window_key.encode(key, start), value


def _sessions(store: Any) -> Iterator[Row]:
    for session, value in store.find_sessions(None, None, 0, session_key.MAX_TIME):
        yield session_key.encode(session.key, session.start, session.end), value


KEY_VALUE = Storage(KeyValueStore, KeyValueBytes, ("get", "put", "scan"), lambda store: store.scan(None, None))
WINDOW = Storage(WindowStore, WindowBytes, ("put", "fetch", "fetch_range", "window_size_ms"), _windows)
VERSIONED = Storage(VersionedKeyValueStore, VersionedBytes, ("put_version",), lambda store: store.scan(None, None))
SESSION = Storage(SessionStore, SessionBytes, ("put", "fetch_session", "find_sessions"), _sessions)
