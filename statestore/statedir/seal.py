"""The seal of a closed store: proof that its files are the ones that were there when it was closed.

RocksDB opens a store whose MANIFEST lost its end without a word: offsets can be right and rows wrong. So at a clean
close the digests of MANIFEST and SST files are written down in our own directory. The seal is removed before the store
is opened for writing, and checked before it is opened at all: MANIFEST and sizes always, the SST files' bytes where a
store is verified. SST files never change, so each is read for its digest once.

Kafka Streams may have had the store open in between: then CURRENT names a newer MANIFEST, and there is no seal to speak
of, which is no damage.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.durable import remove_durably, write_durably
from statestore.errors import StoreCorruptedError
from statestore.statedir.paths import TaskPaths


class SstFile(BaseModel):
    """An SST file: which it is, and what is in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    inode: int
    sha256: str


class Seal(BaseModel):
    """What a database's directory held when it was closed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[2] = 2
    manifest: str
    manifest_sha256: str
    sst: dict[str, SstFile]


class _Digests(BaseModel):
    """SST files that were read before, kept while there is no seal."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sst: dict[str, SstFile]


def seal(paths: TaskPaths, store: str) -> None:
    """Seal a store that was just closed cleanly; the caller holds the task's lock."""
    directory = paths.store(store)
    known = _known_digests(paths, store)
    sst = {file.name: _digest(file, known.get(file.name)) for file in sorted(directory.glob("*.sst"))}
    manifest = _manifest_name(directory)
    found = Seal(manifest=manifest, manifest_sha256=_sha256(directory / manifest), sst=sst)
    write_durably(paths.digests(store), _Digests(sst=sst).model_dump_json())
    write_durably(paths.seal(store), found.model_dump_json())


def break_seal(paths: TaskPaths, store: str) -> None:
    """Remove the seal, durably: call it before the store is opened for writing or replaced."""
    remove_durably(paths.seal(store))


def forget_digests(paths: TaskPaths, store: str) -> None:
    """Remove what is known of the SST files: call it where another database takes their place."""
    remove_durably(paths.digests(store))


def check_seal(paths: TaskPaths, store: str, *, contents: bool = False) -> bool:
    """Compare a closed store with its seal.

    Parameters
    ----------
    contents
        Whether the SST files are read, too. RocksDB finds a changed block when it reads it, so opening needs no more
        than their sizes; but blocks that it can do without, such as filters, nobody else checks.

    Returns
    -------
    bool
        True if it is as it was sealed; False if there is no seal that speaks of it.

    Raises
    ------
    StoreCorruptedError
        If a file differs, naming it.
    """
    try:
        sealed = Seal.model_validate_json(paths.seal(store).read_bytes())
    except (FileNotFoundError, ValidationError):
        return False
    directory = paths.store(store)
    current = _manifest_name(directory)
    if _number(current) > _number(sealed.manifest):
        return False
    if current != sealed.manifest:
        raise StoreCorruptedError(f"{directory / 'CURRENT'} names {current}, sealed was {sealed.manifest}; restore it")
    if _sha256(directory / current) != sealed.manifest_sha256:
        raise StoreCorruptedError(f"{directory / current} is not as it was when the store was closed; restore it")
    for name, file in sealed.sst.items():
        path = directory / name
        size = path.stat().st_size if path.exists() else "no such file"
        if size != file.bytes:
            raise StoreCorruptedError(f"{path}: expected {file.bytes} bytes, found {size}; restore the store")
        if contents and _sha256(path) != file.sha256:
            raise StoreCorruptedError(f"{path} is not as it was when the store was closed; restore the store")
    return True


def _known_digests(paths: TaskPaths, store: str) -> dict[str, SstFile]:
    try:
        return _Digests.model_validate_json(paths.digests(store).read_bytes()).sst
    except (FileNotFoundError, ValidationError):
        return {}


def _digest(path: Path, known: SstFile | None) -> SstFile:
    # The time of change is left out on purpose: who changed an SST file later must not get a new digest for it.
    found = path.stat()
    if known and (known.bytes, known.inode) == (found.st_size, found.st_ino):
        return known
    return SstFile(bytes=found.st_size, inode=found.st_ino, sha256=_sha256(path))


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise StoreCorruptedError(f"{path} does not exist; restore the store") from error


def _manifest_name(directory: Path) -> str:
    try:
        name = (directory / "CURRENT").read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise StoreCorruptedError(f"{directory / 'CURRENT'} cannot be read; restore the store: {error}") from error
    if not name.startswith("MANIFEST-") or not name.removeprefix("MANIFEST-").isdigit():
        raise StoreCorruptedError(
            f"{directory / 'CURRENT'} holds {name[:60]!r}, expected MANIFEST-<number>; restore it"
        )
    return name


def _number(manifest: str) -> int:
    return int(manifest.removeprefix("MANIFEST-"))
