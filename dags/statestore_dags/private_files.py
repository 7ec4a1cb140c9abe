"""Secrets of an Airflow connection in a file of mode 0600, whose name alone is in the environment.

It lies in the temporary directory; for Spark's executors on other machines, in one that all of them share, where they
find it under the same path. It is locked as long as it is needed. A worker that was killed leaves it behind without a
lock; the next task that makes one there removes it.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_file(content: str, directory: Path, prefix: str) -> Iterator[Path]:
    """Keep content in a file of one's own.

    Parameters
    ----------
    directory
        Of the file; it is made if it is not there.
    prefix
        What the names of such files begin with.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_leftovers(directory, prefix)
    descriptor, path = _locked_file(directory, prefix)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            yield path
    finally:
        path.unlink(missing_ok=True)


def _locked_file(directory: Path, prefix: str) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(prefix=prefix, dir=directory)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)  # before it was locked, somebody took it for a leftover


def _remove_leftovers(directory: Path, prefix: str) -> None:
    """Remove the files of tasks that were killed: nobody holds a lock on them any more."""
    for path in directory.glob(f"{prefix}*"):
        try:
            # For writing, or a lock could not be had on NFS.
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # it has just gone, or is another user's
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:  # it is in use
            pass
        finally:
            os.close(descriptor)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment, and set them back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
