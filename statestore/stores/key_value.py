"""Our key-value store of bytes, over one database on disk or in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from statestore.errors import InvalidStateError
from statestore.model import StoreFormat, TopicPartition, check_name
from statestore.stores.api import KeyValueBytesStore, Offsets, StoreContext, flush_is_deprecated
from statestore.stores.database import Database, DatabaseSpec, Place, check_on_disk, open_in_memory, open_on_disk
from statestore.stores.last_use import LastUse, last_use_file
from statestore.stores.legacy_position import migrate_position
from statestore.stores.spill import remove_left_spills, spill_directory
from statestore.stores.table import Row, Rows

#: The name of a database that is its store's only one.
_ONLY = ""


def database_spec(context: StoreContext, store: str, store_format: StoreFormat, transactional: bool) -> DatabaseSpec:
    """How the databases of a store are opened in a context."""
    changelogs = context.changelog_of(store)
    return DatabaseSpec(
        store=store,
        format=store_format,
        transactional=transactional,
        exactly_once=context.exactly_once,
        last_use=LastUse(last_use_file(context.own_directory, store), recording=transactional and context.exactly_once),
        changelogs=None if changelogs is None else frozenset(changelogs),
        uncommitted_max_bytes=context.uncommitted_max_bytes,
        config_setter=context.config_setter,
    )


class KeyValueBytes(KeyValueBytesStore):
    """A key-value store in one format, on disk or in memory, transactional or not."""

    format: StoreFormat

    def __init__(self, name: str, store_format: StoreFormat, *, persistent: bool, transactional: bool) -> None:
        self.name = check_name(name)
        self.format = store_format
        self.persistent = self.manages_offsets = persistent
        self.transactional = transactional
        self._database: Database | None = None

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""
        return self._database is not None and not self._database.closed

    def init(self, context: StoreContext) -> None:
        """Open the store.

        Raises
        ------
        RebuildError
            If it cannot be used as it is; nothing in its directory was changed.
        UnknownFormatError
            If it was written in a format that is not this store's; it is left alone.
        """
        spec = database_spec(context, self.name, self.format, self.transactional)
        if not context.read_only:
            remove_left_spills(context.own_directory, self.name)
        if self.persistent:
            spill = spill_directory(context.own_directory, self.name)
            place = Place(context.directory_of(self.name, segmented=False), spill)
            looked_at = {_ONLY: check_on_disk(spec, _ONLY, place.directory)}
            context.about_to_open(self.name)
            self._database = open_on_disk(spec, {_ONLY: place}, looked_at, read_only=context.read_only)[_ONLY]
            if not context.read_only:
                try:
                    migrate_position(context.task_directory, self.name, [self._database])
                except BaseException:
                    self._database.close(clean=False)
                    raise
        else:
            self._database = open_in_memory(spec)

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
        """Delete a key; return its value before. The read migrates nothing."""
        database = self.database
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
        """Read many rows by their keys in the changelog, which are the store's."""
        return self.rows.get_many(row_keys)

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[int]:
        """Write many rows, None deletes; return the indexes of those that had expired: none can have."""
        self.rows.put_many(dict(zip(row_keys, values, strict=True)))
        return []

    def stored_row(self, row_key: bytes) -> bytes | None:
        """Read a row as it is stored; nothing is migrated."""
        return self.database.unmigrated.get(row_key)

    def committed(self) -> CommittedKeyValue:
        """Where to read without what is not committed."""
        return CommittedKeyValue(self)

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted rows."""
        return self.database.staged_bytes

    @property
    def upgrade_pending(self) -> bool:
        """True if rows in an older format were found when the store was opened."""
        return self.database.upgrade_pending

    def commit(self, offsets: Offsets, position: Offsets | None = None) -> None:
        """Commit everything written, with its changelog offsets, in one atomic write."""
        self.database.commit(offsets, position)

    def recover(self, changelog_offset: int | None) -> bool:
        """Discard what was not committed; the changelog's tail does the rest.

        False without transactions, and after a commit that failed half way.
        """
        if self.database.half_committed:
            return False
        self.database.rollback()
        return self.transactional

    def rollback(self) -> None:
        """Discard what was written since the last commit."""
        self.database.rollback()

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Offset last committed for a changelog partition."""
        return self.database.committed_offset(topic_partition)

    def clear_offsets(self) -> None:
        """Forget committed offsets and position; the status stays."""
        self.database.clear_offsets()

    def flush(self) -> None:
        """Deprecated: does nothing."""
        flush_is_deprecated(self.name)

    def sync(self) -> None:
        """Wait until all that was committed is on disk."""
        self.database.sync()

    def position(self) -> dict[TopicPartition, int]:
        """Input offsets committed."""
        return self.database.position()

    def close(self, *, clean: bool = True) -> None:
        """Close the store; iterators that are still open end with an error."""
        if self._database is not None:
            self._database.close(clean=clean)

    @property
    def rows(self) -> Rows:
        """Where the open store is read and written by key; its typed store goes there itself (`typed.py`)."""
        return self.database.rows

    @property
    def database(self) -> Database:
        """The open database.

        Raises
        ------
        InvalidStateError
            If the store is closed, or was never opened.
        """
        if self._database is None:
            raise InvalidStateError(f"store {self.name} is not open; call init first")
        self._database.require_open()
        return self._database


class CommittedKeyValue:
    """The committed rows of an open store; reading them migrates nothing."""

    def __init__(self, store: KeyValueBytes) -> None:
        self._store = store

    def get(self, key: bytes) -> bytes | None:
        """Read a value."""
        return self._store.database.committed.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many values."""
        return self._store.database.committed.get_many(keys)

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop`."""
        return self._store.database.committed.scan(start, stop, reverse=reverse)
