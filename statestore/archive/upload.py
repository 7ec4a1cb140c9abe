"""Publishing a snapshot: the blobs that the archive does not have, then the manifest, whose creation is the commit.

it took too long                given up before the manifest: a clean-up may have removed the parent's blobs
blobs put, manifest not         the blobs are orphans, which clean-up removes
manifest put, answer lost       asked again, the same manifest is found: nothing is published twice
a blob is gone                  all are looked at after the manifest is there, and put where they are missing

A publication waits for the archive three times: for the uploads, for the manifest, and for that look, beside which the
store partition's snapshots are listed. Files that the manifest has in itself are no uploads.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from statestore import kill_switch
from statestore.archive.layout import blob
from statestore.archive.manifest import Manifest, SnapshotFile, to_bytes
from statestore.archive.server_time import server_time_ms
from statestore.archive.snapshots import History, history, missing_files
from statestore.config import LEAST_GRACE_HOURS
from statestore.errors import ArchiveUnavailableError, InvalidStateError, StoreCorruptedError, about
from statestore.objects.store import ObjectStore

#: Half the shortest grace period of clean-up.
MOST_S = LEAST_GRACE_HOURS / 2 * 60 * 60
_CHUNK = 8 * 1024 * 1024
#: Files of a store that are uploaded at the same time.
_AT_ONCE = 16
#: Of those that are larger than this, this process uploads four at a time: each has up to 40 MiB in memory.
_SMALL = 1024 * 1024
_uploading_large = threading.BoundedSemaphore(4)


class Published(NamedTuple):
    """Result of a publication.

    Attributes
    ----------
    files, bytes
        Blobs that were uploaded; the others were there.
    after
        The store partition's snapshots, listed once the manifest was there.
    """

    manifest: Manifest
    files: int
    bytes: int
    after: History


class Uploading:
    """The uploads of one publication: a closed store's files, some of them perhaps before it is certain to be made.

    Parameters
    ----------
    directory
        The store's; nobody may write in it meanwhile.
    """

    def __init__(self, objects: ObjectStore, directory: Path) -> None:
        self._objects = objects
        self._directory = directory
        self._began_s = time.monotonic()
        self._put: dict[str, int] = {}

    def upload(self, files: Iterable[SnapshotFile], there: Iterable[SnapshotFile] = ()) -> None:
        """Upload what has not been uploaded and need not be there.

        Parameters
        ----------
        there
            Files whose blobs need not be uploaded again: of an earlier snapshot, or put lately.

        Raises
        ------
        StoreCorruptedError
            If a file is not what is said of it.
        """
        known = {*self._put, *(file.sha256 for file in there if file.content is None)}
        self._upload(file for file in files if file.content is None and file.sha256 not in known)

    def publish(self, manifest: Manifest) -> Published:
        """Commit the snapshot whose files were uploaded, or are said to be there."""
        if time.monotonic() - self._began_s > MOST_S:
            raise ArchiveUnavailableError(
                f"archive {self._objects.url}: uploading {sum(self._put.values())} bytes took more than "
                f"{MOST_S / 3600:g} hours, so no snapshot of them is published; the next run continues with what was "
                f"uploaded"
            )
        kill_switch.reached("snapshot, blobs uploaded")
        commit(self._objects, manifest)
        kill_switch.reached("snapshot, manifest written")
        # From now on clean-up sees that ours needs them. What it, or anything else, has removed before is put again: a
        # blob that was uploaded, too, as one of the same bytes may have been there, which nobody needed.
        with ThreadPoolExecutor(1) as pool:
            listing = pool.submit(history, self._objects, manifest.directory)
            self._upload(missing_files(self._objects, manifest.files))
            return Published(manifest, len(self._put), sum(self._put.values()), listing.result())

    def _upload(self, files: Iterable[SnapshotFile]) -> None:
        distinct = {file.sha256: file for file in files}.values()
        put_files(self._objects, self._directory, distinct)
        self._put |= {file.sha256: file.bytes for file in distinct}


def commit(objects: ObjectStore, manifest: Manifest) -> None:
    """Commit a snapshot whose files are in the archive, by writing its manifest."""
    place, content = manifest.directory.snapshot(manifest.name), to_bytes(manifest)
    if objects.create(place, content):
        return
    # Its name is ours alone: an attempt whose answer was lost has written it.
    if objects.read(place, len(content)) != content:
        raise InvalidStateError(f"snapshot {place} already exists with different content. Nothing was changed")


def put_lately(objects: ObjectStore, files: Iterable[SnapshotFile], put_before: Collection[str]) -> list[SnapshotFile]:
    """Return the files that were uploaded while their store was built, and need not be uploaded again.

    Clean-up knows nothing of them until a manifest names them. So they must be so young that it cannot take them while
    a publication that has begun goes on.

    Parameters
    ----------
    put_before
        SHA-256 of what was uploaded.
    """
    asked = [file for file in files if file.content is None and file.sha256 in put_before]
    if not asked:
        return []
    now_ms = server_time_ms(objects)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda file: objects.stat(blob(file.sha256)), asked))
    return [
        file
        for file, there in zip(asked, found, strict=True)
        if there is not None and there.size == file.bytes and now_ms - there.modified_ms < MOST_S * 1000
    ]


def put_files(
    objects: ObjectStore, directory: Path, files: Iterable[SnapshotFile], named: Callable[[str], str] = blob
) -> None:
    """Upload files, several at a time.

    Parameters
    ----------
    named
        Which object gets the bytes of a SHA-256.

    Raises
    ------
    StoreCorruptedError
        If a file is not as it was described.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        work = [pool.submit(_put_one, objects, named(file.sha256), directory / file.path, file) for file in files]
        try:
            for done in work:
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _put_one(objects: ObjectStore, name: str, path: Path, file: SnapshotFile) -> None:
    with _uploading_large if file.bytes > _SMALL else nullcontext():
        objects.upload(name, _verified(path, file))


def _verified(path: Path, file: SnapshotFile) -> Iterator[bytes]:
    """Yield a file's content; what differs from the manifest ends it before the last chunk has left."""
    digest, size, held = hashlib.sha256(), 0, b""
    with about(path), path.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            if held:
                yield held
            held = chunk
    if size != file.bytes or digest.hexdigest() != file.sha256:
        raise StoreCorruptedError(
            f"{path} has changed since the store was closed: expected {file.bytes} bytes, SHA-256 {file.sha256}; "
            f"found {size} bytes, {digest.hexdigest()}. Restore the store"
        )
    yield held
