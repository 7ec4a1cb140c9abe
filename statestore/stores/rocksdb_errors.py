"""RocksDB's failures in the library's words."""

from __future__ import annotations

from pathlib import Path

from statestore.errors import DiskSpaceError, LockedError, StoreAccessError, StoreCorruptedError
from statestore.stores.linked_view import without_views

#: What the operating system says through RocksDB when nothing is wrong with the data.
_NO_SPACE = ("No space left", "Disk quota exceeded")
_NO_ACCESS = (
    "Permission denied",
    "Operation not permitted",
    "Read-only file system",
    "Too many open files",
    "File too large",
    "Cannot allocate memory",
    "Stale file handle",
)


def translate(error: Exception, directory: Path) -> Exception:
    """Turn rocksdict's exception into ours.

    rocksdict raises plain `Exception` whose text begins with RocksDB's status code; there is nothing else to go by.
    """
    text = without_views(str(error))
    if "/LOCK:" in text or "lock hold by" in text:
        return LockedError(f"{directory} is open in another process: {text}")
    if any(sign in text for sign in _NO_SPACE):
        return DiskSpaceError(f"{directory}: {text}; free some space, then run again")
    if any(sign in text for sign in _NO_ACCESS):
        return StoreAccessError(f"{directory}: {text}; check owner, permissions, mount, and limits")
    if text.startswith(("Corruption", "IO error", "Invalid argument", "Not found", "NotFound")):
        return StoreCorruptedError(f"RocksDB cannot read {directory}: {text}; restore it from its changelog")
    return error
