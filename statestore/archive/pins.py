"""Pins, which protect snapshots from clean-up, and sets, which are consistent snapshots of a whole application."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain
from typing import NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

from statestore.archive.layout import PINS, SETS, STORES, TRASH, SnapshotName, StoreDirectory, snapshot_place
from statestore.archive.manifest import MAX_BYTES
from statestore.errors import InputError, SnapshotError
from statestore.model import Name, TopicPartition, check_name
from statestore.objects.store import ObjectStore, StoredObject

M = TypeVar("M", bound=BaseModel)

_LIMIT = 64 * 1024 * 1024


class SnapshotSet(BaseModel):
    """One consistent cut through an application, of one transaction per task, or of an application that was stopped.

    Attributes
    ----------
    snapshots
        Objects of the manifests, one for each store partition.
    input_offsets
        The group's committed offset of each input partition; where it has committed nothing, the log's start.
    stream_times
        Metadata of these commits, which has the stream times of the tasks (`formats/commit_metadata.py`).
    input_ids
        Id of each topic of the input; empty in a set from before they were recorded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    cluster: str
    application: Name
    uuid: str
    snapshots: tuple[str, ...]
    input_offsets: tuple[tuple[TopicPartition, int], ...]
    stream_times: tuple[tuple[TopicPartition, str], ...] = ()
    input_ids: dict[str, str] = {}
    written_ms: int

    @property
    def place(self) -> str:
        """Its object."""
        return f"{SETS}/{self.cluster}/{self.application}/{self.uuid}.json"

    @property
    def places(self) -> list[tuple[StoreDirectory, SnapshotName]]:
        """Where its snapshots are, and their names."""
        return [place for found in self.snapshots if (place := snapshot_place(found)) is not None]

    @model_validator(mode="after")
    def _snapshots_are_the_applications(self) -> Self:
        own = f"{STORES}/{self.cluster}/{self.application}/"
        for found in self.snapshots:
            if snapshot_place(found) is None or not found.startswith(own):
                raise ValueError(f"{found[:200]!r} is not a snapshot of application {self.application}")
        return self


class Pin(BaseModel):
    """Snapshots that clean-up keeps until the pin is removed.

    Attributes
    ----------
    snapshots
        Objects of manifests, or of sets.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    name: Name
    snapshots: tuple[str, ...]
    by: str
    why: str
    written_ms: int

    @property
    def place(self) -> str:
        """Its object."""
        return f"{PINS}/{self.name}.json"


class ListedPin(NamedTuple):
    """A pin, and when it was created by the object store's clock (ms), as no two hosts have the same time."""

    pin: Pin
    created_ms: int


def write_set(objects: ObjectStore, made: SnapshotSet) -> None:
    """Write a set, whose name is its own."""
    objects.create(made.place, made.model_dump_json().encode())


def sets(objects: ObjectStore, cluster: str, application: str) -> Iterator[SnapshotSet]:
    """Yield an application's sets, the newest last.

    Raises
    ------
    SnapshotError
        If one cannot be read: what it keeps is not known.
    """
    for _, found in _read_each(objects, f"{SETS}/{cluster}/{application}", SnapshotSet):
        yield found


def newest_set(objects: ObjectStore, cluster: str, application: str) -> SnapshotSet | None:
    """Return the set of an application that was written last; None if there is none.

    Raises
    ------
    SnapshotError
        If it cannot be read.
    """
    newest = max((found.name for found in objects.entries(f"{SETS}/{cluster}/{application}")), default=None)
    return None if newest is None else _read(objects, newest, SnapshotSet)


def clusters_with_sets(objects: ObjectStore, application: str) -> list[str]:
    """Return the ids of the Kafka clusters that the archive has sets of an application from."""
    places = [found.name.split("/") for found in objects.entries(SETS)]
    return sorted({place[1] for place in places if len(place) == 4 and place[2] == application})


def find_set(objects: ObjectStore, uuid: str) -> SnapshotSet:
    """Return the set of that name.

    Raises
    ------
    SnapshotError
        If there is none, or it cannot be read.
    """
    for found in objects.entries(SETS):
        if found.name.endswith(f"/{uuid}.json"):
            return _read(objects, found.name, SnapshotSet)
    raise SnapshotError(f"archive {objects.url} has no set {uuid}; `statestore snapshot list --sets` lists them")


def all_sets(objects: ObjectStore) -> Iterator[SnapshotSet]:
    """Yield the sets of all applications; see `sets`."""
    for _, found in _read_each(objects, SETS, SnapshotSet):
        yield found


def pin(objects: ObjectStore, made: Pin) -> None:
    """Write a pin. A snapshot that clean-up has marked since it was chosen is put back.

    Raises
    ------
    InputError
        If there is one of that name.
    SnapshotError
        If one of the snapshots is gone: the pin is removed again.
    """
    if not objects.create(made.place, made.model_dump_json().encode()):
        raise InputError(f"pin {made.name} already exists; choose another name, or remove that one first")
    members = (
        _read(objects, place, SnapshotSet).snapshots if place.startswith(f"{SETS}/") else (place,)
        for place in made.snapshots
    )
    places = list(chain.from_iterable(members))
    put_back(objects, places)  # a clean-up that marks later puts back by itself
    if gone := [place for place in places if objects.stat(place) is None]:
        objects.delete(made.place)
        raise SnapshotError(
            f"pin {made.name} was not created: {gone[0]} is missing; list the snapshots, and pin others"
        )


def unpin(objects: ObjectStore, name: str) -> None:
    """Remove a pin.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    place = f"{PINS}/{check_name(name)}.json"
    if objects.stat(place) is None:
        known = ", ".join(sorted(found.name for found in pins(objects))) or "none"
        raise InputError(f"no pin {name}; the pins are: {known}")
    objects.delete(place)


def pins(objects: ObjectStore) -> Iterator[Pin]:
    """Yield all pins by name; see `listed_pins`."""
    return (found.pin for found in listed_pins(objects))


def listed_pins(objects: ObjectStore) -> Iterator[ListedPin]:
    """Yield all pins by name, with their times.

    Raises
    ------
    SnapshotError
        If one cannot be read: what it keeps is not known.
    """
    for listed, found in _read_each(objects, PINS, Pin):
        yield ListedPin(found, listed.modified_ms)


def kept_snapshots(objects: ObjectStore) -> set[str]:
    """Return the objects of the manifests that pins keep, by themselves or in a set, and of those sets.

    Raises
    ------
    SnapshotError
        If a pin or a set cannot be read: what it keeps is not known.
    """
    kept = {name for found in pins(objects) for name in found.snapshots}
    return kept | {name for found in all_sets(objects) if found.place in kept for name in found.snapshots}


def put_back(objects: ObjectStore, places: Collection[str]) -> list[str]:
    """Create manifests again that were marked; return those.

    They stay in the trash, too: who is marking one may be about to delete what is created here, and then it is put back
    from there the next time.
    """
    found = []
    for place in sorted(places):
        if objects.stat(place) is not None:
            continue
        try:
            objects.create(place, objects.read(f"{TRASH}/{place}", MAX_BYTES))
        except FileNotFoundError:  # it is no manifest, or its grace period is over
            continue
        found.append(place)
    return found


def _read_each(objects: ObjectStore, prefix: str, model: type[M]) -> Iterator[tuple[StoredObject, M]]:
    for found in sorted(objects.entries(prefix)):
        try:
            yield found, _parsed(objects, found.name, model)
        except FileNotFoundError:  # removed meanwhile: it keeps nothing
            continue


def _read(objects: ObjectStore, place: str, model: type[M]) -> M:
    try:
        return _parsed(objects, place, model)
    except FileNotFoundError:
        raise SnapshotError(f"{objects.url}/{place} no longer exists") from None


def _parsed(objects: ObjectStore, place: str, model: type[M]) -> M:
    try:
        return model.model_validate_json(objects.read(place, _LIMIT))
    except ValueError as error:
        raise SnapshotError(f"{objects.url}/{place} cannot be read: {error}") from None
