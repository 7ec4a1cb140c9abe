"""Where rows of a format live: in one column family, or in a new one with rows not yet migrated in an old one.

The format decides only this and the value's layout, so a transaction is one decorator below (`Transaction`), and a
store without one writes through `Direct`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from statestore import kill_switch
from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP, encode
from statestore.model import StoreFormat, TopicPartition
from statestore.stores.merge import Change, live, overlay
from statestore.stores.rocksdb import DEFAULT_COLUMN_FAMILY
from statestore.stores.table import KeyRange, Row, Table

TIMESTAMPED_COLUMN_FAMILY = "keyValueWithTimestamp"

#: Data column families by format; the first is the one that new rows are written to.
DATA_COLUMN_FAMILIES = {
    StoreFormat.PLAIN: (DEFAULT_COLUMN_FAMILY,),
    StoreFormat.TIMESTAMPED: (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY),
}


class Rows(Protocol):
    """Rows of column families, with or without a transaction over them."""

    table: Table

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted rows."""

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """Read a row."""

    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows."""

    def scan(
        self, family: str, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        """Rows with `start <= key < stop`."""

    def put(self, family: str, key: bytes, value: bytes | None) -> None:
        """Write a row; None deletes."""

    def delete_range(self, family: str, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop`."""

    def commit(self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None) -> None:
        """Make what was written part of the table, with its offsets."""

    def rollback(self) -> None:
        """Forget what was not committed."""

    def close(self) -> None:
        """Forget what was not committed, and end open iterators."""


class Direct:
    """Rows of a store without transactions: written at once, committed offsets or not."""

    staged_bytes = 0

    def __init__(self, table: Table) -> None:
        self.table = table
        self.get = table.get
        self.get_many = table.get_many
        self.scan = table.scan
        self.put = table.put

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""
        return self.table.being_read

    def delete_range(self, family: str, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop`."""
        self.table.write({}, ranges={family: [KeyRange(start, stop)]})

    def commit(self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None) -> None:
        """Write the offsets; the rows are there."""
        if offsets or position is not None:
            self.table.write({}, offsets, position)

    def rollback(self) -> None:
        """Nothing to forget: this is what a store without transactions lacks."""

    def close(self) -> None:
        """Nothing to end."""


class Accessor(Protocol):
    """Reads and writes rows in the layout of one format."""

    upgrade_pending: bool

    def get(self, key: bytes) -> bytes | None:
        """Read a row in the format's layout; one in an older format is migrated."""

    def get_only(self, key: bytes) -> bytes | None:
        """Read a row in the format's layout, and migrate nothing."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows in the format's layout."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a row in the format's layout; None deletes."""

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop`."""

    def scan(
        self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `start <= key < stop` in key order, or in reverse."""


class SingleColumnFamily:
    """All rows in one column family: the rows' own methods, told which one."""

    upgrade_pending = False

    def __init__(self, rows: Rows, family: str) -> None:
        self.get = self.get_only = partial(rows.get, family)
        self.get_many = partial(rows.get_many, family)
        self.put = partial(rows.put, family)
        self.delete_range = partial(rows.delete_range, family)
        self.scan = partial(rows.scan, family)


class DualColumnFamily:
    """The timestamped format over rows that may still be plain (KIP-258's lazy migration).

    A get migrates the plain row that it finds, a put removes it, and a scan shows both, with timestamp -1 for plain
    rows. Whether there are plain rows is found out once, when the store is opened, as Kafka Streams does. With
    `migrate` off, nothing moves: for stores that are only read.
    """

    upgrade_pending = True

    def __init__(self, rows: Rows, new: str, old: str, *, migrate: bool) -> None:
        self._rows = rows
        self._migrate = migrate
        self._new = new
        self._old = old

    def get(self, key: bytes) -> bytes | None:
        """Read a row; a plain one is migrated."""
        value = self._rows.get(self._new, key)
        if value is None and (value := self._old_value(key)) is not None and self._migrate:
            self.put(key, value)
        return value

    def get_only(self, key: bytes) -> bytes | None:
        """Read a row; a plain one stays where it is."""
        value = self._rows.get(self._new, key)
        return self._old_value(key) if value is None else value

    def _old_value(self, key: bytes) -> bytes | None:
        plain = self._rows.get(self._old, key)
        return None if plain is None else encode(plain, UNKNOWN_TIMESTAMP)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows; plain ones are migrated."""
        found = self._rows.get_many(self._new, keys)
        return [self.get(key) if value is None else value for key, value in zip(keys, found, strict=True)]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a row, and remove its plain predecessor; None deletes both."""
        self._rows.put(self._new, key, value)
        kill_switch.reached("row migrated, the plain one still there")
        self._rows.put(self._old, key, None)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop` from both column families."""
        self._rows.delete_range(self._new, start, stop)
        self._rows.delete_range(self._old, start, stop)

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop` in key order, or in reverse, from both column families."""
        new: Iterator[Change] = self._rows.scan(self._new, start, stop, reverse=reverse)
        old: Iterator[Change] = (
            (key, encode(plain, UNKNOWN_TIMESTAMP))
            for key, plain in self._rows.scan(self._old, start, stop, reverse=reverse)
        )
        return live(overlay(new, old, reverse=reverse))


def accessor(store_format: StoreFormat, rows: Rows, *, migrate: bool = True) -> Accessor:
    """Return the accessor of a format over these rows; see `DualColumnFamily` for `migrate`."""
    new, *old = DATA_COLUMN_FAMILIES[store_format]
    if old and rows.table.has(old[0]) and next(rows.table.scan(old[0]), None) is not None:
        return DualColumnFamily(rows, new, old[0], migrate=migrate)
    return SingleColumnFamily(rows, new)
