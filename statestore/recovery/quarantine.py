"""Stores that were replaced: kept until they are validated or old, and never removed while they might be needed."""

from __future__ import annotations

import time
from pathlib import Path

from statestore.durable import remove_durably, remove_tree
from statestore.errors import InvalidStateError, StoreCorruptedError
from statestore.model import StoreDefinition
from statestore.statedir.beside import beside_quarantined
from statestore.statedir.lock import require_locks
from statestore.statedir.paths import TaskPaths
from statestore.statedir.seal import check_seal

#: What is known of a predecessor whose status was kept in a file that is damaged.
UNREADABLE = "of a status that cannot be read any more"


def quarantined(paths: TaskPaths, store: str) -> list[Path]:
    """Directories of a store's predecessors."""
    parent = paths.quarantine(store, "_").parent
    return sorted(path for path in parent.iterdir() if path.is_dir()) if parent.exists() else []


def last_replaced(paths: TaskPaths, store: str) -> Path | None:
    """Directory of the predecessor that was replaced last; None if there is none."""
    return max(quarantined(paths, store), key=lambda path: path.stat().st_mtime_ns, default=None)


def release(paths: TaskPaths, store: str, label: str) -> None:
    """Remove a predecessor with all that is kept of it; the caller holds the task's lock."""
    require_locks(paths)
    remove_tree(paths.quarantine(store, label))
    remove_tree(paths.quarantined_segments(store, label))
    remove_durably(paths.quarantined_own(store, label))


def kept_by_age(paths: TaskPaths, store: str, label: str) -> str | None:
    """Say whether a predecessor may be the only copy of something, however good its successor is.

    Returns
    -------
    str or None
        What it was when it was replaced, if its changelog may have lost what it has, or if that is not known any more.
        It is then removed by age alone.
    """
    try:
        status = beside_quarantined(paths, store, label).status
    except InvalidStateError:
        return UNREADABLE
    return status.value if status is not None and status.log_may_have_lost else None


def old_quarantined(paths: TaskPaths, store: str, older_than_s: float) -> list[Path]:
    """Directories of a store's predecessors that were replaced so many seconds ago, or more."""
    latest = time.time() - older_than_s
    return [path for path in quarantined(paths, store) if path.stat().st_mtime <= latest]


def clean_quarantine(
    paths: TaskPaths, store: StoreDefinition, older_than_s: float, *, dry_run: bool = False
) -> list[Path]:
    """Remove a store's predecessors that are old enough, if the live store is whole; return their directories.

    Whole is a store that is sealed, and whose files are byte for byte as they were sealed. The caller holds the task's
    lock.

    Parameters
    ----------
    older_than_s
        Age in seconds since a store was replaced, from which on it is removed.
    dry_run
        Return what would be removed, and remove nothing.
    """
    old = old_quarantined(paths, store.name, older_than_s)
    if not old or not _is_whole(paths, store):
        return []
    for path in [] if dry_run else old:
        release(paths, store.name, path.name)
    return old


def _is_whole(paths: TaskPaths, store: StoreDefinition) -> bool:
    if not paths.live(store).exists():
        return False
    try:
        return bool(check_seal(paths, store.name, segmented=store.kind != "key-value", contents=True))
    except StoreCorruptedError:
        return False
