"""Builds: what several machines make of the log of one store partition, each its part, before it is a store.

    plan                 what is read, and at which keys it is cut; creating it begins the build
    a range of the log   becomes pieces, one for each range of keys, and an object that commits them
    a range of keys      its pieces of all ranges are merged to SST files, which become blobs; an object commits them

Every commit is created once, by whoever is first, and never changed. A killed machine leaves pieces that nothing names.
All of a build goes when its store is restored, or by clean-up when nothing was added to it for the grace period. Its
blobs are those of a snapshot then, or orphans.

Who reads an object trusts nothing in it that is not checked here. Pieces and files have the bytes of their SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from statestore.archive.documents import from_document, to_document
from statestore.archive.layout import BUILDS, BuildDirectory, build_directory, builds_of
from statestore.archive.manifest import SnapshotFile, StoredFile
from statestore.archive.upload import MOST_S, put_files
from statestore.errors import SnapshotError
from statestore.model import StorePartition, TopicPartition
from statestore.objects.store import ObjectStore, StoredObject

M = TypeVar("M", bound=BaseModel)

_MAX_BYTES = 16 * 1024 * 1024
_Offset = Annotated[int, Field(ge=0, lt=1 << 63)]
_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Uuid = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1


class Piece(StoredFile):
    """Sorted records of one range of the log, and of one range of keys.

    Attributes
    ----------
    row_bytes
        Bytes of its keys and values; its file is compressed.
    """

    row_bytes: _Count


class LogRangeRead(_Document):
    """A range of the log was read; see `bulk.runs.Runs`.

    Attributes
    ----------
    position
        Input offsets that headers of its records name: the largest of each partition.
    pieces
        One for each range of keys; None where there is nothing of it.
    """

    build: _Uuid
    partition: Annotated[int, Field(ge=0)]
    start: _Offset
    end: _Offset
    records: _Count
    skipped: _Count
    last_offset: _Offset | None
    stream_time: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
    position: tuple[tuple[TopicPartition, _Offset], ...]
    pieces: tuple[Piece | None, ...]


class SegmentBlobs(BaseModel):
    """SST files of one segment, in key order; see `bulk.databases.SegmentFiles`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    segment: Annotated[int, Field(ge=0, lt=1 << 63)]
    files: tuple[StoredFile, ...]


class KeyRangeMerged(_Document):
    """A range of keys was merged to SST files.

    Attributes
    ----------
    rows, digest
        Of the rows in them (`bulk.digest.Digest`).
    """

    build: _Uuid
    number: Annotated[int, Field(ge=0)]
    rows: _Count
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    segments: tuple[SegmentBlobs, ...]

    @model_validator(mode="after")
    def _segments_are_in_order(self) -> Self:
        found = [one.segment for one in self.segments]
        if found != sorted(set(found)):
            raise ValueError("its segments are not in order")
        return self


class ListedBuild(NamedTuple):
    """A build as the listing shows it.

    Attributes
    ----------
    objects
        All that belongs to it.
    """

    directory: BuildDirectory
    objects: tuple[StoredObject, ...]

    @property
    def names(self) -> frozenset[str]:
        """Names of its objects."""
        return frozenset(found.name for found in self.objects)

    @property
    def bytes(self) -> int:
        """Of all its objects."""
        return sum(found.size for found in self.objects)

    def usable(self, now_ms: int) -> bool:
        """Tell whether it was begun, and so lately that clean-up takes no blob of it (`upload.py`).

        Parameters
        ----------
        now_ms
            By the object store's clock.
        """
        begun = [found.modified_ms for found in self.objects if found.name == self.directory.plan]
        return bool(begun) and now_ms - begun[0] < MOST_S * 1000


def listed_builds(objects: ObjectStore, cluster: str, store_partition: StorePartition) -> list[ListedBuild]:
    """List the builds of a store partition, the newest first."""
    return _listed(objects.entries(builds_of(cluster, store_partition)))


def create(objects: ObjectStore, name: str, content: BaseModel) -> bool:
    """Write one object of a build; False if it is there already, by whomever."""
    return objects.create(name, to_document(content, "build"))


def read(objects: ObjectStore, name: str, model: type[M]) -> M | None:
    """Read one object of a build; None if it is not there.

    Raises
    ------
    SnapshotError
        If it is damaged.
    """
    try:
        raw = objects.read(name, _MAX_BYTES)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SnapshotError(str(error)) from None
    return from_document(raw, "build", model, f"{objects.url}/{name}")


def read_log_range(objects: ObjectStore, build: BuildDirectory, partition: int, start: int) -> LogRangeRead | None:
    """Read what became of a range of the log, by its first offset; None if it is not there.

    Raises
    ------
    SnapshotError
        If it is damaged, or that of another range.
    """
    name = build.log_range(partition, start)
    found = read(objects, name, LogRangeRead)
    if found is not None and (found.build, found.partition, found.start) != (build.uuid, partition, start):
        raise SnapshotError(f"{objects.url}/{name} belongs to another range")
    return found


def read_key_range(objects: ObjectStore, build: BuildDirectory, number: int) -> KeyRangeMerged | None:
    """Read what became of a range of keys; None if it is not there.

    Raises
    ------
    SnapshotError
        If it is damaged, or that of another range.
    """
    name = build.key_range(number)
    found = read(objects, name, KeyRangeMerged)
    if found is not None and (found.build, found.number) != (build.uuid, number):
        raise SnapshotError(f"{objects.url}/{name} belongs to another range of keys")
    return found


def described(directory: Path, path: Path) -> SnapshotFile:
    """Describe a file in a directory, to be uploaded."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return SnapshotFile(path=str(path.relative_to(directory)), bytes=path.stat().st_size, sha256=digest)


def put_piece(objects: ObjectStore, build: BuildDirectory, path: Path, row_bytes: int) -> Piece:
    """Upload a piece; nothing names it yet."""
    file = described(path.parent, path)
    put_files(objects, path.parent, [file], build.piece)
    return Piece(bytes=file.bytes, sha256=file.sha256, row_bytes=row_bytes)


def remove_build(objects: ObjectStore, build: ListedBuild) -> None:
    """Remove a build, its plan first: nobody begins with it any more."""
    for name in sorted(build.names, key=lambda name: name != build.directory.plan):
        objects.delete(name)


def expired_builds(objects: ObjectStore, grace_ms: int, now_ms: int) -> Iterator[ListedBuild]:
    """Yield the builds to which nothing was added for the grace period, of whichever store partition."""
    for found in _listed(objects.entries(BUILDS)):
        if all(now_ms - stored.modified_ms >= grace_ms for stored in found.objects):
            yield found


def _listed(entries: Iterable[StoredObject]) -> list[ListedBuild]:
    found: dict[BuildDirectory, list[StoredObject]] = {}
    for stored in entries:
        if (directory := build_directory(stored.name)) is not None:
            found.setdefault(directory, []).append(stored)
    newest_first = sorted(found.items(), key=lambda item: item[0].uuid, reverse=True)
    return [ListedBuild(directory, tuple(stored)) for directory, stored in newest_first]
