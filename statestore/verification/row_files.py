"""Rows of a closed database straight from its SST files, where the bulk path wrote all of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from statestore.bulk.merging import count_merged
from statestore.compiled.batches import int64_column
from statestore.kafka.record_columns import SCHEMA
from statestore.sst.layout import OtherLayoutError
from statestore.sst.reader import keys_of, rows_of
from statestore.stores.row_files import files_of_rows, runs_of_rows
from statestore.stores.scan import STORED_SCHEMA, ScannedDatabase

#: Data blocks of 4 KiB in a batch of rows.
_BLOCKS_A_BATCH = 1024


def rows_from_files(database: ScannedDatabase) -> Iterator[pa.RecordBatch] | None:
    """Return a database's rows in key order, as batches with `scan.STORED_SCHEMA`; None if its files do not allow it.

    Raises
    ------
    OtherLayoutError
        Also after the first batches, by the iterator.
    """
    files = files_of_rows(database)
    return None if files is None else (batch for path in files for batch in rows_of(path, STORED_SCHEMA))


def rows(database: ScannedDatabase) -> Iterator[pa.RecordBatch]:
    """Yield a database's rows in key order, as batches with `scan.STORED_SCHEMA`, straight from its files if possible.

    Raises
    ------
    StoreCorruptedError
        If a block fails its checksum.
    """
    start: bytes | None = None
    try:
        for path in files_of_rows(database) or ():
            for batch in rows_of(path, STORED_SCHEMA, blocks=_BLOCKS_A_BATCH):
                yield batch
                start = batch.column(0)[-1].as_py() + b"\0"
    except OtherLayoutError:
        pass  # RocksDB can read the rest, or names what is damaged
    yield from database.rows(start)


def count(database: ScannedDatabase, between: Callable[[], None] = lambda: None) -> int:
    """Read every row of a database, straight from its files where they allow it; return how many there are.

    Parameters
    ----------
    between
        Called now and then.

    Raises
    ------
    StoreCorruptedError
        If a block fails its checksum.
    """
    found = _count_from_files(database, between)
    return database.count(between) if found is None else found


def _count_from_files(database: ScannedDatabase, between: Callable[[], None]) -> int | None:
    runs = runs_of_rows(database)
    try:
        return None if runs is None else count_merged([_keys(files, between) for files in runs])
    except OtherLayoutError:  # a damaged file, which RocksDB names
        return None


def _keys(files: Iterable[Path], between: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    for path in files:
        for batch in keys_of(path):
            between()
            none = int64_column(np.zeros(batch.num_rows, np.int64))
            yield pa.RecordBatch.from_arrays([*batch.columns, none, none], schema=SCHEMA)
