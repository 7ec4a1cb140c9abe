"""Which snapshots a reader asks for: the newest ones, those up to an offset, one by its name, or those of a set."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from statestore.archive.contents import all_histories
from statestore.archive.layout import SnapshotName, StoreDirectory, snapshot_name
from statestore.archive.manifest import Manifest
from statestore.archive.pins import SnapshotSet, find_set
from statestore.archive.snapshots import History, read_manifest, readable
from statestore.errors import InputError, SnapshotError
from statestore.model import TaskId
from statestore.objects.store import ObjectStore

LATEST = "latest"
_SET = re.compile(r"[0-9a-f]{32}")
_AT_ONCE = 16
_log = logging.getLogger(__name__)


class SnapshotChoice(NamedTuple):
    """Snapshots that a reader requests.

    Attributes
    ----------
    snapshot
        `latest`, a changelog offset, the name of a snapshot, or that of a set.
    cluster, application, store
        Whose snapshots; None: not said.
    partitions
        Of the store; None: all.
    """

    snapshot: str
    cluster: str | None = None
    application: str | None = None
    store: str | None = None
    partitions: Collection[int] | None = None

    @property
    def name(self) -> SnapshotName | None:
        """The snapshot that is named; None if none is."""
        return snapshot_name(f"{self.snapshot}.json")

    @property
    def offset(self) -> int | None:
        """The offset that is asked for; None if none is."""
        found = self.snapshot
        return int(found) if found.isascii() and found.isdigit() and len(found) < 20 else None

    def wants(self, place: StoreDirectory) -> bool:
        """Whether the snapshots of a store partition may be meant."""
        application, store, task = place.store_partition
        return (
            self.cluster in (None, place.cluster)
            and self.application in (None, application)
            and self.store in (None, store)
            and (self.partitions is None or task.partition in self.partitions)
        )


def chosen_snapshots(objects: ObjectStore, choice: SnapshotChoice) -> list[Manifest]:
    """Return the snapshots that are asked for, by store and task: one of each store partition.

    Suspect snapshots, and those of older generations, are chosen by their names only. One whose manifest cannot be read
    is passed over for an older one, unless it is named.

    Raises
    ------
    InputError
        If the choice is none, or not a clear one.
    SnapshotError
        If there is no such snapshot, or a store partition has none.
    """
    if choice.name is not None:
        chosen = [named_snapshot(objects, choice)]
    elif _SET.fullmatch(choice.snapshot):
        chosen = _of_set(objects, find_set(objects, choice.snapshot), choice)
    elif choice.snapshot == LATEST or choice.offset is not None:
        chosen = _up_to_offset(objects, choice)
    else:
        raise InputError(
            f"expected {LATEST}, a changelog offset, the name of a snapshot, or that of a set; found "
            f"{choice.snapshot[:200]!r}. `statestore snapshot list` names the snapshots"
        )
    return sorted(chosen, key=lambda found: found.store_partition)


def named_snapshot(objects: ObjectStore, choice: SnapshotChoice) -> Manifest:
    """Return the snapshot of that name, also if it is suspect or of an older generation.

    Raises
    ------
    SnapshotError
        If there is none, or its manifest cannot be read.
    """
    for found in all_histories(objects, choice.cluster, choice.application):
        for listed in found.snapshots if choice.wants(found.directory) else ():
            if listed.name == choice.name:
                return read_manifest(objects, found.directory, listed.name)
    raise SnapshotError(
        f"archive {objects.url} has no snapshot {choice.snapshot}{_of(choice)}; `statestore snapshot list` lists them"
    )


def _up_to_offset(objects: ObjectStore, choice: SnapshotChoice) -> list[Manifest]:
    if choice.application is None:
        raise InputError(
            f"snapshot {choice.snapshot} needs an application: name it. Only the name of a snapshot needs none"
        )
    found = _expected(objects, choice)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda history: _newest(objects, history, choice.offset), found))


def _expected(objects: ObjectStore, choice: SnapshotChoice) -> list[History]:
    """Return the histories of the store partitions that must have a snapshot: all tasks of a store's sub-topology."""
    histories = all_histories(objects, choice.cluster, choice.application)
    clusters = sorted({found.directory.cluster for found in histories})
    if len(clusters) > 1:
        raise InputError(
            f"archive {objects.url} has snapshots of application {choice.application} of the Kafka clusters "
            f"{', '.join(clusters)}: name one of them as the cluster"
        )
    known = {found.directory.store_partition: found for found in histories if found.snapshots}
    stores = {partition.store for partition in known}
    if not stores or choice.store not in (None, *stores):
        there = f"; it has those of its stores {', '.join(sorted(stores))}" if stores else ""
        raise SnapshotError(
            f"archive {objects.url} has no snapshots{_of(choice._replace(partitions=None))}{there}; "
            "`statestore snapshot list` lists them"
        )
    chosen = []
    for store in sorted(stores) if choice.store is None else [choice.store]:
        own = [found for partition, found in known.items() if partition.store == store]
        # Of a store that was defined anew elsewhere in the application, those before are history.
        newest = max(own, key=lambda found: found.snapshots[0].written_ms).directory.store_partition
        subtopology = newest.task.subtopology
        numbers = {partition.task.partition for partition in known if partition.task.subtopology == subtopology}
        for number in sorted(numbers if choice.partitions is None else set(choice.partitions)):
            partition = newest._replace(task=TaskId(subtopology, number))
            if partition not in known:
                raise SnapshotError(
                    f"archive {objects.url} has no snapshot of {partition}, only of other partitions of its "
                    "application; create one, or name the partitions to read"
                )
            chosen.append(known[partition])
    return chosen


def _newest(objects: ObjectStore, found: History, offset: int | None) -> Manifest:
    below = [listed for listed in found.usable if offset is None or listed.name.offset - 1 <= offset]
    refused: list[str] = []
    chosen = next(readable(objects, below, refused), None)
    for why in refused:
        _log.warning("%s is skipped: %s", found.directory.store_partition, why)
    if chosen is not None:
        return chosen
    where = found.directory.store_partition
    if refused:
        raise SnapshotError(f"archive {objects.url}: no snapshot of {where} can be read: {refused[0]}")
    if found.usable:
        oldest = found.usable[-1].name.offset - 1
        raise SnapshotError(
            f"archive {objects.url} has no usable snapshot of {where} at or below offset {offset}: the oldest is at "
            f"offset {oldest}; ask for that, or for {LATEST}"
        )
    raise SnapshotError(
        f"archive {objects.url} has no usable snapshot of {where}: its {len(found.snapshots)} snapshots are suspect or "
        "of an older generation; name one of them to read it, as `statestore snapshot list` prints it"
    )


def _of_set(objects: ObjectStore, made: SnapshotSet, choice: SnapshotChoice) -> list[Manifest]:
    places = [place for place in made.places if choice.wants(place[0])]
    if not places:
        stores = sorted({place.store_partition.store for place, _ in made.places})
        raise SnapshotError(
            f"archive {objects.url}: set {made.uuid} has no snapshot{_of(choice)}; it is of application "
            f"{made.application} of cluster {made.cluster}, with the stores {', '.join(stores)}"
        )
    marked = _suspects(all_histories(objects, made.cluster, made.application))
    for place, name in places:
        if (place, name) in marked:
            raise SnapshotError(
                f"archive {objects.url}: snapshot {name} of {place.store_partition}, which belongs to set {made.uuid}, "
                "is suspect; name the snapshot itself to read it, or read another set"
            )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda pair: read_manifest(objects, *pair), places))


def _suspects(found: Iterable[History]) -> set[tuple[StoreDirectory, SnapshotName]]:
    return {(listed.directory, listed.name) for history in found for listed in history.snapshots if listed.suspect}


def _of(choice: SnapshotChoice) -> str:
    """Say whose snapshots are asked for."""
    said: Sequence[tuple[str, object]] = (
        ("store", choice.store),
        ("application", choice.application),
        ("cluster", choice.cluster),
        ("partitions", None if choice.partitions is None else ", ".join(map(str, choice.partitions))),
    )
    return "".join(f" of {what} {value}" for what, value in said if value is not None)
