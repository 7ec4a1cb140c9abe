"""Verification's requests to Kafka, for many store partitions at once and with one client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from statestore.changelog import brokers_clock
from statestore.changelog.reader import first_offsets
from statestore.changelog.topics import LogRange, Topics
from statestore.discovery.changelogs import log_ranges
from statestore.model import TopicPartition
from statestore.partition.cuts import find_cuts
from statestore.partition.judgement import NO_LOG, Inspection, Supply
from statestore.partition.spec import StorePartitionSpec


class AskedLogs(NamedTuple):
    """Where logs began and ended when they were asked for.

    Attributes
    ----------
    asked_ms
        The brokers' time before that, ms since the epoch.
    """

    asked_ms: int
    logs: Mapping[TopicPartition, LogRange]


class Cluster:
    """A Kafka cluster, asked by one client.

    Parameters
    ----------
    before
        Logs that were asked for before any store was looked at. They count for a store of which there is nothing, as
        that cannot have got ahead of its log since.

    Attributes
    ----------
    supplied
        The logs that `supplies` went by when it was last called.

    Raises
    ------
    KafkaUnavailableError
        By every method here, if it does not answer: that says nothing about a store.
    """

    def __init__(self, bootstrap_servers: str, timeout_s: float, before: AskedLogs | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.kafka_timeout_s = timeout_s
        self._topics: Topics | None = None
        self._before = before
        self.supplied = AskedLogs(0, {})

    @property
    def topics(self) -> Topics:
        """Questions about topics."""
        if self._topics is None:
            self._topics = Topics(self.bootstrap_servers, self.kafka_timeout_s)
        return self._topics

    def log_ranges(self, specs: Sequence[StorePartitionSpec]) -> dict[TopicPartition, LogRange]:
        """Where the logs of store partitions begin and end."""
        return log_ranges(self.topics, specs)

    def supplies(self, asked: Sequence[tuple[StorePartitionSpec, Inspection]]) -> list[Supply]:
        """Offsets of the logs of store partitions, and whether the logs continue what was seen of them."""
        logs = self._logs(asked)
        recorded = {spec.partition: (seen.record, spec.changelog) for spec, seen in asked}
        cuts = find_cuts(self.bootstrap_servers, recorded, self.kafka_timeout_s)
        return [Supply(spec.changelog, logs.get(spec.partition, NO_LOG), cuts.get(spec.partition)) for spec, _ in asked]

    def _logs(self, asked: Sequence[tuple[StorePartitionSpec, Inspection]]) -> Mapping[TopicPartition, LogRange]:
        nothing = all(not seen.present and not seen.had.anything for _, seen in asked)
        if self._before is not None and nothing and all(spec.partition in self._before.logs for spec, _ in asked):
            asked_ms, before = self._before
            self.supplied = AskedLogs(asked_ms, {spec.partition: before[spec.partition] for spec, _ in asked})
        else:
            asked_ms = brokers_clock.now_ms(self)
            self.supplied = AskedLogs(asked_ms, self.log_ranges([spec for spec, _ in asked]))
        return self.supplied.logs

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
            for partition, first in first_offsets(self.bootstrap_servers, held, self.kafka_timeout_s).items()
        }
        return [found[partition, wanted] if wanted else None for partition, wanted in asked]
