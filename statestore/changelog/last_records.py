"""The last records of a partition of a log, which are looked for from the end."""

from __future__ import annotations

from collections.abc import Iterator

from statestore.changelog.reader import ChangelogReader
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition

_FIRST_LOOK, _LONGER = 64, 16


def looks_back(log: LogRange) -> Iterator[tuple[int, int]]:
    """Yield the offsets (start, exclusive end) of a log in pieces that become longer, from its end to its start."""
    end, look = log.last_stable, _FIRST_LOOK
    while end > log.start:
        start = max(log.start, log.last_stable - look)
        yield start, end
        end, look = start, look * _LONGER


def last_position(cluster: Cluster, where: TopicPartition, log: LogRange) -> dict[TopicPartition, int]:
    """Return the position in the headers of the last committed record; empty if it has none, or there is no record."""
    for start, end in looks_back(log):
        with ChangelogReader(cluster, where) as reader:
            if any([batch.num_rows for batch in reader.read(start, end)]):
                return reader.position
    return {}
