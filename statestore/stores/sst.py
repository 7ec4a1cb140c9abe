"""Writing SST files, which a database takes over as they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rocksdict import SstFileWriter

from statestore.stores.rocksdb_errors import translate
from statestore.stores.rocksdb_options import options


def write_sst(rows: Iterable[tuple[bytes, bytes | None]], path: Path) -> None:
    """Write rows, in key order, into an SST file for `RocksDB.ingest`; a None value becomes a delete.

    Raises
    ------
    DiskSpaceError, StoreAccessError
        If the file cannot be written.
    """
    try:
        writer = SstFileWriter(options())
        writer.open(str(path))
        for key, value in rows:
            if value is None:
                del writer[key]
            else:
                writer[key] = value
        writer.finish()
    except Exception as error:  # see translate
        raise translate(error, path) from error
