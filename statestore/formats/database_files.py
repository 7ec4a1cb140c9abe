"""The names that RocksDB gives to the files of a database.

Files with rows have a number: `000012.sst` and `000013.blob` never change once they are complete. Logs (`.log`) are
written to, and `.dbtmp` files are temporary. Other numbered files of later versions count as files with rows: a copy
that has too much is whole, and one that has too little is not.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Suffix of tables, which are most of the files with rows.
TABLE_SUFFIX = ".sst"

_WITH_ROWS = re.compile(r"[0-9]+\.(?!log$|dbtmp$)\w+")
_LOG_SUFFIX = ".log"


def has_rows(name: str) -> bool:
    """Return whether a file of a database has rows and never changes, by its name or path."""
    return _WITH_ROWS.fullmatch(name.rpartition("/")[2]) is not None


def is_log(name: str) -> bool:
    """Return whether a file of a database is a log of writes, by its name."""
    return name.endswith(_LOG_SUFFIX)


def files_with_rows(directory: Path) -> list[Path]:
    """Return the files of a database that have rows and never change, by name."""
    return sorted(path for path in directory.iterdir() if has_rows(path.name))


def is_table(name: str) -> bool:
    """Return whether a file of a database is a table; rows in it may refer to files of another kind."""
    return name.endswith(TABLE_SUFFIX)
