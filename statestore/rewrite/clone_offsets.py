"""The offsets at which a clone continues in its input. Requests change nothing.

In the topic that the other application reads, these are the offsets of the set. In another topic, or in another Kafka
cluster, these offsets mean something else or nothing, so a person says where the clone begins, unless the topic has no
record. The clone's own repartition topics must be empty: at a set, nothing is on its way in those of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from statestore import clock
from statestore.errors import InputError
from statestore.formats import commit_metadata
from statestore.formats.commit_metadata import UNKNOWN_TIME
from statestore.kafka.groups import GroupOffset
from statestore.kafka.topics import LogRange, Topic, Topics
from statestore.model import TopicPartition
from statestore.rewrite.cut import Cut
from statestore.rewrite.group_offsets import InputPair, NewOffsets, partitions_with_records, require_stable

#: Where a clone begins in an input that is not that of the other application: at its first record, behind its last one,
#: at the same offsets as in the set, or at the first record with a timestamp (ms) or a larger one.
CloneReadsFrom = Literal["start", "end", "set-offsets"] | int


class CloneInput(NamedTuple):
    """Where a clone reads what.

    Attributes
    ----------
    application
        Name of the clone.
    pairs
        What each sub-topology of the two reads.
    same
        The clone reads the input of the other application, in the same cluster.
    reads_from
        Where it begins in another input; None: not said.
    """

    application: str
    pairs: Sequence[InputPair]
    same: bool
    reads_from: CloneReadsFrom | None


def reads_from(text: str) -> CloneReadsFrom:
    """Read where a clone is to begin.

    Raises
    ------
    InputError
        If it is neither one of the words nor a time.
    """
    words: dict[str, CloneReadsFrom] = {"start": "start", "end": "end", "set-offsets": "set-offsets"}
    if text in words:
        return words[text]
    try:
        return clock.ms_of(text)
    except ValueError:
        raise InputError(
            f"--reads-from: expected start, end, set-offsets, or a time such as 2026-11-27T10:00:00Z, found {text!r}"
        ) from None


def clone_offsets(topics: Topics, cut: Cut, read: CloneInput) -> NewOffsets:
    """Find out where the group of a clone begins, with the stream times of the set.

    Raises
    ------
    InputError
        If a topic is missing, has other partitions or records, or it must be said where the clone begins.
    OpenTransactionError
        If a transaction hides where a topic ends.
    """
    found = _require_topics(topics, cut, read)
    offsets: dict[TopicPartition, GroupOffset] = {}
    said: list[str] = []
    for pair in read.pairs:
        before = _renamed(cut, pair)
        logs = topics.log_ranges(before)
        if pair.internal:
            starts, why = _in_empty_topic(topics, read, logs)
        elif read.same:
            known = _require_same(cut, pair, found)
            starts, why = _at_offsets_of(cut, before, logs)
            why = why if known else f"{why}. The set does not record the topic's id: check that the topic is older"
        else:
            starts, why = _in_another_input(topics, cut, read, before, logs)
        offsets |= {where: GroupOffset(starts[where], found.metadata) for where, found in before.items()}
        said.append(f"{read.application} begins in {pair.target} at {_listed(starts)}: {why}")
    return NewOffsets(offsets, {}, said)


def _renamed(cut: Cut, pair: InputPair) -> dict[TopicPartition, GroupOffset]:
    """Return the offsets of a set in a topic, under the name of the one that the clone reads in its place."""
    assert pair.target is not None
    return {
        TopicPartition(pair.target, where.partition): found
        for where, found in cut.offsets.items()
        if where.topic == pair.source
    }


def _require_topics(topics: Topics, cut: Cut, read: CloneInput) -> Mapping[str, Topic]:
    found = topics.describe([pair.target for pair in read.pairs if pair.target is not None])
    problems = []
    for pair in read.pairs:
        topic, expected = found.get(pair.target or ""), cut.partitions[pair.source]
        if topic is None:
            problems.append(f"{pair.target} does not exist")
        elif topic.partitions != expected:
            problems.append(f"{pair.target} has {topic.partitions} partitions, expected {expected} as {pair.source}")
    if problems:
        raise InputError(
            f"the input of {read.application} does not fit set {cut.found.uuid}: {'; '.join(problems)}. A clone has as "
            "many partitions as the application had. Nothing was changed"
        )
    return found


def _require_same(cut: Cut, pair: InputPair, found: Mapping[str, Topic]) -> bool:
    """Make sure that a topic is the one that the offsets of a set are of; False: the set does not tell."""
    expected, topic = cut.found.input_ids.get(pair.source), found[pair.source]
    if expected not in (None, topic.topic_id):
        raise InputError(
            f"{pair.source} was deleted and created anew since set {cut.found.uuid} was written: expected the topic id "
            f"{expected}, found {topic.topic_id}. The offsets of the set are of other records. Use a set that was "
            "written since: a run of `process` writes one. Nothing was changed"
        )
    return expected is not None


def _at_offsets_of(
    cut: Cut, before: Mapping[TopicPartition, GroupOffset], logs: Mapping[TopicPartition, LogRange]
) -> tuple[dict[TopicPartition, int], str]:
    for where, log in logs.items():
        if not log.start <= before[where].next_offset <= log.high_watermark:
            raise InputError(
                f"{where} has the offsets {log.start} to {log.high_watermark}, and set {cut.found.uuid} ends at "
                f"{before[where].next_offset}: the records between are gone, or the topic is another one. Use a newer "
                "set. Nothing was changed"
            )
    return {where: found.next_offset for where, found in before.items()}, "where the set ends"


def _in_empty_topic(
    topics: Topics, read: CloneInput, logs: Mapping[TopicPartition, LogRange]
) -> tuple[dict[TopicPartition, int], str]:
    require_stable(logs)
    if filled := partitions_with_records(topics.cluster, logs):
        raise InputError(
            f"{', '.join(map(str, filled))} has records: {read.application} has run before. Give the clone another "
            "name. Nothing was changed"
        )
    return {where: log.last_stable for where, log in logs.items()}, "nothing is on its way in this topic"


def _in_another_input(
    topics: Topics,
    cut: Cut,
    read: CloneInput,
    before: Mapping[TopicPartition, GroupOffset],
    logs: Mapping[TopicPartition, LogRange],
) -> tuple[dict[TopicPartition, int], str]:
    if read.reads_from == "set-offsets":
        starts, why = _at_offsets_of(cut, before, logs)
        return starts, f"{why}, because the records have the same offsets here, as you say"
    require_stable(logs)
    ends = {where: log.last_stable for where, log in logs.items()}
    if isinstance(read.reads_from, int):
        found = topics.first_from(dict.fromkeys(logs, read.reads_from))
        starts = {where: ends[where] if offset is None else offset for where, offset in found.items()}
        return starts, f"the first records from {clock.iso(read.reads_from)} on"
    if read.reads_from == "end":
        return ends, "what lies before is in the state, as you say"
    if read.reads_from == "start":
        return {where: log.start for where, log in logs.items()}, "nothing of this topic is in the state, as you say"
    if filled := partitions_with_records(topics.cluster, logs):
        times = [commit_metadata.decode(found.metadata).partition_time for found in before.values()]
        latest = max(times, default=UNKNOWN_TIME)
        until = "" if latest == UNKNOWN_TIME else f", and the largest timestamp in it is {clock.iso(latest)}"
        raise InputError(
            f"{', '.join(map(str, filled))} has records, and which of them are in set {cut.found.uuid} is not known "
            f"here. Say where {read.application} begins: --reads-from start if none is, end if all are, set-offsets if "
            "the records have the same offsets as in the other topic, or a time: records from then on are processed. "
            f"The set was written at {clock.iso(cut.found.written_ms)}{until}. Nothing was changed"
        )
    return ends, "the topic has no record"


def _listed(starts: Mapping[TopicPartition, int]) -> str:
    return f"the offsets {', '.join(str(starts[where]) for where in sorted(starts))}"
