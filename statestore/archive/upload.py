"""Publishing a snapshot: the blobs that the archive does not have, then the manifest, whose creation is the commit.

it took too long                given up before the manifest: a clean-up may have removed the parent's blobs
blobs put, manifest not         the blobs are orphans, which clean-up removes
manifest put, answer lost       asked again, the same manifest is found: nothing is published twice
a blob is gone                  all are looked at after the manifest is there, and put where they are missing

Here a publication waits for the archive three times: for the uploads, for the manifest, and for that look, beside which
the store partition's snapshots are listed.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from statestore import kill_switch
from statestore.archive.layout import blob
from statestore.archive.manifest import Manifest, SnapshotFile, to_bytes
from statestore.archive.objects import ObjectStore
from statestore.archive.snapshots import History, history, missing_files
from statestore.config import LEAST_GRACE_HOURS
from statestore.errors import ArchiveUnavailableError, InvalidStateError, StoreCorruptedError, about

#: Half the shortest grace period of clean-up.
MOST_S = LEAST_GRACE_HOURS / 2 * 60 * 60
_CHUNK = 8 * 1024 * 1024
#: Files of a store that are uploaded at the same time.
_AT_ONCE = 16
#: Of those that are larger than this, this process uploads four at a time: each has up to 40 MiB in memory.
_SMALL = 1024 * 1024
_uploading_large = threading.BoundedSemaphore(4)


class Published(NamedTuple):
    """What a publication wrote.

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


def publish(objects: ObjectStore, manifest: Manifest, directory: Path, parent: Manifest | None = None) -> Published:
    """Upload a closed store's files and commit the snapshot.

    Parameters
    ----------
    directory
        The store's; nobody may write in it meanwhile.
    parent
        An earlier snapshot, whose blobs need not be uploaded again.

    Raises
    ------
    StoreCorruptedError
        If a file is not what the manifest says: nothing is published.
    """
    known = {file.sha256 for file in parent.files} if parent else set()
    distinct = {file.sha256: file for file in manifest.files}
    new = [file for digest, file in distinct.items() if digest not in known]
    began_s = time.monotonic()
    put = _put(objects, directory, new)
    if time.monotonic() - began_s > MOST_S:
        raise ArchiveUnavailableError(
            f"archive {objects.url}: uploading {sum(put)} bytes took more than {MOST_S / 3600:g} hours, so no snapshot "
            "of them is published; the next one goes on with what was uploaded"
        )
    kill_switch.reached("snapshot, blobs uploaded")
    commit(objects, manifest)
    kill_switch.reached("snapshot, manifest written")
    # From now on clean-up sees that ours needs them. What it, or anything else, has removed before is put again: a
    # blob that was uploaded, too, as one of the same bytes may have been there, which nobody needed.
    with ThreadPoolExecutor(1) as pool:
        listing = pool.submit(history, objects, manifest.directory)
        put += _put(objects, directory, missing_files(objects, distinct.values()))
        return Published(manifest, len(put), sum(put), listing.result())


def commit(objects: ObjectStore, manifest: Manifest) -> None:
    """Commit a snapshot whose files are in the archive, by writing its manifest."""
    place, content = manifest.directory.snapshot(manifest.name), to_bytes(manifest)
    if objects.create(place, content):
        return
    # Its name is ours alone: an attempt whose answer was lost has written it.
    if objects.read(place, len(content)) != content:
        raise InvalidStateError(f"snapshot {place} is there already, with another content; nothing was changed")


def _put(objects: ObjectStore, directory: Path, files: Iterable[SnapshotFile]) -> list[int]:
    """Upload files, several at a time; return how many bytes each has."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        work = [pool.submit(_put_one, objects, directory / file.path, file) for file in files]
        try:
            return [done.result() for done in work]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _put_one(objects: ObjectStore, path: Path, file: SnapshotFile) -> int:
    with _uploading_large if file.bytes > _SMALL else nullcontext():
        objects.upload(blob(file.sha256), _verified(path, file))
    return file.bytes


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
            f"{path} is not as it was when the store was closed: expected {file.bytes} bytes, SHA-256 {file.sha256}; "
            f"found {size} bytes, {digest.hexdigest()}. Restore the store"
        )
    yield held
