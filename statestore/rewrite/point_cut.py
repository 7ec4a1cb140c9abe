"""The cut through an application at a time: the last commit of each task until then.

A commit of a task is one transaction: the next input offset in the topic of input offsets, with the time of the
brokers, and the changes of its stores. The last change of each store has the input position of the commit in its
headers. So the record in the topic of input offsets tells the input offset at a time, and the headers tell the end of
each changelog at that input offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from statestore import clock
from statestore.changelog import brokers_clock
from statestore.changelog.compaction_gaps import holes
from statestore.changelog.input_offsets import Commit, OffsetsTopic, commits, offsets_topics
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InputError
from statestore.formats import commit_metadata
from statestore.formats import position as positions
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset
from statestore.kafka.reader import LogReader, first_offset
from statestore.kafka.topics import LogRange, Topics
from statestore.model import StorePartition, TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.rewritten import rewritten_records

#: Offsets that are read at a time when a position is looked for.
_WINDOW = 4_096


class TimeCut(NamedTuple):
    """A cut at a time.

    Attributes
    ----------
    offsets
        Next input offset of each input partition, with the stream times at the cut.
    ends
        End (exclusive) of each changelog partition; None: the store had no row yet.
    """

    offsets: Mapping[TopicPartition, GroupOffset]
    ends: Mapping[StorePartition, int | None]


def cut_at(
    topics: Topics, definition: ApplicationDefinition, stores: Sequence[StorePartitionSpec], at_ms: int
) -> TimeCut:
    """Find the last commit of each task at or before a time.

    Parameters
    ----------
    stores
        All partitions of all stores of the application.
    at_ms
        By the clock of the brokers, ms since the epoch.

    Raises
    ------
    InputError
        If the commits or the changelogs do not tell the cut. The message names times or sets that can be used.
    """
    if len(definition.subtopologies) > 1:
        raise InputError(
            f"{definition.name} cannot be restored to a time: it has repartition topics, and what was on its way there "
            "at a time is not known. Name a set of snapshots"
        )
    require_commits(topics, definition, stores, at_ms)
    offsets_topic = offsets_topic_for(topics, definition.name, definition.input_topic)
    logs = topics.log_ranges(store.partition for store in stores)
    offsets: dict[TopicPartition, GroupOffset] = {}
    ends: dict[StorePartition, int | None] = {}
    for where in offsets_topic.partitions:
        commit = _commit_at(topics, offsets_topic, where, at_ms)
        offsets[where] = _offset_of(commit, where, offsets_topic, at_ms)
        for store in stores:
            if store.task.partition == where.partition:
                end = _end_of(store, logs[store.partition], where, commit, at_ms)
                ends[store.store_partition] = end
    return TimeCut(offsets, ends)


def end_at(topics: Topics, store: StorePartitionSpec, at_ms: int) -> int | None:
    """Return where the changelog of a store ended (exclusive) at a time; None: the store had no row yet.

    Raises
    ------
    InputError
        As `cut_at`.
    """
    assert store.input_topic is not None, "a definition tells it"
    where = TopicPartition(store.input_topic, store.task.partition)
    commit = _commit_at(topics, offsets_topic_for(topics, store.application, where.topic), where, at_ms)
    return _end_of(store, topics.log_ranges([store.partition])[store.partition], where, commit, at_ms)


def offsets_topic_for(topics: Topics, application: str, read: str) -> OffsetsTopic:
    """Return the topic of input offsets of the tasks that read a topic.

    Raises
    ------
    InputError
        If one of the two does not exist.
    """
    found = offsets_topics(topics, application, [read])
    if read not in found:
        raise InputError(f"{application} has no topic of input offsets for {read}, or {read} does not exist")
    return found[read]


def commits_in(topics: Topics, topic: OffsetsTopic, partition: TopicPartition) -> list[Commit]:
    """Return the commits of an input partition that are still known."""
    where = TopicPartition(topic.topic, partition.partition)
    return commits(topics.cluster, where, topics.log_ranges([where])[where], partition)


def require_commits(
    topics: Topics, definition: ApplicationDefinition, stores: Sequence[StorePartitionSpec], at_ms: int
) -> None:
    """Refuse an application whose commits do not tell the cut, and a time in the future."""
    why = None
    if definition.processing_guarantee != "exactly_once_v2":
        why = "it processes at least once, so its changelogs and input offsets are not committed together"
    elif headers := sorted({store.store.name for store in stores if store.store.values.keeps_headers}):
        why = f"changelogs of the format headers have no positions ({', '.join(headers)}). Name a set of snapshots"
    if why is not None:
        raise InputError(f"the commits of {definition.name} do not tell its stores at a time: {why}")
    now_ms = brokers_clock.now_ms(topics.cluster)
    if at_ms > now_ms:
        raise InputError(f"expected a time in the past, found {clock.iso(at_ms)}; it is now {clock.iso(now_ms)}")


def _commit_at(topics: Topics, topic: OffsetsTopic, partition: TopicPartition, at_ms: int) -> Commit | None:
    """Return the last commit at or before a time; None: the task had committed nothing.

    Raises
    ------
    InputError
        If compaction has removed commits that may be later ones.
    """
    where = TopicPartition(topic.topic, partition.partition)
    log, found = topics.log_ranges([where])[where], commits_in(topics, topic, partition)
    before = [commit for commit in found if commit.at_ms <= at_ms]
    after = next((commit for commit in found if commit.at_ms > at_ms), None)
    last = before[-1] if before else None
    if after is None:  # the last record of a key is never removed
        return last
    start = log.start if last is None else last.offset
    if (last is None and log.start) or holes(topics.cluster, where, start, after.offset) != 0:
        earlier = "" if last is None else f", or {clock.iso(last.at_ms)} or an earlier time"
        raise InputError(
            f"the commits of {partition} at {clock.iso(at_ms)} are no longer known: compaction of {where} has removed "
            f"some before {clock.iso(after.at_ms)}. Name that time{earlier}, or a set of snapshots"
        )
    return last


def _offset_of(commit: Commit | None, where: TopicPartition, topic: OffsetsTopic, at_ms: int) -> GroupOffset:
    if commit is None:
        return GroupOffset(0)
    if not commit.kept.is_of(topic.input.topic_id):
        raise InputError(
            f"{where} at {clock.iso(at_ms)} was the topic {commit.kept.topic_id}, and is {topic.input.topic_id} now: "
            "it was created anew since. Name a later time"
        )
    return GroupOffset(commit.kept.offset, commit_metadata.encode(commit.kept.times))


def _end_of(
    store: StorePartitionSpec, log: LogRange, where: TopicPartition, commit: Commit | None, at_ms: int
) -> int | None:
    """Return where the changelog of a store ended (exclusive) when the task had made a commit; None: it was empty."""
    assert store.changelog is not None, "it was required"
    topic_id = store.changelog.topic_id
    named = None if commit is None else commit.kept.changelogs.get(store.store.name)
    rewritten = rewritten_records(store.state_dir, store.application, topic_id, store.task.partition)
    if named not in (None, topic_id) or (named is None and rewritten):
        raise InputError(
            f"{store.store_partition} has had another changelog at {clock.iso(at_ms)}, or got the rows that a rewrite "
            "has written to its current one later. Undo that rewrite first, or name a later time, after which the "
            "application has committed, or a set of snapshots"
        )
    if commit is None:
        return None
    end, position = _end_at(store.cluster, store.partition, log, (where, commit.kept.offset))
    if position != commit.kept.offset - 1:  # else the last change of the commit itself is there
        _require_all_after(store, log, where, end)
    return end


def _end_at(
    cluster: Cluster, changelog: TopicPartition, log: LogRange, until: tuple[TopicPartition, int]
) -> tuple[int | None, int | None]:
    """Return the end (exclusive) of the changes of input before an offset, and the position of the last of these.

    Positions in a changelog never decrease.
    """
    where, next_offset = until
    end, position, low, high = None, None, log.start, log.last_stable
    while low < high:
        middle = (low + high) // 2
        found = first_position(cluster, changelog, (middle, high), where)
        if found is None or found[1] >= next_offset:
            high = middle
        else:
            position, low = found[1], found[0] + 1
            end = low
    return end, position


def _require_all_after(store: StorePartitionSpec, log: LogRange, where: TopicPartition, end: int | None) -> None:
    """Require that no change of the cut was removed after its end, and that the records there are of later commits.

    Raises
    ------
    InputError
        If compaction has removed records there, or they have no position.
    """
    start = log.start if end is None else end
    after = first_position(store.cluster, store.partition, (start, log.last_stable), where)
    if after is None and first_offset(store.cluster, store.partition, start, log.last_stable) is not None:
        raise InputError(
            f"{store.partition} has records from offset {start} on without the position of the input that they are of: "
            "a program without positions has written them. Name a set of snapshots"
        )
    until = log.last_stable if after is None else after[0]
    removed = holes(store.cluster, store.partition, start, until) if start < until else 0
    if removed != 0 or (end is None and log.start):
        raise InputError(
            f"{store.partition} no longer has all records around offset {start}, where {store.store_partition} was at "
            "that time: compaction has removed some. Name another time, or a set of snapshots"
        )


def first_position(
    cluster: Cluster, changelog: TopicPartition, offsets: tuple[int, int], where: TopicPartition
) -> tuple[int, int] | None:
    """Return the offset and the position of the first record in a range that has a position, or None.

    Parameters
    ----------
    offsets
        Start and exclusive end.
    where
        The input partition.
    """
    start, end = offsets
    with LogReader(cluster, changelog) as reader:
        for window in range(start, end, _WINDOW):
            for batch in reader.read_records(window, min(window + _WINDOW, end)):
                headers = () if batch.headers is None else batch.headers()
                for offset, found in zip(batch.columns.column(3).to_pylist(), headers, strict=False):
                    raw = next((value for name, value in reversed(found) if name == "c"), None)
                    position = {} if raw is None else positions.decode(raw)
                    if where in position:
                        return offset, position[where]
    return None
