"""Stores of suppliers that a definition names: a user's own store, run by the jobs (KIP-258, KIP-844, KIP-1035).

A definition names a function that is called with it and returns a supplier. What the supplier's store lacks is put
around it (`builders.py`). Nothing is known of its files, so every job goes through its methods: it is rebuilt by a
replay of its changelog, and verified by its rows. All that it keeps lies in `StoreContext.directory_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from statestore.definitions.store import StoreDefinition
from statestore.errors import DefinitionError, StateStoreError, StoreCorruptedError
from statestore.reference import load
from statestore.stores.adapters import Around
from statestore.stores.api import StoreContext

#: What a store of any kind must have.
_ANY = ("persistent", "transactional", "manages_offsets", "is_open", "init", "close", "commit", "restore")
_EXPECTED = "a function that is called with the store's definition and returns a supplier"


class SuppliedStore(Around):
    """A supplier's store as the jobs expect one: what it raises is damage of it, unless it is the machine's fault.

    So a record of the input is never blamed for it, and a job goes on with its other stores.
    """

    def __init__(self, wrapped: Any) -> None:
        super().__init__(wrapped)
        self._opened = False

    def init(self, context: StoreContext) -> None:
        """Open the store."""
        context.about_to_open(self.wrapped.name)
        try:
            with self._as_damage():
                self.wrapped.init(context)
        except BaseException:
            with suppress(Exception):
                self.wrapped.close(clean=False)
            raise
        self._opened = True

    def close(self, *, clean: bool = True) -> None:
        """Close the store, if it was opened."""
        opened, self._opened = self._opened, False
        if opened:
            with self._as_damage():
                self.wrapped.close(clean=clean)

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if not callable(found):
            return found

        def guarded(*arguments: Any, **named: Any) -> Any:
            with self._as_damage():
                result = found(*arguments, **named)
            return self._guarded_rows(result) if isinstance(result, Iterator) else result

        self.__dict__[name] = guarded  # it is looked up here the next time
        return guarded

    def _guarded_rows(self, rows: Iterator[Any]) -> Iterator[Any]:
        with self._as_damage():
            yield from rows

    @contextmanager
    def _as_damage(self) -> Iterator[None]:
        try:
            yield
        except (StateStoreError, OSError, MemoryError):
            raise
        except Exception as error:  # the user's own code may raise anything
            raise StoreCorruptedError(
                f"store {self.wrapped.name} of its supplier failed: {type(error).__name__}: {error}; restore the store"
            ) from error


class Supplier:
    """The supplier that a definition names.

    Parameters
    ----------
    methods
        What its stores must have besides what any store has.

    Raises
    ------
    DefinitionError
        If it cannot be loaded, or is none.
    """

    def __init__(self, definition: StoreDefinition, methods: Sequence[str]) -> None:
        assert definition.supplier is not None
        self._methods = methods
        self.name = definition.name
        self._definition = definition
        make: Callable[[StoreDefinition], Any] = load(definition.supplier, "supplier", _EXPECTED)
        try:
            self._supplier = make(definition)
        except Exception as error:  # the user's own code may raise anything
            raise self._wrong(f"raised {type(error).__name__}: {error}") from error
        name = getattr(self._supplier, "name", None)
        if name != definition.name or not callable(getattr(self._supplier, "get", None)):
            raise self._wrong(
                f"returned {self._supplier!r:.120} with the name {name!r:.120}, expected a supplier of it"
            )

    def get(self) -> Any:
        """Return a new store, not yet open.

        Raises
        ------
        DefinitionError
            If it is not what the definition says.
        """
        try:
            store = self._supplier.get()
        except Exception as error:  # as above
            raise self._wrong(f"has a get that raised {type(error).__name__}: {error}") from error
        kind = self._definition.kind
        if lacks := [name for name in (*_ANY, *self._methods) if not hasattr(store, name)]:
            raise self._wrong(f"makes a {type(store).__name__} without {', '.join(lacks)}, expected a {kind} store")
        found = bool(store.persistent), bool(store.transactional)
        if found != (self._definition.engine != "in_memory", self._definition.engine == "txn_rocksDB"):
            fits = {(False, False): "in_memory", (True, False): "rocksDB", (True, True): "txn_rocksDB"}.get(found)
            raise self._wrong(
                f"makes a store with persistent {found[0]} and transactional {found[1]}, which the engine "
                f"{self._definition.engine} is not; expected "
                + (f"engine: {fits}" if fits else "a store that is persistent if it is transactional")
            )
        return store

    def _wrong(self, what: str) -> DefinitionError:
        return DefinitionError(f"supplier {self._definition.supplier} of store {self.name} {what}")


def load_config_setter(reference: str | None) -> Callable[[str, Any], None] | None:
    """Return the function that sets RocksDB's options, called with a store's name and rocksdict's options.

    Raises
    ------
    DefinitionError
        If it cannot be loaded, or called; when it is called, if it raises.
    """
    if reference is None:
        return None
    setter = load(reference, "rocksdb_config_setter", "a function of a store's name and its options")
    if not callable(setter):
        raise DefinitionError(f"rocksdb_config_setter {reference} is a {type(setter).__name__}, expected a function")

    def checked(store: str, options: Any) -> None:
        try:
            setter(store, options)
        except StateStoreError:  # an option that is refused by name
            raise
        except Exception as error:  # as above
            raise DefinitionError(
                f"rocksdb_config_setter {reference} raised {type(error).__name__} for store {store}: {error}"
            ) from error

    return checked
