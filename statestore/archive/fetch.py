"""Fetching a snapshot's files: linked where this disk has the same bytes, else read and hashed on the way."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from statestore.archive.layout import blob
from statestore.archive.manifest import Manifest, SnapshotFile
from statestore.durable import sync_directory
from statestore.errors import SnapshotError
from statestore.formats.database_files import has_rows
from statestore.objects.store import ObjectStore

#: Files that are fetched at the same time, each over a connection of its own: one alone does not fill the network.
_AT_ONCE = 16


class Fetched(NamedTuple):
    """Where the files came from, in bytes."""

    linked: int
    read: int


def fetch(
    objects: ObjectStore,
    manifest: Manifest,
    target: Path,
    local: Mapping[str, Path],
    advanced: Callable[[int], None] = lambda _: None,
) -> Fetched:
    """Make a snapshot's files in a directory that does not exist yet, durably.

    Parameters
    ----------
    local
        SST files on the same file system that may have the wanted bytes, by their SHA-256. Each is hashed before it is
        linked.
    advanced
        Told the number of bytes that were added, from several threads.

    Raises
    ------
    SnapshotError
        If a blob is missing or has other bytes than the manifest says. The caller removes what was fetched.
    """
    target.mkdir(parents=True)
    directories = _made_for(target, manifest.files)
    linked = 0
    missing: list[SnapshotFile] = []
    for file in manifest.files:
        source = local.get(file.sha256)
        if source is not None and has_rows(file.path) and _link(source, target / file.path, file):
            linked += file.bytes
            advanced(file.bytes)
        else:
            missing.append(file)
    _fetch_all(objects, target, missing, blob, advanced)
    for directory in directories:
        sync_directory(directory)
    return Fetched(linked, sum(file.bytes for file in missing))


def fetch_files(
    objects: ObjectStore,
    target: Path,
    files: Iterable[SnapshotFile],
    named: Callable[[str], str] = blob,
    advanced: Callable[[int], None] = lambda _: None,
) -> None:
    """Fetch files into a directory.

    Parameters
    ----------
    named
        Which object has the bytes of a SHA-256.
    advanced
        As of `fetch`.

    Raises
    ------
    SnapshotError
        If an object is missing, or has other bytes.
    """
    wanted = list(files)
    _made_for(target, wanted)
    _fetch_all(objects, target, wanted, named, advanced)


def _made_for(target: Path, files: Iterable[SnapshotFile]) -> set[Path]:
    directories = {target, *((target / file.path).parent for file in files)}
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
    return directories


def has_bytes(path: Path, file: SnapshotFile) -> bool:
    """Tell whether a file on this disk has the bytes that a manifest says."""
    with path.open("rb") as found:
        return hashlib.file_digest(found, "sha256").hexdigest() == file.sha256


@contextmanager
def fetched(
    objects: ObjectStore, manifest: Manifest, scratch: Path | None = None, local: Mapping[str, Path] | None = None
) -> Iterator[Path]:
    """Provide a snapshot's files in a separate directory during the context; see `fetch`.

    Parameters
    ----------
    scratch
        Directory with room for them; None: that of temporary files.
    """
    with TemporaryDirectory(prefix="statestore-snapshot-", dir=scratch) as own:
        directory = Path(own) / "store"
        fetch(objects, manifest, directory, local or {})
        yield directory


def _link(source: Path, target: Path, file: SnapshotFile) -> bool:
    """Link a file that has the wanted bytes; False if it has not."""
    try:
        os.link(source, target)
        if has_bytes(target, file):
            return True
    except OSError:  # of another file system, unreadable, or gone: it is fetched
        pass
    target.unlink(missing_ok=True)
    return False


def _fetch_all(
    objects: ObjectStore,
    target: Path,
    files: Iterable[SnapshotFile],
    named: Callable[[str], str],
    advanced: Callable[[int], None],
) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # The largest first, so that none of them is fetched alone at the end.
        ordered = sorted(files, key=lambda file: -file.bytes)
        work = [
            pool.submit(_fetch_one, objects, named(file.sha256), target / file.path, file, advanced) for file in ordered
        ]
        try:
            for done in work:
                done.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _fetch_one(
    objects: ObjectStore, name: str, path: Path, file: SnapshotFile, advanced: Callable[[int], None]
) -> None:
    digest = hashlib.sha256()
    with path.open("xb") as out:
        try:
            for chunk in objects.read_chunks(name, file.bytes) if file.content is None else [file.content]:
                digest.update(chunk)
                out.write(chunk)
                advanced(len(chunk))
        except FileNotFoundError:
            raise SnapshotError(f"{objects.url}/{name} does not exist; it has the content of {file.path}") from None
        except ValueError as error:
            raise SnapshotError(f"{file.path}: {error}") from None
        out.flush()
        os.fsync(out.fileno())
    if digest.hexdigest() != file.sha256:
        raise SnapshotError(f"{objects.url}/{name} does not have the SHA-256 that is its name: {digest.hexdigest()}")
