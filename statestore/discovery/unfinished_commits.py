"""Commits of a live store that its files may have in part, completed in a reader's own view of them.

RocksDB puts the databases of a store on disk each in its own time, so the files alone may have one half of a commit.
Its owner keeps such commits in files (`stores/commit_log.py`). A reader looks for them before it opens the databases
and again afterwards. If it finds one commit both times, it has missed none: the databases have nothing that is newer
than the last of them, and they all have the commits that were removed before the first. The reader shows the commits
over the rows of the databases, and so has the store as it was at the last commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import RetryError
from statestore.model import TopicPartition
from statestore.stores.commit_log import Commit, Piece, numbers
from statestore.stores.database import ONLY
from statestore.stores.last_use import LastUse
from statestore.stores.rocksdb import RocksDB


class _Opened(Protocol):
    """A database that is open for reading."""

    @property
    def directory(self) -> Path:
        """Where it lies."""

    @property
    def database(self) -> RocksDB:
        """The database itself."""

    def stage(self, pieces: Iterable[Piece], offsets: Mapping[TopicPartition, int]) -> None:
        """Show rows and offsets as they are once changes are applied."""


class UnfinishedCommits:
    """Commits of a store that its files may have in part, from before its databases are opened.

    Use it as a context manager, for as long as the commits are needed.

    Parameters
    ----------
    here
        Directories of its databases.
    """

    def __init__(self, store: StoreDirectory, here: Mapping[int, Path]) -> None:
        self._store = store
        self._here = here
        self._files = ExitStack()
        self._commits: dict[int, Commit] = {}
        self._directory: Path | None = None
        if (paths := store.paths) is not None:
            self._last_use = LastUse(paths.mode(store.name), recording=True)
            self._directory = paths.commits(store.name)
        self._openings = self._current()

    def __enter__(self) -> UnfinishedCommits:
        self._hold()
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def any(self) -> bool:
        """True if there are commits whose rows the files may lack."""
        return any(commit.databases for commit in self._commits.values())

    def show_in(self, opened: Sequence[_Opened]) -> None:
        """Show the commits in databases that were just opened.

        Raises
        ------
        RetryError
            If it is unknown whether these contain a part of a commit.
        StoreCorruptedError
            If a commit is damaged, or follows one that a database does not have.
        """
        shown, before = self.any, set(self._commits)
        now = self._hold()
        if self._current() != self._openings or not (before == now or (shown and before & now)):
            raise self._changed()
        for one in opened if shown else ():
            name = one.directory.name if self._store.segmented else ONLY
            if not self._last_use.is_as_recorded(name, one.directory, one.database.last_write):
                continue  # another program has used it since
            reached: dict[TopicPartition, int] = {}
            for _, commit in sorted(self._commits.items()):
                if name in commit.databases:
                    commit.require_follows(name, one.database.committed_offset, reached)
                    one.stage(commit.pieces(name), commit.offsets)

    def _hold(self) -> set[int]:
        """Open the commits that are not open yet, and return the numbers of all present commits."""
        if self._directory is None:
            return set()
        now = set(numbers(self._directory))
        for number in now - set(self._commits):
            try:
                file = self._files.enter_context((self._directory / str(number)).open("rb"))
            except FileNotFoundError as error:
                raise self._changed() from error
            self._commits[number] = Commit(file)
        return now

    def _changed(self) -> RetryError:
        return RetryError(f"the store in {self._store.directory} was committed each time it was read; try again")

    def _current(self) -> list[tuple[int, int]]:
        """Return a value that each opening of a database for writing changes; always the same for one in no use."""
        if self._directory is None:
            return []
        found = (directory / "CURRENT" for directory in self._here.values())
        return [(seen.st_ino, seen.st_mtime_ns) for path in found if path.exists() and (seen := path.stat())]
