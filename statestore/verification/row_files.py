"""Rows of a closed database straight from its SST files, where the bulk path wrote all of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from statestore.bulk.merging import count_merged
from statestore.changelog.reader import SCHEMA
from statestore.sst.layout import OtherLayoutError
from statestore.sst.reader import keys_of, rows_of
from statestore.stores.row_files import files_of_rows, runs_of_rows
from statestore.stores.scan import STORED_SCHEMA, ScannedDatabase


def rows_from_files(database: ScannedDatabase) -> Iterator[pa.RecordBatch] | None:
    """Return a database's rows in key order, as batches with `scan.STORED_SCHEMA`; None if its files do not allow it.

    Raises
    ------
    OtherLayoutError
        Also after the first batches, by the iterator.
    """
    files = files_of_rows(database)
    return None if files is None else (batch for path in files for batch in rows_of(path, STORED_SCHEMA))


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
            zeros = pa.py_buffer(np.zeros(batch.num_rows, np.int64))  # `pa.array` would import pandas
            none = pa.Int64Array.from_buffers(pa.int64(), batch.num_rows, [None, zeros])
            yield pa.RecordBatch.from_arrays([*batch.columns, none, none], schema=SCHEMA)
