"""The last commit of a task, by which a store without a changelog is judged, and its prepared commit decided.

Each commit has a number that no other commit of the store has, not even one that Kafka has aborted. The topic of input
offsets has the number of the last commit that changed each store without a changelog (`formats/input_offset.py`). It
tells which commit the store must have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from statestore.changelog.input_offsets import of_topic, offsets_topics, read_kept
from statestore.formats import commit_metadata
from statestore.formats.input_offset import InputOffset
from statestore.kafka.groups import ConsumerGroup, GroupOffset
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec


class LastCommit(NamedTuple):
    """The last commit of a task.

    Attributes
    ----------
    unlogged
        The number of the last commit that changed each store without a changelog that has anything.
    record_is_lost
        The group's offset is that of a commit whose record the topic of input offsets does not have, so `unlogged` is
        unknown or old.
    topic_id
        Id of the topic of input offsets; empty: it does not exist.
    """

    unlogged: Mapping[str, int] = {}
    record_is_lost: bool = False
    topic_id: str = ""

    def expected(self, store: str) -> int:
        """Return the number of the commit that a store must have; -1: none, or it is unknown."""
        return -1 if self.record_is_lost else self.unlogged.get(store, -1)

    def refuted_by(self, store: str, number: int | None) -> str:
        """Return the difference between a store and what was committed, by its last commit's number; empty if none."""
        expected = self.unlogged.get(store)
        if number == expected and not self.record_is_lost:
            return ""
        if self.record_is_lost:
            return "the topic of input offsets has lost the record of the last commit, so it is unknown what it had"
        had = "nothing" if number is None else f"what was committed up to commit {number}"
        changed = "no commit that changed it" if expected is None else f"commit {expected} as the last that changed it"
        return f"it has {had}, and the task has committed {changed}"


def last_commit_of(kept: InputOffset | None, committed: GroupOffset | None, topic_id: str) -> LastCommit:
    """Return the last commit by what Kafka has of it.

    Parameters
    ----------
    kept
        The record in the topic of input offsets; None if it is missing.
    committed
        The group's offset in the present input topic; None if it is missing.
    topic_id
        Id of the topic of input offsets.
    """
    stamp = None if committed is None else commit_metadata.decode(committed.metadata).stamp
    if kept is None:
        return LastCommit(record_is_lost=stamp is not None, topic_id=topic_id)
    later = stamp is not None and committed is not None and stamp.sequence > kept.sequence
    counts = later and (stamp.topic_id, stamp.next_offset) == (topic_id, committed.next_offset)  # type: ignore[union-attr]
    return LastCommit(kept.unlogged, record_is_lost=counts, topic_id=topic_id)


def find_last_commit(spec: StorePartitionSpec) -> LastCommit:
    """Return the last commit of a store's task, which does not run: the caller holds its lock.

    Raises
    ------
    KafkaUnavailableError
        If Kafka does not answer.
    """
    topics, read = spec.cluster.topics, spec.input_topic or ""
    found = offsets_topics(topics, spec.application, [read]).get(read)
    if found is None:
        return LastCommit()
    where = TopicPartition(found.topic, spec.task.partition)
    partition = TopicPartition(read, spec.task.partition)
    log = topics.log_ranges([where])[where]
    kept = read_kept(spec.cluster, where, log, partition)
    # A transaction of a killed attempt may still be open. It is not waited for: the next run ends it.
    with ConsumerGroup(spec.cluster, spec.application, require_stable=False) as group:
        committed = group.committed(partition)
    return last_commit_of(kept, of_topic(committed, found.input.topic_id), found.topic_id)
