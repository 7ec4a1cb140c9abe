"""Links to a store's files, so that RocksDB can open them while the store is in use, without changing it.

Nothing is locked and nothing written where a store lies: RocksDB is given a directory of links elsewhere, with a copy
of the MANIFEST as it is then. It opens all SST files at once, and holds them. From then on the owner may write, compact
and remove files as it likes: what is read is the store as it was on disk, and the links are no longer needed. Only blob
files are opened when a row in them is read, so their links are needed until the database is closed.

If the owner changes files while they are being opened, they are opened again.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import RetryError, StateStoreError, StoreCorruptedError, UnknownStoreError
from statestore.formats.database_files import has_rows, is_log, is_table

T = TypeVar("T")

#: So long files are opened again that change meanwhile (s). One opening takes milliseconds, on a busy machine more.
_FOR_S = 30.0
_MANIFEST = re.compile(r"MANIFEST-[0-9]+")
#: Where the files that a process has open have paths.
_OPEN_FILES = Path("/proc/self/fd")
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
    with TemporaryDirectory(prefix="statestore-") as scratch, ExitStack() as held:
        view = _link(directory, Path(scratch) / "database", held)
        with named(view, directory):
            yield view


def _link(directory: Path, view: Path, held: ExitStack) -> Path:
    """Make a directory that RocksDB takes for the database as it is now.

    Files that RocksDB only reads are linked; nothing else may be that opening could write to.
    """
    view.mkdir()
    current = directory / "CURRENT"
    with suppress(FileNotFoundError):  # RocksDB says what is missing
        # The MANIFEST before the list of files: what it names was there then, or is missed when it is opened.
        shutil.copyfile(current, view / current.name)
        name = current.read_text(encoding="ascii", errors="replace").strip()
        if _MANIFEST.fullmatch(name):
            shutil.copyfile(directory / name, view / name)
    for path in directory.iterdir():
        if is_table(path.name) or is_log(path.name):
            (view / path.name).symlink_to(path)
        elif has_rows(path.name):  # RocksDB opens it only when it reads from it
            (view / path.name).symlink_to(_held(path, held))
    return view


def _held(path: Path, held: ExitStack) -> Path:
    """Open a file, and return a path that leads to it even after its owner has deleted it."""
    if not _OPEN_FILES.is_dir():
        return path
    return _OPEN_FILES / str(held.enter_context(path.open("rb")).fileno())


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
