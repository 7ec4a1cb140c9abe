"""Which logs were cut since their stores were recorded: these grow again, and offsets do not tell."""

from __future__ import annotations

from collections.abc import Mapping

from statestore.changelog.epochs import compare_ends
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition
from statestore.partition.facts import cut_at, log_end
from statestore.partition.spec import ChangelogSpec
from statestore.statedir.record import StoreRecord


def find_cuts(
    cluster: Cluster,
    recorded: Mapping[TopicPartition, tuple[StoreRecord | None, ChangelogSpec | None]],
) -> dict[TopicPartition, int]:
    """Return from which offset on logs have other records than when their stores were recorded; others are left out.

    Parameters
    ----------
    recorded
        By changelog partition, the record of its store, and what is known of the topic now.

    Raises
    ------
    KafkaUnavailableError
        If Kafka does not answer.
    """
    seen = {at: end for at, (record, topic) in recorded.items() if (end := log_end(record, topic)) is not None}
    found = compare_ends(cluster, seen)
    return {at: cut for at, comparison in found.items() if (cut := cut_at(comparison)) is not None}
