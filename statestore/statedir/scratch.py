"""Scratch space: a directory for as long as a piece of work needs it, on the machine that does the work.

    <scratch>/work-<uuid>/       what is built
    <scratch>/work-<uuid>.lock   locked by who builds it

A process that was killed leaves both behind without a lock; the next one on this machine removes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from uuid import uuid4

from statestore.durable import remove_tree
from statestore.errors import LockedError
from statestore.statedir.lock import is_writable, locked_file
from statestore.statedir.paths import OWN_DIRECTORY

_LOCK_WAIT_S = 10.0


def default_scratch(state_dir: Path) -> Path:
    """Return where stores are built if nobody says: the disk of a state directory has room for a second copy.

    No application can have this name, so it is no directory of one. A read-only state directory has none.
    """
    scratch = state_dir / OWN_DIRECTORY / ".scratch"
    return scratch if is_writable(scratch) else Path(gettempdir()) / f"statestore-scratch-{os.getuid()}"


@contextmanager
def scratch_directory(scratch: Path) -> Iterator[Path]:
    """Make a directory of one's own, and remove it afterwards."""
    scratch.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(scratch)
    directory = scratch / f"work-{uuid4().hex}"
    lock = directory.with_suffix(".lock")
    with locked_file(lock, _LOCK_WAIT_S):
        try:
            directory.mkdir()
            yield directory
        finally:
            remove_tree(directory)
            lock.unlink(missing_ok=True)


def _remove_abandoned(scratch: Path) -> None:
    for lock in scratch.glob("work-*.lock"):
        with suppress(LockedError), locked_file(lock, 0):
            remove_tree(lock.with_suffix(""))
            lock.unlink(missing_ok=True)
