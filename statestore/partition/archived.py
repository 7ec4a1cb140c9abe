"""Store partitions as the archive has them: what their newest snapshots are, and a copy of one to look into.

Where each node has a state directory of its own, nobody sees them all. What the archive has is the store then, and
what lies on a node's disk is a copy, which its task judges before it uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from statestore.archive.archive import ArchiveSpec
from statestore.archive.fetch import fetch
from statestore.archive.grown_from import continuing
from statestore.archive.layout import StoreDirectory
from statestore.archive.manifest import Manifest
from statestore.archive.snapshots import History, histories, history, missing_files, readable
from statestore.durable import write_durably
from statestore.objects.store import ObjectStore
from statestore.partition.facts import DiskFacts, LastKnown, ListedSnapshots, Trouble
from statestore.partition.generations import snapshot_directory, snapshots_of
from statestore.partition.inspection import known_of_store
from statestore.partition.snapshots import SHAPE, newest_snapshot, unlike
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status
from statestore.statedir.record import StoreRecord, write_record
from statestore.statedir.scratch import default_scratch, scratch_directory

_AT_ONCE = 16
#: Of an application with more store partitions than these, all snapshots are listed at once.
_LISTED_ALONE = 8


class ArchivedStore(NamedTuple):
    """A store partition in the archive.

    Attributes
    ----------
    seen
        What is known of it, as of a store on disk.
    snapshot
        The newest that can be used; None: there is none.
    """

    seen: DiskFacts
    snapshot: Manifest | None


def look_into_archive(specs: Sequence[StorePartitionSpec], *, look_at_files: bool) -> list[ArchivedStore]:
    """Look at store partitions that live in the archive, by their manifests.

    Parameters
    ----------
    look_at_files
        Whether the archive is asked for each file, too; no file is read.

    Raises
    ------
    ArchiveUnavailableError, ArchiveAccessError
        If the archive cannot be read: that says nothing about the stores.
    """
    found: list[ArchivedStore] = []
    for archive, members in groupby(specs, lambda spec: spec.snapshot_archive):
        objects, asked = archive.open(), list(members)
        listed = listed_histories(objects, archive.cluster, [snapshot_directory(spec) for spec in asked])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found += pool.map(partial(_look, objects, look_at_files), asked, listed)
    return found


def known_of(spec: StorePartitionSpec) -> Manifest | None:
    """Return the newest snapshot of a store partition, which may be suspect: it is evidence of what the store had."""
    return newest_snapshot(spec.snapshot_archive.open(), snapshots_of(spec))


def with_archived_evidence(specs: Sequence[StorePartitionSpec], seen: Sequence[DiskFacts]) -> list[DiskFacts]:
    """Return inspections; if nothing is known of a store, its newest snapshot is its record, suspect or not.

    A store that lives in the archive is left out: here is only a copy, which is judged as one.

    Raises
    ------
    ArchiveUnavailableError, ArchiveAccessError
        If the archive cannot be read.
    """
    found = list(seen)
    groups: dict[ArchiveSpec, list[int]] = {}
    for at, spec in enumerate(specs):
        if spec.home.snapshots_show_more and seen[at].known.is_unknown:
            groups.setdefault(spec.snapshot_archive, []).append(at)
    for archive, members in groups.items():
        objects = archive.open()
        listed = listed_histories(objects, archive.cluster, [snapshot_directory(specs[at]) for at in members])
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for at, snapshots in zip(members, pool.map(partial(listed_snapshots, objects), listed), strict=True):
                found[at] = found[at]._replace(listed=snapshots)
                if (known := _had_by(snapshots)) is not None:
                    found[at] = found[at]._replace(record=known.record, known=known)
    return found


def had_by_archive(spec: StorePartitionSpec) -> LastKnown | None:
    """Return the content of a store by its newest snapshot; None if it has none, or there is no archive.

    Raises
    ------
    ArchiveUnavailableError, ArchiveAccessError
        If the archive cannot be read.
    """
    return _had_by(listed_snapshots(spec.snapshot_archive.open(), snapshots_of(spec)))


def listed_snapshots(objects: ObjectStore, found: History) -> ListedSnapshots:
    """Return listed snapshots with the manifest of the newest one."""
    return ListedSnapshots(found, newest_snapshot(objects, found))


def _known_of(snapshot: Manifest) -> LastKnown:
    return known_of_store(snapshot.record, snapshot.committed, anything=snapshot.committed is not None)


def _had_by(listed: ListedSnapshots) -> LastKnown | None:
    found, newest = listed
    if newest is not None:
        return _known_of(newest)
    unreadable = any(one.name.generation == found.generation for one in found.snapshots)
    return LastKnown(anything=True) if unreadable else None


def listed_histories(objects: ObjectStore, cluster: str, directories: Sequence[StoreDirectory]) -> list[History]:
    """List the snapshots of many store partitions; where an application has many, with one listing for all."""
    found: dict[StoreDirectory, History] = {}
    applications = [directory.store_partition.application for directory in directories]
    many = {name for name in applications if applications.count(name) > _LISTED_ALONE}
    for name in many:
        found |= histories(objects, cluster, name)
    return [
        found.get(directory, History(directory, 0, ()))
        if directory.store_partition.application in many
        else history(objects, directory)
        for directory in directories
    ]


def _look(objects: ObjectStore, look_at_files: bool, spec: StorePartitionSpec, found: History) -> ArchivedStore:
    refused: list[str] = []
    snapshot = next(readable(objects, found.usable, refused), None)
    if snapshot is None:
        return ArchivedStore(_without_snapshot(objects, found, refused), None)
    known = _known_of(snapshot)
    trouble = _trouble(objects, spec, snapshot, look_at_files=look_at_files)
    empty = snapshot.committed is None
    seen = DiskFacts(
        present=True,
        committed=snapshot.committed,
        empty=empty,
        record=snapshot.record,
        trouble=trouble,
        known=known,
        installed_by=snapshot.by_hand,
        # Newer ones are suspect, and evidence all the same.
        listed=ListedSnapshots(found, snapshot)
        if not any(one.suspect for one in found.snapshots)
        else listed_snapshots(objects, found),
    )
    return ArchivedStore(seen, snapshot)


def _without_snapshot(objects: ObjectStore, found: History, refused: Sequence[str]) -> DiskFacts:
    """Say what is known of a store without a usable snapshot: those that are suspect are evidence all the same."""
    listed = listed_snapshots(objects, found)
    evidence = listed.newest
    trouble = Trouble(Status.CORRUPT, f"no snapshot can be read: {refused[0]}") if refused else None
    if evidence is None:
        nothing = LastKnown(anything=bool(refused))
        return DiskFacts(present=bool(refused), empty=not refused, trouble=trouble, known=nothing, listed=listed)
    return DiskFacts(
        present=bool(refused),
        record=evidence.record,
        trouble=trouble,
        known=_known_of(evidence),
        installed_by=evidence.by_hand,
        listed=listed,
    )


def _trouble(
    objects: ObjectStore, spec: StorePartitionSpec, snapshot: Manifest, *, look_at_files: bool
) -> Trouble | None:
    if differing := unlike(spec, snapshot):
        return Trouble(Status.DOWNGRADED, f"snapshot {snapshot.name} is {differing}")
    missing = missing_files(objects, snapshot.files) if look_at_files else []
    if missing:
        first = f"{missing[0].path} of {missing[0].bytes} bytes"
        detail = f"the archive lacks {len(missing)} files of snapshot {snapshot.name}, or has different ones: {first}"
        return Trouble(Status.CORRUPT, detail)
    return None


@contextmanager
def copied(spec: StorePartitionSpec, snapshot: Manifest) -> Iterator[StorePartitionSpec]:
    """Provide the store partition of a snapshot in scratch space during the context.

    Raises
    ------
    SnapshotError
        If one of its files is missing from the archive, or has other bytes.
    """
    archive = spec.snapshot_archive
    with scratch_directory(default_scratch(spec.state_dir)) as directory:
        there = spec.model_copy(update={"state_dir": directory / "state", "archive": None})
        paths, name = there.paths, spec.store.name
        lay(archive.open(), snapshot, there.live, paths.offsets(name), paths.segments(name))
        write_record(paths, name, snapshot.record)
        write_durably(paths.snapshot(name), continuing(archive.url, snapshot))
        yield there


def lay(
    objects: ObjectStore,
    snapshot: Manifest,
    directory: Path,
    offsets: Path,
    segments: Path,
    local: Mapping[str, Path] | None = None,
    advanced: Callable[[int], None] = lambda _: None,
) -> None:
    """Fetch a snapshot's files, and write what lies beside its store.

    Parameters
    ----------
    directory
        Where the store is to be; it does not exist yet.
    offsets, segments
        File and directory of ours that lie beside the store.
    local, advanced
        As of `fetch`.

    Raises
    ------
    SnapshotError
        If one of its files is missing from the archive, or has other bytes.
    """
    fetch(objects, snapshot, directory, local or {}, advanced)
    for path, text in snapshot.own.items():
        kind, _, file = path.partition("/")
        if kind != SHAPE:
            write_durably(offsets if kind == "offsets" else segments / file, text)


def adopt_shape(specs: Sequence[StorePartitionSpec]) -> None:
    """Record the definition of a task's stores from their snapshots, on a node where the task never ran.

    Raises
    ------
    ArchiveUnavailableError, ArchiveAccessError
        If the archive cannot be read.
    """
    if not specs or specs[0].paths.shape.exists():
        return
    found = [one.snapshot for one in look_into_archive(specs, look_at_files=False)]
    known = [one for one in found if one is not None and SHAPE in one.own]
    if known:
        write_durably(specs[0].paths.shape, max(known, key=lambda one: one.written_ms).own[SHAPE])


def archived_records(specs: Sequence[StorePartitionSpec]) -> list[StoreRecord] | None:
    """Return what was recorded of stores with their newest snapshots; None if one has none that can be used.

    Raises
    ------
    ArchiveUnavailableError, ArchiveAccessError
        If the archive cannot be read.
    """
    found = [one.seen for one in look_into_archive(specs, look_at_files=False)]
    records = [seen.record for seen in found if seen.present and seen.trouble is None and seen.record is not None]
    return records if len(records) == len(specs) else None


def hosts_of(specs: Sequence[StorePartitionSpec]) -> list[str | None]:
    """Return which host had each store partition last, which may have its files still; None: nobody knows.

    Raises
    ------
    ArchiveUnavailableError, ArchiveAccessError
        If the archive cannot be read.
    """
    found = look_into_archive(specs, look_at_files=False)
    return [None if one.snapshot is None or one.snapshot.source == "snapshot" else one.snapshot.host for one in found]
