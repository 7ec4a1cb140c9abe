"""All that an archive holds: its snapshots, and whether they can be used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from statestore.archive.cleanup import marked_manifests
from statestore.archive.layout import BLOBS, STORES, blob
from statestore.archive.manifest import Manifest
from statestore.archive.pins import SnapshotSet, all_sets
from statestore.archive.snapshots import History, Listed, histories, missing_files, read_manifest
from statestore.errors import SnapshotError
from statestore.objects.store import ObjectStore

_AT_ONCE = 16


class ArchivedSnapshot(NamedTuple):
    """One snapshot, and what is to be known of it.

    Attributes
    ----------
    manifest
        None if it cannot be read.
    state
        `usable`, `suspect`, `older generation`, or why its manifest cannot be read.
    """

    listed: Listed
    manifest: Manifest | None
    state: str


class Check(NamedTuple):
    """Result of a check of an archive.

    Attributes
    ----------
    snapshots
        How many there are.
    broken
        By object, what is wrong with those that cannot be used.
    orphans, orphan_bytes
        Blobs that no snapshot names, live or marked: of uploads that go on, or of killed ones.
    """

    snapshots: int
    broken: dict[str, str]
    orphans: int
    orphan_bytes: int


def all_histories(objects: ObjectStore, cluster: str | None = None, application: str | None = None) -> list[History]:
    """Return the histories of all store partitions, or of those of a cluster or an application."""
    found: list[History] = []
    for known in objects.directories(STORES):
        for name in objects.directories(f"{STORES}/{known}") if cluster in (None, known) else []:
            if application in (None, name):
                found += histories(objects, known, name).values()
    return found


def archived_snapshots(objects: ObjectStore, found: list[History]) -> Iterator[ArchivedSnapshot]:
    """Yield the snapshots of histories, the newest of each store partition first."""
    listed = [(history, one) for history in found for one in history.snapshots]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(lambda pair: _read(objects, *pair), listed)


def listed_sets(objects: ObjectStore, application: str | None = None) -> list[tuple[SnapshotSet, int]]:
    """Return the sets, the newest first, each with the number of its snapshots that are not there any more.

    Raises
    ------
    SnapshotError
        If one cannot be read.
    """
    found = [one for one in all_sets(objects) if application in (None, one.application)]
    # Sets first: a snapshot that one names was there before.
    there = {listed.directory.snapshot(listed.name) for one in all_histories(objects) for listed in one.snapshots}
    ordered = sorted(found, key=lambda one: one.uuid, reverse=True)
    return [(one, len(set(one.snapshots) - there)) for one in ordered]


def check_archive(objects: ObjectStore) -> Check:
    """Look for snapshots that cannot be used, and for blobs that nobody needs. Reads manifests, not blobs."""
    broken: dict[str, str] = {}
    named: set[str] = set()
    count = 0
    blobs = list(objects.entries(BLOBS))
    for found in archived_snapshots(objects, all_histories(objects)):
        count += 1
        place = found.listed.directory.snapshot(found.listed.name)
        if found.manifest is None:
            broken[place] = found.state
            continue
        named |= found.manifest.blobs
        if missing := missing_files(objects, found.manifest.files):
            first = blob(missing[0].sha256)
            broken[place] = f"{len(missing)} of its files are missing or have another size, such as {first}"
    named |= {name for manifest in marked_manifests(objects) for name in manifest.blobs}
    orphans = [found for found in blobs if found.name not in named]
    return Check(count, broken, len(orphans), sum(found.size for found in orphans))


def _read(objects: ObjectStore, history: History, listed: Listed) -> ArchivedSnapshot:
    try:
        manifest = read_manifest(objects, listed.directory, listed.name)
    except SnapshotError as error:
        return ArchivedSnapshot(listed, None, str(error))
    if listed.suspect:
        return ArchivedSnapshot(listed, manifest, "suspect")
    current = listed.name.generation == history.generation
    return ArchivedSnapshot(listed, manifest, "usable" if current else "older generation")
