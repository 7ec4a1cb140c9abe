"""What verification asks of Kafka, for many store partitions at once and with one client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from statestore.changelog.reader import first_offsets
from statestore.changelog.topics import LogRange, Topics
from statestore.discovery.changelogs import log_ranges
from statestore.model import TopicPartition
from statestore.partition.cuts import find_cuts
from statestore.partition.judgement import NO_LOG, Inspection, Supply
from statestore.partition.spec import StorePartitionSpec


class Cluster:
    """A Kafka cluster, asked by one client.

    Raises
    ------
    KafkaUnavailableError
        By every method here, if it does not answer: that says nothing about a store.
    """

    def __init__(self, bootstrap_servers: str, timeout_s: float) -> None:
        self._servers = bootstrap_servers
        self._timeout_s = timeout_s
        self._topics: Topics | None = None

    @property
    def topics(self) -> Topics:
        """Questions about topics."""
        if self._topics is None:
            self._topics = Topics(self._servers, self._timeout_s)
        return self._topics

    def log_ranges(self, specs: Sequence[StorePartitionSpec]) -> dict[TopicPartition, LogRange]:
        """Where the logs of store partitions begin and end."""
        return log_ranges(self.topics, specs)

    def supplies(self, asked: Sequence[tuple[StorePartitionSpec, Inspection]]) -> list[Supply]:
        """What the logs of store partitions have, and whether it is what was seen of them."""
        logs = self.log_ranges([spec for spec, _ in asked])
        recorded = {spec.partition: (seen.record, spec.changelog) for spec, seen in asked}
        cuts = find_cuts(self._servers, recorded, self._timeout_s)
        return [Supply(spec.changelog, logs.get(spec.partition, NO_LOG), cuts.get(spec.partition)) for spec, _ in asked]

    def firsts(self, asked: Sequence[tuple[TopicPartition, tuple[int, int] | None]]) -> list[int | None]:
        """Offset of the first record in each range, as a read-committed consumer gets it; None: none is there.

        Parameters
        ----------
        asked
            Topic partition, and start and exclusive end; None is a range without records. A partition may come more
            than once.
        """
        rounds: list[dict[TopicPartition, tuple[int, int]]] = []
        for partition, wanted in asked:
            if wanted and not any(held.setdefault(partition, wanted) == wanted for held in rounds):
                rounds.append({partition: wanted})
        found: Mapping[tuple[TopicPartition, tuple[int, int] | None], int | None] = {
            (partition, held[partition]): first
            for held in rounds
            for partition, first in first_offsets(self._servers, held, self._timeout_s).items()
        }
        return [found[partition, wanted] if wanted else None for partition, wanted in asked]
