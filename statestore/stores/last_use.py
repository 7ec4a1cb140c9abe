"""Determines whether a database that was left open was last used by this project, with transactions.

    <own directory>/mode-<store>     JSON: of each database of the store, our last opening of it for writing

Who leaves a database open may leave rows in it that were never committed; only a transactional store does not. The
database does not tell who used it. But each opening for writing makes a new MANIFEST and writes CURRENT to name it. So
a transactional store records, before its first write, which MANIFEST its own opening made. While that is the one in
CURRENT, nobody else has written. The time of CURRENT tells apart two openings of one number: an older copy of the
database that was put back counts on from an older one.

A kill between RocksDB's opening and the record would leave a MANIFEST that nobody knows. Therefore a database that was
left open, and is trusted, has the number of its last write on disk recorded before it is opened again. Until that
opening is recorded, it is trusted as well while no write was added. A database that was closed needs no trust, and
costs no more than the one record.

The record also tells of a segment that is lost: it names every one that there is from before its first write until it
has been moved away because it expired. As long as nobody else has opened one of the others, none may be missing.

RocksDB makes a new MANIFEST also after it could not write to the one that it had. A store that is left open after that
is not trusted, and rebuilt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.durable import write_durably

_CURRENT = re.compile(rb"MANIFEST-([0-9]+)\n")


class _Opening(BaseModel):
    """An opening of a database for writing, as its files tell of it.

    Attributes
    ----------
    identity
        RocksDB's own name of the database, in hexadecimal.
    manifest
        Number of the MANIFEST in CURRENT.
    current_ns
        When CURRENT was written, ns since the epoch.
    sequence
        Number of the last write on disk, while a later opening may be under way; else None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    identity: str
    manifest: int
    current_ns: int
    sequence: int | None = None


class _Record(BaseModel):
    """The file. Former versions had the word `transactional` or `direct` in it, which says too little to trust it.

    Attributes
    ----------
    at_least_once
        Whether its last use was at least once, so that it may hold rows that Kafka has not committed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    databases: dict[str, _Opening]
    at_least_once: bool = False


_NOTHING = _Record(databases={})


def last_use_file(own_directory: Path, store: str) -> Path:
    """Where our last use of a store is recorded."""
    return own_directory / f"mode-{store}"


def write_left_open(path: Path) -> None:
    """Record durably that a store without databases of ours is open; the file exists until it was closed cleanly."""
    write_durably(path, _Record(databases={}).model_dump_json())


def commits_directory(own_directory: Path, store: str) -> Path:
    """Where the commits of a store are kept."""
    return own_directory / "commits" / store


class LastUse:
    """Our last use of a store's databases. They are named by their directories, a key-value store's only one is "".

    Parameters
    ----------
    path
        The record.
    recording
        Whether the store is used with transactions.
    at_least_once
        Whether it is used at least once. An opening exactly once does not trust such a use.
    """

    def __init__(self, path: Path, *, recording: bool, at_least_once: bool = False) -> None:
        self._path = path
        self._recording = recording
        self._at_least_once = at_least_once
        self._opened: dict[str, _Opening] = {}

    @property
    def databases(self) -> frozenset[str]:
        """Databases in the record, whoever has used them since."""
        return frozenset(self._record.databases)

    def was_ours(self, database: str, directory: Path, sequence: int) -> bool:
        """True if a closed database was written to only by our recorded opening, exactly once.

        Parameters
        ----------
        sequence
            Number of the last write on disk.
        """
        trusted = self._recording and not self._record.at_least_once
        return trusted and self.is_as_recorded(database, directory, sequence)

    def is_as_recorded(self, database: str, directory: Path, sequence: int) -> bool:
        """True if nobody has opened a closed database since we recorded our opening, or nobody has written to it."""
        recorded = self._record.databases.get(database)
        found = _opening_of(directory)
        if recorded is None or found is None or found.identity != recorded.identity:
            return False
        return found == recorded if recorded.sequence is None else sequence == recorded.sequence

    def about_to_open(self, left_open: Mapping[str, int]) -> None:
        """Keep the trust in databases that were left open, with the numbers of their last writes on disk.

        Call it before any of the store's databases is opened for writing.
        """
        kept = {
            name: opening.model_copy(update={"sequence": left_open[name]})
            for name, opening in self._record.databases.items()
            if name in left_open
        }
        if self._recording and any(self._record.databases[name] != opening for name, opening in kept.items()):
            self._write({**self._record.databases, **kept}, at_least_once=self._record.at_least_once)

    def opened(self, directories: Mapping[str, Path]) -> None:
        """Record databases that were just opened for writing; call it before anything is written to one of them."""
        if not self._recording:
            self._path.unlink(missing_ok=True)  # it speaks of MANIFESTs that are gone
            self._record = _NOTHING
            return
        found = {name: opening for name, directory in directories.items() if (opening := _opening_of(directory))}
        self._opened |= found
        self._write(self._opened, at_least_once=self._at_least_once)

    def dropped(self, database: str) -> None:
        """Forget a database that was moved away; call it before what tells of that is deleted."""
        self._opened.pop(database, None)
        if self._recording and database in self._record.databases:
            left = {name: opening for name, opening in self._record.databases.items() if name != database}
            self._write(left, at_least_once=self._record.at_least_once)

    @cached_property
    def _record(self) -> _Record:
        try:
            return _Record.model_validate_json(self._path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return _NOTHING

    def _write(self, databases: Mapping[str, _Opening], *, at_least_once: bool) -> None:
        record = _Record(databases=dict(databases), at_least_once=at_least_once)
        # Earlier versions know only exactly-once use. They do not trust a record with a field that they cannot read.
        write_durably(self._path, record.model_dump_json(exclude=None if at_least_once else {"at_least_once"}))
        self._record = record


def _opening_of(directory: Path) -> _Opening | None:
    current = directory / "CURRENT"
    try:
        identity = (directory / "IDENTITY").read_bytes().hex()
        found, written = _CURRENT.fullmatch(current.read_bytes()), current.stat()
    except FileNotFoundError:
        return None
    return _Opening(identity=identity, manifest=int(found[1]), current_ns=written.st_mtime_ns) if found else None
