"""How rows of closed databases are read and counted: a strategy for each form of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from statestore.bulk.routing import routing_of
from statestore.definitions.store import StoreDefinition
from statestore.kinds.kind import RowForm
from statestore.stores.scan import ScannedDatabase
from statestore.verification.options import nobody_waits
from statestore.verification.row_files import count, rows
from statestore.verification.time_ordered import time_ordered_rows
from statestore.verification.versions import count_versioned

#: Yields the rows of a database as they are on disk, with `scan.STORED_SCHEMA`.
ReadDatabase = Callable[[ScannedDatabase], Iterator[pa.RecordBatch]]
GiveWay = Callable[[], None]
_Count = Callable[[ScannedDatabase, StoreDefinition, int, GiveWay], int]


class _RowReading(NamedTuple):
    """Functions that yield the rows of a database, count its row keys, and count its rows."""

    rows: Callable[[ScannedDatabase, StoreDefinition, int, GiveWay, ReadDatabase], Iterator[pa.RecordBatch]]
    count_keys: _Count
    count_rows: _Count


def rows_by_logged_keys(
    database: ScannedDatabase,
    store: StoreDefinition,
    segment: int,
    give_way: GiveWay = nobody_waits,
    read: ReadDatabase = rows,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment by their keys in the changelog, with `scan.STORED_SCHEMA`.

    Parameters
    ----------
    segment
        Its start (ms).
    read
        Reads a database whose row keys are those of the changelog.

    Raises
    ------
    StoreCorruptedError
        If the database is damaged.
    """
    return _READINGS[store.store_kind.row_form].rows(database, store, segment, give_way, read)


def count_keys(database: ScannedDatabase, store: StoreDefinition, segment: int, give_way: GiveWay) -> int:
    """Read all rows of a segment, and return how many row keys there are.

    Raises
    ------
    StoreCorruptedError
        If the database is damaged.
    """
    return _READINGS[store.store_kind.row_form].count_keys(database, store, segment, give_way)


def count_rows(database: ScannedDatabase, store: StoreDefinition, segment: int, give_way: GiveWay) -> int:
    """Read all rows of a segment, and return how many there are; of a versioned store, how many versions.

    Raises
    ------
    StoreCorruptedError
        If the database is damaged.
    """
    return _READINGS[store.store_kind.row_form].count_rows(database, store, segment, give_way)


def _as_stored(
    database: ScannedDatabase, store: StoreDefinition, segment: int, give_way: GiveWay, read: ReadDatabase
) -> Iterator[pa.RecordBatch]:
    return read(database)


def _time_ordered(
    database: ScannedDatabase, store: StoreDefinition, segment: int, give_way: GiveWay, read: ReadDatabase = rows
) -> Iterator[pa.RecordBatch]:
    layout = store.store_kind.layout
    assert layout is not None, "time-ordered rows have a layout"
    return time_ordered_rows(database, layout, segment, routing_of(store), give_way)


def _count(database: ScannedDatabase, store: StoreDefinition, segment: int, give_way: GiveWay) -> int:
    return count(database, give_way)


def _count_time_ordered(database: ScannedDatabase, store: StoreDefinition, segment: int, give_way: GiveWay) -> int:
    return sum(batch.num_rows for batch in _time_ordered(database, store, segment, give_way))


def _count_versions(database: ScannedDatabase, store: StoreDefinition, segment: int, give_way: GiveWay) -> int:
    return count_versioned(database, give_way)


_READINGS: Mapping[RowForm, _RowReading] = {
    RowForm.RECORDS: _RowReading(_as_stored, _count, _count),
    RowForm.TIME_ORDERED: _RowReading(_time_ordered, _count_time_ordered, _count_time_ordered),
    RowForm.VERSIONS: _RowReading(_as_stored, _count, _count_versions),
}
