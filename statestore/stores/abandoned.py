"""Databases that this process never closes, because another process has their task by now.

RocksDB writes rows that are only in memory to the directory when it closes a database, and so does the destructor of
rocksdict's object. After a lost lock, the directory may be the successor's. So the object is kept until the process
ends, and then nothing is written.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)
_ABANDONED: set[Path] = set()
_LEFT_OPEN: set[Path] = set()


def abandon(directory: Path) -> None:
    """Never close the databases below a directory that are open in this process."""
    if directory not in _ABANDONED:
        _ABANDONED.add(directory)
        _log.error("%s: another process may have this task; its databases are not closed here", directory)


def take_up(directory: Path) -> Path | None:
    """Close databases below a directory again; or return one that this process has left open until it ends."""
    found = next((one for one in sorted(_LEFT_OPEN) if one.is_relative_to(directory)), None)
    if found is None:
        _ABANDONED.discard(directory)
    return found


def is_abandoned(directory: Path) -> bool:
    """Return whether a database is not to be closed."""
    return any(directory.is_relative_to(one) for one in _ABANDONED)


def leave_open(directory: Path, *objects: Any) -> None:
    """Keep the objects of a database even when Python destroys what modules hold."""
    _LEFT_OPEN.add(directory)
    for found in objects:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
