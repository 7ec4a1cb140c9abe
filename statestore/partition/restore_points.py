"""The last restore points of store partitions: which snapshot each could be restored from now, and what that reads.

They are judged by their manifests and the ends of the logs. With `look_at_files` the archive is asked whether it has
all files, too; no file is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from statestore.archive.archive import ArchiveSpec
from statestore.archive.manifest import Manifest
from statestore.archive.snapshots import History, Listed, missing_files, read_usable, readable
from statestore.changelog import brokers_clock
from statestore.changelog.epochs import LogComparison, compare_ends
from statestore.errors import SnapshotError, StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.objects.store import ObjectStore
from statestore.partition.archived import listed_histories
from statestore.partition.facts import NO_LOG, log_end
from statestore.partition.generations import snapshot_directory
from statestore.partition.snapshots import compared_end, inadmissible
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import RestorePoint

_AT_ONCE = 16


def restore_points(specs: Sequence[StorePartitionSpec], *, look_at_files: bool) -> list[RestorePoint | None]:
    """Return the last restore point of each store partition; None where there is no archive, or there can be none.

    A failure of the archive or of Kafka becomes part of it: it says nothing about the stores.

    Parameters
    ----------
    look_at_files
        Whether the archive is asked for each file.
    """
    groups: dict[tuple[ArchiveSpec, Cluster], list[int]] = {}
    for at, spec in enumerate(specs):
        if spec.home.offers_snapshots:
            groups.setdefault((spec.snapshot_archive, spec.cluster), []).append(at)
    found: list[RestorePoint | None] = [None] * len(specs)
    for (archive, cluster), members in groups.items():
        asked = [specs[at] for at in members]
        try:
            points = _points(asked, archive, cluster, brokers_clock.now_ms(cluster), look_at_files=look_at_files)
        except StateStoreError as error:
            points = [RestorePoint(detail=str(error))] * len(asked)
        for at, point in zip(members, points, strict=True):
            found[at] = point
    return found


def _points(
    specs: Sequence[StorePartitionSpec],
    archive: ArchiveSpec,
    cluster: Cluster,
    now_ms: int,
    *,
    look_at_files: bool,
) -> list[RestorePoint]:
    objects = archive.open()
    directories = [snapshot_directory(spec) for spec in specs]
    listed = listed_histories(objects, archive.cluster, directories)
    logs = cluster.topics.log_ranges(spec.partition for spec in specs if spec.changelog is not None)
    judge = partial(_point, objects, logs, now_ms, look_at_files)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        newest = list(pool.map(partial(_newest, objects), listed))
        return list(pool.map(judge, specs, listed, _compared(specs, newest, cluster)))


class ComparedSnapshot(NamedTuple):
    """A snapshot, and what became of its log since it was whole; None: not compared."""

    snapshot: Manifest
    comparison: LogComparison | None


def _newest(objects: ObjectStore, found: History) -> Manifest | None:
    """Read the newest snapshot; None if there is none, or it cannot be read."""
    return next(readable(objects, found.usable[:1], []), None)


def _compared(
    specs: Sequence[StorePartitionSpec], newest: Sequence[Manifest | None], cluster: Cluster
) -> list[ComparedSnapshot | None]:
    """Compare the logs with the newest snapshots, all in one go."""
    pairs = list(zip(specs, newest, strict=True))
    ends = {spec.partition: log_end(made.record, spec.changelog) for spec, made in pairs if made is not None}
    known = {partition: end for partition, end in ends.items() if end is not None}
    found = compare_ends(cluster, known)
    return [None if made is None else ComparedSnapshot(made, found.get(spec.partition)) for spec, made in pairs]


def _point(
    objects: ObjectStore,
    logs: Mapping[TopicPartition, LogRange],
    now_ms: int,
    look_at_files: bool,
    spec: StorePartitionSpec,
    found: History,
    newest: ComparedSnapshot | None,
) -> RestorePoint:
    log, first = logs.get(spec.partition, NO_LOG), None
    passed_over: list[str] = []
    try:
        for listed, snapshot, why in judged_snapshots(spec, objects, found, log, now_ms, newest):
            if snapshot is not None:
                if why is None and look_at_files and (missing := missing_files(objects, snapshot.files)):
                    why = f"the archive lacks {len(missing)} of its files"
                if why is None:
                    newer = f"newer ones cannot be used: {passed_over[0]}" if passed_over else ""
                    return _described(spec, listed, snapshot, log, newer).model_copy(update={"usable": True})
                first = first or _described(spec, listed, snapshot, log, why)
            passed_over.append(f"{listed.name}: {why}")
    except StateStoreError as error:
        return RestorePoint(detail=str(error))
    if first is not None:
        return first
    return RestorePoint(detail=passed_over[0] if passed_over else "there is no snapshot")


def judged_snapshots(
    spec: StorePartitionSpec,
    objects: ObjectStore,
    found: History,
    log: LogRange,
    now_ms: int,
    newest: ComparedSnapshot | None = None,
) -> Iterator[tuple[Listed, Manifest | None, str | None]]:
    """Yield the usable snapshots of a store partition, the newest first, each with why it may not be restored from.

    Parameters
    ----------
    log
        The changelog partition's offsets.
    now_ms
        Time of the brokers before they were asked for, ms since the epoch.
    newest
        The newest of them, if it was read and compared before.

    Yields
    ------
    Listed
        The snapshot as it was listed.
    Manifest or None
        None if it cannot be read.
    str or None
        Why it is not admissible; None: it is.
    """
    for listed in found.usable:
        if newest is not None and newest.snapshot.name == listed.name:
            yield listed, newest.snapshot, inadmissible(spec, newest.snapshot, log, newest.comparison, now_ms)
            continue
        try:
            snapshot = read_usable(objects, listed)
        except SnapshotError as error:
            yield listed, None, str(error)
            continue
        yield listed, snapshot, inadmissible(spec, snapshot, log, compared_end(spec, snapshot), now_ms)


def _described(
    spec: StorePartitionSpec, listed: Listed, snapshot: Manifest, log: LogRange, detail: str
) -> RestorePoint:
    changelog, record = spec.changelog, snapshot.record
    start = log.start if snapshot.committed is None else max(snapshot.committed + 1, log.start)
    return RestorePoint(
        snapshot=str(listed.name),
        committed=snapshot.committed,
        written_ms=listed.written_ms,
        needed_from=record.needed_from,
        adopted=record.adopted,
        fetched=snapshot.bytes,
        offsets=max(log.last_stable - start, 0),
        until_ms=record.caught_up_ms + changelog.delete_retention_ms if changelog and spec.log_is_compacted else None,
        detail=detail,
    )
