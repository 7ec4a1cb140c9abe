"""The stores of an application as a set of snapshots has them: fetched, in scratch space, and belonging to nobody.

A set is one consistent cut (`tasks/snapshot_sets.py`). So what is made of it goes on at the set's input offsets, and
the application may work meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from statestore.archive.archive import ArchiveSpec
from statestore.archive.fetch import fetch
from statestore.archive.manifest import Manifest
from statestore.archive.pins import SnapshotSet, find_set, newest_set
from statestore.archive.selection import SnapshotChoice, chosen_snapshots
from statestore.changelog.group import GroupOffset
from statestore.changelog.topics import Topics
from statestore.errors import InputError
from statestore.formats import commit_metadata
from statestore.formats.commit_metadata import CommitMetadata
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.planning import free_bytes
from statestore.rewrite.staged_stores import require_room
from statestore.statedir.scratch import scratch_directory


class Cut(NamedTuple):
    """A set, and the snapshots of it.

    Attributes
    ----------
    snapshots
        One of each store partition.
    offsets
        Of the input, from where on nothing is in the stores.
    """

    found: SnapshotSet
    snapshots: Sequence[Manifest]
    offsets: Mapping[TopicPartition, GroupOffset]


def find_cut(archive: ArchiveSpec, application: str, name: str | None) -> Cut:
    """Find a set of an application.

    Parameters
    ----------
    name
        None: the newest.

    Raises
    ------
    InputError
        If it is of another application, or of another cluster.
    SnapshotError
        If there is none, or snapshots of it are gone or suspect.
    """
    objects = archive.open()
    found = newest_set(objects, archive.cluster, application) if name is None else find_set(objects, name)
    if found is None:
        raise InputError(
            f"archive {archive.url} has no set of {application}. A run of `process` that succeeds writes one; "
            "`statestore snapshot list --sets` lists them"
        )
    if (found.application, found.cluster) != (application, archive.cluster):
        raise InputError(
            f"set {found.uuid} is of application {found.application} in cluster {found.cluster}, expected "
            f"{application} in {archive.cluster}: its offsets mean nothing here"
        )
    snapshots = chosen_snapshots(objects, SnapshotChoice(found.uuid, archive.cluster, application))
    times = {
        number: max(
            (
                snapshot.record.stream_time
                for snapshot in snapshots
                if snapshot.partition == number and snapshot.record.stream_time is not None
            ),
            default=None,
        )
        for number in {snapshot.partition for snapshot in snapshots}
    }
    offsets = {
        where: GroupOffset(offset, "" if time is None else commit_metadata.encode(CommitMetadata(time)))
        for where, offset in found.input_offsets
        for time in [times.get(where.partition)]
    }
    return Cut(found, snapshots, offsets)


def require_input(topics: Topics, cut: Cut) -> None:
    """Make sure that the input has all from the cut on.

    Raises
    ------
    InputError
        If a log starts behind it.
    """
    for where, log in topics.log_ranges(cut.offsets).items():
        if not log.start <= cut.offsets[where].next_offset <= log.high_watermark:
            raise InputError(
                f"{where} has the offsets {log.start} to {log.high_watermark}, and set {cut.found.uuid} ends at "
                f"{cut.offsets[where].next_offset}: what lies in between is gone. Use a newer set. Nothing was changed"
            )


@contextmanager
def fetched_stores(
    archive: ArchiveSpec, cut: Cut, stores: Sequence[StorePartitionSpec], scratch: Path
) -> Iterator[list[StorePartitionSpec]]:
    """Have the stores of a cut in a state directory of their own while the context lasts.

    Parameters
    ----------
    stores
        All store partitions of the application of now.

    Raises
    ------
    InputError
        If the set has others.
    DiskSpaceError
        If there is no room for the files.
    SnapshotError
        If a file is missing, or has other bytes than its snapshot says.
    """
    there = {(str(store.task), store.store.name): store for store in stores}
    snapshots = {(found.task, found.definition.name): found for found in cut.snapshots}
    if odd := sorted(there.keys() ^ snapshots.keys()):
        task, name = odd[0]
        where = "the set" if odd[0] in snapshots else f"{cut.found.application}"
        raise InputError(
            f"store {name} of task {task} is in {where} alone: the application has changed since set {cut.found.uuid} "
            "was written. Use a newer set. Nothing was changed"
        )
    objects = archive.open()
    with scratch_directory(scratch) as directory:
        size = sum(found.bytes for found in cut.snapshots)
        require_room(f"fetching set {cut.found.uuid}", directory, size, free_bytes(directory))
        result = []
        for key, store in there.items():
            spec = store.model_copy(
                update={"state_dir": directory, "store": snapshots[key].definition, "archive": None}
            )
            fetch(objects, snapshots[key], spec.live, {})
            result.append(spec)
        yield result
