"""Snapshots of the archive, fetched and opened to be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from statestore.archive.fetch import fetched
from statestore.archive.manifest import Manifest
from statestore.discovery.links import named
from statestore.discovery.opening import Opened, Wanted, close_all, open_databases
from statestore.discovery.store_directory import StoreDirectory
from statestore.kinds.segment_directories import segment_start
from statestore.objects.store import ObjectStore


class OpenedSnapshot(NamedTuple):
    """A snapshot on this disk.

    Attributes
    ----------
    directory
        Where its files are.
    databases
        In order of time.
    """

    directory: Path
    databases: list[Opened]


@contextmanager
def opened_snapshot(
    objects: ObjectStore,
    manifest: Manifest,
    scratch: Path | None = None,
    *,
    local: Mapping[str, Path] | None = None,
    wanted: Wanted | None = None,
) -> Iterator[OpenedSnapshot]:
    """Fetch a snapshot, and have its databases open while the context lasts; then its files are removed.

    Parameters
    ----------
    scratch
        Directory with room for them; None: that of temporary files.
    local
        Files that are linked, not fetched; see `fetch`.
    wanted
        Which segments; the others are not fetched. None: all.

    Raises
    ------
    SnapshotError
        If one of its files is missing from the archive, or damaged.
    StoreCorruptedError
        If it cannot be read.
    """
    segmented = is_segmented(manifest)
    if segmented and wanted is not None:
        manifest = _only(manifest, wanted)
    application, store, task = manifest.store_partition
    with fetched(objects, manifest, scratch, local) as directory, named(directory, Path(snapshot_label(manifest))):
        place = StoreDirectory(store, segmented, directory, application, task)
        databases = open_databases(place, manifest.definition.values, wanted)
        try:
            yield OpenedSnapshot(directory, databases)
        finally:
            close_all(databases)


def snapshot_label(manifest: Manifest) -> str:
    """Return what errors call a snapshot."""
    return f"snapshot {manifest.name} of {manifest.store_partition}"


def is_segmented(manifest: Manifest) -> bool:
    """Whether the store has segments, by its files: code that a manifest names is not loaded for that."""
    return all("/" in file.path for file in manifest.files)


def _only(manifest: Manifest, wanted: Wanted) -> Manifest:
    """Return the manifest without the segments that are not wanted."""
    starts = {name: segment_start(name) for file in manifest.files if (name := file.path.partition("/")[0])}
    order = sorted({start for start in starts.values() if start is not None})
    following = dict(zip(order, [*order[1:], None], strict=True)) if order else {}
    left = {name for name, start in starts.items() if start is None or wanted(start, following[start])}
    files = tuple(file for file in manifest.files if file.path.partition("/")[0] in left)
    return manifest.model_copy(update={"files": files})
