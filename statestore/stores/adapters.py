"""Wrappers of a custom store that lacks a part of the interface.

A persistent store that does not know timestamps or headers gets a proxy (KIP-258, KIP-1271): what it does not know is
taken off before a value is written. When it is read, its timestamp is -1, unknown, and it has no headers. A persistent
store that does not manage its offsets gets the legacy checkpoint file `<task directory>/.checkpoint_<store>`
(KIP-1035). One that manages them without transactions is marked while it is open.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from statestore.durable import remove_durably, write_durably
from statestore.errors import StoreUncleanError
from statestore.formats import checkpoint_file
from statestore.formats.headers_value import headers_end
from statestore.formats.timestamped_value import TIMESTAMP_BYTES
from statestore.formats.value_format import ValueFormat
from statestore.model import TopicPartition
from statestore.stores.api import Offsets, StateStore, StoreContext, Windowed
from statestore.stores.last_use import last_use_file, write_left_open
from statestore.stores.table import Row

_log = logging.getLogger(__name__)
#: A commit writes the file once so many records went by since it was last written (KIP-1035).
_CHECKPOINT_RECORDS = 10_000


class Around:
    """Everything that is not changed is the wrapped store's."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


class LayoutProxy(Around):
    """A store of any kind, used where values carry more than it knows.

    Parameters
    ----------
    outer
        Layout of values as they are given to the store and read from it.
    inner
        The older layout that the store has.
    """

    keeps_headers = False

    def __init__(self, wrapped: Any, outer: ValueFormat, inner: ValueFormat) -> None:
        super().__init__(wrapped)
        self.outer, self.inner_layout = outer, inner
        self.keeps_timestamps = inner.timestamped
        self._front = TIMESTAMP_BYTES if outer.timestamped and not inner.timestamped else 0
        self._family = inner.column_families[0]

    def around(self, wrapped: Any) -> LayoutProxy:
        """Return the same proxy of another store."""
        return LayoutProxy(wrapped, self.outer, self.inner_layout)

    def _taken(self, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        return value[(headers_end(value) if self.outer.keeps_headers else 0) + self._front :]

    def _given(self, value: bytes | None) -> bytes | None:
        return None if value is None else self.outer.migrated(self._family, value)

    def put(self, *key: Any) -> Any:
        """Write what the store knows: (key, value), (key, value, window start) or (key, start, end, value)."""
        at = 3 if len(key) == 4 else 1
        return self.wrapped.put(*key[:at], self._taken(key[at]), *key[at + 1 :])

    def get(self, key: bytes) -> bytes | None:
        """Read a value."""
        return self._given(self.wrapped.get(key))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many values."""
        return [self._given(value) for value in self.wrapped.get_many(keys)]

    def delete(self, key: bytes) -> bytes | None:
        """Delete; return the value before."""
        return self._given(self.wrapped.delete(key))

    def scan(self, start: bytes | None, stop: bytes | None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows as they are given."""
        rows = self.wrapped.scan(start, stop, reverse=reverse)
        return ((key, self.outer.migrated(self._family, value)) for key, value in rows)

    def get_rows(self, row_keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows."""
        return [self._given(value) for value in self.wrapped.get_rows(row_keys)]

    def put_rows(self, row_keys: Sequence[bytes], values: Sequence[bytes | None]) -> Sequence[int]:
        """Write what the store knows of many rows."""
        expired: Sequence[int] = self.wrapped.put_rows(row_keys, [self._taken(value) for value in values])
        return expired

    def stored_row(self, row_key: bytes) -> bytes | None:
        """Read a row as it is stored."""
        return self._given(self.wrapped.stored_row(row_key))

    def fetch(self, key: bytes, window_start: int) -> bytes | None:
        """Read a window."""
        return self._given(self.wrapped.fetch(key, window_start))

    def fetch_range(self, *bounds: Any, reverse: bool = False) -> Iterator[tuple[bytes, int, bytes]]:
        """Windows of a range."""
        rows = self.wrapped.fetch_range(*bounds, reverse=reverse)
        return ((key, start, self.outer.migrated(self._family, value)) for key, start, value in rows)

    def fetch_session(self, key: bytes, start: int, end: int) -> bytes | None:
        """Read a session."""
        return self._given(self.wrapped.fetch_session(key, start, end))

    def find_sessions(self, *bounds: Any, reverse: bool = False) -> Iterator[tuple[Windowed[bytes], bytes]]:
        """Sessions of a range."""
        rows = self.wrapped.find_sessions(*bounds, reverse=reverse)
        return ((session, self.outer.migrated(self._family, value)) for session, value in rows)

    def restore(self, rows: Any) -> int:
        """Apply what the store knows of changelog rows."""
        return int(self.wrapped.restore((key, self._taken(value)) for key, value in rows))

    def put_back(self, row_key: bytes, value: bytes | None) -> None:
        """Put a row back without what the store does not know."""
        self.wrapped.put_back(row_key, self._taken(value))


class LegacyCheckpoint(Around):
    """Keeps the offsets of a store that does not manage them.

    The file is read when the store is opened, and changed only once its own `init` has succeeded. It is written when
    the store is closed cleanly, and by a commit that comes 10,000 records or more after it was last written.

    Under exactly once, a store without transactions has no file while it is open, because after a crash it may have
    rows that were never committed. A transactional store keeps its file (KIP-844): its rows are at the offset in the
    file or above it, which `recover` confirms.
    """

    manages_offsets = False

    def __init__(self, wrapped: StateStore) -> None:
        super().__init__(wrapped)
        self._offsets: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        self._context: StoreContext | None = None
        self._keeps_file = False

    def init(self, context: StoreContext) -> None:
        """Read the file, and open the store."""
        self._path = context.task_directory / checkpoint_file.name_of(self.wrapped.name)
        found = checkpoint_file.read(self._path) if self._path.exists() else {}
        own = context.changelog_of(self.wrapped.name)
        self._offsets = {
            partition: offset
            for partition, offset in found.items()
            if offset is not None and (own is None or partition in own)
        }
        self._written = dict(self._offsets)
        self.wrapped.init(context)
        self._keeps_file = self.wrapped.transactional or not context.exactly_once
        if not self._keeps_file and not context.read_only:
            try:
                remove_durably(self._path)
            except OSError:
                self.wrapped.close(clean=False)
                raise
        self._context = context

    def commit(self, offsets: Offsets, position: Offsets | None = None) -> None:
        """Commit the store, and remember the offsets."""
        self.wrapped.commit(offsets, position)
        self._offsets.update(offsets)
        assert self._context is not None, "the wrapped store refuses a commit before init"
        if self._keeps_file and self._records_since_written() >= _CHECKPOINT_RECORDS:
            self._write()

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Offset remembered for a changelog partition."""
        return self._offsets.get(topic_partition)

    def clear_offsets(self) -> None:
        """Forget the offsets, durably: the file would bring them back."""
        self._offsets, self._written = {}, {}
        remove_durably(self._path)

    def close(self, *, clean: bool = True) -> None:
        """Close the store, then write the file; after a failure no offset is vouched for."""
        context, self._context = self._context, None
        self.wrapped.close(clean=clean)
        if clean and context is not None and not context.read_only:
            self._write()

    def _records_since_written(self) -> int:
        return sum(offset - self._written.get(partition, -1) for partition, offset in self._offsets.items())

    def _write(self) -> None:
        try:
            if self._offsets:
                write_durably(self._path, checkpoint_file.write(self._offsets))
            else:
                remove_durably(self._path)
        except OSError as error:  # conformance L4: the store is whole; without the file it is only replayed from before
            _log.warning("checkpoint file %s was not written: %s", self._path, error)
            return
        self._written = dict(self._offsets)


class MarkedWhileOpen(Around):
    """Refuses a store that was left open under exactly once, when the store manages offsets without transactions.

    After a crash, such a store may have rows that were never committed, and its offsets do not show them. The record of
    its last use (`last_use.py`) exists from its opening until it was closed cleanly. Our own stores keep the same in
    their status.
    """

    def __init__(self, wrapped: Any) -> None:
        super().__init__(wrapped)
        self._mark: Path | None = None

    def init(self, context: StoreContext) -> None:
        """Open the store, and mark it.

        Raises
        ------
        StoreUncleanError
            If it was left open, under exactly once.
        """
        mark = last_use_file(context.own_directory, self.wrapped.name)
        if context.exactly_once and mark.exists():
            raise StoreUncleanError(
                f"store {self.wrapped.name} was not closed cleanly and manages its offsets without transactions, so it "
                "may have uncommitted writes; restore it from its changelog"
            )
        self.wrapped.init(context)
        if context.read_only:
            return
        try:
            write_left_open(mark)
        except OSError:
            self.wrapped.close(clean=False)
            raise
        self._mark = mark

    def close(self, *, clean: bool = True) -> None:
        """Close the store; remove the mark if that was clean."""
        mark, self._mark = self._mark, None
        self.wrapped.close(clean=clean)
        if clean and mark is not None:
            remove_durably(mark)
