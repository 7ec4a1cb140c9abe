"""Finds where a task continues in its input, under the task's lock, after earlier attempts were fenced.

The evidence is the group's offset and the record in the topic of input offsets (`changelog/input_offsets.py`). Without
either, the stores' position tells it only if no input follows. A person is asked only where the evidence does not tell,
or contradicts itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from statestore.advice import Situation, Target, advice, message
from statestore.changelog.input_offsets import Continuation, continuation, is_confirmed, of_topic, read_kept
from statestore.errors import InputOffsetError
from statestore.formats.commit_metadata import CommitMetadata
from statestore.kafka.groups import ConsumerGroup, committed_offsets
from statestore.kafka.reader import first_offset
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition, repartition_topic
from statestore.tasks.shape import former_input
from statestore.tasks.spec import TaskSpec
from statestore.tasks.task_stores import TaskStores


class InputPosition(NamedTuple):
    """Where a task continues.

    Attributes
    ----------
    found
        The offset and its evidence.
    never_read
        Offsets that the input had lost before the task first read it.
    """

    found: Continuation
    never_read: int = 0


def find_position(
    spec: TaskSpec, group: ConsumerGroup, stores: TaskStores, logs: Mapping[TopicPartition, LogRange]
) -> InputPosition:
    """Return where the task continues; the stores have all of their changelogs.

    Parameters
    ----------
    logs
        Offsets of the input and of the topic of input offsets.

    Raises
    ------
    InputOffsetError
        If a person must say where to continue.
    """
    log = logs[spec.input]
    found = _recorded(spec, group, logs[spec.offsets])
    if found is None and (found := _position_of_stores(spec, stores, log)) is None:
        if spec.subtopology.regrouped:
            _require_nothing_sent(spec, log)
        return InputPosition(Continuation(log.start, _times(CommitMetadata(), spec, stores)), never_read=log.start)
    if not log.start <= found.offset <= log.high_watermark:
        evidence = f"must read from offset {found.offset}, but the log has {log.start} to {log.high_watermark}"
        raise _refused(spec, Situation.INPUT_LOST_RECORDS, evidence)
    return InputPosition(found._replace(times=_times(found.times, spec, stores)))


def _times(known: CommitMetadata, spec: TaskSpec, stores: TaskStores) -> CommitMetadata:
    """Return stream times that are no earlier than the rows of aggregations: these have their records' times."""
    of_stores = stores.stream_times
    reached = [of_stores[item.store] for item in spec.subtopology.aggregations if item.store in of_stores]
    return known._replace(partition_time=max([known.partition_time, *reached]))


def _recorded(spec: TaskSpec, group: ConsumerGroup, log: LogRange) -> Continuation | None:
    """Return where the group or the topic of input offsets says to continue, or None if neither does."""
    committed, kept = of_topic(group.committed(spec.input), spec.input_id), None
    if not spec.exactly_once or not is_confirmed(committed, spec.offsets_id):
        kept = read_kept(spec.cluster, spec.offsets, log, spec.input)
    if kept is not None and not kept.is_of(spec.input_id):
        if committed is None:
            read = f"has read {spec.input} up to offset {kept.offset}"
            raise _refused(spec, Situation.INPUT_RECREATED, f"{read}; {_other_topic(kept.topic_id, spec)}")
        kept = kept.model_copy(update={"offset": committed.next_offset})  # its own is an offset of the former topic
    if committed is None and spec.resume_from_position:  # a person has deleted it, and says so
        return None
    return continuation(committed, kept, spec.offsets_id)


def _position_of_stores(spec: TaskSpec, stores: TaskStores, log: LogRange) -> Continuation | None:
    """Return where the stores' position says to continue; None if there is no state.

    Raises
    ------
    InputOffsetError
        If it does not tell.
    """
    if not (holding := stores.holding()):
        return None
    missing = f"{_no_offset(spec)}; {', '.join(holding)} has rows"
    if (before := former_input(spec)) is not None:
        raise _refused(spec, Situation.INPUT_RECREATED, f"{missing}; {_other_topic(before, spec)}")
    positions = {name: stores.by_name[name].position().get(spec.input) for name in holding}
    known = [position for position in positions.values() if position is not None]
    # A store that a commit did not change keeps its position; every store is at the end of its changelog.
    least = max(known, default=-1) + 1
    if known and _nothing_follows(spec, log, least):
        return Continuation(least)
    if spec.subtopology.regrouped:
        raise _refused(spec, Situation.INPUT_SENT_ON, f"{missing}; positions do not show what was sent")
    if unknown := [name for name in holding if positions[name] is None]:
        unpositioned = f"changelog records without positions were replayed into {', '.join(unknown)}"
        if kept := [name for name in unknown if stores.by_name[name].layout.keeps_headers]:
            unpositioned += f"; a changelog of rows with headers has no positions ({', '.join(kept)})"
        raise _refused(spec, Situation.INPUT_POSITION_UNKNOWN, f"{missing}; {unpositioned}")
    if not log.start <= least <= log.high_watermark:
        beyond = f"the stores continue at {least}, but the log has {log.start} to {log.high_watermark}"
        raise _refused(spec, Situation.INPUT_LOST_RECORDS, f"{missing}; {beyond}")
    if not spec.resume_from_position:
        raise _refused(spec, Situation.INPUT_OFFSET_LOST, f"{missing}; the stores continue at {least}")
    return Continuation(least)


def _nothing_follows(spec: TaskSpec, log: LogRange, offset: int) -> bool:
    """Return whether the input has no record from an offset on: then all offsets from there on mean the same."""
    if not log.start <= offset <= log.high_watermark or log.last_stable < log.high_watermark:
        return False
    return first_offset(spec.cluster, spec.input, offset, log.last_stable) is None


def _require_nothing_sent(spec: TaskSpec, log: LogRange) -> None:
    """Refuse to begin at the log's start if later tasks have begun: they would count all records twice.

    They begin once every task of this sub-topology has reached the end of its input, and so has committed.

    Raises
    ------
    InputOffsetError
        Saying what to do.
    """
    if log.start >= log.high_watermark:
        return
    name, topics = spec.application.name, spec.cluster.topics
    names = [repartition_topic(name, item.store) for item in spec.subtopology.regrouped]
    later = [
        TopicPartition(topic, number)
        for topic, found in topics.describe(names).items()
        for number in range(found.partitions)
    ]
    # Records that they have processed are deleted.
    begun = [where for where, found in topics.log_starts(later).items() if found.offset > 0]
    if not begun:
        committed = committed_offsets(spec.cluster, name)
        begun = [where for where in later if where in committed and committed[where].next_offset > 0]
    if begun:
        evidence = f"{_no_offset(spec)}; {begun[0]} was processed; the log starts at {log.start}"
        raise _refused(spec, Situation.INPUT_SENT_ON, evidence)


def _no_offset(spec: TaskSpec) -> str:
    return f"neither group {spec.application.name} nor topic {spec.offsets.topic} has an offset for {spec.input}"


def _other_topic(before: str | None, spec: TaskSpec) -> str:
    return f"expected the topic id {before}, found {spec.input_id}"


def _refused(spec: TaskSpec, situation: Situation, evidence: str) -> InputOffsetError:
    """Return the error for a task whose position a person must set."""
    where = f"{spec.input.topic}:{spec.input.partition}"
    target = Target(spec.application.name, bootstrap_servers=spec.cluster.servers, input=where)
    what = f"{spec.application.name}/{spec.task}, {spec.input}"
    return InputOffsetError(message(what, advice(situation, target))).with_evidence(evidence)
