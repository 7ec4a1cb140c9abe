"""Settings of the topics that an application with state needs: changelogs, repartition topics, input offsets."""

from __future__ import annotations

from statestore.definitions.store import StoreDefinition
from statestore.kafka.topics import APPEND_TIME, CREATE_TIME, TIMESTAMP_TYPE

#: Kafka Streams' settings of a repartition topic: records stay until they are processed.
REPARTITION_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
    TIMESTAMP_TYPE: CREATE_TIME,
}
#: Settings of a topic of input offsets: the last record of each task stays, and small segments keep the log short. The
#: records have the brokers' time: brokers refuse a time that is far ahead of their own (KIP-937), and a task must be
#: able to commit on a machine with a wrong clock.
OFFSETS_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "16777216",
    TIMESTAMP_TYPE: APPEND_TIME,
}


def changelog_config(store: StoreDefinition) -> dict[str, str]:
    """Return Kafka Streams' settings of a store's changelog topic."""
    return {**store.store_kind.changelog_config(store), TIMESTAMP_TYPE: CREATE_TIME}


def append_time_refused(topic: str) -> str:
    """Say why a topic of ours must not have the brokers' time, and what to do."""
    return (
        f"topic {topic} has {TIMESTAMP_TYPE}={APPEND_TIME}, expected {CREATE_TIME}: the brokers replace each record's "
        "timestamp, so a store that is restored from it is not what it was. To correct it: kafka-configs.sh "
        f"--alter --entity-type topics --entity-name {topic} --add-config {TIMESTAMP_TYPE}={CREATE_TIME}"
    )
