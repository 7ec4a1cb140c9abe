"""Suppliers of a user's own stores, which remember the store that they made."""

from __future__ import annotations

from typing import Any

from statestore.definitions.store import StoreDefinition
from tests.compositions import HOUR_MS, MINUTE_MS, STORE
from tests.integration.file_store import FileStore, PlainWindowFileStore, Rows, SessionFileStore

MINE: dict[str, type[Rows]] = {"key-value": FileStore, "window": PlainWindowFileStore, "session": SessionFileStore}
_SETTINGS: dict[str, dict[str, int]] = {
    "key-value": {},
    "window": {"retention_ms": 6 * HOUR_MS, "window_size_ms": MINUTE_MS},
    "session": {"retention_ms": 6 * HOUR_MS},
}


class Supplier:
    """A supplier is any object with a name and `get`."""

    def __init__(self, make: type[Rows], *, persistent: bool = True) -> None:
        self.name = STORE
        self._make = make
        self._persistent = persistent
        self.made: Any = None

    def get(self) -> Any:
        """Return a new store."""
        kind = next(kind for kind, mine in MINE.items() if issubclass(self._make, mine))
        definition = StoreDefinition(name=STORE, kind=kind, **_SETTINGS[kind])
        self.made = self._make(definition, persistent=self._persistent)
        return self.made
