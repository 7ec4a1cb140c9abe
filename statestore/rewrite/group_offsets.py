"""The offsets at which an application that is created from another's state continues. Requests change nothing.

With the same input in as many partitions, its group goes on where the other's was. Else the state must have all of the
input: then it goes on at the end of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Literal, NamedTuple, Self

from statestore.changelog.input_offsets import input_offsets
from statestore.errors import InputError, OpenTransactionError
from statestore.formats import commit_metadata
from statestore.formats.commit_metadata import UNKNOWN_TIME, CommitMetadata
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import GroupOffset
from statestore.kafka.reader import first_offsets
from statestore.kafka.topics import LogRange, Topics
from statestore.model import TopicPartition

#: Where an application begins in a topic of its own that has records already.
ReadsFrom = Literal["start", "end"]


class InputPair(NamedTuple):
    """A topic that an application reads, and the one that the new application reads in its place.

    Attributes
    ----------
    target
        None: it is made when the application first runs.
    internal
        A repartition topic: the two applications have one each.
    subtopology
        Of the other application, which reads it; None: not known.
    partitions
        That the target must have; None: as many as the new application has tasks.
    """

    source: str
    target: str | None
    internal: bool = False
    subtopology: int | None = None
    partitions: int | None = None


class Groups(NamedTuple):
    """Source and target groups of the offsets.

    Attributes
    ----------
    partitions
        Of the new application.
    as_is
        Each store keeps the number of its partitions.
    reads_from
        Where to begin in a topic of its own that has records; None: not said.
    """

    cluster: Cluster
    source: str
    target: str
    partitions: int
    as_is: bool
    reads_from: ReadsFrom | None

    @classmethod
    def of_one(cls, cluster: Cluster, application: str) -> Self:
        """Return those of an application that stays what it is."""
        return cls(cluster, application, application, 0, True, None)


class NewOffsets(NamedTuple):
    """Where a new group goes on.

    Attributes
    ----------
    offsets
        By partition of its input.
    committed
        What the other group has committed.
    said
        What that means, for people.
    """

    offsets: Mapping[TopicPartition, GroupOffset]
    committed: Mapping[TopicPartition, GroupOffset]
    said: Sequence[str]


def new_offsets(topics: Topics, groups: Groups, pairs: Sequence[InputPair]) -> NewOffsets:
    """Find out where the new group goes on.

    Raises
    ------
    InputError
        If the state does not have all of an input that it must have, or a topic does not fit.
    OpenTransactionError
        If a transaction hides where a topic ends.
    """
    committed = input_offsets(topics, groups.source, {pair.source for pair in pairs})
    counts = {topic.name: topic.partitions for topic in topics.describe(_names(pairs)).values()}
    _require_topics(groups, pairs, counts)
    sources = [where for pair in pairs for where in _partitions(pair.source, counts.get(pair.source, 0))]
    logs = topics.log_ranges(sources)
    must = [pair for pair in pairs if not _goes_on(groups, pair)]
    _require_drained(groups, committed, logs, {pair.source for pair in must})
    offsets: dict[TopicPartition, GroupOffset] = {}
    said: list[str] = []
    for pair in pairs:
        if pair.target is None:
            continue
        if _goes_on(groups, pair):
            its = _partitions(pair.source, _count(groups, pair))
            found = {where: committed[where] for where in its if where in committed}
            said.append(f"{groups.target} continues in {pair.source} where {groups.source} is")
        else:
            starts = _starts(topics, groups, pair)
            before = [committed.get(where) for where in _partitions(pair.source, counts[pair.source])]
            found = {
                where: GroupOffset(offset, stream_times(before, where.partition, len(starts)))
                for where, offset in starts.items()
            }
            listed = ", ".join(str(offset) for offset in starts.values())
            said.append(
                f"{groups.target} begins in {pair.target} at the offsets {listed}: what lies before them is taken to "
                "be in the state"
            )
        offsets |= found
    return NewOffsets(offsets, committed, said)


def require_the_same(topics: Topics, groups: Groups, pairs: Sequence[InputPair], before: NewOffsets) -> None:
    """Make sure that the state still has all of the input that it had to have.

    Raises
    ------
    InputError
        If the other application has worked meanwhile, or its input has grown, of which the new one reads another.
    """
    committed = input_offsets(topics, groups.source, {pair.source for pair in pairs})
    if {where: found.next_offset for where, found in committed.items()} != {
        where: found.next_offset for where, found in before.committed.items()
    }:
        raise InputError(
            f"group {groups.source} has committed input in the meantime: the application runs. Stop it wherever it "
            "runs, then run again"
        )
    own = [pair for pair in pairs if pair.internal or pair.target != pair.source]
    must = {pair.source for pair in own if not _goes_on(groups, pair)}
    counts = {topic.name: topic.partitions for topic in topics.describe(must).values()}
    logs = topics.log_ranges([where for name, count in counts.items() for where in _partitions(name, count)])
    _require_drained(groups, committed, logs, must)


def require_drained(topics: Topics, groups: Groups, names: set[str]) -> None:
    """Make sure that an application has committed all of its input.

    Raises
    ------
    InputError
        Naming the first record that it has not.
    OpenTransactionError
        If a transaction hides where a topic ends.
    """
    committed = input_offsets(topics, groups.source, names)
    counts = {topic.name: topic.partitions for topic in topics.describe(names).values()}
    logs = topics.log_ranges([where for name, count in counts.items() for where in _partitions(name, count)])
    _require_drained(groups, committed, logs, names)


def goes_on_everywhere(groups: Groups, pairs: Sequence[InputPair]) -> bool:
    """Tell whether the new group's offsets are all copies: then nothing is lost if the other application goes on."""
    return all(_goes_on(groups, pair) for pair in pairs if pair.target is not None or pair.internal)


def _names(pairs: Iterable[InputPair]) -> list[str]:
    return [name for pair in pairs for name in (pair.source, pair.target) if name is not None]


def _partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def _count(groups: Groups, pair: InputPair) -> int:
    return pair.partitions or groups.partitions


def _goes_on(groups: Groups, pair: InputPair) -> bool:
    """Tell whether the offsets in a topic stay what they are."""
    return groups.as_is and pair.source == pair.target


def _require_topics(groups: Groups, pairs: Sequence[InputPair], counts: Mapping[str, int]) -> None:
    problems = [f"{pair.source} does not exist" for pair in pairs if pair.source not in counts]
    for pair in pairs:
        if pair.target is None:
            continue
        if pair.target not in counts:
            problems.append(f"{pair.target} does not exist")
        elif counts[pair.target] != _count(groups, pair):
            instead = "" if pair.target != pair.source else f" (or say --input {pair.source}=TOPIC)"
            problems.append(
                f"{pair.target} has {counts[pair.target]} partitions, expected {_count(groups, pair)}{instead}"
            )
    if problems:
        raise InputError(
            f"the input of {groups.target} does not fit: {'; '.join(dict.fromkeys(problems))}. Nothing was changed"
        )


def _require_drained(
    groups: Groups,
    committed: Mapping[TopicPartition, GroupOffset],
    logs: Mapping[TopicPartition, LogRange],
    names: set[str],
) -> None:
    """Make sure that a read-committed consumer finds no record that the group has not committed."""
    left = {where: log for where, log in logs.items() if where.topic in names}
    require_stable(left)
    ranges = {
        where: (max(committed[where].next_offset if where in committed else log.start, log.start), log.last_stable)
        for where, log in left.items()
    }
    ranges = {where: found for where, found in ranges.items() if found[0] < found[1]}
    unread = first_offsets(groups.cluster, ranges) if ranges else {}
    behind = [f"{where} from offset {offset} on" for where, offset in sorted(unread.items()) if offset is not None]
    if behind:
        raise InputError(
            f"{groups.source} has not processed all of its input: {', '.join(behind)}. The state must "
            "have all of it. Have it process the rest, stop it, and run again. Nothing was changed"
        )


def require_stable(logs: Mapping[TopicPartition, LogRange]) -> None:
    """Make sure that no transaction hides where logs end.

    Raises
    ------
    OpenTransactionError
        Naming the first such log.
    """
    for where, log in logs.items():
        if log.last_stable < log.high_watermark:
            raise OpenTransactionError(
                f"{where}: a transaction is open from offset {log.last_stable} on, the log ends at "
                f"{log.high_watermark}: what it will have is not known. Wait until it has ended, and run again"
            )


def _starts(topics: Topics, groups: Groups, pair: InputPair) -> dict[TopicPartition, int]:
    """Return where the new application begins in a topic that its group has no offsets for."""
    assert pair.target is not None
    logs = topics.log_ranges(_partitions(pair.target, _count(groups, pair)))
    require_stable(logs)
    ends = {where: log.last_stable for where, log in logs.items()}
    if pair.source == pair.target:
        return ends
    filled = [str(where) for where in partitions_with_records(groups.cluster, logs)]
    if filled and pair.internal:
        raise InputError(f"{', '.join(filled)} has records: {groups.target} has run before. Nothing was changed")
    if not filled or groups.reads_from == "end":
        return ends
    if groups.reads_from == "start":
        return {where: log.start for where, log in logs.items()}
    raise InputError(
        f"{', '.join(filled)} has records. If {groups.source} has processed them from {pair.source}, say --reads-from "
        "end; if it has not, say --reads-from start"
    )


def partitions_with_records(cluster: Cluster, logs: Mapping[TopicPartition, LogRange]) -> list[TopicPartition]:
    """Return the partitions in which a read-committed consumer finds a record."""
    ranges = {where: (log.start, log.last_stable) for where, log in logs.items() if log.start < log.last_stable}
    found = first_offsets(cluster, ranges) if ranges else {}
    return [where for where, offset in sorted(found.items()) if offset is not None]


def stream_times(committed: Sequence[GroupOffset | None], partition: int, partitions: int) -> str:
    """Return the stream times of a new partition: the latest of those that its keys come from.

    What was closed for a key, or had expired, stays so.
    """
    step = gcd(len(committed), partitions)
    found = [
        commit_metadata.decode(offset.metadata)
        for number, offset in enumerate(committed)
        if offset is not None and number % step == partition % step
    ]
    time = max((known.partition_time for known in found), default=UNKNOWN_TIME)
    times: dict[str, int] = {}
    for known in found:
        for name, at in known.times.items():
            times[name] = max(at, times.get(name, at))
    return "" if time == UNKNOWN_TIME and not times else commit_metadata.encode(CommitMetadata(time, times))
