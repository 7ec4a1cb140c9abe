"""The stores of an application as a set of snapshots has them: fetched, in scratch space, and belonging to nobody.

A set is one consistent cut (`tasks/snapshot_sets.py`), with nothing on its way in a repartition topic. So what is made
of it goes on at the set's input offsets, and the application may work meanwhile, in this Kafka cluster or another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from statestore.archive.archive import ArchiveSpec
from statestore.archive.fetch import fetch
from statestore.archive.manifest import Manifest
from statestore.archive.pins import SnapshotSet, clusters_with_sets, find_set, newest_set
from statestore.archive.selection import SnapshotChoice, chosen_snapshots
from statestore.errors import InputError, SnapshotError
from statestore.formats import commit_metadata
from statestore.formats.commit_metadata import CommitMetadata
from statestore.kafka.groups import GroupOffset
from statestore.model import TopicPartition
from statestore.objects.store import ObjectStore
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.recovery.disk_space import free_bytes
from statestore.rewrite.staged_stores import require_room
from statestore.statedir.scratch import scratch_directory


class Cut(NamedTuple):
    """A set, and the snapshots of it.

    Attributes
    ----------
    snapshots
        One of each store partition.
    """

    found: SnapshotSet
    snapshots: Sequence[Manifest]

    @property
    def offsets(self) -> dict[TopicPartition, GroupOffset]:
        """Offsets of its input, from where on nothing is in the stores, with the stream times of then."""
        times = dict(self.found.stream_times)
        return {
            where: GroupOffset(offset, stream_times_of(times.get(where, "")))
            for where, offset in self.found.input_offsets
        }

    @property
    def partitions(self) -> Counter[str]:
        """Partitions of each topic that the application reads."""
        return Counter(where.topic for where, _ in self.found.input_offsets)


def stream_times_of(metadata: str) -> str:
    """Return the stream times in the metadata of an offset, and nothing else."""
    found = commit_metadata.decode(metadata)._replace(stamp=None)
    return "" if found == CommitMetadata() else commit_metadata.encode(found)


def find_cut(archive: ArchiveSpec, application: str, name: str | None) -> Cut:
    """Find a set of an application, of the cluster that the archive is asked about.

    Parameters
    ----------
    name
        None: the newest.

    Raises
    ------
    InputError
        If there is none, or it is of another application, or of another cluster.
    SnapshotError
        If there is none of the name, or snapshots of it are gone or suspect.
    """
    objects = archive.open()
    found = newest_set(objects, archive.cluster, application) if name is None else find_set(objects, name)
    if found is None:
        others = clusters_with_sets(objects, application)
        raise InputError(
            f"archive {archive.url} has no set of {application} in cluster {archive.cluster}. "
            + (
                f"It has sets of it in {', '.join(others)}: to clone one of these, say --from-cluster"
                if others
                else "A run of `process` that succeeds writes one; `statestore snapshot list --sets` lists them"
            )
        )
    if found.application != application:
        raise InputError(f"set {found.uuid} is of application {found.application}, expected {application}")
    if found.cluster != archive.cluster:
        raise InputError(
            f"set {found.uuid} is of cluster {found.cluster}, expected {archive.cluster}: its offsets mean nothing "
            f"there. To clone it into the cluster that this command is connected to, say --from-cluster {found.cluster}"
        )
    choice = SnapshotChoice(found.uuid, archive.cluster, application)
    return Cut(found, chosen_snapshots(objects, choice))


def require_same_input(objects: ObjectStore, made_of: str, cut: Cut, topic: str, journal: Path) -> None:
    """Make sure that an interrupted clone, if it is finished, goes on in the topic that its set is of.

    Parameters
    ----------
    made_of
        Name of the set that the interrupted attempt has made it of.
    cut
        Of the application, whose input is that of now.
    topic
        That input, which the clone reads, too.
    journal
        Of the attempt.

    Raises
    ------
    InputError
        If the topic was deleted and created anew. If the sets do not tell, it is not refused.
    """
    if made_of == cut.found.uuid:
        return
    try:
        then = find_set(objects, made_of).input_ids.get(topic)
    except SnapshotError:  # clean-up has removed it since
        return
    now = cut.found.input_ids.get(topic)
    if None not in (then, now) and then != now:
        raise InputError(
            f"an interrupted attempt has made the clone of set {made_of}, and {topic} was deleted and created anew "
            f"since that set was written: expected the topic id {then}, found {now}. The offsets of "
            f"the set are of other records. Nothing was changed. To clone set {cut.found.uuid} instead, delete the "
            f"changelogs of the clone, its directories in the state directory, and {journal.parent}. Then run again"
        )


@contextmanager
def fetched_stores(
    archive: ArchiveSpec, cut: Cut, stores: Sequence[StorePartitionSpec], scratch: Path
) -> Iterator[list[StorePartitionSpec]]:
    """Have the stores of a cut in a state directory of their own while the context lasts.

    Parameters
    ----------
    stores
        All store partitions that the set must have.

    Raises
    ------
    InputError
        If it has others.
    DiskSpaceError
        If there is no room for the files.
    SnapshotError
        If a file is missing, or has other bytes than its snapshot says.
    """
    there = {(str(store.task), store.store.name): store for store in stores}
    snapshots = {(found.task, found.definition.name): found for found in cut.snapshots}
    if odd := sorted(there.keys() ^ snapshots.keys()):
        task, name = odd[0]
        has = "has" if odd[0] in snapshots else "lacks"
        raise InputError(
            f"set {cut.found.uuid} {has} store {name} of task {task}, unlike the definition: the "
            f"application has changed since it was written, or the definition is of another one. Use a newer set, or "
            "correct the definition. Nothing was changed"
        )
    counts = Counter(found.definition.name for found in cut.snapshots)
    objects = archive.open()
    with scratch_directory(scratch) as directory:
        size = sum(found.bytes for found in cut.snapshots)
        require_room(f"fetching set {cut.found.uuid}", directory, size, free_bytes(directory))
        result = []
        for key, store in there.items():
            snapshot = snapshots[key]
            changelog = ChangelogSpec(
                topic=snapshot.topic,
                topic_id=snapshot.record.topic_id,
                delete_retention_ms=0,  # it is never read
                partitions=counts[snapshot.definition.name],
            )
            told = {"store": snapshot.definition, "changelog": changelog, "archive": None}
            spec = store.model_copy(update={"state_dir": directory, **told})
            fetch(objects, snapshot, spec.live, {})
            result.append(spec)
        yield result
