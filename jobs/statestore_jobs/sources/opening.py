"""Databases of stores, opened to be read beside an owner that may be writing to them (discovery/links.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa

from statestore.discovery.links import linked, named, undisturbed
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import InputError, RetryError
from statestore.model import StoreFormat
from statestore.statedir.lock import locked
from statestore.stores.scan import ScannedDatabase

Mode = Literal["live", "locked", "snapshot"]
#: Says of a segment's start (ms), and that of the one behind it, whether it is wanted.
Wanted = Callable[[int, int | None], bool]


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
        with named(self.view, self.directory):
            yield from self.database.rows(start, stop)


@contextmanager
def reading(
    store: StoreDirectory, store_format: StoreFormat, mode: Mode, lock_wait_s: float, wanted: Wanted | None = None
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
            if store.paths is None:
                raise InputError(
                    f"option read: {store.directory} is not live in a state directory, so it has no task to lock; "
                    "read it as live"
                )
            lock.enter_context(locked(store.paths, lock_wait_s))
        databases = open_databases(store, store_format, wanted)
        try:
            if mode == "snapshot":
                lock.close()
            yield databases
        finally:
            _close(databases)


def open_databases(store: StoreDirectory, store_format: StoreFormat, wanted: Wanted | None = None) -> list[Opened]:
    """Open the databases of a store; see `reading`. They are the caller's to close."""
    return undisturbed(store, lambda: _open_all(store, store_format, wanted))


def _open_all(store: StoreDirectory, store_format: StoreFormat, wanted: Wanted | None) -> list[Opened]:
    here = store.databases()
    starts = [*here, None]
    opened: list[Opened] = []
    try:
        for at, (start, directory) in enumerate(here.items()):
            if wanted is None or wanted(start, starts[at + 1]):
                with linked(directory) as view:
                    opened.append(Opened(start, directory, view, ScannedDatabase(view, store_format)))
                    opened[-1].database.require_no_foreign_files()
        if store.databases() != here:
            raise RetryError(f"the segments in {store.directory} changed each time they were opened; try again")
    except BaseException:
        _close(opened)
        raise
    return opened


def _close(databases: list[Opened]) -> None:
    for opened in databases:
        opened.database.close()
