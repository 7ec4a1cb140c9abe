"""Objects of an object store: S3, Azure, Google Cloud, or a directory, through obstore.

No other module asks object storage; `client.py` makes the client. Credentials come from the environment, a private
file (`credentials.py`) or the cloud's own identity; they are never in a URL, an argument, a report or a message.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

from statestore.durable import sync_directory
from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, DiskSpaceError, StateStoreError
from statestore.objects.client import client
from statestore.objects.url import checked_url

if TYPE_CHECKING:
    from obstore import Bytes, GetOptions, ObjectMeta

#: Parts of one object that are sent at the same time, of 5 MiB each.
_PARTS_AT_ONCE = 4
#: An error that comes so soon was not preceded by obstore's own attempts: it does not repeat a create whose connection
#: was closed by the server while it was sent, as servers close connections that nobody has used for long.
_AT_ONCE_S = 0.5

#: What a listing is answered where there is no bucket or container, and where it is denied: obstore has one error for
#: whatever a listing is answered.
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_DENIED = ("status code: 403", "status code: 401")
_ANSWER = re.compile(r"<(Code|Message)>([^<]*)</")

#: What one request reads: small enough to come within its deadline, so large that its answer takes longer than the wait
#: for it. It is handed on in chunks: buffers as large as the range cost more than hashing and writing what is in them.
_RANGE, _CHUNK = 16 * 1024 * 1024, 1024 * 1024


class StoredObject(NamedTuple):
    """One object as a listing shows it.

    Attributes
    ----------
    name
        Below the archive's prefix.
    size
        In bytes.
    modified_ms
        When it was written, in ms since the epoch, by the object store's clock.
    etag
        What changes with its content, without quotes; None if the object store has nothing of the kind.
    """

    name: str
    size: int
    modified_ms: int
    etag: str | None = None

    @classmethod
    def of(cls, found: ObjectMeta) -> StoredObject:
        """Return what obstore says of an object."""
        # Azure quotes the tag in the answer about one object, and not in a listing.
        etag = found["e_tag"].strip('"') if found["e_tag"] else None
        return cls(found["path"], found["size"], int(found["last_modified"].timestamp() * 1000), etag)


class ObjectStore:
    """The objects below a URL.

    Parameters
    ----------
    url
        Such as `s3://bucket/prefix`, `az://account/container/prefix` or `file:///directory`.
    timeout_s
        Seconds after which a request that was repeated again and again counts as failed.
    called
        What messages call it.

    Raises
    ------
    InputError
        If the URL is not one of an object store.
    """

    def __init__(self, url: str, timeout_s: float = 60.0, *, called: str = "archive") -> None:
        self.url = checked_url(url)
        self._called = called
        parts = urlsplit(url)
        self._directory = Path(unquote(parts.path)) if parts.scheme == "file" else None
        with self._errors(url):
            if self._directory is not None:
                self._store = from_url(url, mkdir=True)
            else:
                self._store = client(url, timeout_s)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object that must not be there yet.

        Returns
        -------
        bool
            False if there is one of that name, which stays as it is. An attempt of ours whose answer was lost may have
            written it.
        """
        began_s = time.monotonic()
        with self._errors(name):
            try:
                obstore.put(self._store, name, content, mode="create")
            except AlreadyExistsError:
                return False
            except BaseError:
                if time.monotonic() - began_s > _AT_ONCE_S:
                    raise
                try:
                    obstore.put(self._store, name, content, mode="create")
                except AlreadyExistsError:
                    return False
        self._sync(name)
        return True

    def upload(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object of any size from its chunks, in place of one that is there.

        If an error comes out of the chunks, nothing is written.
        """
        refused: list[BaseException] = []
        source = iter(chunks)
        first = list(islice(source, 2))
        with self._errors(name, refused):
            if len(first) == 1:  # one request, where an upload in parts has three
                obstore.put(self._store, name, first[0], mode="overwrite", use_multipart=False)
            else:
                content = _noting(_begun(first, source), refused)
                obstore.put(self._store, name, content, mode="overwrite", max_concurrency=_PARTS_AT_ONCE)
        self._sync(name)

    def read(self, name: str, limit: int) -> bytes:
        """Return an object's content.

        Parameters
        ----------
        limit
            Bytes it may have at most.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        ValueError
            If it is larger.
        """
        with self._errors(name, reading=True):
            found = obstore.get(self._store, name)
            if found.meta["size"] > limit:
                raise ValueError(f"{self.url}/{name} has {found.meta['size']} bytes, expected {limit} at most")
            return bytes(found.bytes())

    def read_start(self, name: str, size: int) -> bytes:
        """Return what an object begins with, so many bytes at most.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        """
        with self._errors(name, reading=True):
            return bytes(obstore.get(self._store, name, options={"range": (0, size)}).bytes())

    def read_chunks(self, name: str, size: int) -> Iterator[Bytes | memoryview]:
        """Yield an object's content in its order, in chunks of about 1 MiB; each is good until the next one.

        Parameters
        ----------
        size
            Bytes that it must have. If it ends earlier all the same, what is missing is not yielded.

        Raises
        ------
        FileNotFoundError
            If it is not there.
        ValueError
            If it has another size.
        """
        with self._errors(name, reading=True):
            if self._directory is not None:
                yield from self._file_chunks(name, size)
                return
            for start in range(0, max(size, 1), _RANGE):
                wanted: GetOptions = {"range": (start, min(start + _RANGE, size))} if size else {}
                found = obstore.get(self._store, name, options=wanted)
                self._require_size(name, found.meta["size"], size)
                yield from found.stream(min_chunk_size=_CHUNK)

    def _file_chunks(self, name: str, size: int) -> Iterator[Bytes | memoryview]:
        # Several times as fast as the object store's own stream of a file, which comes in many small pieces.
        assert self._directory is not None
        with (self._directory / name).open("rb", buffering=0) as file:
            self._require_size(name, os.fstat(file.fileno()).st_size, size)
            chunk = memoryview(bytearray(_CHUNK))
            while read := file.readinto(chunk):
                yield chunk[:read]

    def _require_size(self, name: str, found: int, expected: int) -> None:
        if found != expected:
            raise ValueError(f"{self.url}/{name} has {found} bytes, expected {expected}")

    def stat(self, name: str) -> StoredObject | None:
        """Return an object's size and time; None if it is not there."""
        with self._errors(name):
            try:
                found = obstore.head(self._store, name)
            except FileNotFoundError:
                return None
        return StoredObject.of(found)

    def entries(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield all objects in a directory and in those below it, in no order."""
        with self._errors(prefix):
            for chunk in obstore.list(self._store, prefix or None, chunk_size=1000):
                yield from map(StoredObject.of, chunk)

    def directories(self, prefix: str = "") -> list[str]:
        """Return the names of the directories right below one."""
        return self.children(prefix)[1]

    def children(self, prefix: str = "") -> tuple[list[StoredObject], list[str]]:
        """Return the objects right below a directory, in no order, and the names of the directories there."""
        with self._errors(prefix):
            found = obstore.list_with_delimiter(self._store, prefix or None)
        directories = sorted(name.rstrip("/").rpartition("/")[2] for name in found["common_prefixes"])
        return [StoredObject.of(one) for one in found["objects"]], directories

    def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
        with self._errors(name):
            try:
                obstore.delete(self._store, name)
            except FileNotFoundError:
                return

    def _sync(self, name: str) -> None:
        """Make an object in a directory survive a power cut; object storage has done so when it answers."""
        if self._directory is None:
            return
        path = self._directory / name
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        while path != self._directory:
            path = path.parent
            sync_directory(path)

    @contextmanager
    def _errors(self, name: str, refused: Sequence[BaseException] = (), *, reading: bool = False) -> Iterator[None]:
        """Say in the library's terms what the object store answered.

        Parameters
        ----------
        refused
            What the caller's own chunks raised; it is passed on.
        reading
            Whether an object that is not there is the caller's to judge.
        """
        try:
            yield
        except (BaseError, OSError) as error:
            if reading and isinstance(error, FileNotFoundError):
                raise
            raise (refused[0] if refused else self._said(error, name or "it")) from error

    def _said(self, error: Exception, name: str) -> StateStoreError:
        said = f"{self._called} {self.url}: {name}"
        answer = str(error)
        # Where something is written, or listed: an object may be missing.
        if isinstance(error, FileNotFoundError) or any(code in answer for code in _NO_BUCKET):
            return ArchiveAccessError(f"{said}: the bucket or container does not exist; create it, or correct the URL")
        refused = isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError)
        if refused or any(code in answer for code in _DENIED):
            return ArchiveAccessError(
                f"{said}: access was denied ({_short(error)}); check the credentials in the environment, and that they "
                "allow to list, read, write and delete"
            )
        if "No space left" in answer:
            return DiskSpaceError(f"{said}: no space is left on the device; free some, then run again")
        return ArchiveUnavailableError(
            f"{said} could not be reached ({_short(error)}); nothing was changed. Run again; if it persists, check the "
            "endpoint and the bucket"
        )


def _begun(first: list[bytes], source: Iterator[bytes]) -> Iterator[bytes]:
    """Go on with chunks of which the first ones were taken; they are not kept."""
    while first:
        yield first.pop(0)
    yield from source


def _noting(chunks: Iterable[bytes], refused: list[BaseException]) -> Iterator[bytes]:
    """Pass chunks on, and note the error that ends them: obstore may raise another one in its place."""
    try:
        yield from chunks
    except BaseException as error:
        refused.append(error)
        raise


def _short(error: BaseException) -> str:
    """What happened; of an answer in XML only code and message, as others of its fields say who has asked."""
    said, _, answer = str(error).partition("\n\nDebug source")[0].partition("<?xml")
    fields = [found.group(2) for found in _ANSWER.finditer(answer)]
    return " ".join([*said.split(), *fields])[:300]
