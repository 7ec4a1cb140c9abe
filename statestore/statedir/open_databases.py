"""Detects whether another process has a database of a task open, by RocksDB's lock on its file LOCK.

RocksDB takes a POSIX record lock on it when it opens a database for writing. Asking for it takes nothing, and an
application that lost its own lock file, such as a running Kafka Streams, is found all the same.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from statestore.statedir.paths import TaskPaths
from statestore.stores.rocksdb import exists

# struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid; zero length is the whole file.
_LOCK = struct.Struct("hhqqi4x")
_FILE = "LOCK"


def open_elsewhere(paths: TaskPaths) -> str | None:
    """Say which database of a task another process has open, and which process; None if there is none.

    Databases that are built to replace the live ones count, too.

    Raises
    ------
    OSError
        If a lock file may not be read.
    """
    mine: set[tuple[int, int]] | None = None
    # Live key-value stores lie in `rocksdb`, segments of the others in a directory for each store.
    for database in chain(paths.task_dir.glob("*/*"), paths.staged.glob("*"), paths.staged.glob("*/*")):
        lock = database / _FILE
        try:
            there = lock.stat()
        except NotADirectoryError:
            continue
        except FileNotFoundError:
            if exists(database) and (process := _user_of(database)) is not None:
                return f"{database} is open in process {process}, and its file LOCK was deleted; stop that process"
            continue
        mine = _open_here() if mine is None else mine
        # To close a file gives back all POSIX locks that this process has on it, RocksDB's among them.
        if (there.st_dev, there.st_ino) not in mine and (process := _holder_of(lock)) is not None:
            holder = f"process {process}" if process > 0 else "a process that the system does not show"
            return f"{lock} is locked by {holder}: the database is open there; wait until that has ended, or stop it"
    return None


def _open_here() -> set[tuple[int, int]]:
    """Files that this process has open, by device and inode."""
    found = set()
    with os.scandir("/proc/self/fd") as descriptors:
        for descriptor in descriptors:
            try:
                opened = descriptor.stat()
            except FileNotFoundError:  # closed meanwhile
                continue
            found.add((opened.st_dev, opened.st_ino))
    return found


def _holder_of(lock: Path) -> int | None:
    """Process that keeps others from locking a file; -1 or 0 if it cannot be told; None if there is none."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, process = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else process


def _user_of(database: Path) -> int | None:
    """Another process that has a file of a directory open, of those that may be looked at."""
    begin = f"{database.resolve()}{os.sep}"
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) != os.getpid() and any(file.startswith(begin) for file in _files_of(process)):
            return int(process.name)
    return None


def _files_of(process: Path) -> Iterator[str]:
    try:
        for descriptor in (process / "fd").iterdir():
            yield os.readlink(descriptor)
    except OSError:  # somebody else's, or it has ended
        return
