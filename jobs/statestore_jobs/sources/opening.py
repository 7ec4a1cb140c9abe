"""Databases of stores, opened beside an owner that may be writing to them, and without a trace.

Nothing is locked and nothing written where a store lies: RocksDB is given a directory of links elsewhere, with a copy
of the MANIFEST as it is then. It opens all SST files at once, and holds them. From then on the owner may write, compact
and remove files as it likes: what is read is the store as it was on disk, and the links are no longer needed.

If the owner changes files while they are being opened, they are opened again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple, TypeVar

import pyarrow as pa

from statestore.errors import InputError, RetryError, StateStoreError, StoreCorruptedError, UnknownStoreError
from statestore.model import StoreFormat
from statestore.statedir.lock import locked
from statestore.stores.rocksdb import column_families
from statestore.stores.scan import ScannedDatabase
from statestore.verification.look import Look, look_at_key_value, look_at_segments
from statestore_jobs.sources.where import Place

T = TypeVar("T")
Mode = Literal["live", "locked", "snapshot"]
#: Says of a segment's start (ms), and that of the one behind it, whether it is wanted.
Wanted = Callable[[int, int | None], bool]

_ATTEMPTS = 20
_MANIFEST = re.compile(r"MANIFEST-[0-9]+")
#: Files that hold rows. RocksDB only reads them; nothing else may be linked that opening could write to.
_LINKED = (".sst", ".blob", ".log")
#: What grows all the time and says nothing of the rows.
_INFO_LOG = "LOG"


class Opened(NamedTuple):
    """A database that is open.

    Attributes
    ----------
    start
        Start of the segment (ms); 0 in a key-value store.
    directory
        Where it lies; RocksDB itself names `view`, which is gone.
    """

    start: int
    directory: Path
    view: Path
    database: ScannedDatabase

    def rows(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows with `start <= row key < stop`, as they are stored.

        Raises
        ------
        StoreCorruptedError
            If they cannot be read.
        """
        with _named(self.view, self.directory):
            yield from self.database.rows(start, stop)


@contextmanager
def reading(
    place: Place, store_format: StoreFormat, mode: Mode, lock_wait_s: float, wanted: Wanted | None = None
) -> Iterator[list[Opened]]:
    """Have the databases of a store open, in order of time, while the context lasts.

    Parameters
    ----------
    mode
        `live`: as they are on disk, whoever uses them. `locked`: under the lock of the store's task, which nobody can
        write to then. `snapshot`: opened under that lock and read without it.
    wanted
        Which segments; None: all.

    Raises
    ------
    LockedError
        If somebody else holds the lock for so long.
    StoreCorruptedError
        If RocksDB cannot open one.
    """
    with ExitStack() as lock:
        if mode != "live":
            if place.paths is None:
                raise InputError(
                    f"option read: {place.directory} is not live in a state directory, so it has no task to lock; "
                    "read it as live"
                )
            lock.enter_context(locked(place.paths, lock_wait_s))
        databases = open_databases(place, store_format, wanted)
        try:
            if mode == "snapshot":
                lock.close()
            yield databases
        finally:
            _close(databases)


def open_databases(place: Place, store_format: StoreFormat, wanted: Wanted | None = None) -> list[Opened]:
    """Open the databases of a store; see `reading`. They are the caller's to close."""
    return _undisturbed(place, lambda: _open_all(place, store_format, wanted))


def look_into(place: Place) -> Look:
    """Look at what the databases of a store tell of it.

    Raises
    ------
    StoreCorruptedError
        If RocksDB cannot open one.
    UnknownFormatError
        If one has a column family that we do not know.
    """
    return _undisturbed(place, lambda: _look(place))


def families_of(place: Place) -> frozenset[str]:
    """Column families of a key-value store; it is not opened.

    Raises
    ------
    StoreCorruptedError
        If its MANIFEST cannot be read.
    """
    return _undisturbed(place, lambda: frozenset(column_families(place.directory)))


def _undisturbed(place: Place, action: Callable[[], T]) -> T:
    """Do it again if it failed while files changed."""
    for attempt in range(1, _ATTEMPTS + 1):
        before = _files(place)
        try:
            return action()
        except (StoreCorruptedError, FileNotFoundError, RetryError) as error:
            if attempt == _ATTEMPTS or (before is not None and _files(place) == before):
                if isinstance(error, FileNotFoundError):
                    raise UnknownStoreError(f"{place.directory} is no longer there: {error}") from error
                raise
    raise AssertionError("unreachable")


def _open_all(place: Place, store_format: StoreFormat, wanted: Wanted | None) -> list[Opened]:
    here = place.databases()
    starts = [*here, None]
    opened: list[Opened] = []
    try:
        with TemporaryDirectory(prefix="statestore-") as scratch:
            for at, (start, directory) in enumerate(here.items()):
                if wanted is None or wanted(start, starts[at + 1]):
                    view = _link(directory, Path(scratch) / str(start))
                    with _named(view, directory):
                        opened.append(Opened(start, directory, view, ScannedDatabase(view, store_format)))
                        opened[-1].database.require_no_foreign_files()
        if place.databases() != here:
            raise RetryError(f"the segments in {place.directory} changed each time they were opened; try again")
    except BaseException:
        _close(opened)
        raise
    return opened


def _look(place: Place) -> Look:
    with TemporaryDirectory(prefix="statestore-") as scratch:
        view = Path(scratch) / "store"
        with _named(view, place.directory):
            if not place.segmented:
                return look_at_key_value(_link(place.directory, view))
            view.mkdir()
            for start, directory in place.databases().items():
                _link(directory, view / f"{view.name}.{start}")
            return look_at_segments(view)


def _link(directory: Path, view: Path) -> Path:
    """Make a directory that RocksDB takes for the database as it is now."""
    view.mkdir()
    current = directory / "CURRENT"
    with suppress(FileNotFoundError):  # RocksDB says what is missing
        # The MANIFEST before the list of files: what it names was there then, or is missed when it is opened.
        shutil.copyfile(current, view / current.name)
        name = current.read_text(encoding="ascii", errors="replace").strip()
        if _MANIFEST.fullmatch(name):
            shutil.copyfile(directory / name, view / name)
    for path in directory.iterdir():
        if path.suffix in _LINKED:
            (view / path.name).symlink_to(path)
    return view


def _files(place: Place) -> set[tuple[Path, int]] | None:
    """Names and sizes of a store's files; None if they change while they are listed."""
    try:
        return {
            (path, path.stat().st_size)
            for directory in place.databases().values()
            for path in directory.iterdir()
            if not path.name.startswith(_INFO_LOG)
        }
    except FileNotFoundError:
        return None


@contextmanager
def _named(view: Path, directory: Path) -> Iterator[None]:
    """Have errors name the store and not the links to it."""
    try:
        yield
    except StateStoreError as error:
        raise type(error)(str(error).replace(str(view), str(directory))) from error


def _close(databases: list[Opened]) -> None:
    for opened in databases:
        opened.database.close()
