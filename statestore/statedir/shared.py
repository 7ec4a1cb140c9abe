"""Checks that all machines of a job share one state directory: the driver writes a nonce that the others look for.

    <state.dir>/.statestore/shared-<nonce>                 while a job runs, locked by its driver
    <state.dir>/.statestore/shared-<nonce>.<own>[.link]    while an executor tries a lock and a hard link

Where a machine had mounted something else, each store would be missing there, be restored there, and be missing again.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from statestore.errors import LockedError, UnsharedStateError, of_os_error
from statestore.statedir.lock import locked_file
from statestore.statedir.paths import OWN_DIRECTORY

_PREFIX = "shared-"
_LOCK_WAIT_S = 10.0
#: What the operating system says where a file system has no locks.
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Nonce(BaseModel):
    """Mark of a driver in its state directory.

    Attributes
    ----------
    host
        Name of the driver's machine.
    """

    model_config = ConfigDict(frozen=True)

    path: Path
    state_dir: Path
    host: str


@contextmanager
def left_nonce(state_dir: Path) -> Iterator[Nonce]:
    """Leave a nonce in the state directory and hold its lock; remove it afterwards, and those of killed drivers.

    Raises
    ------
    UnsharedStateError
        If the file system has no locks.
    """
    own = state_dir / OWN_DIRECTORY
    nonce = Nonce(path=own / f"{_PREFIX}{uuid4().hex}", state_dir=state_dir, host=socket.gethostname())
    _remove_abandoned(own)
    with ExitStack() as held:
        _lock(held, nonce, nonce.path)
        held.callback(nonce.path.unlink, missing_ok=True)
        yield nonce


def require_found(nonce: Nonce) -> None:
    """Look for the driver's nonce; this costs no more than a look at one file.

    Raises
    ------
    UnsharedStateError
        If it is not there.
    """
    if not nonce.path.exists():
        raise UnsharedStateError(
            f"state directory {nonce.state_dir}: {socket.gethostname()} does not find {nonce.path.name} there, which "
            f"the driver on {nonce.host} has left there. Mount one file system at this path on the machine of the "
            "driver and on those of all executors"
        )


def try_out(nonce: Nonce) -> None:
    """Find the driver's nonce and its lock, and take a lock and make a hard link beside it.

    Raises
    ------
    UnsharedStateError
        If one of these is not possible; the message says what is needed.
    """
    require_found(nonce)
    try:
        with locked_file(nonce.path, 0):
            pass
    except LockedError:
        pass
    else:
        _refuse(nonce, f"does not see the lock that the driver on {nonce.host} holds", "whose locks all machines see")
    own = nonce.path.with_name(f"{nonce.path.name}.{uuid4().hex}")
    link = own.with_name(f"{own.name}.link")
    with ExitStack() as held:
        _lock(held, nonce, own)
        held.callback(own.unlink)
        try:
            os.link(own, link)
        except OSError as error:
            _refuse(nonce, f"cannot make a hard link ({error.strerror})", "with hard links")
        link.unlink()


def _lock(held: ExitStack, nonce: Nonce, path: Path) -> None:
    """Make and lock a file of ours."""
    try:
        held.enter_context(locked_file(path, _LOCK_WAIT_S))
    except OSError as error:
        if error.errno in _NO_LOCKS:
            _refuse(nonce, f"cannot lock {path.name} ({error.strerror})", "with POSIX locks")
        raise of_os_error(error) from error


def _remove_abandoned(own: Path) -> None:
    """Remove the nonces that nobody locks any more."""
    for path in own.glob(f"{_PREFIX}*"):
        with suppress(LockedError), locked_file(path, 0):
            path.unlink()


def _refuse(nonce: Nonce, what: str, needed: str) -> NoReturn:
    raise UnsharedStateError(
        f"state directory {nonce.state_dir}: {socket.gethostname()} {what}. Put it on a file system {needed}, such as "
        "NFS 4"
    )
