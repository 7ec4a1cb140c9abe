"""Links to a store's files, so that RocksDB can open them while the store is in use, without changing it.

Nothing is locked and nothing written where a store lies: RocksDB opens a view of it (`stores/linked_view.py`). After
that, the owner may write, compact and remove files: RocksDB reads the store as it was on disk.

If the owner changes files while they are being opened, they are opened again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import RetryError, StateStoreError, StoreCorruptedError, UnknownStoreError
from statestore.stores import linked_view

T = TypeVar("T")

#: So long files are opened again that change meanwhile (s). One opening takes milliseconds, on a busy machine more.
_FOR_S = 30.0
#: What grows all the time and says nothing of the rows.
_INFO_LOG = "LOG"


def undisturbed(store: StoreDirectory, action: Callable[[], T]) -> T:
    """Do something with a store's files, and again as long as it fails while they change.

    Raises
    ------
    RetryError
        If they changed each time: what failed then is no sign of damage.
    UnknownStoreError
        If they are gone.
    """
    started = time.monotonic()
    while True:
        before = _files(store)
        try:
            return action()
        except (StoreCorruptedError, FileNotFoundError, RetryError) as error:
            # A plain RetryError says that something else has changed.
            if type(error) is not RetryError and before is not None and _files(store) == before:
                if isinstance(error, FileNotFoundError):
                    raise UnknownStoreError(f"{store.directory} no longer exists: {error}") from error
                raise
            if time.monotonic() - started > _FOR_S:
                raise RetryError(
                    f"the files in {store.directory} changed each time they were opened, for {_FOR_S:g} s: {error}. "
                    "Read it again when its owner writes less"
                ) from error


@contextmanager
def linked(directory: Path) -> Iterator[Path]:
    """Have a directory that RocksDB takes for the database as it is now, to open it there while the context lasts."""
    with linked_view.linked(directory) as view, named(view, directory):
        yield view


@contextmanager
def named(view: Path, directory: Path) -> Iterator[None]:
    """Name the store in errors, not the links to it."""
    try:
        yield
    except StateStoreError as error:
        raise type(error)(str(error).replace(str(view), str(directory))) from error


def _files(store: StoreDirectory) -> set[tuple[Path, int]] | None:
    """Names and sizes of a store's files; None if they change while they are listed."""
    try:
        return {
            (path, path.stat().st_size)
            for directory in store.databases().values()
            for path in directory.iterdir()
            if not path.name.startswith(_INFO_LOG)
        }
    except FileNotFoundError:
        return None
