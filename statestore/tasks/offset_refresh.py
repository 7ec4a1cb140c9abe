"""Keeps the consumer group's offsets of an application alive: Kafka deletes them 7 days after their last commit.

A task without input commits nothing. So before a run, offsets that are older than a day are committed again, and those
that Kafka has deleted are restored from the topics of input offsets: one request for each group, without opening a
store. Offsets that a person has set stay as they are until the task has read them.

A task that commits at the same moment may be overtaken: its group's offset is then older than its record. A refreshed
offset says so in its stamp, and a task that finds one reads the record (`changelog/input_offsets.py`).
"""

from __future__ import annotations

from statestore import clock
from statestore.changelog import brokers_clock
from statestore.changelog.input_offsets import kept_offsets, of_topic, offsets_topics, stamped
from statestore.definitions.application import ApplicationDefinition
from statestore.formats import commit_metadata
from statestore.kafka.groups import GroupOffset, commit_offsets, committed_offsets
from statestore.kafka.topics import Topics
from statestore.model import TopicPartition

#: Offsets are refreshed when they are this old.
REFRESH_MS = 24 * 60 * 60 * 1000


def refresh_offsets(topics: Topics, application: ApplicationDefinition) -> int:
    """Refresh the offsets of an application's group, and return how many were written.

    Raises
    ------
    InputError
        If the group has active members.
    KafkaUnavailableError
        If Kafka does not answer in time.
    """
    read = [part.input_topic for part in application.subtopologies]
    found = offsets_topics(topics, application.name, read)
    group = committed_offsets(topics.cluster, application.name)
    now_ms = brokers_clock.now_ms(topics.cluster)
    refreshed: dict[TopicPartition, GroupOffset] = {}
    missing: list[TopicPartition] = []
    for topic in found.values():
        for where in topic.partitions:
            if (committed := of_topic(group.get(where), topic.input.topic_id)) is None:
                missing.append(where)
            elif (again := _again(committed, topic.topic_id, now_ms)) is not None:
                refreshed[where] = again
    for where, kept in kept_offsets(topics, found, missing).items():
        refreshed[where] = stamped(kept, found[where.topic].topic_id, now_ms, refreshed=True)
    if refreshed:
        commit_offsets(topics.cluster, application.name, refreshed)
    return len(refreshed)


def _again(committed: GroupOffset, topic_id: str, now_ms: int) -> GroupOffset | None:
    """Return the offset as it is committed again; None if it is younger than a day or has no stamp."""
    found = commit_metadata.decode(committed.metadata)
    stamp = found.stamp_for(topic_id, committed.next_offset)
    if stamp is None or now_ms - REFRESH_MS < stamp.written_ms <= now_ms + clock.MEASUREMENTS_DIFFER_MS:
        return None
    metadata = found._replace(stamp=stamp._replace(written_ms=now_ms, refreshed=True))
    return committed._replace(metadata=commit_metadata.encode(metadata))
