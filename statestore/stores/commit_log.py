"""Commits of a store that take more than one write, each in a file from which it can be repeated.

    <own directory>/commits/<store>/<number>

RocksDB applies one write to one database as a whole. A spilled commit is several writes, and a commit to a window or
session store is one write for each segment. Without a write-ahead log, each write reaches the disk in its own time.
Therefore, the commit is first written to a file here, which is renamed into place when it is complete. This decides the
commit: the next opening of the store repeats the commits in these files, and a reader of the store does the same in its
own view (`discovery/unfinished_commits.py`). A file is removed once all of its rows are on disk. Repeating commits in
their order gives the same rows, even if some of the rows are already there.

The changelog can replace the files of a logged store: the store's offset is the smallest of its databases, and the
changelog is replayed from there. Therefore, the files are not forced to the disk, and a damaged file ends the
repetition.

A store without a changelog has only these files. Each of its commits is first written to `prepared-<n>`, forced to the
disk, before its Kafka transaction is committed; n is a number that no other commit of the store has. After that, it is
renamed to a number as above. If the process is killed in between, Kafka tells whether the commit counts
(`CommitLog.decide`). A damaged file is an error.

The last file stays until the store is closed. If a reader finds the same file before and after it has opened the
databases, it has missed none.

A file, little-endian: parts, each

    u32 length of the body; u32 CRC-32C of the body; body

The first body is JSON: the names of the databases, and the offsets and position of the commit. If the store has no
changelog, it also has the offsets of the commit before that changed each database. If a database does not have that
commit, an older copy of it was put back, and the file is not repeated. The last body is empty.
Each of the others has changes of a column family of a database, which are applied in their order:

    u16 length of the database's name; u16 length of the family's name; u8 1: deleted ranges, 0: rows; the two names
    a list of two lists, which are the keys and the values, as `marshal` writes them in its version 2:
        list: "[", u32 length, elements; key or value: "s", u32 length, bytes; value of a delete: "N"

For deleted ranges, the first key and the one that they end before stand for key and value. `marshal` writes all lengths
and bytes of a part in one call, which takes half the time of anything else that Python has.
"""

from __future__ import annotations

import json
import marshal
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple, Protocol

import google_crc32c

from statestore import kill_switch
from statestore.durable import sync_directory
from statestore.errors import StoreCorruptedError, of_os_error
from statestore.model import TopicPartition
from statestore.stores.table import Changes, DeletedRange

_HEADER = Struct("<II")
_NAMES = Struct("<HHB")
_MARSHAL_VERSION = 2
#: So few that keys and values are still in the cache of the processor when they are copied.
_ROWS_A_PART = 1024
_PREPARED = "prepared-"
_NO_CHANGELOG = "The store has no changelog to rebuild it from: restore it from a snapshot"
_PART_BYTES = 4 * 1024 * 1024
#: By the names of databases.
Offsets = Mapping[str, Mapping[TopicPartition, int]]


class Piece(NamedTuple):
    """Changes of a column family: its deleted ranges, then its rows; None deletes a row."""

    family: str
    ranges: Sequence[DeletedRange]
    rows: Changes


class LoggedDatabase(Protocol):
    """A database in which a commit is repeated."""

    def repeat(
        self,
        pieces: Iterable[Piece],
        offsets: Mapping[TopicPartition, int],
        position: Mapping[TopicPartition, int] | None,
    ) -> None:
        """Apply the pieces of a commit, then its offsets and position."""

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset of the last commit that it has; None if it has none."""

    def sync(self) -> None:
        """Wait until all that was committed is on disk."""


class CommitLog:
    """The files of one store's commits, as its owner writes them.

    Parameters
    ----------
    only_copy
        The store has no changelog, which could replace a file.

    Attributes
    ----------
    is_prepared
        True while a commit waits for the outcome of its Kafka transaction.
    """

    def __init__(self, directory: Path, *, only_copy: bool = False) -> None:
        self.only_copy = only_copy
        self.is_prepared = False
        self._directory = directory
        self._next = 0
        self._prepared: tuple[Path, int] | None = None

    def add(
        self,
        databases: Mapping[str, Iterable[Piece]],
        offsets: Mapping[TopicPartition, int],
        position: Mapping[TopicPartition, int] | None,
    ) -> tuple[int, int]:
        """Write a commit; return its number and the bytes that it takes.

        Parameters
        ----------
        databases
            Changes of each database, by its name in the store; one that only gets the offsets has none.

        Raises
        ------
        DiskSpaceError, StoreAccessError
            If it cannot be written; the commit is then not decided.
        """
        number = self._new_number()
        size = self._write(str(number), databases, offsets, position)
        kill_switch.reached("commit in its file, not applied")
        return number, size

    def _new_number(self) -> int:
        # Readers distinguish commits by their numbers, so a number is never reused, not even by a later process.
        number = max(self._next, time.time_ns())
        self._next = number + 1
        return number

    def _write(
        self,
        name: str,
        databases: Mapping[str, Iterable[Piece]],
        offsets: Mapping[TopicPartition, int],
        position: Mapping[TopicPartition, int] | None,
        after: Offsets | None = None,
    ) -> int:
        path, partial = self._directory / name, self._directory / f".{name}"
        try:
            if not self._directory.exists():
                self._directory.mkdir(parents=True, exist_ok=True)
                if self.only_copy:
                    for directory in (self._directory.parent, self._directory.parent.parent):
                        sync_directory(directory)
            try:
                with partial.open("wb") as file:
                    for body in _bodies(databases, offsets, position, after):
                        file.write(_HEADER.pack(len(body), google_crc32c.value(body)))
                        file.write(body)
                    size = file.tell()
                    if self.only_copy:
                        file.flush()
                        os.fsync(file.fileno())
                kill_switch.reached("commit in its file, which is not in place")
                partial.rename(path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
            if self.only_copy:
                sync_directory(self._directory)
        except OSError as error:
            raise of_os_error(error) from error
        return size

    # -- without a changelog --------------------------------------------------------------------------------------

    def prepare(
        self,
        number: int,
        databases: Mapping[str, Iterable[Piece]],
        offsets: Mapping[TopicPartition, int],
        position: Mapping[TopicPartition, int] | None,
        after: Offsets,
    ) -> None:
        """Write a commit durably that counts only if a Kafka transaction is committed; otherwise as `add`.

        Parameters
        ----------
        number
            The commit's number, which the transaction writes to the topic of input offsets.
        after
            Offsets of the commit before that changed each database.
        """
        name = f"{_PREPARED}{number}"
        self.is_prepared = True  # whether the file is there is not known after an error
        size = self._write(name, databases, offsets, position, after)
        self._prepared = self._directory / name, size
        kill_switch.reached("commit prepared, Kafka not committed")

    def promote(self) -> tuple[int, int]:
        """Let the prepared commit count: its Kafka transaction was committed. Return what `add` returns."""
        assert self._prepared is not None, "a commit is prepared first"
        (path, size), number = self._prepared, self._new_number()
        try:
            path.rename(self._directory / str(number))
        except OSError as error:
            raise of_os_error(error) from error
        self._prepared, self.is_prepared = None, False
        kill_switch.reached("prepared commit decided, not applied")
        return number, size

    def decide(self, databases: Mapping[str, LoggedDatabase], committed: int | None) -> None:
        """Complete the prepared commit that counts, and remove all others; the databases were just opened.

        Parameters
        ----------
        committed
            Number of the one that Kafka has committed; None: none of them.

        Raises
        ------
        StoreCorruptedError
            If it is damaged, or does not follow what the databases have.
        """
        prepared = prepared_commits(self._directory)
        if committed in prepared:
            self._require_no_gap([prepared[committed]], databases)
            self._repeat(prepared[committed], databases)
            for database in databases.values():
                database.sync()
        kill_switch.reached("prepared commits completed, their files still there")
        for path in prepared.values():
            path.unlink(missing_ok=True)
        self.is_prepared = False
        self.clear()

    def keep_last(self) -> None:
        """Remove all commits but the last one: all are on disk, and readers see from it that there were some."""
        for number in numbers(self._directory)[:-1]:
            self.remove(number)

    def _repeat(self, path: Path, databases: Mapping[str, LoggedDatabase]) -> None:
        with path.open("rb") as file:
            _repeat(Commit(file, only_copy=self.only_copy), databases)

    def _require_no_gap(self, paths: Sequence[Path], databases: Mapping[str, LoggedDatabase]) -> None:
        reached: dict[str, dict[TopicPartition, int]] = {}
        for path in paths:
            with path.open("rb") as file:
                commit = Commit(file, only_copy=self.only_copy)
            for name in commit.databases:
                if (database := databases.get(name)) is not None:
                    commit.require_follows(name, database.committed_offset, reached.setdefault(name, {}))

    # -------------------------------------------------------------------------------------------------------------

    def remove(self, number: int) -> None:
        """Remove a commit whose rows are all on disk; earlier ones must be gone."""
        (self._directory / str(number)).unlink(missing_ok=True)

    def end(self) -> None:
        """Remove all commits, which are on disk, and leave an empty one, so that readers see that there was one."""
        before = numbers(self._directory)
        self.add({}, {}, None)
        for number in before:
            self.remove(number)

    def clear(self) -> None:
        """Remove all commits: they are on disk, or of another store than the present one. Prepared ones stay."""
        if self._directory.exists():
            for number in numbers(self._directory):  # in their order: after a kill, only later ones are repeated
                self.remove(number)
                kill_switch.reached("file of a commit removed")
            if self.only_copy and prepared_commits(self._directory):
                return
            shutil.rmtree(self._directory)
            sync_directory(self._directory.parent)
            with suppress(OSError):  # another store has commits there
                self._directory.parent.rmdir()

    def finish(self, databases: Mapping[str, LoggedDatabase], *, usable: bool) -> None:
        """Repeat the commits that are left in the databases, which were just opened, and remove them.

        Parameters
        ----------
        usable
            Whether these are the databases that were committed, and no other program has written to them since.
            If not, the commits are only removed.

        Raises
        ------
        StoreCorruptedError
            If the store has no changelog, and a commit is damaged, belongs to other databases, or follows one that they
            do not have.
        """
        left = numbers(self._directory)
        self.is_prepared = self.only_copy and bool(prepared_commits(self._directory))
        if self.only_copy and not usable and (left or self.is_prepared):
            raise StoreCorruptedError(
                f"{self._directory} has commits of a store without a changelog, and another program has written to the "
                f"store since, or another store was put in its place. {_NO_CHANGELOG}"
            )
        if self.only_copy:
            self._require_no_gap([self._directory / str(number) for number in left], databases)
        if usable and left:
            with suppress(*(() if self.only_copy else (StoreCorruptedError,))):  # the changelog has the rest
                for number in left:
                    self._repeat(self._directory / str(number), databases)
                    kill_switch.reached("commit repeated")
            for database in databases.values():
                database.sync()
            kill_switch.reached("commits repeated and on disk, their files still there")
        self.clear()


def _repeat(commit: Commit, databases: Mapping[str, LoggedDatabase]) -> None:
    for name in commit.databases:
        if (database := databases.get(name)) is not None:  # else it has expired since
            database.repeat(commit.pieces(name), commit.offsets, commit.position)


class Commit:
    """A commit in its file.

    Parameters
    ----------
    file
        The open file; it stays the caller's to close.
    only_copy
        The store has no changelog.

    Raises
    ------
    StoreCorruptedError
        If it is not as it was written.
    """

    def __init__(self, file: BinaryIO, *, only_copy: bool = False) -> None:
        self._file = file
        self._only_copy = only_copy
        for _ in self._bodies():  # all of them, before the first is used
            pass
        try:
            head = json.loads(next(self._bodies()))
            self.databases: Collection[str] = head["databases"]
            self.offsets = _partitions(head["offsets"])
            self.after = {name: _partitions(entries) for name, entries in head.get("after", {}).items()}
            self.position = None if head["position"] is None else _partitions(head["position"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(f"does not begin as expected: {error}") from error

    def require_follows(
        self, database: str, committed: Callable[[TopicPartition], int | None], reached: dict[TopicPartition, int]
    ) -> None:
        """Require that a database has the commit before that changed it, and add this one to what it has.

        Parameters
        ----------
        committed
            Returns the offset that the database has.
        reached
            Offsets of the commits in files before this one.

        Raises
        ------
        StoreCorruptedError
            If it does not have that commit.
        """
        for partition, number in self.after.get(database, {}).items():
            has = max(reached.get(partition, -1), -1 if (found := committed(partition)) is None else found)
            if has < number:
                raise StoreCorruptedError(
                    f"{self._file.name} follows commit {number}. The database {database or 'of the store'} has commits "
                    f"up to {has}, so an older copy of it was put back. {_NO_CHANGELOG}"
                )
        reached.update(self.offsets)

    def pieces(self, database: str) -> Iterator[Piece]:
        """Yield the changes of a database, in their order."""
        wanted = database.encode()
        for body in islice(self._bodies(), 1, None):
            if body:
                length, length_of_family, ranges = _NAMES.unpack_from(body)
                at = _NAMES.size + length
                if body[_NAMES.size : at] == wanted:
                    family = body[at : at + length_of_family].decode()
                    keys, values = marshal.loads(body[at + length_of_family :])  # noqa: S302  # our file, intact
                    rows = zip(keys, values, strict=True)
                    if ranges:
                        yield Piece(family, [DeletedRange(*one) for one in rows], {})
                    else:
                        yield Piece(family, (), dict(rows))

    def _bodies(self) -> Iterator[bytes]:
        self._file.seek(0)
        while True:
            header = self._file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                raise self._damaged("ends too early")
            length, checksum = _HEADER.unpack(header)
            body = self._file.read(length)
            if len(body) < length or google_crc32c.value(body) != checksum:
                raise self._damaged(f"is not as it was written before byte {self._file.tell()}")
            yield body
            if not body:
                return

    def _damaged(self, what: str) -> StoreCorruptedError:
        advice = "Run process for the store's task: it replays the changelog over them"
        return StoreCorruptedError(
            f"{self._file.name} {what}. It is a commit that the store's files may have in part. "
            f"{_NO_CHANGELOG if self._only_copy else advice}"
        )


def numbers(directory: Path) -> list[int]:
    """Return the numbers of the commits in a directory, in their order."""
    try:
        return sorted(int(name) for name in os.listdir(directory) if name.isascii() and name.isdigit())
    except FileNotFoundError:
        return []


def prepared_commits(directory: Path) -> dict[int, Path]:
    """Return the files of the prepared commits in a directory, by their numbers."""
    try:
        names = [name.removeprefix(_PREPARED) for name in os.listdir(directory) if name.startswith(_PREPARED)]
    except FileNotFoundError:
        return {}
    found = sorted(int(name) for name in names if name.isascii() and name.isdigit())
    return {number: directory / f"{_PREPARED}{number}" for number in found}


def _bodies(
    databases: Mapping[str, Iterable[Piece]],
    offsets: Mapping[TopicPartition, int],
    position: Mapping[TopicPartition, int] | None,
    after: Offsets | None,
) -> Iterator[bytes]:
    head: dict[str, object] = {
        "databases": list(databases),
        "offsets": _entries(offsets),
        "position": None if position is None else _entries(position),
    }
    if after is not None:
        head["after"] = {name: _entries(found) for name, found in after.items()}
    yield json.dumps(head).encode()
    for database, pieces in databases.items():
        for family, ranges, rows in pieces:
            names = database.encode(), family.encode()
            if ranges:
                yield from _parts(*names, [one.start for one in ranges], [one.stop for one in ranges], 1)
            keys, values, count = iter(rows), iter(rows.values()), 1
            while some := list(islice(keys, count)):
                size = 0
                for body in _parts(*names, some, list(islice(values, count)), 0):
                    size += len(body)
                    yield body
                count = min(_ROWS_A_PART, max(_PART_BYTES * len(some) // size, 1))
    yield b""


def _parts(
    database: bytes, family: bytes, keys: Sequence[bytes], values: Sequence[bytes | None], ranges: int
) -> Iterator[bytes]:
    """Yield the bodies of one part, or of several if it would be too large."""
    rows = marshal.dumps([keys, values], _MARSHAL_VERSION)
    if len(rows) > _PART_BYTES and len(keys) > 1:
        half = len(keys) // 2
        yield from _parts(database, family, keys[:half], values[:half], ranges)
        yield from _parts(database, family, keys[half:], values[half:], ranges)
        return
    yield b"".join((_NAMES.pack(len(database), len(family), ranges), database, family, rows))


def _entries(offsets: Mapping[TopicPartition, int]) -> list[tuple[str, int, int]]:
    return [(*partition, offset) for partition, offset in offsets.items()]


def _partitions(entries: Iterable[tuple[str, int, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for topic, partition, offset in entries}
