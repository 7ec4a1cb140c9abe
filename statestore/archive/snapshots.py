"""The snapshots of store partitions: what is there, which generation counts, and which of them may be used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.archive import layout
from statestore.archive.layout import SnapshotName, StoreDirectory, blob
from statestore.archive.manifest import MAX_BYTES, Manifest, SnapshotFile, from_bytes
from statestore.errors import SnapshotError
from statestore.objects.store import ObjectStore, StoredObject

_SMALL = 64 * 1024
_AT_ONCE = 16


class Generation(BaseModel):
    """Start of a generation.

    Attributes
    ----------
    snapshot
        The first snapshot of it, by name.
    why
        What replaced the store with something that its log does not give: a rollback, a rewrite, an accepted loss.
    id
        Of that replacement.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    snapshot: str
    why: str
    id: str = ""
    host: str
    written_ms: int


class Listed(NamedTuple):
    """A snapshot as the listing shows it.

    Attributes
    ----------
    written_ms
        By the object store's clock.
    suspect
        It may hold what is wrong.
    """

    directory: StoreDirectory
    name: SnapshotName
    written_ms: int
    suspect: bool


class History(NamedTuple):
    """The snapshots of one store partition.

    Attributes
    ----------
    generation
        The newest: 0 until one was begun.
    snapshots
        The newest first.
    suspects
        Names of all that were marked, also of those that clean-up has removed since: stores may have grown from them.
    """

    directory: StoreDirectory
    generation: int
    snapshots: tuple[Listed, ...]
    suspects: frozenset[str] = frozenset()

    @property
    def usable(self) -> tuple[Listed, ...]:
        """Those of the newest generation that are not suspect, the newest first."""
        return tuple(
            found for found in self.snapshots if found.name.generation == self.generation and not found.suspect
        )


def mistrusted(listed: Listed, generation: int) -> str:
    """Return why a snapshot may hold the wrong rows, given the newest generation; empty if nothing shows that."""
    if listed.suspect:
        return "it is marked as suspect: it may hold wrong rows"
    own = listed.name.generation
    return "" if own == generation else f"it belongs to generation {own}, but generation {generation} has begun"


def history(objects: ObjectStore, directory: StoreDirectory) -> History:
    """List the snapshots of one store partition."""
    return _history(directory, objects.entries(str(directory)))


def histories(objects: ObjectStore, cluster: str, application: str) -> dict[StoreDirectory, History]:
    """List the snapshots of all store partitions of an application, in one listing."""
    found: dict[StoreDirectory, list[StoredObject]] = {}
    for stored in objects.entries(f"{layout.STORES}/{cluster}/{application}"):
        directory = layout.store_directory(stored.name.rpartition("/")[0])
        if directory is not None:
            found.setdefault(directory, []).append(stored)
    return {directory: _history(directory, objects) for directory, objects in sorted(found.items())}


def _history(directory: StoreDirectory, stored: Iterable[StoredObject]) -> History:
    generation = 0
    snapshots: dict[SnapshotName, int] = {}
    suspects: set[SnapshotName] = set()
    for found in stored:
        file = found.name.rpartition("/")[2]
        if (name := layout.snapshot_name(file)) is not None:
            snapshots[name] = found.modified_ms
        elif (number := layout.generation_number(file)) is not None:
            generation = max(generation, number)
        elif (name := layout.snapshot_name(file.removeprefix("suspect-"))) is not None:
            suspects.add(name)
    listed = (Listed(directory, name, snapshots[name], name in suspects) for name in sorted(snapshots, reverse=True))
    return History(directory, generation, tuple(listed), frozenset(map(str, suspects)))


def read_manifest(objects: ObjectStore, directory: StoreDirectory, name: SnapshotName) -> Manifest:
    """Read a snapshot's manifest.

    Raises
    ------
    SnapshotError
        If it is gone, damaged or another place's.
    """
    place = directory.snapshot(name)
    try:
        content = objects.read(place, MAX_BYTES)
    except FileNotFoundError:
        raise SnapshotError(f"snapshot {place} no longer exists") from None
    except ValueError as error:
        raise SnapshotError(f"snapshot {place}: {error}") from None
    return from_bytes(content, directory, name)


def read_snapshot(objects: ObjectStore, found: Listed) -> Manifest:
    """Read the manifest of a listed snapshot.

    The store cannot have been known whole later than its manifest was written. If the writer's clock was ahead, the
    object store's clock says so, and its time counts.

    Raises
    ------
    SnapshotError
        As `read_manifest`.
    """
    snapshot = read_manifest(objects, found.directory, found.name)
    if snapshot.record.caught_up_ms <= found.written_ms:
        return snapshot
    record = snapshot.record.model_copy(update={"caught_up_ms": found.written_ms})
    return snapshot.model_copy(update={"record": record})


def read_usable(objects: ObjectStore, found: Listed) -> Manifest:
    """Read the manifest of a listed snapshot, unless it was to begin a generation that another one has begun.

    Its writer may have been killed before it learned that.

    Raises
    ------
    SnapshotError
        As `read_manifest`; or if it did not begin its generation.
    """
    snapshot = read_snapshot(objects, found)
    if snapshot.begins and read_generation(objects, found.directory, found.name.generation).snapshot != str(found.name):
        raise SnapshotError(f"snapshot {found.directory.snapshot(found.name)} is not what began its generation")
    return snapshot


def readable(objects: ObjectStore, listed: Iterable[Listed], refused: list[str]) -> Iterator[Manifest]:
    """Yield the manifests that can be read, in the given order; why one is left out is added to `refused`."""
    for found in listed:
        try:
            yield read_usable(objects, found)
        except SnapshotError as error:
            refused.append(str(error))


def missing_files(objects: ObjectStore, files: Iterable[SnapshotFile]) -> list[SnapshotFile]:
    """Return the files whose blobs are not there with their size; of several with the same bytes one."""
    distinct = list({file.sha256: file for file in files if file.content is None}.values())
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda file: objects.stat(blob(file.sha256)), distinct))
    return [file for file, there in zip(distinct, found, strict=True) if there is None or there.size != file.bytes]


def begin_generation(objects: ObjectStore, first: Manifest, why: str, replacement: str = "") -> bool:
    """Make a published snapshot the first of a new generation; False if another one has begun it."""
    content = Generation(
        snapshot=str(first.name), why=why, id=replacement, host=first.host, written_ms=first.written_ms
    )
    if objects.create(first.directory.generation(first.generation), content.model_dump_json().encode()):
        return True
    return read_generation(objects, first.directory, first.generation).snapshot == str(first.name)  # no answer had come


def read_generation(objects: ObjectStore, directory: StoreDirectory, number: int) -> Generation:
    """Return what began a generation.

    Raises
    ------
    SnapshotError
        If it is gone or cannot be read.
    """
    place = directory.generation(number)
    try:
        return Generation.model_validate_json(objects.read(place, _SMALL))
    except (FileNotFoundError, ValidationError, ValueError) as error:
        raise SnapshotError(f"{place} cannot be read: {error}") from None


def mark_suspect(objects: ObjectStore, directory: StoreDirectory, name: SnapshotName, why: str) -> None:
    """Mark a snapshot that may hold what is wrong; marking it twice changes nothing."""
    objects.create(directory.suspect(name), why.encode()[:_SMALL])
