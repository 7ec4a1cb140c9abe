"""Generations of one store partition's snapshots: which one the live store is of, and whether that still counts.

A store that was replaced with something that its log does not give begins a generation. It may be published late, or on
another node than the one that has an older copy.
"""

from __future__ import annotations

import logging
from uuid import uuid4

from statestore.archive.grown_from import GrownFrom, read_grown_from
from statestore.archive.layout import StoreDirectory
from statestore.archive.snapshots import History, history, read_generation
from statestore.durable import with_checksum
from statestore.errors import ArchiveAccessError, ArchiveUnavailableError, SnapshotError
from statestore.objects.store import ObjectStore
from statestore.partition.spec import StorePartitionSpec

_log = logging.getLogger(__name__)


def snapshot_directory(spec: StorePartitionSpec) -> StoreDirectory:
    """Return the place of a store partition's snapshots in its archive."""
    return StoreDirectory(spec.snapshot_archive.cluster, spec.store_partition)


def snapshots_of(spec: StorePartitionSpec) -> History:
    """List the snapshots of a store partition.

    Raises
    ------
    ArchiveUnavailableError, ArchiveAccessError
        If the archive cannot be read.
    """
    return history(spec.snapshot_archive.open(), snapshot_directory(spec))


def replaced_with(spec: StorePartitionSpec) -> str | None:
    """Say what the live store was replaced with that no snapshot has yet; None: nothing.

    Raises
    ------
    SnapshotError
        If that is not known.
    """
    grown = read_grown_from(spec.paths, spec.store.name)
    return None if grown is None else grown.begins


def newest_generation(spec: StorePartitionSpec) -> int:
    """Return the newest generation of a store partition; if the archive does not tell, the live store's."""
    try:
        if spec.home.offers_snapshots:
            return snapshots_of(spec).generation
    except (ArchiveUnavailableError, ArchiveAccessError) as error:
        _log.warning("%s: its newest generation is unknown: %s", spec.store_partition, error)
    try:
        known = read_grown_from(spec.paths, spec.store.name)
    except SnapshotError:
        return 0
    return 0 if known is None else known.generation


def built_from_log(spec: StorePartitionSpec) -> str:
    """Return what is to be known of a store that was built from its log alone: it is of the newest generation."""
    archive = spec.snapshot_archive
    found = GrownFrom(url=archive.url, cluster=archive.cluster, generation=newest_generation(spec), snapshot=None)
    return with_checksum(found.model_dump_json())


def known_origin(
    spec: StorePartitionSpec, objects: ObjectStore, found: History, grown: GrownFrom | None
) -> GrownFrom | None:
    """Return what a store grew from, as far as that is in this archive, or that it begins a generation.

    Raises
    ------
    SnapshotError
        If it was to begin a generation, and another store has begun one since.
    """
    if grown is None:
        return None
    archive = spec.snapshot_archive
    if grown.begins is None:
        if (grown.url, grown.cluster) != (archive.url, archive.cluster):
            return None
        if found.generation >= grown.generation:
            return grown
        if not found.snapshots and grown.by_hand is None:  # it was emptied by hand, or it is a new bucket
            return None
        why = f"generation {grown.generation}, which the archive no longer has: it was put back from an older backup"
        return grown.model_copy(update={"begins": why, "generation": found.generation, "id": uuid4().hex})
    if found.generation <= grown.generation:
        return grown
    begun = read_generation(objects, found.directory, found.generation)
    if grown.id and begun.id == grown.id:  # by an attempt that was killed before it wrote that down
        return GrownFrom(
            url=archive.url,
            cluster=archive.cluster,
            generation=found.generation,
            snapshot=begun.snapshot,
            by_hand=grown.by_hand,
        )
    raise SnapshotError(
        f"{spec.store_partition} is here by {grown.begins}, but another store began generation {found.generation} "
        f"on {begun.host}, by {begun.why}. The store here is not published. Restore it with mode snapshot. To "
        f"publish it anyway, roll it back twice"
    )


def outdated(known: GrownFrom, found: History) -> str | None:
    """Say why a store that is of its log is not to be followed by snapshots of now; None if it is. Pure."""
    if known.generation < found.generation:
        return f"it belongs to generation {known.generation}, but generation {found.generation} has begun"
    if known.snapshot in found.suspects:
        return f"it grew from snapshot {known.snapshot}, which is suspect"
    return None


def superseded(spec: StorePartitionSpec) -> str | None:
    """Say why the live store is not to be used, however far it is: another store counts in its place; None if it is.

    Another node may have put something in place that the log does not give, or have found wrong what it grew from.

    Raises
    ------
    ArchiveUnavailableError, ArchiveAccessError
        If the archive does not tell.
    """
    objects = spec.snapshot_archive.open()
    found = history(objects, snapshot_directory(spec))
    try:
        known = known_origin(spec, objects, found, read_grown_from(spec.paths, spec.store.name))
    except SnapshotError as error:
        return str(error)
    if known is None:
        unknown = f"generation {found.generation} has begun, and it is unknown whether it belongs to that"
        return unknown if found.generation else None
    return None if known.begins is not None else outdated(known, found)
