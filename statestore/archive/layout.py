"""What the objects of an archive are called.

    format.json                                                  version of this layout
    blobs/<first 2 hex digits>/<sha256>                          bytes of one file of a store
    stores/<cluster>/<application>/<store>/<task>/
        <generation>-<offset>-<uuid>.json                        a snapshot: its manifest
        generation-<generation>.json                             which snapshot began a generation
        suspect-<generation>-<offset>-<uuid>.json                this snapshot may hold what is wrong
    trash/...                                                    what clean-up has marked, by the same name
    sets/<cluster>/<application>/<uuid>.json                     snapshots of all store partitions that belong together
    pins/<name>.json                                             what clean-up must keep

Numbers have leading zeros, so that names are in order.
"""

from __future__ import annotations

import re
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

_SNAPSHOT = re.compile(r"(?P<generation>[0-9]{8})-(?P<offset>[0-9]{20})-(?P<uuid>[0-9a-f]{32})\.json")
_GENERATION = re.compile(r"generation-(?P<generation>[0-9]{8})\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class SnapshotName(NamedTuple):
    """What the name of a snapshot says; names are ordered as the snapshots are, the newest last.

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
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"expected 64 hexadecimal digits, found {sha256[:80]!r}")
    return f"{BLOBS}/{sha256[:2]}/{sha256}"


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
    try:
        task = TaskId.parse(parts[4])
        return StoreDirectory(parts[1], StorePartition(check_name(parts[2]), check_name(parts[3]), task))
    except (ValueError, InputError):
        return None


def snapshot_place(name: str) -> tuple[StoreDirectory, SnapshotName] | None:
    """Return which snapshot's manifest an object is; None if it is none."""
    directory, _, file = name.rpartition("/")
    where, snapshot = store_directory(directory), snapshot_name(file)
    return None if where is None or snapshot is None else (where, snapshot)
