"""The SST files with the rows of a closed database, where these can be read straight from them (`sst/reader.py`).

That is so where the bulk path wrote all of them. All else is left to RocksDB: files that it wrote or compacted itself,
rows in a log, in an older format, or in files that overlap.
"""

from __future__ import annotations

from pathlib import Path

from statestore.sst.layout import is_of_bulk_path
from statestore.stores.scan import ScannedDatabase


def runs_of_rows(database: ScannedDatabase) -> list[list[Path]] | None:
    """Return a database's runs of files (`ScannedDatabase.sorted_runs`); None unless the bulk path wrote them all."""
    runs = database.sorted_runs()
    return None if runs is None or not all(_can_be_read(path) for files in runs for path in files) else runs


def files_of_rows(database: ScannedDatabase) -> list[Path] | None:
    """Return a database's files of rows in key order, if all are such files, and no key can be in two; else None."""
    runs = runs_of_rows(database)
    return None if runs is None or len(runs) > 1 else [path for files in runs for path in files]


def _can_be_read(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return is_of_bulk_path(file)
    except OSError:
        return False
