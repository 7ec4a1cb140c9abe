"""Names of the objects in an archive.

    format.json                                                  version of this layout
    blobs/<first 2 hex digits>/<sha256>                          bytes of one file of a store
    stores/<cluster>/<application>/<store>/<task>/
        <generation>-<offset>-<uuid>.json                        a snapshot: its manifest
        generation-<generation>.json                             which snapshot began a generation
        suspect-<generation>-<offset>-<uuid>.json                this snapshot may hold what is wrong
    trash/...                                                    what clean-up has marked, by the same name
    sets/<cluster>/<application>/<uuid>.json                     snapshots of all store partitions that belong together
    pins/<name>.json                                             what clean-up must keep
    builds/<cluster>/<application>/<store>/<task>/<uuid>/        what several machines make of one log (builds.py)
        plan.json                                                what is read, and where it is cut
        range-<partition>-<offset>.json                          a range of the log was read
        keys-<number>.json                                       a range of keys was merged
        pieces/<sha256>                                          sorted records of a range of the log and one of keys
    shapes/<cluster>/<application>/<uuid>.json                   what the stores of an application without a definition
                                                                 are; the newest counts

Numbers have leading zeros, so that names are in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import uuid4

from statestore.errors import InputError
from statestore.model import StorePartition, TaskId, check_name

FORMAT = "format.json"
STORES = "stores"
BLOBS = "blobs"
TRASH = "trash"
SETS = "sets"
PINS = "pins"
BUILDS = "builds"
SHAPES = "shapes"

_SNAPSHOT = re.compile(r"(?P<generation>[0-9]{8})-(?P<offset>[0-9]{20})-(?P<uuid>[0-9a-f]{32})\.json")
_GENERATION = re.compile(r"generation-(?P<generation>[0-9]{8})\.json")
_UUID = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class SnapshotName(NamedTuple):
    """Parsed name of a snapshot. Names have the order of the snapshots, the newest last.

    Attributes
    ----------
    generation
        Counts how often the store was replaced with something that its log does not give.
    offset
        Number of changelog offsets that the store has `seen`.
    uuid
        32 hexadecimal digits, the time first: by the clock of one machine, a later one is greater.
    """

    generation: int
    offset: int
    uuid: str

    def __str__(self) -> str:
        return f"{self.generation:08d}-{self.offset:020d}-{self.uuid}"


def seen(committed: int | None) -> int:
    """Return the number of changelog offsets that a store has seen, as snapshots' names have it.

    Parameters
    ----------
    committed
        Offset of the last changelog record in it; None: it has none.
    """
    return 0 if committed is None else committed + 1


class StoreDirectory(NamedTuple):
    """Where the snapshots of one store partition are.

    Attributes
    ----------
    cluster
        Id of the Kafka cluster that has the changelog.
    """

    cluster: str
    store_partition: StorePartition

    def __str__(self) -> str:
        application, store, task = self.store_partition
        return f"{STORES}/{self.cluster}/{application}/{store}/{task}"

    def snapshot(self, name: SnapshotName) -> str:
        """Object of a snapshot's manifest."""
        return f"{self}/{name}.json"

    def generation(self, number: int) -> str:
        """Object that begins a generation."""
        return f"{self}/generation-{number:08d}.json"

    def suspect(self, name: SnapshotName) -> str:
        """Object that marks a snapshot."""
        return f"{self}/suspect-{name}.json"


class BuildDirectory(NamedTuple):
    """Where a build of one store partition is.

    Attributes
    ----------
    uuid
        32 hexadecimal digits, the time first.
    """

    cluster: str
    store_partition: StorePartition
    uuid: str

    def __str__(self) -> str:
        return f"{builds_of(self.cluster, self.store_partition)}/{self.uuid}"

    @property
    def plan(self) -> str:
        """Object that begins the build."""
        return f"{self}/plan.json"

    def log_range(self, partition: int, offset: int) -> str:
        """Object that says that a range of the log was read, by its first offset."""
        return f"{self}/range-{partition:08d}-{offset:020d}.json"

    def key_range(self, number: int) -> str:
        """Object that says that a range of keys was merged."""
        return f"{self}/keys-{number:08d}.json"

    def piece(self, sha256: str) -> str:
        """Object with the bytes of this digest.

        Raises
        ------
        ValueError
            If it is no digest.
        """
        return f"{self}/pieces/{_checked(sha256)}"


def builds_of(cluster: str, store_partition: StorePartition) -> str:
    """Return where the builds of a store partition are."""
    application, store, task = store_partition
    return f"{BUILDS}/{cluster}/{application}/{store}/{task}"


def build_directory(name: str) -> BuildDirectory | None:
    """Return which build an object belongs to; None if it belongs to none."""
    parts = name.split("/")
    if len(parts) < 7 or parts[0] != BUILDS or _UUID.fullmatch(parts[5]) is None:
        return None
    found = _store_partition(parts[2:5])
    return None if found is None else BuildDirectory(parts[1], found, parts[5])


def shapes(cluster: str, application: str) -> str:
    """Directory of what is known of the stores of an application."""
    return f"{SHAPES}/{cluster}/{check_name(application)}"


def time_ordered_uuid(now_ms: int) -> str:
    """Return 32 hexadecimal digits that nobody else has: the time in ms, and random ones, as in version 7."""
    return f"{now_ms:012x}{uuid4().hex[12:]}"


def blob(sha256: str) -> str:
    """Object with the bytes of this digest.

    Raises
    ------
    ValueError
        If it is no digest.
    """
    return f"{BLOBS}/{_checked(sha256)[:2]}/{sha256}"


def _checked(sha256: str) -> str:
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"expected 64 hexadecimal digits, found {sha256[:80]!r}")
    return sha256


def snapshot_name(file: str) -> SnapshotName | None:
    """Return what the last part of an object's name says of a snapshot; None if it is not one's."""
    found = _SNAPSHOT.fullmatch(file)
    return None if found is None else SnapshotName(int(found["generation"]), int(found["offset"]), found["uuid"])


def generation_number(file: str) -> int | None:
    """Return the generation that an object begins, by the last part of its name; None if it begins none."""
    found = _GENERATION.fullmatch(file)
    return None if found is None else int(found["generation"])


def store_directory(directory: str) -> StoreDirectory | None:
    """Return which store partition's snapshots are in a directory; None if it is not one of them."""
    parts = directory.split("/")
    if len(parts) != 5 or parts[0] != STORES:
        return None
    found = _store_partition(parts[2:5])
    return None if found is None else StoreDirectory(parts[1], found)


def _store_partition(parts: Sequence[str]) -> StorePartition | None:
    application, store, task = parts
    try:
        return StorePartition(check_name(application), check_name(store), TaskId.parse(task))
    except (ValueError, InputError):
        return None


def snapshot_place(name: str) -> tuple[StoreDirectory, SnapshotName] | None:
    """Return which snapshot's manifest an object is; None if it is none."""
    directory, _, file = name.rpartition("/")
    where, snapshot = store_directory(directory), snapshot_name(file)
    return None if where is None or snapshot is None else (where, snapshot)
