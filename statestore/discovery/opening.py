"""Opens databases for reading while their owner may write to them (links.py).

Where the bulk path wrote all files of a database, as after a restore, its rows come straight from these
(`stores/row_files.py`). RocksDB has read the MANIFEST before, and reads on from the first block that is damaged or not
as the bulk path writes it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from statestore.discovery.links import linked, named, undisturbed
from statestore.discovery.store_directory import StoreDirectory
from statestore.discovery.unfinished_commits import UnfinishedCommits
from statestore.errors import RetryError
from statestore.formats.database_files import files_with_rows, is_table
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY, AnyFormat
from statestore.model import TopicPartition
from statestore.sst.layout import OtherLayoutError
from statestore.stores.commit_log import Piece
from statestore.stores.row_files import files_of_rows
from statestore.stores.scan import STORED_SCHEMA, ScannedDatabase
from statestore.stores.versioned import RawVersion, versions_in

_READER = "statestore.sst.reader"
#: Reading files of fewer bytes without RocksDB saves less than loading numba for it takes.
_WORTH_LOADING_BYTES = 32 << 20
_BLOCKS_A_BATCH = 512

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
    files
        The SST files with all its rows, in key order, if these are to be read without RocksDB; else None.
    links
        Links that RocksDB still needs, and a place for commits that its files lack; None if it has opened all files.
    """

    start: int
    directory: Path
    view: Path
    database: ScannedDatabase
    files: Sequence[BinaryIO] | None = None
    links: ExitStack | None = None

    def stage(self, pieces: Iterable[Piece], offsets: Mapping[TopicPartition, int]) -> None:
        """Show rows and offsets as they are once changes are applied."""
        self.database.stage(pieces, offsets, self.view.with_name("staged"))

    def rows(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows with `start <= row key < stop`, as they are stored.

        Raises
        ------
        StoreCorruptedError
            If they cannot be read.
        """
        with named(self.view, self.directory):
            if self.files is not None and start is None and stop is None:
                from statestore.sst.reader import rows_in  # only here: it brings numba

                try:
                    for file in self.files:
                        for batch in rows_in(file, STORED_SCHEMA, blocks=_BLOCKS_A_BATCH):
                            yield batch
                            start = batch.column(0)[-1].as_py() + b"\0"
                    return
                except OtherLayoutError:
                    pass
            yield from self.database.rows(start, stop)

    def close(self) -> None:
        """Close it."""
        self.database.close()
        for file in self.files or ():
            file.close()
        if self.links is not None:
            self.links.close()

    def versions(self, key_from: bytes = b"", key_to: bytes | None = None) -> Iterator[tuple[bytes, list[RawVersion]]]:
        """Yield the keys of a versioned store with their versions, as `versions_in` does.

        Raises
        ------
        StoreCorruptedError
            If a row cannot be read.
        """
        with named(self.view, self.directory):
            yield from versions_in(self.database.stored(DEFAULT_COLUMN_FAMILY), key_from, key_to)


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
    with UnfinishedCommits(store, here) as commits:
        try:
            for at, (start, directory) in enumerate(here.items()):
                if wanted is None or wanted(start, starts[at + 1]):
                    opened.append(_open(start, directory, store_format, with_commits=commits.any))
            commits.show_in(opened)
            if store.databases() != here:
                raise RetryError(f"the segments in {store.directory} changed each time they were opened; try again")
        except BaseException:
            close_all(opened)
            raise
    return opened


def _open(start: int, directory: Path, store_format: AnyFormat, *, with_commits: bool) -> Opened:
    """Open a database by its links."""
    with ExitStack() as links:
        view = links.enter_context(linked(directory))
        before = _inodes(view)
        opened = Opened(start, directory, view, ScannedDatabase(view, store_format))
        try:
            opened.database.require_no_foreign_files()
            if not with_commits:
                opened = opened._replace(files=_held_files(opened.database, before))
        except BaseException:
            opened.close()
            raise
        if with_commits or not all(is_table(path.name) for path in before):
            opened = opened._replace(links=links.pop_all())
        return opened


def _inodes(view: Path) -> dict[Path, int]:
    """Return the files with rows that are there, before RocksDB opens them."""
    found: dict[Path, int] = {}
    for path in files_with_rows(view):
        with suppress(FileNotFoundError):  # RocksDB says so if it is needed
            found[path] = path.stat().st_ino
    return found


def _held_files(database: ScannedDatabase, before: Mapping[Path, int]) -> Sequence[BinaryIO] | None:
    """Open the files that are read without RocksDB, whatever the owner then does with them; None if there are others.

    A restore may replace the whole store meanwhile, with files of the same names. A file that is the same before and
    after RocksDB has opened its own is the one that RocksDB has.
    """
    try:
        paths = files_of_rows(database)
        if paths is None or (_READER not in sys.modules and _bytes(paths) < _WORTH_LOADING_BYTES):
            return None
        with ExitStack() as failed:
            files = [failed.enter_context(path.open("rb")) for path in paths]
            if [before.get(path) for path in paths] != [os.fstat(file.fileno()).st_ino for file in files]:
                return None
            failed.pop_all()
            return files
    except OSError:  # a file is gone, or too many are open: RocksDB has what it needs
        return None


def _bytes(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def close_all(databases: Sequence[Opened]) -> None:
    """Close databases."""
    for opened in databases:
        opened.close()
