"""Rows of a closed database straight from its SST files, where the bulk path wrote all of these."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from statestore.sst.reader import is_of_bulk_path, rows_of
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


def files_of_rows(database: ScannedDatabase) -> list[Path] | None:
    """Return a database's files of rows in key order, if all are such files, and no key can be in two; else None."""
    live = [(database.directory / file["name"].lstrip("/"), file) for file in database.live_files()]
    # RocksDB itself writes offsets, so a file of the bulk path is one of rows.
    ours = sorted(
        ((path, file) for path, file in live if is_of_bulk_path(path)), key=lambda found: found[1]["start_key"]
    )
    entries = sum(file["num_entries"] for _, file in ours)
    overlap = any(one["end_key"] >= other["start_key"] for (_, one), (_, other) in pairwise(ours))
    if overlap or (len(ours), entries) != (database.row_files(), database.entries()):
        return None
    return [path for path, _ in ours]
