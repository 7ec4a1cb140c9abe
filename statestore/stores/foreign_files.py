"""SST files that lie in a database's directory and are not its own.

If CURRENT is lost, RocksDB creates an empty database for anybody who opens with `create_if_missing`, as Kafka Streams
does. It does so even if the opening then fails because of a log file of the lost database. The next opening for
writing deletes the SST files of the lost database as obsolete, before anybody can write. So foreign files are beside
an empty database only.

An empty database can also have files of its own that its MANIFEST does not name, after a kill:

- in a flush. The file names its creator.
- while a restore ingested files. These name no creator, but RocksDB links them first, so their first name is still
  there. It removes that name after the MANIFEST has the file.
"""

from __future__ import annotations

from pathlib import Path

from statestore.errors import about, unreadable_is_damaged
from statestore.sst.layout import CREATOR, OtherLayoutError, read_properties
from statestore.stores.manifest import database_identity

#: Of files that no database wrote: the bulk path names no creator, and RocksDB's SstFileWriter this one.
_NO_DATABASE = (None, b"SST Writer")


def find_foreign_file(directory: Path) -> Path | None:
    """Return a complete SST file that the empty database in a directory did not write; None if there is none.

    Raises
    ------
    StoreCorruptedError
        If the disk does not give a file back.
    """
    with unreadable_is_damaged():
        identity = database_identity(directory)
        return next((path for path in sorted(directory.glob("*.sst")) if _is_foreign(path, identity)), None)


def _is_foreign(path: Path, identity: bytes | None) -> bool:
    try:
        with about(path):
            creator = read_properties(path).get(CREATOR)
            if creator in _NO_DATABASE:
                return path.stat().st_nlink == 1
    except (FileNotFoundError, OtherLayoutError):
        return False
    return creator != identity
