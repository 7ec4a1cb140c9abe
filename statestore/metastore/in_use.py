"""Checks whether an application is running: members of its consumer group, holders of its lock.

Our own jobs do not join the group, Kafka Streams does; both hold a lock in the state directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from statestore.errors import LockedError
from statestore.kafka.topics import Topics
from statestore.statedir.lock import locked_file


@contextmanager
def kept_free(topics: Topics, state_dir: Path | None, application: str) -> Iterator[None]:
    """Hold an application still: nobody runs it, and nobody on this machine can start to.

    Parameters
    ----------
    state_dir
        Where its lock is; None: only Kafka is asked.

    Raises
    ------
    InputError
        If its consumer group has members; the message names them.
    LockedError
        If a process holds the lock of its state directory; the message names it as far as the system tells.
    """
    topics.require_no_members(application)
    directory = None if state_dir is None else state_dir / application
    with nullcontext() if directory is None or not directory.is_dir() else _alone(directory / ".lock"):
        yield


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    try:
        with locked_file(lock, wait_s=0):
            yield
    except LockedError as error:
        held_by = ", ".join(_holders(lock)) or "a process that the system does not show"
        raise LockedError(
            f"application {lock.parent.name} is in use: {lock} is locked by {held_by}; stop it first"
        ) from error


def _holders(lock: Path) -> Iterator[str]:
    """Name the processes that hold a lock on the file, of those that may be looked at."""
    there = lock.stat()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) != os.getpid() and _holds(process, there):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                yield f"process {process.name} ({command[:100]})"
        except OSError:  # somebody else's, or it has ended
            continue


def _holds(process: Path, there: os.stat_result) -> bool:
    for descriptor in (process / "fd").iterdir():
        opened = descriptor.stat()
        same = (opened.st_dev, opened.st_ino) == (there.st_dev, there.st_ino)
        # proc(5): each lock that is held through the descriptor has a line of its own.
        if same and "lock:" in (process / "fdinfo" / descriptor.name).read_text():
            return True
    return False
