"""Databases of stores, opened to be read beside an owner that may be writing to them (links.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from statestore.discovery.links import linked, named, undisturbed
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import RetryError
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY, AnyFormat
from statestore.stores.scan import ScannedDatabase
from statestore.stores.versioned import RawVersion, versions_in

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

    def versions(self, key_from: bytes = b"", key_to: bytes | None = None) -> Iterator[tuple[bytes, list[RawVersion]]]:
        """Yield the keys of a versioned store with their versions, as `versions_in` does.

        Raises
        ------
        StoreCorruptedError
            If a row cannot be read.
        """
        with named(self.view, self.directory):
            yield from versions_in(self.database.family(DEFAULT_COLUMN_FAMILY), key_from, key_to)


def open_databases(store: StoreDirectory, store_format: AnyFormat, wanted: Wanted | None = None) -> list[Opened]:
    """Open the databases of a store, in order of time; they are the caller's to close.

    Parameters
    ----------
    wanted
        Which segments; None: all.

    Raises
    ------
    StoreCorruptedError
        If RocksDB cannot open one.
    """
    return undisturbed(store, lambda: _open_all(store, store_format, wanted))


def _open_all(store: StoreDirectory, store_format: AnyFormat, wanted: Wanted | None) -> list[Opened]:
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
        close_all(opened)
        raise
    return opened


def close_all(databases: Sequence[Opened]) -> None:
    """Close databases."""
    for opened in databases:
        opened.database.close()
