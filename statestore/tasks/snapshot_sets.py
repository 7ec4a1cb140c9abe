"""Sets of snapshots: one cut through all tasks of an application, with the input offsets that belong to it.

A task commits its input offset, and what its stores log, in one transaction. Its snapshots have all that the stores had
at that commit. So a task's snapshots and its input offset fit.

What a task has sent to a repartition topic, and the next one has not read, is in no store, and `process` deletes it
from the topic when it has been read. So a cut is only one if there is no such record: each repartition topic ends where
the set does. Its end is read before the group's offsets. If these are still those of the run, nobody has committed more
input before, so what the topic had then is all that the cut has sent.

A topic that is deleted takes the group's offsets with it. So if these are still there, the id that the topic had before
they were read is that of the topic that the run has read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from statestore import clock
from statestore.archive.archive import ArchiveSpec
from statestore.archive.layout import StoreDirectory, snapshot_name, time_ordered_uuid
from statestore.archive.pins import SnapshotSet, newest_set, write_set
from statestore.archive.snapshots import histories
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import SnapshotError, StateStoreError
from statestore.formats import commit_metadata
from statestore.formats.commit_metadata import CommitMetadata
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import ConsumerGroup
from statestore.kafka.topics import Topics
from statestore.model import StorePartition, TaskId, TopicPartition
from statestore.objects.store import ObjectStore
from statestore.reports import ProcessRow, SnapshotSetRow

_log = logging.getLogger(__name__)


def set_after_run(
    application: ApplicationDefinition,
    rows: Sequence[ProcessRow],
    archive: ArchiveSpec,
    cluster: Cluster,
) -> SnapshotSetRow | None:
    """Write the set of an application after a run of all of its tasks, unless the newest one says the same.

    Stores in memory are no part of it: they are rebuilt from their changelogs anyway.

    Parameters
    ----------
    rows
        Of this application: one for each of its tasks.

    Returns
    -------
    SnapshotSetRow or None
        None if the application is not to have one: it processes at least once, has no stores on disk, or a task failed.
    """
    on_disk = any(store.engine != "in_memory" for part in application.subtopologies for store in part.stores)
    exactly_once = application.processing_guarantee == "exactly_once_v2"
    if not exactly_once or not on_disk or not rows or any(row.failure is not None for row in rows):
        return None
    row = SnapshotSetRow(application=application.name)
    try:
        objects = archive.open()
        snapshots = _snapshots(objects, application, rows, archive)
        offsets = _offsets(application, rows)
        topics = cluster.topics
        ids = {name: found.topic_id for name, found in topics.describe(where.topic for where, _ in offsets).items()}
        _require_drained(application, offsets, topics)
        times = _require_committed(application, offsets, topics)
        known = newest_set(objects, archive.cluster, application.name)
        said = (snapshots, offsets, times, ids)
        if known is not None and (known.snapshots, known.input_offsets, known.stream_times, known.input_ids) == said:
            return row.model_copy(update={"snapshot_set": known.uuid})
        now_ms = clock.now_ms()
        made = SnapshotSet(
            cluster=archive.cluster,
            application=application.name,
            uuid=time_ordered_uuid(now_ms),
            snapshots=snapshots,
            input_offsets=offsets,
            stream_times=times,
            input_ids=ids,
            written_ms=now_ms,
        )
        write_set(objects, made)
    except (StateStoreError, OSError, ValueError) as error:  # also a name that no set may have
        _log.warning("process: %s: no set of snapshots: %s", application.name, error)
        return row.model_copy(update={"why": str(error)})
    return row.model_copy(update={"snapshot_set": made.uuid})


def _snapshots(
    objects: ObjectStore, application: ApplicationDefinition, rows: Sequence[ProcessRow], archive: ArchiveSpec
) -> tuple[str, ...]:
    """Return the objects of the manifests, in order: one for each store partition."""
    found = histories(objects, archive.cluster, application.name)
    usable = {(place, str(one.name)) for place, history in found.items() for one in history.usable}
    chosen = []
    for row in rows:
        task = TaskId.parse(row.task)
        current = {one.store: one.current for one in row.snapshots}
        for store in application.subtopologies[task.subtopology].stores:
            if store.engine == "in_memory":
                continue
            partition = StorePartition(application.name, store.name, task)
            place, name = StoreDirectory(archive.cluster, partition), current.get(store.name)
            if name is None:
                raise SnapshotError(f"{partition} has no snapshot of what it has now")
            if (place, name) not in usable:
                raise SnapshotError(f"snapshot {name} of {partition} is suspect, of an older generation, or removed")
            known = snapshot_name(f"{name}.json")
            assert known is not None
            chosen.append(place.snapshot(known))
    return tuple(sorted(chosen))


def _offsets(application: ApplicationDefinition, rows: Sequence[ProcessRow]) -> tuple[tuple[TopicPartition, int], ...]:
    found = []
    for row in rows:
        task = TaskId.parse(row.task)
        where = TopicPartition(application.subtopologies[task.subtopology].input_topic, task.partition)
        if row.input_offset is None:
            raise SnapshotError(f"the input offset of {application.name}/{task} is not known")
        found.append((where, row.input_offset))
    return tuple(sorted(found))


def _require_drained(
    application: ApplicationDefinition, offsets: Sequence[tuple[TopicPartition, int]], topics: Topics
) -> None:
    """Require that no record is on its way in a repartition topic, not even in a transaction that is open."""
    internal = {part.input_topic for part in application.subtopologies[1:]}
    ends = {where: offset for where, offset in offsets if where.topic in internal}
    for where, log in topics.log_ranges(ends).items():
        if log.high_watermark != ends[where]:
            raise SnapshotError(
                f"{where} has records up to offset {log.high_watermark}, and this run has read those before "
                f"{ends[where]}: records in flight in a repartition topic are in no snapshot. The next run that reads "
                "all of it writes a set"
            )


def _require_committed(
    application: ApplicationDefinition, offsets: Sequence[tuple[TopicPartition, int]], topics: Topics
) -> tuple[tuple[TopicPartition, str], ...]:
    """Require that the group still is where the tasks have left it: nobody has processed more since.

    Returns
    -------
    tuple of pairs
        Stream times, as they were committed.
    """
    times = []
    with ConsumerGroup(topics.cluster, application.name) as group:
        for where, offset in offsets:
            found = group.committed(where)
            if found is None and offset != topics.log_starts([where])[where].offset:
                raise SnapshotError(
                    f"group {application.name} has committed nothing of {where}, this run has left it at {offset}: the "
                    "topic was made anew in the meantime, or its offsets were deleted. The next run writes a set"
                )
            if found is not None and found.next_offset != offset:
                raise SnapshotError(
                    f"group {application.name} is at offset {found.next_offset} of {where}, this run has left it at "
                    f"{offset}: another run has continued, and writes its own set"
                )
            # What librdkafka hands out may go on behind the end.
            known = CommitMetadata() if found is None else commit_metadata.decode(found.metadata)
            times.append((where, commit_metadata.encode(known._replace(stamp=None))))
    return tuple(times)
