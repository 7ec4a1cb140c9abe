"""The seal of a closed store: proof that its MANIFEST is the one that was there when it was closed.

RocksDB opens a store whose MANIFEST lost its end without a word: offsets can be right and rows wrong. So at a clean
close a digest of CURRENT and MANIFEST and the names and sizes of the SST files are written down in our own directory.
The seal is removed before the store is opened for writing, and checked before it is opened at all.

Kafka Streams may have had the store open in between: then CURRENT names a newer MANIFEST, and there is no seal to speak
of, which is no damage.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.errors import StoreCorruptedError
from statestore.statedir.files import remove_durably, write_durably
from statestore.statedir.paths import TaskPaths


class Seal(BaseModel):
    """What a database's directory held when it was closed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    manifest: str
    manifest_sha256: str
    sst_bytes: dict[str, int]


def seal(paths: TaskPaths, store: str) -> None:
    """Seal a store that was just closed cleanly; the caller holds the task's lock."""
    write_durably(paths.seal(store), _look(paths.store(store)).model_dump_json())


def break_seal(paths: TaskPaths, store: str) -> None:
    """Remove the seal, durably: call it before the store is opened for writing or replaced."""
    remove_durably(paths.seal(store))


def check_seal(paths: TaskPaths, store: str) -> bool:
    """Compare a closed store with its seal.

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
    found = _look(directory)
    if found.manifest_sha256 != sealed.manifest_sha256:
        raise StoreCorruptedError(f"{directory / current} is not as it was when the store was closed; restore it")
    for name, size in sealed.sst_bytes.items():
        if found.sst_bytes.get(name) != size:
            has = found.sst_bytes.get(name, "no such file")
            raise StoreCorruptedError(f"{directory / name}: expected {size} bytes, found {has}; restore the store")
    return True


def _look(directory: Path) -> Seal:
    manifest = _manifest_name(directory)
    try:
        digest = hashlib.sha256((directory / manifest).read_bytes()).hexdigest()
    except FileNotFoundError as error:
        raise StoreCorruptedError(f"{directory / manifest}, which CURRENT names, does not exist; restore it") from error
    sizes = {file.name: file.stat().st_size for file in sorted(directory.glob("*.sst"))}
    return Seal(manifest=manifest, manifest_sha256=digest, sst_bytes=sizes)


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
