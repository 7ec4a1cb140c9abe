"""Stores as an application uses them: typed, with a log of every change and metrics of every commit.

The inner store of bytes can be built in or custom. The builders create these stores (`builders.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from statestore.errors import StateStoreError
from statestore.formats import session_key, window_key
from statestore.formats.value_format import AnyFormat
from statestore.formats.versioned_put import PUT_RETURN_CODE_NOT_PUT
from statestore.model import TopicPartition
from statestore.stores.api import (
    BytesStore,
    KeyValueBytesStore,
    Offsets,
    SessionBytesStore,
    StoreContext,
    WindowBytesStore,
    Windowed,
)
from statestore.stores.codec import codec
from statestore.stores.key_value import KeyValueBytes
from statestore.stores.metrics import StoreMetrics
from statestore.stores.readers import (
    KeyValueReader,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedStore,
    ReadOnlyWindowStore,
    VersionedRecord,
)
from statestore.stores.row_changes import RowChanges
from statestore.stores.serdes import Serde
from statestore.stores.shortcuts import GatheredChanges, Shortcuts
from statestore.stores.transaction import StagedRows
from statestore.stores.versioned import VersionedBytes

K = TypeVar("K")
V = TypeVar("V")
Inner = TypeVar("Inner", bound=BytesStore)

_LAST_TIME = window_key.MAX_TIME


class TypedStore(RowChanges[Inner], Generic[K, V, Inner]):
    """The common part of all kinds: everything except the access to rows.

    Attributes
    ----------
    metrics
        Metrics of commits and restores.
    serdes
        Serdes of keys and values.
    """

    scope = ""
    #: These come with what reads rows of the kind (`readers.py`).
    is_empty: Any
    all: Any

    def __init__(self, inner: Inner, store_format: AnyFormat, key_serde: Serde[K], value_serde: Serde[Any]) -> None:
        super().__init__(inner, store_format)
        self._rows: Any = inner
        self.name = inner.name
        self.transactional = inner.transactional
        self.persistent = inner.persistent
        self.manages_offsets = inner.manages_offsets
        self.metrics = StoreMetrics(self.name, f"{'rocksdb' if self.persistent else 'in-memory'}{self.scope}")
        self.key_bytes = key_serde.serialize
        self.key_of = key_serde.deserialize
        self.serdes = key_serde, value_serde
        values = codec(store_format, value_serde)
        self._encode: Callable[[V], bytes | None] = values.encode
        self.decode: Callable[[bytes], V] = values.decode

    @property
    def is_open(self) -> bool:
        """True between `init` and `close`."""
        return self.inner.is_open

    def init(self, context: StoreContext) -> None:
        """Open the store; see the errors of the inner store."""
        self.inner.init(context)
        self.metrics.open(str(context.task), published=context.recording_level in ("DEBUG", "TRACE"))

    def apply_changelog(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]) -> int:
        """Apply changelog records: store keys, values, record timestamps (ms). They are not logged again.

        Values are plain, or have their headers as returned by `ChangelogReader.read` for the store's layout.

        Returns
        -------
        int
            Number of records that were skipped because they had expired.
        """
        started = time.perf_counter_ns()
        rows = (
            (key, None if value is None else self.layout.stored_as_read(value, timestamp))
            for key, value, timestamp in zip(keys, values, timestamps, strict=True)
        )
        expired = self.inner.restore(rows)
        self.metrics.record("restore", time.perf_counter_ns() - started)
        return expired

    def restore(self, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Apply rows in the store's layout; see `apply_changelog` for records of the changelog."""
        return self.inner.restore(rows)

    def commit(self, offsets: Offsets, position: Offsets | None = None) -> None:
        """Commit all writes, with their changelog offsets; see `StateStore.commit`.

        Raises
        ------
        InvalidStateError
            If the store is closed.
        """
        started = time.perf_counter_ns()
        try:
            self.inner.commit(offsets, position)
        finally:
            self.metrics.record("commit", time.perf_counter_ns() - started)

    def recover(self, changelog_offset: int | None) -> bool:
        """Discard uncommitted writes; return whether the store has its state at an offset, see `StateStore.recover`."""
        return self.inner.recover(changelog_offset)

    def rollback(self) -> None:
        """Discard the writes since the last commit, if the store is transactional."""
        self.inner.rollback()

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Last committed offset of a changelog partition."""
        return self.inner.committed_offset(topic_partition)

    def clear_offsets(self) -> None:
        """Forget committed offsets and position."""
        self.inner.clear_offsets()

    def flush(self) -> None:
        """Deprecated by KIP-1035: does nothing."""
        self.inner.flush()

    def sync(self) -> None:
        """Wait until all committed rows are on disk."""
        self.inner.sync()

    def position(self) -> dict[TopicPartition, int]:
        """Committed input offsets."""
        return self.inner.position()

    @property
    def staged_bytes(self) -> int:
        """Memory of uncommitted rows in bytes, if the inner store reports it."""
        return self.inner.staged_bytes

    def close(self, *, clean: bool = True) -> None:
        """Close the store and discard uncommitted writes."""
        self.metrics.close()
        self.inner.close(clean=clean)


class _WritableRows(KeyValueReader, Protocol):
    """Where a key-value store reads and writes by key: its inner store, or the rows of ours while it is open."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a value; None deletes."""


class KeyValueStore(TypedStore[K, V, KeyValueBytesStore], ReadOnlyKeyValueStore[K, V]):
    """A key-value store.

    In a timestamped store, a value is a `ValueAndTimestamp`; in a store with headers, it is a `ValueTimestampHeaders`.
    """

    _rows: _WritableRows

    def init(self, context: StoreContext) -> None:
        """Open the store; see the errors of the inner store."""
        super().init(context)
        # Straight to the rows of the database: the store between would only hand each key on.
        self._rows = self.inner.rows if isinstance(self.inner, KeyValueBytes) else self.inner

    def close(self, *, clean: bool = True) -> None:
        """Close the store and discard uncommitted writes."""
        self._rows = self.inner
        for shortcut in ("get", "put"):
            self.__dict__.pop(shortcut, None)
        super().close(clean=clean)

    def take_shortcuts(self, gathered: GatheredChanges) -> None:
        """Use the shortcuts of `get` and `put` while the store is open, if it has them (`shortcuts.py`).

        Parameters
        ----------
        gathered
            Collects changes until they are logged. Changes by other methods are also logged there.
        """
        if not isinstance(self._rows, StagedRows) or self.layout.keeps_headers:
            return
        shortcuts = Shortcuts(self, self._rows, *self.serdes, timestamped=self.layout.timestamped)
        self.__dict__["get"] = shortcuts.get(self.get)
        if self.layout.timestamped:
            self.__dict__["put"] = shortcuts.put(gathered, self.put)

    def read_ahead(self, keys: Iterable[bytes | None]) -> None:
        """Prefetch rows that are likely to be read next, by their keys as bytes, if the store can keep them."""
        if isinstance(self._rows, StagedRows):
            self._rows.read_ahead(keys)

    def put(self, key: K, value: V | None) -> None:
        """Write a value and log the change; None deletes."""
        raw = self.key_bytes(key)
        stored = None if value is None else self._encode(value)
        if self._log is None:
            self._put(raw, stored)
            return
        change = self._checked_change(raw, stored)
        self._put(raw, stored)
        self._log(raw, *change)

    def _put(self, raw: bytes, stored: bytes | None) -> None:
        try:
            if self._undo is not None:
                self._remember(raw)
            self._rows.put(raw, stored)
        except (StateStoreError, OSError) as error:
            self.fail(error)

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Write the value if the key has none; return the previous value."""
        found = self.get(key)
        if found is None and value is not None:
            self.put(key, value)
        return found

    def put_all(self, rows: Iterable[tuple[K, V | None]]) -> None:
        """Write many values. If one of the keys or values cannot be written, nothing is written."""
        encoded = [(self.key_bytes(key), None if value is None else self._encode(value)) for key, value in rows]
        changes = [self._checked_change(raw, stored) for raw, stored in encoded]
        for (raw, stored), change in zip(encoded, changes, strict=True):
            self._put(raw, stored)
            self._logged(raw, *change)

    def delete(self, key: K) -> V | None:
        """Delete a key and return its previous value."""
        raw = self.key_bytes(key)
        change = self._checked_change(raw, None)
        try:
            if self._undo is not None:
                self._remember(raw)
            stored = self.inner.delete(raw)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        self._logged(raw, *change)
        return None if stored is None else self.decode(stored)

    def delete_range(self, start: K | None = None, stop: K | None = None) -> None:
        """Delete the rows with `start <= key <= stop`; None is an open end. Each delete is logged.

        Iterators that are already open still return the rows.
        """
        first, after = self._bounds(start, stop)
        try:
            self._delete_range(first, after)
        except (StateStoreError, OSError) as error:
            self.fail(error)

    def _delete_range(self, first: bytes | None, after: bytes | None) -> None:
        if after is None:
            last = next(self.inner.scan(first, None, reverse=True), None)
            after = b"" if last is None else last[0] + b"\0"
        if self._log is not None or self._undo is not None:
            rows = list(self.inner.scan(first, after))
            changes = [self._checked_change(key, None) for key, _ in rows]
            if self._undo is not None:
                self._undo.rows += rows
            for (key, _), change in zip(rows, changes, strict=True):
                self._logged(key, *change)
        self.inner.delete_range(first or b"", after)


class WindowStore(TypedStore[K, V, WindowBytesStore], ReadOnlyWindowStore[K, V]):
    """A window store: values by key and window start (ms).

    In a timestamped store, a value is a `ValueAndTimestamp`; in a store with headers, a `ValueTimestampHeaders`.

    Ranges are returned segment by segment, and in each segment by key bytes, then by time.
    """

    scope = "-window"

    def put(self, key: K, value: V | None, window_start: int) -> None:
        """Write a window's value and log the change; None deletes, and is ignored if duplicates are retained.

        An expired window is dropped and counted, but not logged.
        """
        _check_time(window_start, "window start")
        raw = self.key_bytes(key)
        stored = None if value is None else self._encode(value)
        duplicates = self.inner.retain_duplicates
        if stored is None and duplicates:
            return
        row_key = window_key.encode(raw, window_start)
        change = self._checked_change(row_key, stored)
        try:
            if self._undo is not None and not duplicates:
                self._remember(row_key)
            kept = self.inner.put(raw, stored, window_start)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        if not kept:
            self.expired_records += 1
            return
        if duplicates:
            row_key = window_key.encode(raw, window_start, self.inner.sequence)
            if self._undo is not None:
                self._undo.rows.append((row_key, None))
        self._logged(row_key, *change)

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]) -> None:
        """Write many rows and log them at once; see `RowChanges.put_rows`. Nulls are ignored with duplicates."""
        if self.inner.retain_duplicates and None in values:
            kept = [row for row in zip(row_keys, values, timestamps, strict=True) if row[1] is not None]
            row_keys, values, timestamps = zip(*kept, strict=True) if kept else ((), (), ())
        super().put_rows(row_keys, values, timestamps)


class VersionedKeyValueStore(TypedStore[K, V, VersionedBytes], ReadOnlyVersionedStore[K, V]):
    """A versioned store: values of a key, each from a timestamp (ms) on (KIP-889).

    A put that is older than stream time minus the history retention is dropped and counted, but not logged.
    """

    def put(self, key: K, value: V | None, timestamp: int) -> int:
        """Write a value that is valid from a timestamp (ms), and log the change; None deletes.

        Returns
        -------
        int
            Time (ms) until which the value is valid, PUT_RETURN_CODE_VALID_TO_UNDEFINED if it is the latest, or
            PUT_RETURN_CODE_NOT_PUT if it was too late (`versioned.py`).
        """
        _check_time(timestamp, "timestamp")
        raw = self.key_bytes(key)
        stored = None if value is None else self._encode(value)
        if self._check is not None:
            self._check(raw, stored, timestamp)
        try:
            valid_to = self.inner.put_version(raw, stored, timestamp)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        if valid_to == PUT_RETURN_CODE_NOT_PUT:
            self.expired_records += 1
        else:
            self._logged(raw, stored, timestamp)
        return valid_to

    def delete(self, key: K, timestamp: int) -> VersionedRecord[V] | None:
        """Delete the value of a key from a timestamp (ms) on; return the value at that time."""
        _check_time(timestamp, "timestamp")
        before = self.get(key, timestamp)
        return before if self.put(key, None, timestamp) != PUT_RETURN_CODE_NOT_PUT else None

    def apply_changelog(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]) -> int:
        """Apply changelog records in their order; see `TypedStore.apply_changelog`."""
        started = time.perf_counter_ns()
        expired = self.inner.apply(keys, values, timestamps)
        self.metrics.record("restore", time.perf_counter_ns() - started)
        return expired

    def begin_record(self) -> None:
        """Start to remember the value that each write replaces, until `undo_record` or `end_record`."""
        super().begin_record()
        self.inner.begin_undo()

    def undo_record(self) -> None:
        """Undo all writes since `begin_record`; none of them is logged."""
        if self._undo is not None:
            self.inner.undo()
        super().undo_record()

    def end_record(self) -> None:
        """Keep the writes since `begin_record`."""
        self.inner.end_undo()
        super().end_record()


class SessionStore(TypedStore[K, V, SessionBytesStore], ReadOnlySessionStore[K, V]):
    """A session store: values by key, session start, and session end (ms, both inclusive).

    In a timestamped store, a value is a `ValueAndTimestamp`; in a store with headers, an `AggregationWithHeaders`.
    Ranges are returned segment by segment, and in each segment by key bytes, then by end, then by start.
    """

    scope = "-session"

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Write a session's value and log the change; None deletes. An expired session is counted, but not logged."""
        raw = self._checked(session)
        stored = None if value is None else self._encode(value)
        row_key = session_key.encode(raw, session.start, session.end)
        change = self._checked_change(row_key, stored)
        try:
            if self._undo is not None:
                self._remember(row_key)
            kept = self.inner.put(raw, session.start, session.end, stored)
        except (StateStoreError, OSError) as error:
            self.fail(error)
        if not kept:
            self.expired_records += 1
            return
        self._logged(row_key, *change)

    def remove(self, session: Windowed[K]) -> None:
        """Delete a session in store and changelog, for example after it was merged into another one."""
        self.put(session, None)

    def _checked(self, session: Windowed[K]) -> bytes:
        _check_time(session.start, "session start")
        _check_time(session.end, "session end")
        if session.end < session.start:
            raise ValueError(f"a session ends at its start or later, found start {session.start}, end {session.end}")
        return self.key_bytes(session.key)


def _check_time(timestamp: int, what: str) -> None:
    if not 0 <= timestamp <= _LAST_TIME:
        raise ValueError(f"{what} is in ms since 1970, from 0 to {_LAST_TIME}, found {timestamp}")


#: A store of any kind, with any types.
AnyStore = TypedStore[Any, Any, Any]
