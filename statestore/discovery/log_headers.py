"""Headers in the changelogs of found stores: besides positions, only stores with headers log any.

A store that keeps headers (KIP-1271) logs those of its values. Whoever traces an application may add some to all that
it sends, though: where a store has taken such records in, and has no column family for headers, they are not its own.
"""

from __future__ import annotations

from contextlib import suppress

from statestore.changelog.reader import ChangelogReader
from statestore.discovery.changelogs import Installation
from statestore.errors import StoreBehindLogStartError
from statestore.kafka.topics import LogRange, Topics
from statestore.model import TopicPartition

#: What `sampled_header` finds in the changelog of a suppression, which Kafka Streams keeps in memory.
SUPPRESSED = "v"
#: A sample of a log: partitions that have records, and offsets at both ends of each.
_PARTITIONS = 4
_OFFSETS = 200


def sampled_header(where: Installation, topic: str, topics: Topics) -> str | None:
    """Find a header in a sample of a changelog that is not one of a position; None if there is none."""
    described = topics.describe([topic])
    logs = topics.log_ranges(TopicPartition(topic, number) for number in range(described[topic].partitions))
    filled = {partition: log for partition, log in logs.items() if log.start < log.last_stable}
    for partition, log in list(filled.items())[:_PARTITIONS]:
        for start, end in (log.start, log.start + _OFFSETS), (log.last_stable - _OFFSETS, log.last_stable):
            found = _header(where, partition, log, start, end)
            if found is not None:
                return found
    return None


def was_taken_in(where: Installation, partition: TopicPartition, applied: int, topics: Topics) -> bool:
    """Tell whether records up to the one that a store has applied last have headers that are not those of positions."""
    [log] = topics.log_ranges([partition]).values()
    return _header(where, partition, log, applied + 1 - _OFFSETS, applied + 1) is not None


def _header(where: Installation, partition: TopicPartition, log: LogRange, start: int, end: int) -> str | None:
    with (
        ChangelogReader(where.cluster, partition, watch_headers=True) as reader,
        suppress(StoreBehindLogStartError),  # retention has moved the log's start since: there is nothing to be found
    ):
        for _ in reader.read(max(start, log.start), min(end, log.last_stable)):
            pass
    return reader.foreign_header
