"""The location of reports and Data Docs: a directory, or a prefix in object storage with the same methods.

    /var/lib/reports, file:///var/lib/reports        a `Path`
    s3://bucket/prefix, az://account/container       an `ObjectPath`

An `ObjectPath` has the methods of `Path` that those need who read and write reports, so they need not know which of the
two they have. An object is written by one request and is complete or absent. A directory is what the names of objects
begin with: it need not be made, and is gone with its last object. Naming places asks nothing and loads no client. An
`ObjectPath` that comes from a listing knows size and time from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial, total_ordering
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self, TypeVar
from urllib.parse import quote, unquote, urlsplit
from uuid import uuid4
from zlib import crc32

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from statestore.durable import create_durably, remove_tree, write_atomically, write_durably
from statestore.errors import ArchiveUnavailableError, InputError, StateStoreError
from statestore.objects.url import checked_url, container_and_prefix

if TYPE_CHECKING:
    from statestore.objects.store import ObjectStore, StoredObject

T = TypeVar("T")
_SHOWN = "/!$&'()*+,;=:@~"
_MOST_BYTES = 1 << 30
#: Objects that are asked for at the same time: most of a request is waiting.
_AT_ONCE = 16
#: Deadline of a request of somebody who can do without an answer: the page, and who tells progress.
_SOON_S = 4.0
#: How long those do not ask again where there was no answer.
_PAUSE_S = 15.0
_no_answer: dict[str, tuple[float, str]] = {}


class ObjectStat(NamedTuple):
    """Facts of a listing about an object, with the names of `os.stat_result`.

    Attributes
    ----------
    st_mtime_ns
        By the object store's clock.
    st_ctime_ns
        No time, but a number that is another one if the content is.
    """

    st_size: int
    st_mtime_ns: int
    st_ctime_ns: int

    @property
    def st_mtime(self) -> float:
        """The time in seconds since the epoch."""
        return self.st_mtime_ns / 1e9


@total_ordering
class ObjectPath:
    """An object, or those below a prefix.

    Parameters
    ----------
    url
        Such as `s3://bucket/reports`, without credentials.

    Raises
    ------
    InputError
        If it is no URL of an object store, or a part of it is `..`.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(checked_url(url))
        above, key = parts.netloc, unquote(parts.path)
        if parts.scheme == "az":
            container, prefix = container_and_prefix(parts.path)
            above, key = f"{above}/{container}", prefix or ""
        #: URL of the bucket or container.
        self.bucket = f"{parts.scheme}://{above}"
        self.parts = _checked_parts(key)
        self._soon = False
        self._listed: ObjectStat | None = None

    def _at(self, parts: tuple[str, ...], listed: ObjectStat | None = None) -> ObjectPath:
        path = object.__new__(ObjectPath)
        path.bucket, path.parts, path._soon, path._listed = self.bucket, parts, self._soon, listed
        return path

    def soon(self) -> ObjectPath:
        """Return the same place for somebody who can do without an answer: it comes soon, or not at all.

        Where none has come, nothing is asked for a while, and each request fails at once.
        """
        path = self._at(self.parts, self._listed)
        path._soon = True
        return path

    # -- names ---------------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return "/".join([self.bucket, *(quote(part, safe=_SHOWN) for part in self.parts)])

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and (self.bucket, self.parts) == (other.bucket, other.parts)

    def __lt__(self, other: ObjectPath) -> bool:
        return (self.bucket, self.parts) < (other.bucket, other.parts)

    def __hash__(self) -> int:
        return hash((self.bucket, self.parts))

    def __truediv__(self, name: str) -> ObjectPath:
        return self._at(self.parts + _checked_parts(name))

    @property
    def key(self) -> str:
        """Name of the object in its bucket."""
        return "/".join(self.parts)

    @property
    def name(self) -> str:
        """The last part."""
        return self.parts[-1] if self.parts else ""

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return Path(self.name).stem

    @property
    def suffix(self) -> str:
        """The last part's suffix, such as `.json`."""
        return Path(self.name).suffix

    @property
    def parent(self) -> ObjectPath:
        """The parent path."""
        return self._at(self.parts[:-1])

    def with_name(self, name: str) -> ObjectPath:
        """Return a neighbour."""
        return self.parent / name

    def absolute(self) -> Self:
        """Return this: there is no other name for it."""
        return self

    def resolve(self) -> Self:
        """Return this: there are no symbolic links."""
        return self

    # -- objects -------------------------------------------------------------------------------------------------------

    def read_bytes(self) -> bytes:
        """Return the content.

        Raises
        ------
        FileNotFoundError
            If there is no such object, though there is the bucket.
        """
        return self._read(lambda objects: objects.read(self.key, _MOST_BYTES))

    def read_start(self, size: int) -> bytes:
        """Return the first bytes, as `read_bytes` does."""
        if self._listed is not None and self._listed.st_size == 0:
            return b""  # of which no range can be asked for
        return self._read(lambda objects: objects.read_start(self.key, size))

    def _read(self, read: Callable[[ObjectStore], bytes]) -> bytes:
        try:
            found = self._ask(read)
        except FileNotFoundError:
            self.require_bucket()
            raise FileNotFoundError(2, "there is no such object", str(self)) from None
        return found

    def write_bytes(self, content: bytes) -> None:
        """Write the object, in place of one that is there, by one request."""
        self._ask(lambda objects: objects.upload(self.key, [content]))

    def create(self, content: bytes) -> bool:
        """Write the object, which must not exist yet; see `ObjectStore.create`."""
        return self._ask(lambda objects: objects.create(self.key, content))

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object; one that is not there is no error, whatever is said."""
        self._ask(lambda objects: objects.delete(self.key))

    def replace(self, target: Location) -> None:
        """Give the object another name, in place of one that has it."""
        assert isinstance(target, ObjectPath), "both lie in one place"
        target.write_bytes(self.read_bytes())
        self.unlink()

    def stat(self) -> ObjectStat:
        """Return size and time; of a directory those of all objects in it, and the time of the last one.

        Raises
        ------
        FileNotFoundError
            If there is neither.
        """
        if self._listed is not None:
            return self._listed
        found = self._ask(lambda objects: objects.stat(self.key)) if self.parts else None
        if found is not None:
            return _stat(found)
        below = [_stat(one) for one in self._below()]
        if not below:
            raise FileNotFoundError(2, "there is no such object", str(self))
        marks = crc32(repr(below).encode())
        return ObjectStat(sum(one.st_size for one in below), max(one.st_mtime_ns for one in below), marks)

    def exists(self) -> bool:
        """Tell whether there is such an object, or one below it."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    # -- directories ---------------------------------------------------------------------------------------------------

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield what lies right below: objects, with what the listing says of them, and directories."""
        objects, directories = self._ask(lambda objects: objects.children(self.key))
        for found in objects:
            yield self._at(tuple(found.name.split("/")), _stat(found))
        for name in directories:
            yield self._at((*self.parts, name))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield what fits a pattern as that of `Path.glob`, without `**`."""
        fixed, wild = self, pattern.split("/")
        while wild and not any(sign in wild[0] for sign in "*?["):
            fixed /= wild.pop(0)
        if len(wild) < 2:
            yield from (found for found in fixed.iterdir() if fnmatchcase(found.name, wild[0] if wild else "*"))
            return
        for one in fixed._below():
            parts = tuple(one.name.split("/"))
            below = parts[len(fixed.parts) :]
            if len(below) == len(wild) and all(map(fnmatchcase, below, wild)):
                yield self._at(parts, _stat(one))

    def require_bucket(self) -> None:
        """Ask whether the place can be listed.

        Raises
        ------
        ArchiveAccessError
            If it must not be, or the bucket does not exist.
        """
        self._ask(lambda objects: next(objects.entries(self.key), None))

    def remove_below(self) -> None:
        """Delete the object, and all that lie below it."""
        names = [found.name for found in self._below()]
        for name in names or [self.key]:
            self._ask(partial(_delete, name))

    def now_s(self) -> float:
        """Return the object store's clock, in seconds since the epoch; an object is made for that, and deleted."""
        asked = self / f".clock-{uuid4().hex}"
        asked.write_bytes(b"")
        try:
            return asked.stat().st_mtime
        finally:
            asked.unlink()

    def _below(self) -> list[StoredObject]:
        return self._ask(lambda objects: list(objects.entries(self.key)))

    # -- requests ------------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[ObjectStore], T]) -> T:
        # Here, not at the top: settings name places where nobody asks for an object.
        from statestore.objects import store

        if not self._soon:
            return question(store.ObjectStore(self.bucket, _timeout_s(), called="object storage"))
        until, why = _no_answer.get(self.bucket, (0.0, ""))
        if time.monotonic() < until:
            raise ArchiveUnavailableError(why)
        try:
            answer = question(store.ObjectStore(self.bucket, min(_SOON_S, _timeout_s()), called="object storage"))
        except ArchiveUnavailableError as error:
            _no_answer[self.bucket] = time.monotonic() + _PAUSE_S, str(error)
            raise
        return answer

    def __getstate__(self) -> dict[str, Any]:
        return {"bucket": self.bucket, "parts": self.parts, "_soon": self._soon, "_listed": None}


def _delete(name: str, objects: ObjectStore) -> None:
    objects.delete(name)


def _timeout_s() -> float:
    """Return STATESTORE_ARCHIVE_TIMEOUT_S; what is wrong with it, who loads all settings says."""
    try:
        return max(float(os.environ.get("STATESTORE_ARCHIVE_TIMEOUT_S", "")), 0.001)
    except ValueError:
        return 60.0


def _stat(found: StoredObject) -> ObjectStat:
    return ObjectStat(found.size, found.modified_ms * 1_000_000, crc32((found.etag or "").encode()))


def _checked_parts(name: str) -> tuple[str, ...]:
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts or not name.replace(" ", "_").isprintable():
        raise InputError(f"expected a name below a URL of object storage, found {name!r}")
    return parts


# -- both kinds --------------------------------------------------------------------------------------------------------


def is_url(text: str) -> bool:
    """Tell whether a text is the URL of something else than a directory."""
    return "://" in text and not text.startswith("file:")


def location(text: object) -> Path | ObjectPath:
    """Return the place that a path or a URL names.

    Raises
    ------
    InputError
        If it begins as a URL does and is none of an object store.
    """
    if isinstance(text, Path | ObjectPath):
        return text
    if not isinstance(text, str):
        raise InputError(f"expected a path or a URL, found {text!r}")
    if is_url(text):
        return ObjectPath(text)
    return Path(unquote(urlsplit(checked_url(text)).path)) if text.startswith("file:") else Path(text)


def _validated(value: object) -> Path | ObjectPath:
    try:
        return location(value)
    except InputError as error:
        raise ValueError(str(error)) from error


#: A directory or file, or a place in object storage; models read it from a path or a URL.
Location = Annotated[
    Path | ObjectPath,
    PlainValidator(_validated),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "format": "path"}),
]
#: What keeps somebody from reading or writing in either.
TROUBLE = (OSError, StateStoreError)


def below(path: Location, directory: Location) -> str | None:
    """Return the name of a place below a directory, with slashes; None if it lies elsewhere."""
    if isinstance(path, ObjectPath) or isinstance(directory, ObjectPath):
        if not (isinstance(path, ObjectPath) and isinstance(directory, ObjectPath)):
            return None
        count = len(directory.parts)
        there = path.bucket == directory.bucket and path.parts[:count] == directory.parts
        return "/".join(path.parts[count:]) if there else None
    return path.relative_to(directory).as_posix() if path.is_relative_to(directory) else None


def name_below(text: str, directory: Location) -> str | None:
    """Return the name below a directory of what a report says lies there; None if it lies elsewhere."""
    try:
        return below(location(text), directory)
    except InputError:
        return None


def listing(directory: Location, pattern: str) -> list[Location]:
    """Return what lies in a directory and fits a pattern, in no order."""
    return list(directory.glob(pattern))


def write_whole(path: Location, content: str | bytes, *, durable: bool = True) -> None:
    """Write a file that a reader finds as a whole or not at all, also beside others who write it.

    Parameters
    ----------
    durable
        It survives a power cut, too; an object does in any case.
    """
    if isinstance(path, ObjectPath):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    elif durable:
        write_durably(path, content, several_writers=True)
    else:
        write_atomically(path, content)


def create_whole(path: Location, content: bytes) -> bool:
    """Write a file that must not exist yet, as a whole; return False if there is one, which stays as it is.

    From object storage, False may also mean that an attempt of ours has written it whose answer was lost.
    """
    if isinstance(path, ObjectPath):
        return path.create(content)
    return create_durably(path, content)


def remove_all(path: Location) -> None:
    """Remove a directory with all that is in it, if it is there."""
    if isinstance(path, ObjectPath):
        path.remove_below()
    else:
        remove_tree(path)


def read_all(paths: Sequence[Location]) -> list[bytes]:
    """Return the contents of many, in order; several objects are read at the same time.

    Raises
    ------
    OSError, StateStoreError
        If one cannot be read.
    """
    return list(each_at_once(paths, lambda path: path.read_bytes()))


def each_at_once(paths: Sequence[Location], read: Callable[[Location], T]) -> Iterator[T]:
    """Yield what reading each gives, in order; several objects are asked for at the same time."""
    if not any(isinstance(path, ObjectPath) for path in paths):
        yield from map(read, paths)
        return
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        yield from threads.map(read, paths)
