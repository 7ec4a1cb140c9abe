"""The changelogs that tasks last committed to, as evidence of lost stores: a changelog may have been recreated since.

Each commit writes the next input offset to an internal topic, with the id of the changelog topic of each store that has
anything. This remains if a disk is lost with all records on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from statestore.changelog.input_offsets import offsets_topic_of, read_kept
from statestore.model import TopicPartition
from statestore.partition.facts import DiskFacts, LastKnown
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.record import StoreRecord


def with_committed_changelogs(specs: Sequence[StorePartitionSpec], seen: Sequence[DiskFacts]) -> list[DiskFacts]:
    """Return inspections; an unknown store whose changelog was recreated is known to have had another one.

    Raises
    ------
    LogCorruptedError
        If a record of input offsets cannot be read.
    KafkaUnavailableError
        If Kafka does not answer.
    """
    found = list(seen)
    unknown = [at for at, one in enumerate(seen) if one.known.is_unknown and specs[at].input_topic is not None]
    for at, known in zip(unknown, had_by_commits([specs[at] for at in unknown]), strict=True):
        if known is not None:
            found[at] = found[at]._replace(record=known.record, known=known)
    return found


def had_by_commits(specs: Sequence[StorePartitionSpec]) -> list[LastKnown | None]:
    """Return the former content of stores whose changelog is not the one that their task last committed to.

    For others, there is nothing that their changelog does not show by itself: None.

    Raises
    ------
    LogCorruptedError
        If a record of input offsets cannot be read.
    KafkaUnavailableError
        If Kafka does not answer.
    """
    if not specs:
        return []
    topics = specs[0].cluster.topics
    there = topics.describe({_offsets(spec).topic for spec in specs})
    logs = topics.log_ranges({where for spec in specs if (where := _offsets(spec)).topic in there})
    changelogs: dict[TopicPartition, dict[str, str]] = {}
    for spec in specs:
        where = _offsets(spec)
        if where in logs and where not in changelogs:
            assert spec.input_topic is not None
            read = TopicPartition(spec.input_topic, spec.task.partition)
            kept = read_kept(spec.cluster, where, logs[where], read)
            changelogs[where] = {} if kept is None else kept.changelogs
    return [_had(spec, changelogs.get(_offsets(spec), {})) for spec in specs]


def _offsets(spec: StorePartitionSpec) -> TopicPartition:
    """Return the partition that keeps the input offset of a store's task."""
    assert spec.input_topic is not None
    return TopicPartition(offsets_topic_of(spec.application, spec.input_topic), spec.task.partition)


def _had(spec: StorePartitionSpec, changelogs: dict[str, str]) -> LastKnown | None:
    topic_id = changelogs.get(spec.store.name)
    if topic_id is None or (spec.changelog is not None and spec.changelog.topic_id == topic_id):
        return None
    return LastKnown(anything=True, record=StoreRecord(topic_id=topic_id, caught_up_ms=0))
