"""Where rows of a format live: in one column family, or in a new one with rows not yet migrated in an old one.

The format decides only this and the value's layout, so transactions are one decorator below (`StagedRows`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Protocol

from statestore.formats.timestamped_value import UNKNOWN_TIMESTAMP, encode
from statestore.model import StoreFormat
from statestore.stores.rocksdb import DEFAULT_COLUMN_FAMILY
from statestore.stores.transaction import StagedRows

TIMESTAMPED_COLUMN_FAMILY = "keyValueWithTimestamp"

#: Data column families by format; the first is the one that new rows are written to.
DATA_COLUMN_FAMILIES = {
    StoreFormat.PLAIN: (DEFAULT_COLUMN_FAMILY,),
    StoreFormat.TIMESTAMPED: (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY),
}


class Accessor(Protocol):
    """Reads and writes rows in the layout of one format."""

    def get(self, key: bytes) -> bytes | None:
        """Read a row in the format's layout."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a row in the format's layout; None deletes."""

    def scan(self, start: bytes | None, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `start <= key < stop` in key order."""


class SingleColumnFamily:
    """The plain format: all rows in one column family."""

    def __init__(self, rows: StagedRows, family: str) -> None:
        self._rows = rows
        self._family = family

    def get(self, key: bytes) -> bytes | None:
        """Read a row."""
        return self._rows.get(self._family, key)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a row; None deletes."""
        self._rows.put(self._family, key, value)

    def scan(self, start: bytes | None, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `start <= key < stop` in key order."""
        return self._rows.scan(self._family, start, stop)


class DualColumnFamily:
    """The timestamped format over rows that may still be plain (KIP-258's lazy migration).

    A get migrates the plain row that it finds, a put removes it, and a scan shows both, with timestamp -1 for plain
    rows. The old column family is asked only while it holds rows.
    """

    def __init__(self, rows: StagedRows, new: str, old: str) -> None:
        self._rows = rows
        self._new = new
        self._old = old
        self.upgrade_pending = rows.database.has(old) and next(rows.database.scan(old), None) is not None

    def get(self, key: bytes) -> bytes | None:
        """Read a row; a plain one is migrated."""
        value = self._rows.get(self._new, key)
        if value is not None or not self.upgrade_pending:
            return value
        plain = self._rows.get(self._old, key)
        if plain is None:
            return None
        value = encode(plain, UNKNOWN_TIMESTAMP)
        self.put(key, value)
        return value

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a row, and remove its plain predecessor; None deletes both."""
        self._rows.put(self._new, key, value)
        if self.upgrade_pending:
            self._rows.put(self._old, key, None)

    def scan(self, start: bytes | None, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `start <= key < stop` in key order, from both column families."""
        new = self._rows.scan(self._new, start, stop)
        if not self.upgrade_pending:
            return new
        old = ((key, encode(plain, UNKNOWN_TIMESTAMP)) for key, plain in self._rows.scan(self._old, start, stop))
        return heapq.merge(new, old, key=lambda row: row[0])


def accessor(store_format: StoreFormat, rows: StagedRows) -> Accessor:
    """Return the accessor of a format."""
    families = DATA_COLUMN_FAMILIES[store_format]
    return SingleColumnFamily(rows, *families) if len(families) == 1 else DualColumnFamily(rows, *families)
