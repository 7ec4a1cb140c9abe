"""Locks of a task: shared on the application, exclusive on the task.

Kafka Streams takes `<application.id>/.lock` exclusively (a POSIX record lock), so a shared lock on it keeps a running
Kafka Streams out and lets our other tasks in. The task's own lock lies in our directory.

Nobody here removes a lock file, and Kafka Streams leaves its own where it is. But a person may, and then two processes
could hold two files of one name. So a lock counts only while its path still names the file that was locked, which is
looked at again before each step that another holder would see: before a store is opened, committed, recorded, sealed,
replaced or removed. A process that slept meanwhile, and woke up when another one had the task, ends there.

Who reads a store for long asks now and then whether somebody urgent waits for its task, who holds a lock that tells of
that (`<task>/wanted`, shared, for as long as it waits), and then gives way.

An application that a rewrite makes of the state of another is nobody's until that has ended: a journal tells, which a
kill leaves behind. The same holds while an application is put back to a point, between the catalogue's new changelogs
and the last store that is put in place.

And whatever the locks say, a task is in use while another
process has one of its databases open: RocksDB holds a lock of its own then (`open_databases.py`).
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock

from statestore.errors import LockedError
from statestore.statedir.open_databases import open_elsewhere
from statestore.statedir.paths import TaskPaths, point_hold, rewrite_journal
from statestore.stores.abandoned import abandon, take_up

_POLL_S = 0.1
# struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid; zero length is the whole file.
_WHOLE_FILE = struct.Struct("hhqqi4x")
_WRITING = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
#: Paths of the lock files that this process holds, by their descriptors.
_HELD: dict[int, Path] = {}
#: To be held while that changes, or is gone through: threads restore tasks beside each other.
_HELD_LOCK = Lock()


@contextmanager
def locked(
    paths: TaskPaths,
    wait_s: float = 10.0,
    *,
    urgent: bool = False,
    rewriting: bool = False,
    reading: bool = False,
) -> Iterator[None]:
    """Hold both locks of the task, while no other process has one of its databases open.

    Parameters
    ----------
    wait_s
        How long to wait for them.
    urgent
        Have those who only read give way (`give_way`).
    rewriting
        The caller is the rewrite that makes the application, or puts it back to a point.
    reading
        The caller changes nothing. A lock file that it may not write is then locked as a reader. If a lock file does
        not exist and cannot be created, no program can use the task through this mount, and none is assumed to.

    Raises
    ------
    LockedError
        If somebody else still holds one of them then, or a rewrite that makes the application has not ended. Lock files
        are never removed.
    """
    deadline = time.monotonic() + wait_s
    application, task = paths.locks
    wanted = _wanted(paths) if urgent else None
    with (
        _held(application, fcntl.F_RDLCK, deadline, reading=reading),
        _held(task, fcntl.F_WRLCK, deadline, wanted, reading=reading),
    ):
        for directory in (paths.task_dir, paths.own_dir):
            if (left := take_up(directory)) is not None:
                raise LockedError(
                    f"this process has left {left} open: it lost the lock of the task, and another process may have "
                    "worked since. End this process, and run again"
                )
        while (found := open_elsewhere(paths)) is not None:
            _wait(found, deadline)
        if not rewriting:
            require_made(paths.state_dir, paths.application)
        yield


def require_made(state_dir: Path, application: str) -> None:
    """Make sure that no rewrite is making an application here, or has been interrupted.

    Raises
    ------
    LockedError
        If one is, or was.
    """
    journal = rewrite_journal(state_dir, application)
    if journal.exists():
        raise LockedError(
            f"application {application} is being made by `statestore rewrite`, which has not ended: {journal} is "
            "there. If it was interrupted, run the same command again; until then nothing of the application can be "
            "used"
        )
    if (hold := point_hold(state_dir, application)).exists():
        raise LockedError(
            f"application {application} is being restored to a point, or such a restore is being undone, and this has "
            f"not ended: {hold} is there. If it was interrupted, run the same command again; until then nothing of the "
            "application can be used"
        )


def require_held(*files: Path) -> None:
    """Make sure that lock files which this process holds are still the ones that it has locked.

    Raises
    ------
    LockedError
        If somebody has deleted one of them.
    """
    with _HELD_LOCK:  # a descriptor that another thread closes may be another file's at once
        lost = next((path for held, path in _HELD.items() if path in files and not _is_at(path, held)), None)
    if lost is not None:
        raise LockedError(
            f"{lost} is no longer the file that this process has locked. Another program has deleted it, so another "
            f"process may take the task. Nothing was changed after that. Do not delete lock files, and run again"
        )


def require_locks(paths: TaskPaths) -> None:
    """Make sure that the task is still ours; its holder calls this before each step that another holder would see.

    Raises
    ------
    LockedError
        If one of the lock files that this process holds was deleted. Its databases of the task then stay open.
    """
    try:
        require_held(*paths.locks)
    except LockedError:
        abandon(paths.task_dir)
        abandon(paths.own_dir)
        raise


def require_alone(paths: TaskPaths) -> None:
    """Make sure that nobody else uses the task; its holder calls this before it replaces or removes a store.

    Raises
    ------
    LockedError
        If somebody has deleted one of the lock files that this process holds, or has opened a database of the task.
    """
    require_locks(paths)
    if (found := open_elsewhere(paths)) is not None:
        raise LockedError(found)


def give_way(paths: TaskPaths) -> None:
    """Do nothing unless somebody urgent waits for the task; who holds it and only reads calls this now and then.

    Raises
    ------
    LockedError
        If somebody does.
    """
    try:
        descriptor = os.open(_wanted(paths), os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE_FILE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(descriptor)
    if _WHOLE_FILE.unpack(found)[0] != fcntl.F_UNLCK:
        raise LockedError(f"another process waits for task {paths.task} of {paths.application}: it goes first")


def _wanted(paths: TaskPaths) -> Path:
    return paths.own_dir / "wanted"


@contextmanager
def locked_file(path: Path, wait_s: float, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock file of ours, alone or with others that share it; it is made if it is not there.

    Raises
    ------
    LockedError
        If somebody else still holds it after `wait_s`.
    """
    with _held(path, fcntl.F_RDLCK if shared else fcntl.F_WRLCK, time.monotonic() + wait_s):
        yield


@contextmanager
def _held(
    path: Path, kind: int, deadline: float, wanted: Path | None = None, *, reading: bool = False
) -> Iterator[None]:
    flags = _WRITING
    if reading and not is_writable(path):
        flags, kind = os.O_RDONLY | os.O_CLOEXEC, fcntl.F_RDLCK
        if not path.exists():
            yield
            return
    if (descriptor := _acquired(path, kind, flags)) is None:
        with nullcontext() if wanted is None else _held(wanted, fcntl.F_RDLCK, deadline):
            descriptor = _waited_for(path, kind, deadline, flags)
    with _HELD_LOCK:
        _HELD[descriptor] = path
    try:
        yield
    finally:
        with _HELD_LOCK:
            del _HELD[descriptor]
        # A fork of this process may share the descriptor, so closing it is not enough.
        _try_lock(descriptor, fcntl.F_UNLCK)
        os.close(descriptor)


def is_writable(path: Path) -> bool:
    """Return whether a file can be written, or created with the directories above it."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return os.access(path, os.W_OK)


def _waited_for(path: Path, kind: int, deadline: float, flags: int) -> int:
    while (descriptor := _acquired(path, kind, flags)) is None:
        _wait(
            f"{path} is locked by another process: a running task, another job, or Kafka Streams; wait until it has "
            "ended, or stop it",
            deadline,
        )
    return descriptor


def _acquired(path: Path, kind: int, flags: int) -> int | None:
    """Return the descriptor of the lock file, locked; None if somebody else holds it.

    It is opened each time: who waits on a file that was deleted would have a lock that keeps nobody out.
    """
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o644)
    try:
        if _try_lock(descriptor, kind) and _is_at(path, descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _wait(reason: str, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise LockedError(reason)
    time.sleep(_POLL_S)  # the kernel has no wait with a deadline for file locks


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _try_lock(descriptor: int, kind: int) -> bool:
    # Open file description locks conflict with Kafka Streams' POSIX locks but belong to the descriptor: closing
    # another descriptor of the same file elsewhere in this process does not give them back.
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE.pack(kind, os.SEEK_SET, 0, 0, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True
