"""The seal of a closed store: proof that its files are the ones that were there when it was closed.

RocksDB opens a store whose MANIFEST lost its end without a word: offsets can be right and rows wrong. So at a clean
close the digests of MANIFEST and SST files are written down in our own directory. The seal is removed before the store
is opened for writing, and checked before it is opened at all: MANIFEST and sizes always, the SST files' bytes where a
store is verified. SST files never change, so each is read for its digest once.

A window or session store has one seal over all of its segments. Of a supplier's store nothing is known but that these
are its files: they are sealed as a whole, with all that is in its directory.

Kafka Streams may have had the store open in between: then a CURRENT names a newer MANIFEST, or a segment is new, and
there is no seal to speak of, which is no damage. It may also have removed the store and made it anew: then the identity
is another one, and the seal does not speak of that database. It opens every segment at once. So where one is gone and
all others are as they were sealed, it was not Kafka Streams that dropped it.

The seal also holds the committed offset of the store that it speaks of: with the seal intact, nobody needs to open it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from statestore.durable import read_checked, remove_durably, with_checksum, write_all_durably, write_checked
from statestore.errors import StoreCorruptedError, about
from statestore.formats.database_files import files_with_rows
from statestore.kinds.kind import StoreKind
from statestore.model import StorePartition
from statestore.statedir.lock import require_locks
from statestore.statedir.paths import TaskPaths
from statestore.statedir.record import committed_of, read_record
from statestore.stores.rocksdb import column_families


class SstFile(BaseModel):
    """An SST file: which it is, and what is in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    inode: int
    sha256: str


class SealedDatabase(BaseModel):
    """One database of a sealed store; `identity` is RocksDB's own name of it, made anew with each new database."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    manifest: Annotated[str, Field(pattern=r"^MANIFEST-[0-9]+$")]
    manifest_sha256: str
    identity: str
    column_families: tuple[str, ...]


class Seal(BaseModel):
    """Content of a store's directory when it was closed.

    Attributes
    ----------
    store_partition
        Whose store it is: another's that is put in its place brings its own seal along.
    committed
        Offset of the last changelog record in the store; None if it was not recorded.
    databases
        By their directory's name beside the others; a key-value store's only one is called "". A supplier's store has
        none.
    sst
        By their path in the store's directory; all files of a supplier's store.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[3] = 3
    store_partition: str
    committed: int | None
    databases: dict[str, SealedDatabase]
    sst: dict[str, SstFile]


class _Digests(BaseModel):
    """SST files that were read before, kept while there is no seal, and the identities of their databases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    identities: dict[str, str]
    sst: dict[str, SstFile]


def seal(paths: TaskPaths, store: str, kind: StoreKind, *, supplied: bool = False) -> None:
    """Seal a store that was just closed cleanly and recorded; the caller holds the task's lock.

    Parameters
    ----------
    kind
        The store's.
    supplied
        True for a supplier's store.
    """
    directory = kind.directory(paths.task_dir, store)
    known = _known_digests(paths, store)
    databases: dict[str, SealedDatabase] = {}
    sst: dict[str, SstFile] = {}
    if supplied:
        # Files that may be changed where they are, so that what was read of them before says nothing.
        sst = {str(path.relative_to(directory)): _digest(path, None) for path in _files(directory)}
    for name in [] if supplied else _databases(directory, kind):
        found = _sealed(directory / name)
        # A new database counts its files from the start again: what is known of its predecessor's is not of them.
        same = found.identity != "" and known.identities.get(name) == found.identity
        for path in files_with_rows(directory / name):
            inside = str(path.relative_to(directory))
            sst[inside] = _digest(path, known.sst.get(inside) if same else None)
        databases[name] = found
    record = read_record(paths, store)
    require_locks(paths)  # as late as can be: it took long to read the files
    made = Seal(
        store_partition=_name(paths, store),
        committed=committed_of(record),
        databases=databases,
        sst=sst,
    )
    identities = {name: found.identity for name, found in databases.items()}
    # Either counts without the other.
    known = _Digests(identities=identities, sst=sst)
    files = {paths.digests(store): known, paths.seal(store): made}
    write_all_durably({path: with_checksum(content.model_dump_json()) for path, content in files.items()})


def install_digests(paths: TaskPaths, store: str, kind: StoreKind, sha256s: Mapping[str, str]) -> None:
    """Keep what SST files were written from, so that `seal` need not read them; the caller holds the task's lock.

    If a disk has damaged one since, its seal shows it.

    Parameters
    ----------
    sha256s
        By their path in the store's directory. Files that are not there any more are left out.
    """
    require_locks(paths)
    directory = kind.directory(paths.task_dir, store)
    sst = {}
    for inside, sha256 in sha256s.items():
        if (path := directory / inside).exists():
            found = path.stat()
            sst[inside] = SstFile(bytes=found.st_size, inode=found.st_ino, sha256=sha256)
    identities = {name: _sealed(directory / name).identity for name in _databases(directory, kind)}
    write_checked(paths.digests(store), _Digests(identities=identities, sst=sst).model_dump_json())


def break_seal(paths: TaskPaths, store: str) -> None:
    """Remove the seal, durably: call it before the store is opened for writing or replaced."""
    require_locks(paths)
    remove_durably(paths.seal(store))


def forget_digests(paths: TaskPaths, store: str) -> None:
    """Remove what is known of the SST files: call it where another database takes their place."""
    remove_durably(paths.digests(store))


def known_files(paths: TaskPaths, store: str) -> dict[str, str]:
    """Return the SHA-256 of the SST files that were read, by their path in the store's directory."""
    return {path: file.sha256 for path, file in _known_digests(paths, store).sst.items()}


def check_seal(
    paths: TaskPaths,
    store: str,
    kind: StoreKind,
    *,
    contents: bool = False,
    between: Callable[[], None] | None = None,
) -> Seal | None:
    """Compare a closed store with its seal.

    Parameters
    ----------
    kind
        The store's.
    contents
        Whether the SST files are read, too. RocksDB finds a changed block when it reads it, so opening needs no more
        than their sizes; but blocks that it can do without, such as filters, nobody else checks.
    between
        Called before each file that is read.

    Returns
    -------
    Seal or None
        The seal if the store is as it was sealed; None if there is no seal that speaks of it.

    Raises
    ------
    StoreCorruptedError
        If a file differs, naming it.
    """
    try:
        with about(paths.seal(store)):
            sealed = Seal.model_validate_json(read_checked(paths.seal(store)))
    except (FileNotFoundError, ValueError):
        return None
    if sealed.store_partition != _name(paths, store):
        return None
    directory = kind.directory(paths.task_dir, store)
    if not sealed.databases and sealed.sst:
        for name, file in sealed.sst.items():
            if contents and between is not None:
                between()
            _check_file(directory / name, file, contents=contents)
        return sealed if {str(path.relative_to(directory)) for path in _files(directory)} == set(sealed.sst) else None
    there = set(_databases(directory, kind))
    same = {name: _is_same(directory / name, sealed, name) for name in sealed.databases if name in there}
    for name, file in sealed.sst.items():
        if same.get(name.rpartition("/")[0]):
            if contents and between is not None:
                between()
            _check_file(directory / name, file, contents=contents)
    if not all(same.values()) or there - set(sealed.databases):
        return None
    if gone := sorted(set(sealed.databases) - there):
        raise StoreCorruptedError(
            f"{directory / gone[0]} does not exist, but did when the store was closed. Restore the store"
        )
    return sealed


def _is_same(directory: Path, sealed: Seal, name: str) -> bool:
    """True if a database has the MANIFEST that was sealed, False if it has a newer one or is another database."""
    database, identity = sealed.databases[name], _identity(directory)
    if identity and database.identity and identity != database.identity:
        if other := next((found for found, its in sealed.databases.items() if its.identity == identity), None):
            raise StoreCorruptedError(f"{directory} holds the segment that was sealed as {other}; restore the store")
        return False  # made anew: its MANIFESTs are counted from the start again
    current = _manifest_name(directory)
    if _number(current) > _number(database.manifest):
        return False
    if current != database.manifest:
        raise StoreCorruptedError(
            f"{directory / 'CURRENT'} names {current}, expected {database.manifest} as of its seal. Restore the store"
        )
    if _sha256(directory / current) != database.manifest_sha256:
        raise StoreCorruptedError(f"{directory / current} has changed since the store was closed; restore the store")
    return True


def _check_file(path: Path, file: SstFile, *, contents: bool) -> None:
    try:
        size: int | str = path.stat().st_size
    except FileNotFoundError:
        size = "no such file"
    if size != file.bytes:
        raise StoreCorruptedError(f"{path}: expected {file.bytes} bytes, found {size}; restore the store")
    if contents and _sha256(path) != file.sha256:
        raise StoreCorruptedError(f"{path} has changed since the store was closed; restore the store")


# -- what lies in a directory -----------------------------------------------------------------------------------------


def _name(paths: TaskPaths, store: str) -> str:
    return str(StorePartition(paths.application, store, paths.task))


def _databases(directory: Path, kind: StoreKind) -> list[str]:
    """Names of the databases in a store's directory, and of what lies beside them; that of the only one is empty."""
    if not kind.segmented:
        return [""]
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def _files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _sealed(directory: Path) -> SealedDatabase:
    manifest = _manifest_name(directory)
    return SealedDatabase(
        manifest=manifest,
        manifest_sha256=_sha256(directory / manifest),
        identity=_identity(directory),
        column_families=tuple(sorted(column_families(directory))),
    )


def _identity(directory: Path) -> str:
    """RocksDB's own name of the database, in hexadecimal; empty if it is not known."""
    try:
        with about(directory / "IDENTITY"):
            return (directory / "IDENTITY").read_bytes().hex()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _known_digests(paths: TaskPaths, store: str) -> _Digests:
    try:
        return _Digests.model_validate_json(read_checked(paths.digests(store)))
    except (FileNotFoundError, ValueError):
        return _Digests(identities={}, sst={})


def _digest(path: Path, known: SstFile | None) -> SstFile:
    # The time of change is left out on purpose: who changed an SST file later must not get a new digest for it.
    found = path.stat()
    if known and (known.bytes, known.inode) == (found.st_size, found.st_ino):
        return known
    return SstFile(bytes=found.st_size, inode=found.st_ino, sha256=_sha256(path))


def _sha256(path: Path) -> str:
    try:
        with about(path), path.open("rb") as file:
            return hashlib.file_digest(file, hashlib.sha256).hexdigest()
    except FileNotFoundError as error:
        raise StoreCorruptedError(f"{path} does not exist; restore the store") from error


def _manifest_name(directory: Path) -> str:
    current = directory / "CURRENT"
    try:
        with about(current):
            text = current.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreCorruptedError(f"{current} cannot be read; restore the store: {error}") from error
    # RocksDB does not read it without the newline at its end.
    if (found := re.fullmatch(rb"(MANIFEST-[0-9]+)\n", text)) is None:
        raise StoreCorruptedError(
            f"{current} holds {text[:60]!r}, expected MANIFEST-<number> and a newline; restore the store"
        )
    return found[1].decode()


def _number(manifest: str) -> int:
    return int(manifest.removeprefix("MANIFEST-"))
