"""What clean-up must keep, and sets: snapshots of all store partitions of an application that belong together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from statestore.archive.layout import PINS, SETS, STORES, SnapshotName, StoreDirectory, snapshot_place
from statestore.archive.objects import ObjectStore
from statestore.errors import InputError, SnapshotError
from statestore.model import Name, TopicPartition, check_name

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
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    cluster: str
    application: Name
    uuid: str
    snapshots: tuple[str, ...]
    input_offsets: tuple[tuple[TopicPartition, int], ...]
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
                raise ValueError(f"{found[:200]!r} is no snapshot of application {self.application}")
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
    for found in sorted(objects.entries(f"{SETS}/{cluster}/{application}")):
        yield _read(objects, found.name, SnapshotSet)


def newest_set(objects: ObjectStore, cluster: str, application: str) -> SnapshotSet | None:
    """Return the set of an application that was written last; None if there is none.

    Raises
    ------
    SnapshotError
        If it cannot be read.
    """
    newest = max((found.name for found in objects.entries(f"{SETS}/{cluster}/{application}")), default=None)
    return None if newest is None else _read(objects, newest, SnapshotSet)


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
    raise SnapshotError(
        f"archive {objects.url} has no set {uuid}; `statestore snapshot list --sets` names those there are"
    )


def all_sets(objects: ObjectStore) -> Iterator[SnapshotSet]:
    """Yield the sets of all applications; see `sets`."""
    for found in sorted(objects.entries(SETS)):
        yield _read(objects, found.name, SnapshotSet)


def pin(objects: ObjectStore, made: Pin) -> None:
    """Write a pin.

    Raises
    ------
    InputError
        If there is one of that name.
    SnapshotError
        If clean-up has marked one of the snapshots meanwhile: the pin is removed again.
    """
    if not objects.create(made.place, made.model_dump_json().encode()):
        raise InputError(f"pin {made.name} exists; choose another name, or remove that one first")
    # A clean-up that has not seen the pin has marked before now; one that marks later looks for pins again.
    members = (
        _read(objects, place, SnapshotSet).snapshots if place.startswith(f"{SETS}/") else (place,)
        for place in made.snapshots
    )
    gone = [place for place in chain.from_iterable(members) if objects.stat(place) is None]
    if gone:
        objects.delete(made.place)
        raise SnapshotError(
            f"pin {made.name} was not made: clean-up is removing {gone[0]}; list the snapshots, and pin others"
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
        raise InputError(f"no pin {name}; there are: {known}")
    objects.delete(place)


def pins(objects: ObjectStore) -> Iterator[Pin]:
    """Yield all pins by name.

    Raises
    ------
    SnapshotError
        If one cannot be read: what it keeps is not known.
    """
    for found in sorted(objects.entries(PINS)):
        yield _read(objects, found.name, Pin)


def _read(objects: ObjectStore, place: str, model: type[M]) -> M:
    try:
        return model.model_validate_json(objects.read(place, _LIMIT))
    except (FileNotFoundError, ValidationError, ValueError) as error:
        raise SnapshotError(f"{objects.url}/{place} cannot be read: {error}") from None
