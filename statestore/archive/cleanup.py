"""Removes snapshots that are no longer needed, in two phases that do not conflict with writers or readers.

    mark     a snapshot's manifest moves to trash/: from then on nobody begins to use it
    sweep    a blob goes when it is older than the grace period, and no manifest names it that is live, or was marked
             within that period; a marked manifest goes after its blobs

A writer publishes within half the grace period after it has chosen the snapshot that it starts from, and looks at the
blobs again once it has (`upload.py`). What a pin names is put back if it was marked while the pin was made (`pins.py`).
All ages are by the object store's clock.

One gap is left, as object stores delete without conditions: a blob that nobody needed goes although it was just put
again, if a writer puts it, commits and looks at it again between two requests of a sweep, in `_delete_if_unchanged`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from statestore import kill_switch
from statestore.archive import layout
from statestore.archive.layout import BLOBS, STORES, TRASH, SnapshotName, StoreDirectory
from statestore.archive.manifest import MAX_BYTES, Manifest, from_bytes
from statestore.archive.pins import all_sets
from statestore.archive.snapshots import History, Listed, missing_files, read_manifest, readable
from statestore.errors import SnapshotError
from statestore.objects.store import ObjectStore, StoredObject

DAY_MS = 24 * 60 * 60 * 1000
_AT_ONCE = 16


class Retention(NamedTuple):
    """Rules for keeping a store partition's snapshots.

    Attributes
    ----------
    newest
        How many of the newest.
    age_ms
        Those that are younger.
    grace_ms
        How long a marked snapshot, and a blob without a snapshot, stay. Longer than any upload or restore takes.
    """

    newest: int = 3
    age_ms: int = 7 * DAY_MS
    grace_ms: int = 2 * DAY_MS


def retention_of(newest: int, days: float, grace_hours: float) -> Retention:
    """Return what is kept, by the units of the settings."""
    return Retention(newest, int(days * DAY_MS), int(grace_hours * DAY_MS / 24))


class Swept(NamedTuple):
    """Objects that a sweep removed, or would remove.

    Attributes
    ----------
    manifests, blobs
        Names of the objects.
    bytes
        Of the blobs.
    """

    manifests: tuple[str, ...]
    blobs: tuple[str, ...]
    bytes: int


def expendable(
    objects: ObjectStore,
    history: History,
    retention: Retention,
    kept: Collection[str],
    holds_lost: Callable[[Manifest, Manifest], bool],
    now_ms: int,
) -> list[Listed]:
    """Choose the snapshots of one store partition that may be marked.

    The newest complete snapshot of the current generation always stays, and so does each that holds what its log can no
    longer give.

    Parameters
    ----------
    kept
        Objects of the manifests that pins and sets keep.
    holds_lost
        Whether a snapshot, beside the newest complete one, may hold something that its log can no longer give.
    now_ms
        By the object store's clock.
    """
    usable = readable(objects, history.usable, [])
    newest = next((manifest for manifest in usable if not missing_files(objects, manifest.files)), None)
    if newest is None:
        return []
    # What was to begin a generation comes before all others: of an attempt that was killed, or is about to begin it.
    ahead = [found.name for found in history.snapshots if found.name.generation > history.generation]
    latest = history.snapshots[len(ahead) :][: retention.newest]
    chosen = []
    for found in history.snapshots:
        kept_ms = max(retention.age_ms, retention.grace_ms) if found.name in ahead else retention.age_ms
        young = found in latest or now_ms - found.written_ms < kept_ms
        if young or found.name == newest.name or found.directory.snapshot(found.name) in kept:
            continue
        try:
            manifest = read_manifest(objects, found.directory, found.name)
        except SnapshotError:  # what it holds cannot be told: a person, or a later version, decides
            continue
        if not holds_lost(manifest, newest):
            chosen.append(found)
    return chosen


def mark(objects: ObjectStore, found: Listed) -> None:
    """Move a snapshot's manifest to the trash. Killed in between, it is in both places, and is marked again later.

    Raises
    ------
    SnapshotError
        If it is larger than any manifest.
    """
    place = found.directory.snapshot(found.name)
    try:
        content = _content(objects, place)
    except FileNotFoundError:  # another clean-up was first
        return
    marked = f"{TRASH}/{place}"
    objects.upload(marked, [content])  # in place of what a killed clean-up has left: the grace period begins now
    kill_switch.reached("clean-up, manifest in trash and live")
    objects.delete(place)


def sweep(objects: ObjectStore, grace_ms: int, now_ms: int, *, dry_run: bool = False) -> Swept:
    """Remove marked manifests, and blobs that nothing names, once the grace period has passed.

    Raises
    ------
    SnapshotError
        If a manifest cannot be read: which blobs it needs is not known, so none is removed.
    """
    # Blobs first: one that comes later belongs to a manifest that the second listing need not show.
    blobs = list(objects.entries(BLOBS))
    # Live ones before marked ones: what another clean-up marks in between is in both listings, not in neither.
    live = [found.name for found in objects.entries(STORES) if _place(found.name) is not None]
    trash = [found for found in objects.entries(TRASH) if found.name.endswith(".json")]
    old = [found for found in trash if now_ms - found.modified_ms >= grace_ms]
    young = [found.name for found in trash if found not in old]
    needed = {name for manifest in _read_all(objects, [*live, *young]) for name in manifest.blobs}
    unneeded = [found for found in blobs if now_ms - found.modified_ms >= grace_ms and found.name not in needed]
    if not dry_run:
        for found in unneeded:
            _delete_if_unchanged(objects, found)
        kill_switch.reached("clean-up, blobs deleted")
        for found in old:
            _delete_if_unchanged(objects, found)
    return Swept(
        tuple(found.name for found in old),
        tuple(found.name for found in unneeded),
        sum(found.size for found in unneeded),
    )


def sweep_sets(objects: ObjectStore, kept: Collection[str]) -> tuple[str, ...]:
    """Remove the sets of which a snapshot is gone, and not only marked; return their objects.

    Parameters
    ----------
    kept
        Objects of the sets that pins keep.

    Raises
    ------
    SnapshotError
        If a set cannot be read.
    """
    found = list(all_sets(objects))
    # What is marked or put back meanwhile is in one of these listings: the live ones are before and after the trash.
    there = {one.name.removeprefix(f"{TRASH}/") for where in (STORES, TRASH, STORES) for one in objects.entries(where)}
    gone = tuple(one.place for one in found if one.place not in kept and not there.issuperset(one.snapshots))
    for place in gone:
        objects.delete(place)
    return gone


def marked_manifests(objects: ObjectStore) -> Iterator[Manifest]:
    """Yield the manifests that are marked and not yet swept.

    Raises
    ------
    SnapshotError
        If one cannot be read.
    """
    return _read_all(objects, [found.name for found in objects.entries(TRASH) if found.name.endswith(".json")])


def _delete_if_unchanged(objects: ObjectStore, found: StoredObject) -> None:
    """Delete an object, unless somebody has put it again since it was listed."""
    if objects.stat(found.name) == found:
        objects.delete(found.name)


def _place(name: str) -> tuple[StoreDirectory, SnapshotName] | None:
    """Return which snapshot's manifest an object is, live or marked; None if it is none."""
    return layout.snapshot_place(name.removeprefix(f"{TRASH}/"))


def _read_all(objects: ObjectStore, names: Iterable[str]) -> Iterator[Manifest]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for manifest in pool.map(lambda name: _read(objects, name), names):
            if manifest is not None:
                yield manifest


def _read(objects: ObjectStore, name: str) -> Manifest | None:
    place = _place(name)
    if place is None:
        raise SnapshotError(f"{objects.url}/{name} is not a snapshot manifest. Remove it, then clean up again")
    try:
        return from_bytes(_content(objects, name), *place)
    except FileNotFoundError:  # marked meanwhile: its blobs stay for the grace period, as they were not in `old`
        if name.startswith(TRASH):
            return None
        return _read(objects, f"{TRASH}/{name}")


def _content(objects: ObjectStore, name: str) -> bytes:
    try:
        return objects.read(name, MAX_BYTES)
    except ValueError as error:
        raise SnapshotError(f"{error}: it is not a snapshot manifest. Remove it, then clean up again") from None
