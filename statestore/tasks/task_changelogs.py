"""A task's requests about its changelogs: their records, their ends, and whether they were truncated."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from statestore.changelog import brokers_clock
from statestore.changelog.epochs import log_ends
from statestore.changelog.reader import ChangelogReader
from statestore.kafka.topics import LogRange, Topics
from statestore.model import TopicPartition
from statestore.partition.committed_changelogs import had_by_commits
from statestore.partition.cuts import find_cuts
from statestore.partition.facts import LastKnown, Question
from statestore.partition.replay import replay
from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.record import StoreRecord
from statestore.stores.typed import AnyStore
from statestore.tasks.spec import TaskSpec
from statestore.verification.gathering import ANSWERS, Answer

#: For so long the markers of the last transaction are waited for before a store is recorded, s.
_MARKERS_S = 2.0
_PAUSE_S = 0.01


class ChangelogEnd(NamedTuple):
    """Where a changelog ends, exclusive, and with which leader epoch; None: not known."""

    offset: int | None = None
    epoch: int | None = None


class TaskChangelogs:
    """The changelogs of one task's stores, in Kafka."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec

    @property
    def answers(self) -> Mapping[Question, Answer]:
        """How questions about the stores are answered, but for that of earlier evidence."""
        return ANSWERS

    def now_ms(self) -> int:
        """Return the brokers' time (ms), which says what Kafka has deleted from changelogs."""
        return brokers_clock.now_ms(self._spec.cluster)

    def replay(self, store: AnyStore, changelog: TopicPartition, start: int, log: LogRange) -> int:
        """Apply a part of a changelog and return its records; all of it is on disk then.

        At least once reads what an open transaction hides, too, but nothing aborted: the changelog may be of a time
        when the application processed exactly once.
        """
        spec, end = self._spec, log.last_stable
        stable = end if spec.exactly_once else min(self._topics().log_ranges([changelog])[changelog].last_stable, end)
        records = 0
        for committed, first, last in ((True, start, stable), (False, max(start, stable), end)):
            if first < last:
                with ChangelogReader(spec.cluster, changelog, read_committed=committed) as reader:
                    records += replay(store, reader, first, last).records
        store.sync()
        return records

    def records(self, changelog: TopicPartition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the committed records with `start <= offset < end`; values are plain."""
        spec = self._spec
        with ChangelogReader(spec.cluster, changelog) as reader:
            yield from reader.read(start, end)

    def cuts(self, records: Mapping[TopicPartition, StoreRecord | None]) -> dict[TopicPartition, int]:
        """Return where changelogs were cut since their stores were recorded: these grow again, and offsets do not tell.

        Parameters
        ----------
        records
            Of the stores, by changelog partition.
        """
        topics = {self._spec.changelog(name): changelog for name, changelog in self._spec.changelogs.items()}
        recorded = {changelog: (record, topics[changelog]) for changelog, record in records.items()}
        return find_cuts(self._spec.cluster, recorded)

    def ends(self, logs: Mapping[TopicPartition, LogRange]) -> dict[TopicPartition, ChangelogEnd]:
        """Return where changelogs end, with their leader epochs where Kafka tells them."""
        known = log_ends(self._spec.cluster, logs)
        return {at: ChangelogEnd(log.last_stable, known[at].epoch if at in known else None) for at, log in logs.items()}

    def settled(self, changelogs: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return the offsets of changelogs, behind the markers of what was committed last."""
        if not changelogs:
            return {}
        topics, deadline = self._topics(), time.monotonic() + _MARKERS_S
        logs = topics.log_ranges(changelogs)
        while any(log.last_stable < log.high_watermark for log in logs.values()) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)  # a commit is answered before its markers are in the log
            logs = topics.log_ranges(changelogs)
        return logs

    def first_from(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Return the offset of each changelog's first record with such a timestamp (ms) or a later one."""
        return self._topics().first_from(times) if times else {}

    def had_by_commits(self, spec: StorePartitionSpec) -> LastKnown | None:
        """Return what a store had by the task's last commit, if its changelog was recreated since; None otherwise."""
        (found,) = had_by_commits([spec])
        return found

    def _topics(self) -> Topics:
        return self._spec.cluster.topics
