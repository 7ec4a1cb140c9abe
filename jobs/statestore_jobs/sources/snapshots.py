"""Snapshots of stores that options name, read from the archive: on any node, and without a state directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.datasource import InputPartition

from statestore import clock
from statestore.archive.archive import open_archive
from statestore.archive.manifest import Manifest
from statestore.archive.selection import SnapshotChoice, chosen_snapshots
from statestore.definitions.store import StoreDefinition
from statestore.discovery.archived import opened_snapshot, snapshot_label
from statestore.discovery.opening import Opened, Wanted
from statestore.errors import InputError, SnapshotError
from statestore.kinds.known import is_built_in
from statestore.kinds.segment_directories import segment_start
from statestore.objects.store import ObjectStore
from statestore_jobs.sources.options import partition_list, required

#: Options that say which snapshots are read (see `snapshots_of`).
SNAPSHOT_OPTIONS = ("snapshot", "archive", "archive_timeout_s", "cluster")
_WITH = (*SNAPSHOT_OPTIONS, "application", "store", "partitions", "kind")
_ARCHIVE, _TIMEOUT = "STATESTORE_ARCHIVE", "STATESTORE_ARCHIVE_TIMEOUT_S"
#: What all partitions of a frame must have in common.
_SHAPE = ("kind", "format", "window_size_ms", "retain_duplicates")


@dataclass
class StoreInArchive(InputPartition):
    """A snapshot of one store partition."""

    url: str
    timeout_s: float
    manifest: Manifest

    @property
    def label(self) -> str:
        """What errors call it."""
        return snapshot_label(self.manifest)

    @property
    def number(self) -> int:
        """Partition of its task."""
        return self.manifest.store_partition.task.partition

    def segments(self) -> list[int]:
        """Return the starts (ms) of its segments."""
        starts = {segment_start(file.path.partition("/")[0]) for file in self.manifest.files}
        return sorted(start for start in starts if start is not None)

    @contextmanager
    def opened(self, wanted: Wanted) -> Iterator[list[Opened]]:
        """Fetch the snapshot, and have its databases open while the context lasts.

        Parameters
        ----------
        wanted
            Which segments; the others are not fetched.

        Raises
        ------
        SnapshotError
            If one of its files is missing from the archive, or damaged.
        """
        objects = open_archive(self.url, self.timeout_s, create=False)
        try:
            with opened_snapshot(objects, self.manifest, _scratch(), wanted=wanted) as found:
                yield found.databases
        except SnapshotError as error:
            raise SnapshotError(f"{self.label}: {error}; read an older one, by its offset or its name") from error


def snapshots_of(options: Mapping[str, str], others: tuple[str, ...] = ()) -> list[StoreInArchive]:
    """Find the snapshots that the options name, by store and partition.

    Parameters
    ----------
    others
        Options that go with `snapshot`, besides those that name the store.

    Raises
    ------
    InputError
        If the options contradict each other, or say no archive.
    SnapshotError
        If there is no such snapshot.
    """
    if excess := sorted(set(options) - {*_WITH, *others}):
        raise InputError(
            f"option {excess[0]} does not go with snapshot: the archive says where the store is, and what it is"
        )
    url = options.get("archive", "").strip() or os.environ.get(_ARCHIVE, "").strip()
    if not url:
        raise InputError(f"option archive is missing: add .option('archive', ...), or set {_ARCHIVE} for the driver")
    timeout_s = _timeout_s(options)
    said = {name: required(options, name) for name in ("cluster", "application", "store") if name in options}
    choice = SnapshotChoice(required(options, "snapshot"), partitions=partition_list(options), **said)
    objects: ObjectStore = open_archive(url, timeout_s, create=False)
    return [StoreInArchive(objects.url, timeout_s, found) for found in chosen_snapshots(objects, choice)]


def definition_in(snapshots: list[StoreInArchive], options: Mapping[str, str]) -> StoreDefinition:
    """Return the definition of the store whose snapshots these are.

    Raises
    ------
    InputError
        If they are of several stores, or of one that has changed between them, or if only code of the user's could
        read it that no option names.
    """
    if len(stores := sorted({found.manifest.definition.name for found in snapshots})) > 1:
        raise InputError(f"the snapshots are of the stores {', '.join(stores)}: add .option('store', {stores[0]!r})")
    newest = max(snapshots, key=lambda found: found.manifest.written_ms).manifest
    store = newest.definition
    for found in snapshots:
        other = found.manifest.definition
        if differing := [name for name in _SHAPE if getattr(other, name) != getattr(store, name)]:
            name = differing[0]
            raise InputError(
                f"{found.label} has {name} {getattr(other, name)}, that of {newest.store_partition} has "
                f"{getattr(store, name)}: the store was redefined in between. Read partitions by themselves, with "
                "option partitions"
            )
    if store.supplier is not None:
        raise InputError(
            f"{snapshots[0].label} is of a store of supplier {store.supplier}: nothing is known of its files. Read its "
            "changelog instead"
        )
    if not is_built_in(store.kind) and options.get("kind", "").strip() != store.kind:
        raise InputError(
            f"{snapshots[0].label} is of kind {store.kind}, whose code is not loaded because an archive names it: add "
            f".option('kind', {store.kind!r}) to load it"
        )
    if options.get("kind", store.kind).strip() != store.kind:
        raise InputError(f"{snapshots[0].label} is of kind {store.kind}, found option kind {options['kind']}")
    return store


def refuse_without_snapshot(options: Mapping[str, str]) -> None:
    """Refuse options that only snapshots have."""
    if found := [name for name in SNAPSHOT_OPTIONS if name in options]:
        raise InputError(f"option {found[0]} goes with option snapshot: add .option('snapshot', 'latest')")


def _scratch() -> Path | None:
    """Return Spark's local directory with the most room: Spark removes what a killed task leaves there."""
    known = [Path(path) for path in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if path]
    there = [path for path in known if path.is_dir()]
    return max(there, key=lambda path: shutil.disk_usage(path).free, default=None)


def _timeout_s(options: Mapping[str, str]) -> float:
    text = options.get("archive_timeout_s") or os.environ.get(_TIMEOUT) or "60"
    try:
        found = float(clock.duration(text, "s"))
    except ValueError as error:
        raise InputError(f"option archive_timeout_s: {error}") from error
    if found <= 0:
        raise InputError(f"option archive_timeout_s: expected a duration above 0, found {text!r}")
    return found
