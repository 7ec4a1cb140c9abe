"""Locks of a task: shared on the application, exclusive on the task.

Kafka Streams takes `<application.id>/.lock` exclusively (a POSIX record lock), so a shared lock on it keeps a running
Kafka Streams out and lets our other tasks in. The task's own lock lies in our directory.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statestore.errors import LockedError
from statestore.statedir.paths import TaskPaths

_POLL_S = 0.1
# struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid; zero length is the whole file.
_WHOLE_FILE = struct.Struct("hhqqi4x")


@contextmanager
def locked(paths: TaskPaths, wait_s: float = 10.0) -> Iterator[None]:
    """Hold both locks of the task.

    Parameters
    ----------
    wait_s
        How long to wait for them.

    Raises
    ------
    LockedError
        If somebody else still holds one of them then. Lock files are never removed.
    """
    deadline = time.monotonic() + wait_s
    paths.application_dir.mkdir(parents=True, exist_ok=True)
    paths.own_dir.mkdir(parents=True, exist_ok=True)
    with (
        _held(paths.application_dir / ".lock", fcntl.F_RDLCK, deadline),
        _held(paths.own_dir / "lock", fcntl.F_WRLCK, deadline),
    ):
        yield


@contextmanager
def locked_file(path: Path, wait_s: float, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock file of ours, alone or with others that share it; it is made if it is not there.

    Raises
    ------
    LockedError
        If somebody else still holds it after `wait_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _held(path, fcntl.F_RDLCK if shared else fcntl.F_WRLCK, time.monotonic() + wait_s):
        yield


@contextmanager
def _held(path: Path, kind: int, deadline: float) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while not _try_lock(descriptor, kind):
            if time.monotonic() > deadline:
                raise LockedError(
                    f"{path} is locked by another process: a running task, another job, or Kafka Streams; "
                    "wait until it has ended, or stop it"
                )
            time.sleep(_POLL_S)  # the kernel has no wait with a deadline for file locks
        try:
            yield
        finally:
            # A fork of this process may share the descriptor, so closing it is not enough.
            _try_lock(descriptor, fcntl.F_UNLCK)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    # Open file description locks conflict with Kafka Streams' POSIX locks but belong to the descriptor: closing
    # another descriptor of the same file elsewhere in this process does not give them back.
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE.pack(kind, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True
