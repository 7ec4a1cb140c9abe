"""How rows of closed databases are read and counted: a strategy for each form of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from statestore.bulk.routing import routing_of
from statestore.definitions.store import StoreDefinition
from statestore.kinds.kind import by_form
from statestore.stores.scan import ScannedDatabase
from statestore.verification.options import nobody_waits
from statestore.verification.row_files import count, rows
from statestore.verification.time_ordered import time_ordered_rows
from statestore.verification.versions import count_versioned

GiveWay = Callable[[], None]
#: Yields the rows of a database as they are on disk, with `scan.STORED_SCHEMA`.
ReadDatabase = Callable[[ScannedDatabase], Iterator[pa.RecordBatch]]


class RowReading:
    """Reads segments (their starts in ms) of a store. All methods raise StoreCorruptedError if one is damaged."""

    def __init__(self, store: StoreDefinition) -> None:
        self._store = store

    def rows(
        self, database: ScannedDatabase, segment: int, give_way: GiveWay = nobody_waits, read: ReadDatabase = rows
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows by their keys in the changelog, with `scan.STORED_SCHEMA`.

        Parameters
        ----------
        read
            Reads a database whose row keys are those of the changelog.
        """
        return read(database)

    def count_keys(self, database: ScannedDatabase, segment: int, give_way: GiveWay) -> int:
        """Read all rows, and return how many row keys there are."""
        return count(database, give_way)

    def count_rows(self, database: ScannedDatabase, segment: int, give_way: GiveWay) -> int:
        """Read all rows, and return how many there are; the versions of a versioned store are counted."""
        return self.count_keys(database, segment, give_way)


class _TimeOrderedReading(RowReading):
    def rows(
        self, database: ScannedDatabase, segment: int, give_way: GiveWay = nobody_waits, read: ReadDatabase = rows
    ) -> Iterator[pa.RecordBatch]:
        layout = self._store.store_kind.layout
        assert layout is not None, "time-ordered rows have a layout"
        return time_ordered_rows(database, layout, segment, routing_of(self._store), give_way)

    def count_keys(self, database: ScannedDatabase, segment: int, give_way: GiveWay) -> int:
        return sum(batch.num_rows for batch in self.rows(database, segment, give_way))


class _VersionReading(RowReading):
    def count_rows(self, database: ScannedDatabase, segment: int, give_way: GiveWay) -> int:
        return count_versioned(database, give_way)


_READINGS = by_form(RowReading, time_ordered=_TimeOrderedReading, versions=_VersionReading)


def reading_of(store: StoreDefinition) -> RowReading:
    """Return how the databases of a store are read."""
    return _READINGS[store.store_kind.row_form](store)
