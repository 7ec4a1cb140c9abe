"""Stores as a user would write them: as small as the protocols allow, kept in a file of JSON, or in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from compositions import STORE

from statestore.stores.api import (
    KeyValueBytesStore,
    SessionBytesStore,
    StateStore,
    StoreContext,
    TimestampedBytesStore,
    WindowBytesStore,
    Windowed,
)


class Rows(StateStore):
    """Rows of JSON keys in a dict; the rest is the same for all kinds."""

    def __init__(self, *, persistent: bool = True) -> None:
        self.name = STORE
        self.persistent = persistent
        self.rows: dict[Any, bytes] = {}
        self._path: Path | None = None

    @property
    def is_open(self) -> bool:
        """True between init and close."""
        return self._path is not None

    def init(self, context: StoreContext) -> None:
        """Read the file."""
        self._path = context.task_directory / "mine" / f"{self.name}.json"
        if self.persistent and self._path.exists():
            pairs = json.loads(self._path.read_text())
            self.rows = {tuple(key): bytes.fromhex(value) for key, value in pairs}

    def close(self, *, clean: bool = True) -> None:
        """Write the file."""
        if self.persistent and clean and self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps([(key, value.hex()) for key, value in self.rows.items()]))
        self._path = None

    def write(self, value: bytes | None, *key: Any) -> None:
        """Write a row; None deletes."""
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = value


class MyKeyValue(Rows, KeyValueBytesStore):
    """A key-value store."""

    def get(self, key: bytes) -> bytes | None:
        """Read a value."""
        return self.rows.get((key.hex(),))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a value."""
        self.write(value, key.hex())

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Any:
        """Rows in order."""
        rows = sorted(((bytes.fromhex(key), value) for (key,), value in self.rows.items()), reverse=reverse)
        return iter([row for row in rows if (start or b"") <= row[0] and (stop is None or row[0] < stop)])


class MyWindow(Rows, WindowBytesStore):
    """A window store."""

    window_size_ms = 60_000
    retention_ms = 3_600_000
    retain_duplicates = False

    def put(self, key: bytes, value: bytes | None, window_start: int) -> bool:
        """Write a window."""
        self.write(value, key.hex(), window_start)
        return True

    def fetch(self, key: bytes, window_start: int) -> bytes | None:
        """Read a window."""
        return self.rows.get((key.hex(), window_start))

    def fetch_range(
        self, key_from: bytes | None, key_to: bytes | None, time_from: int, time_to: int, *, reverse: bool = False
    ) -> Any:
        """Windows in order."""
        rows = sorted(((bytes.fromhex(key), at, value) for (key, at), value in self.rows.items()), reverse=reverse)
        return iter([row for row in rows if time_from <= row[1] <= time_to and _within(row[0], key_from, key_to)])


class MySession(Rows, SessionBytesStore):
    """A session store."""

    retention_ms = 3_600_000

    def put(self, key: bytes, start: int, end: int, value: bytes | None) -> bool:
        """Write a session."""
        self.write(value, key.hex(), end, start)
        return True

    def fetch_session(self, key: bytes, start: int, end: int) -> bytes | None:
        """Read a session."""
        return self.rows.get((key.hex(), end, start))

    def find_sessions(
        self,
        key_from: bytes | None,
        key_to: bytes | None,
        earliest_end: int,
        latest_start: int,
        *,
        reverse: bool = False,
    ) -> Any:
        """Sessions in order."""
        rows = sorted(self.rows.items(), reverse=reverse)
        return iter(
            [
                (Windowed(bytes.fromhex(key), start, end), value)
                for (key, end, start), value in rows
                if end >= earliest_end and start <= latest_start and _within(bytes.fromhex(key), key_from, key_to)
            ]
        )


class MyTimestamped(MyKeyValue, TimestampedBytesStore):
    """A key-value store that says that it knows timestamps."""


MINE = {"key-value": MyKeyValue, "window": MyWindow, "session": MySession}


class Supplier:
    """A supplier is any object with a name and `get`."""

    def __init__(self, make: Any, **settings: Any) -> None:
        self.name = STORE
        self._make = make
        self._settings = settings
        self.made: Any = None

    def get(self) -> Any:
        """Return a new store."""
        self.made = self._make(**self._settings)
        return self.made


def _within(key: bytes, key_from: bytes | None, key_to: bytes | None) -> bool:
    return (key_from or b"") <= key and (key_to is None or key <= key_to)
