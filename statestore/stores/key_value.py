"""The built-in key-value store of bytes, with one database on disk or in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from statestore.kinds.key_value import KEY_VALUE
from statestore.stores.api import KeyValueBytesStore, StoreContext
from statestore.stores.built_in import BuiltInBytes
from statestore.stores.commit_log import CommitLog
from statestore.stores.database import (
    ONLY,
    Database,
    DatabaseSpec,
    Place,
    check_on_disk,
    finish_commits,
    open_in_memory,
    open_on_disk,
)
from statestore.stores.last_use import commits_directory
from statestore.stores.readers import KeyValueReader
from statestore.stores.spill import spill_directory
from statestore.stores.table import Row, Rows


class KeyValueBytes(BuiltInBytes[Database], KeyValueBytesStore):
    """A key-value store in one format, on disk or in memory, transactional or not."""

    def _open(self, context: StoreContext, spec: DatabaseSpec) -> Database:
        if not self.persistent:
            return open_in_memory(spec)
        directory = context.directory_of(self.name, KEY_VALUE)
        place = Place(directory, spill_directory(context.own_directory, self.name))
        found = check_on_disk(spec, ONLY, directory)
        usable = spec.last_use.is_as_recorded(ONLY, directory, found.sequence or 0)
        context.about_to_open(self.name)
        commits = CommitLog(commits_directory(context.own_directory, self.name), only_copy=not spec.logged)
        opened = open_on_disk(spec, {ONLY: place}, {ONLY: found}, commits=commits, read_only=context.read_only)
        if not context.read_only:
            finish_commits(commits, opened, usable=usable)
        return opened[ONLY]

    def database_at(self, segment: int, size: int) -> Database:
        """Return the only database."""
        return self.opened

    def get(self, key: bytes) -> bytes | None:
        """Read a value; one in an older format is migrated."""
        return self.rows.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many values, in the order of their keys."""
        return self.rows.get_many(keys)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a value; None deletes."""
        self.rows.put(key, value)

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop` in key order, or in reverse."""
        return self.rows.scan(start, stop, reverse=reverse)

    def delete(self, key: bytes) -> bytes | None:
        """Delete a key and return its previous value. The read migrates nothing."""
        database = self.opened
        found = database.unmigrated.get(key)
        database.rows.put(key, None)
        return found

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete all rows with `start <= key < stop`."""
        self.rows.delete_range(start, stop)

    def restore(self, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Apply changelog rows; none of them can have expired."""
        put = self.rows.put
        for key, value in rows:
            put(key, value)
        return 0

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows by their keys in the changelog, which equal the store's keys."""
        return self.rows.get_many(row_keys)

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[int]:
        """Write many rows; None deletes. Return an empty list, because no row can have expired."""
        self.rows.put_many(dict(zip(row_keys, values, strict=True)))
        return []

    def stored_row(self, row_key: bytes) -> bytes | None:
        """Read a row as it is stored; nothing is migrated."""
        return self.opened.unmigrated.get(row_key)

    def committed(self) -> KeyValueReader:
        """Reader of committed rows only. Reading migrates nothing."""
        return _CommittedRows(self)

    @property
    def rows(self) -> Rows:
        """Rows of the open store, by key. Its typed store uses them directly (`typed.py`)."""
        return self.opened.rows


class _CommittedRows:
    def __init__(self, store: KeyValueBytes) -> None:
        self._store = store

    def get(self, key: bytes) -> bytes | None:
        return self._store.opened.committed.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._store.opened.committed.get_many(keys)

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        return self._store.opened.committed.scan(start, stop, reverse=reverse)
