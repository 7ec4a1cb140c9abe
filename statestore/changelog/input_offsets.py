"""Where tasks continue in their input: the records of the topics of input offsets, and the consumer group's offsets.

Both are written by one commit, and both are evidence. Usually they agree. The group's offset may be missing, because
Kafka deletes it `offsets.retention.minutes` after its last commit. It may be newer, because a person or another program
has set it. Or it may be older, if it was refreshed while a task committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import NamedTuple

from statestore import clock
from statestore.changelog.last_records import looks_back
from statestore.errors import LogCorruptedError
from statestore.formats import commit_metadata, input_offset
from statestore.formats.commit_metadata import CommitMetadata, Stamp
from statestore.formats.input_offset import CLAIM_KEY, InputOffset
from statestore.formats.offsets import offset_key
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset, committed_offsets
from statestore.kafka.reader import LogReader
from statestore.kafka.topics import LogRange, Topic, Topics
from statestore.kafka.writer import OffsetRecord, RecordWriter
from statestore.model import TopicPartition, input_offsets_topic, is_repartition_topic

#: How many offsets at the end of a log are read first, and how many times as many each time that no record is there.


class Continuation(NamedTuple):
    """Where a task continues in its input, from the best evidence.

    Attributes
    ----------
    offset
        Next to read.
    times
        Stream times known so far, which never go back.
    sequence
        Number of the last commit; 0 before the first one that was recorded.
    recorded
        The group's offset and the topic of input offsets agree, so neither needs to be written again.
    moved_from
        Where the task would have continued, if a person has set another offset with Kafka's tools; None otherwise.
    """

    offset: int
    times: CommitMetadata = CommitMetadata()
    sequence: int = 0
    recorded: bool = False
    moved_from: int | None = None


class FoundRecord(NamedTuple):
    """Offset and value of a record; the value is None if it deletes its key."""

    offset: int
    value: bytes | None


class OffsetsTopic(NamedTuple):
    """A topic of input offsets, and the topic that its tasks read."""

    topic: str
    topic_id: str
    input: Topic

    @property
    def partitions(self) -> list[TopicPartition]:
        """Partitions of the topic that its tasks read."""
        return [TopicPartition(self.input.name, number) for number in range(self.input.partitions)]


def of_topic(group: GroupOffset | None, input_id: str | None) -> GroupOffset | None:
    """Return a group's offset, or None if its stamp shows that it is of a former input topic of the same name.

    Kafka deletes the offsets of a deleted topic, unless the group's coordinator did not notice.
    """
    if group is None:
        return None
    stamp = commit_metadata.decode(group.metadata).stamp
    if stamp is None or stamp.next_offset != group.next_offset or None in (stamp.input_id, input_id):
        return group
    return group if stamp.input_id == input_id else None


def is_confirmed(group: GroupOffset | None, topic_id: str) -> bool:
    """Return whether a group's offset was committed in one transaction with its record in a topic of input offsets.

    Then that record need not be read. An offset that was refreshed may be older than the record.
    """
    if group is None:
        return False
    stamp = commit_metadata.decode(group.metadata).stamp_for(topic_id, group.next_offset)
    return stamp is not None and not stamp.refreshed


def continuation(group: GroupOffset | None, kept: InputOffset | None, topic_id: str) -> Continuation | None:
    """Return where to continue, or None if there is no evidence.

    A group's offset without a stamp of this topic was committed after the last record, because each commit that writes
    a record also stamps the group's offset. So it wins: it is a person's decision, or the work of another program.

    Parameters
    ----------
    group
        The group's offset; None if it is missing.
    kept
        The record in the topic of input offsets; None if it is missing, or was not read because the group's offset is
        confirmed.
    topic_id
        Id of the topic of input offsets.
    """
    if group is None:
        return None if kept is None else Continuation(kept.offset, kept.times, kept.sequence)
    found = commit_metadata.decode(group.metadata)
    stamp = found.stamp_for(topic_id, group.next_offset)
    times = _latest(found, CommitMetadata() if kept is None else kept.times)
    if stamp is None:
        sequence, moved_from = (0, None) if kept is None else (kept.sequence, kept.offset)
        moved = moved_from != group.next_offset and not commit_metadata.is_metadata(group.metadata)
        return Continuation(group.next_offset, times, sequence, moved_from=moved_from if moved else None)
    if kept is not None and kept.sequence >= stamp.sequence:
        return Continuation(kept.offset, times, kept.sequence, recorded=kept.offset == group.next_offset)
    # The topic has lost its last record, or the record was not read.
    return Continuation(group.next_offset, times, stamp.sequence, recorded=not stamp.refreshed)


def _latest(one: CommitMetadata, other: CommitMetadata) -> CommitMetadata:
    names = {**one.times, **other.times}
    times = {name: max(one.times.get(name, -1), other.times.get(name, -1)) for name in names}
    return CommitMetadata(max(one.partition_time, other.partition_time), times)


def read_kept(cluster: Cluster, where: TopicPartition, log: LogRange, partition: TopicPartition) -> InputOffset | None:
    """Return the last committed record of an input partition, or None.

    Parameters
    ----------
    where
        Partition of the topic of input offsets.
    log
        Its offsets.
    partition
        The input partition.

    Raises
    ------
    LogCorruptedError
        If the record cannot be read.
    """
    found = last_record(cluster, where, log, offset_key(partition))
    return None if found is None else _decoded(where, found.offset, found.value)


def last_record(
    cluster: Cluster,
    where: TopicPartition,
    log: LogRange,
    key: bytes,
    *,
    read_committed: bool = True,
) -> FoundRecord | None:
    """Return the last record of a key before the last stable offset, or None. The end of the log is read first."""
    with LogReader(cluster, where, read_committed=read_committed) as reader:
        for start, end in looks_back(log):
            found = [
                FoundRecord(offset, value)
                for batch in reader.read(start, end)
                for name, value, offset in zip(*(batch.column(at).to_pylist() for at in (0, 1, 3)), strict=True)
                if name == key
            ]
            if found:
                return found[-1]
    return None


class Commit(NamedTuple):
    """A commit of a task, by its record in a topic of input offsets.

    Attributes
    ----------
    offset
        Offset of the record.
    at_ms
        Time of the brokers, ms since the epoch.
    """

    offset: int
    at_ms: int
    kept: InputOffset


def commits(cluster: Cluster, where: TopicPartition, log: LogRange, partition: TopicPartition) -> list[Commit]:
    """Return the commits of an input partition that its topic of input offsets still has, in their order.

    Parameters
    ----------
    where
        Partition of the topic of input offsets.
    log
        Its offsets.
    partition
        The input partition.

    Raises
    ------
    LogCorruptedError
        If a record cannot be read.
    """
    key, found = offset_key(partition), []
    with LogReader(cluster, where) as reader:
        for batch in reader.read(log.start, log.last_stable):
            for name, value, at_ms, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                kept = _decoded(where, offset, value) if name == key else None
                if kept is not None:
                    found.append(Commit(offset, at_ms, kept))
    return found


def _decoded(where: TopicPartition, offset: int, value: bytes | None) -> InputOffset | None:
    if value is None:  # deleted manually
        return None
    try:
        return input_offset.decode(value)
    except ValueError as error:
        raise LogCorruptedError(
            f"the record at offset {offset} of {where} is no input offset that this version can read: {error}. A later "
            "version has written it, or another program: use that version, or find out who writes to this topic"
        ) from error


def stamped(found: InputOffset, topic_id: str, now_ms: int, *, refreshed: bool = False) -> GroupOffset:
    """Return a group's offset that says which record in a topic of input offsets belongs to it."""
    stamp = Stamp(topic_id, found.offset, found.sequence, now_ms, refreshed, found.topic_id)
    return GroupOffset(found.offset, commit_metadata.encode(found.times._replace(stamp=stamp)))


def offsets_topic_of(application: str, read: str) -> str:
    """Return the name of the topic of input offsets for tasks that read a topic."""
    return input_offsets_topic(application, read if is_repartition_topic(application, read) else None)


def offsets_topics(topics: Topics, application: str, read: Iterable[str]) -> dict[str, OffsetsTopic]:
    """Return the topics of input offsets that exist, by the topic that their tasks read."""
    names = {name: offsets_topic_of(application, name) for name in read}
    there = topics.describe([*names, *names.values()])
    return {
        name: OffsetsTopic(its, there[its].topic_id, there[name])
        for name, its in names.items()
        if name in there and its in there
    }


def kept_offsets(
    topics: Topics, found: Mapping[str, OffsetsTopic], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, InputOffset]:
    """Return the records of input partitions; those without one, or with one of a former input topic, are left out.

    Parameters
    ----------
    found
        Topics of input offsets, by the topic that their tasks read.
    """
    places = {partition: TopicPartition(found[partition.topic].topic, partition.partition) for partition in partitions}
    logs = topics.log_ranges(places.values())
    read = {partition: read_kept(topics.cluster, where, logs[where], partition) for partition, where in places.items()}
    return {
        partition: kept
        for partition, kept in read.items()
        if kept is not None and kept.is_of(found[partition.topic].input.topic_id)
    }


def input_offsets(topics: Topics, application: str, read: Iterable[str]) -> dict[TopicPartition, GroupOffset]:
    """Return where an application continues in each partition of its input, with stream times as metadata.

    Without topics of input offsets, as of a Kafka Streams application, these are the group's offsets.

    Parameters
    ----------
    read
        Topics that its tasks read.
    """
    found = offsets_topics(topics, application, read)
    result = {
        where: its
        for where, its in committed_offsets(topics.cluster, application).items()
        if where.topic not in found or of_topic(its, found[where.topic].input.topic_id) is not None
    }
    unconfirmed = [
        partition
        for topic in found.values()
        for partition in topic.partitions
        if not is_confirmed(result.get(partition), topic.topic_id)
    ]
    kept = kept_offsets(topics, found, unconfirmed)
    for partition in unconfirmed:
        its = continuation(result.get(partition), kept.get(partition), found[partition.topic].topic_id)
        if its is not None:
            result[partition] = GroupOffset(its.offset, commit_metadata.encode(its.times))
    return result


def has_offsets(topics: Topics, topic: Topic) -> bool:
    """Return whether a topic of input offsets has, or had, any record besides its application's claim."""
    places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    for where, log in topics.log_ranges(places).items():
        if log.start > 0:
            return True
        if log.high_watermark == 0:
            continue
        with LogReader(topics.cluster, where, read_committed=False) as reader:
            batches = reader.read(log.start, log.high_watermark)
            if any(key != CLAIM_KEY for batch in batches for key in batch.column(0).to_pylist()):
                return True
    return False


def offset_record(where: TopicPartition, partition: TopicPartition, kept: InputOffset) -> OffsetRecord:
    """Return the record that keeps an input offset.

    Parameters
    ----------
    where
        Partition of the topic of input offsets.
    partition
        The input partition.
    """
    return OffsetRecord(where, offset_key(partition), kept.encode(), clock.now_ms())


def keep_offsets(topics: Topics, application: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
    """Write the records of an application's first offsets, which no task has committed.

    Where a topic of input offsets does not exist, the first run of the application records the group's offset.
    """
    found = offsets_topics(topics, application, {where.topic for where in offsets})
    if not found:
        return
    with closing(RecordWriter(topics.cluster, application, None)) as writer:
        for where, committed in offsets.items():
            if (topic := found.get(where.topic)) is not None:
                times = commit_metadata.decode(committed.metadata)
                kept = InputOffset.of(committed.next_offset, topic.input.topic_id, 0, times)
                writer.keep_offset(offset_record(TopicPartition(topic.topic, where.partition), where, kept))
        writer.flush()
