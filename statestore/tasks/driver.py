"""A task without a broker, for tests of applications: the code of real tasks between logs that are lists.

Stores, their recovery, the topology and the metadata of a commit are those of a task. Lists stand for what Kafka does
for it: they keep records, show under exactly once only what was committed, and choose partitions by the same hash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from statestore import clock
from statestore.changelog.reader import ChangelogReader
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InputError, InvalidStateError
from statestore.formats import commit_metadata
from statestore.formats.commit_metadata import CommitMetadata
from statestore.kafka.cluster import Cluster
from statestore.kafka.record_headers import with_headers
from statestore.kafka.topics import LogRange
from statestore.model import TaskId, TopicPartition
from statestore.partition.facts import LastKnown, Question
from statestore.partition.replay import replay
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.partition.verdict import unread
from statestore.stores.processor_store import processor_store
from statestore.stores.typed import AnyStore
from statestore.tasks.driver_logs import ListReader, LoggedRecord, Logs
from statestore.tasks.input_records import InputRecords
from statestore.tasks.outgoing import Sent
from statestore.tasks.processor import Headers
from statestore.tasks.spec import TaskSpec
from statestore.tasks.task_changelogs import TaskChangelogs
from statestore.tasks.task_stores import TaskStores
from statestore.tasks.topology import BATCH, Counts, Topology
from statestore.verification.gathering import Answer

_DAY_MS = 24 * 60 * 60 * 1000


class DriverTask:
    """One task with its stores open.

    Attributes
    ----------
    counts
        What was committed by this task, in all its runs.
    running
        Whether there is a run, which has not failed.
    """

    def __init__(self, application: ApplicationDefinition, task: TaskId, state_dir: Path, logs: Logs) -> None:
        stores = application.subtopologies[task.subtopology].stores
        self._spec = TaskSpec(
            application=application,
            task=task,
            input_end=0,
            offsets_id="driver",
            changelogs={
                store.name: ChangelogSpec(
                    topic=store.changelog_of(application.name), topic_id="driver", delete_retention_ms=_DAY_MS
                )
                for store in stores
                if store.logged
            },
            cluster=Cluster("", 0),
            state_dir=state_dir,
        )
        self._input = self._spec.input
        self._logs = logs
        self._committed_offset = 0
        self._committed_metadata = ""
        self._committed = self._before = Counts()
        self.running = False
        self._open()

    def _open(self) -> None:
        spec, changelogs = self._spec, [self._spec.changelog(name) for name in self._spec.changelogs]
        self._stores = TaskStores(spec, _Changelogs(spec, self._logs))
        try:
            self._stores.recover({changelog: self._logs.range_of(changelog) for changelog in changelogs})
            metadata = commit_metadata.decode(self._committed_metadata)
            self._stores.advance_stream_times(metadata.times)
            self._output = _Output(spec, self._logs)
            self._topology = Topology(spec.application, spec.task, self._stores.by_name, self._output)
            self._topology.start(metadata.partition_time)
            self._topology.take_writes_between_records()
        except BaseException:
            self._stores.close(clean=False)
            raise
        self._next_offset = self._committed_offset
        self.running = True

    @property
    def counts(self) -> Counts:
        """Committed counts."""
        return added(self._before, self._committed)

    def store(self, name: str) -> Any:
        """Return a store as a processor gets it."""
        self.check_running()
        return processor_store(self._stores.by_name[name])

    @property
    def stream_time(self) -> int:
        """Largest timestamp (ms) of all records; -1 before the first."""
        return self._topology.stream_time

    def process(self) -> None:
        """Process what is left of the input."""
        self.check_running()
        try:
            messages = self._logs.messages(self._input, self._next_offset)
            for batch in InputRecords.arrived(self._input, with_headers(messages), BATCH) if messages else ():
                left = batch
                while len(left):
                    taken = self._topology.process(left, lambda: False)
                    self._next_offset += taken
                    left = left.part(taken)
                    if self._topology.commit_requested:
                        self.commit()
        except BaseException:
            self._stop(clean=False)
            raise

    def commit(self) -> None:
        """Commit what was processed, in the order of a task: the logs, then the stores; then delete expired rows."""
        self.check_running()
        try:
            self._commit()
            for store, keys in self._stores.take_expired(self.stream_time):
                self._topology.delete_rows(store, keys)
                self._commit()
        except BaseException:
            self._stop(clean=False)
            raise

    def _commit(self) -> None:
        self._topology.flush()
        metadata = CommitMetadata(self.stream_time, self._stores.stream_times)
        delivered = self._output.commit()
        self._committed_offset, self._committed_metadata = self._next_offset, commit_metadata.encode(metadata)
        self._committed = self._topology.counts
        self._stores.commit(delivered, {self._input: self._next_offset - 1} if self._next_offset else {})

    def close(self, *, crash: bool) -> None:
        """End the run; what was not committed is gone."""
        if not self.running:
            return
        try:
            if not crash:
                self._topology.close()
        finally:
            self._stop(clean=not crash)

    def reopen(self) -> None:
        """Begin another run where the last commit was."""
        self._before, self._committed = self.counts, Counts()
        self._open()

    def _stop(self, *, clean: bool) -> None:
        self.running = False
        self._stores.close(clean=clean)

    def check_running(self) -> None:
        """Raise InvalidStateError if there is no run."""
        if not self.running:
            raise InvalidStateError(
                f"task {self._spec.task} of {self._spec.application.name} has failed or was closed; restart the "
                f"driver to continue from its last commit"
            )


class _Output:
    """A topology's records on their way into the logs: with the commit, or at once under at least once."""

    def __init__(self, spec: TaskSpec, logs: Logs) -> None:
        self._logs = logs
        self._at_once = not spec.exactly_once
        self._changelogs = {name: spec.changelog(name) for name in spec.changelogs}
        self._pending: list[tuple[str, int | None, LoggedRecord]] = []
        self._delivered: dict[TopicPartition, int] = {}

    def send_many(self, records: Sequence[Sent]) -> None:
        for topic, key, value, timestamp, headers in records:
            self._add(topic, None, LoggedRecord(key, value, timestamp, tuple(headers)))

    def log_many(
        self,
        store: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        count: int | None = None,
    ) -> None:
        each = zip(keys, values, timestamps, repeat(()) if headers is None else headers, strict=False)
        for key, value, timestamp, found in islice(each, count):
            self._add(*self._changelogs[store], LoggedRecord(key, value, timestamp, tuple(found)))

    def _add(self, topic: str, partition: int | None, record: LoggedRecord) -> None:
        if record.timestamp <= 0:  # as a producer does
            raise InputError(f"{topic}: a record's timestamp is in ms since 1970 and above 0, found {record.timestamp}")
        self._pending.append((topic, partition, record))
        if self._at_once:
            self._deliver()

    def _deliver(self) -> None:
        for topic, partition, record in self._pending:
            where, offset = self._logs.append(topic, record, partition)
            self._delivered[where] = offset
        self._pending = []

    def commit(self) -> dict[TopicPartition, int]:
        """Make everything visible; return the last offset of each partition since the last commit."""
        self._deliver()
        delivered, self._delivered = self._delivered, {}
        return delivered


class _Changelogs(TaskChangelogs):
    """Changelogs that are lists: nothing of them is lost, and there is no Kafka to ask."""

    def __init__(self, spec: TaskSpec, logs: Logs) -> None:
        super().__init__(spec)
        self._logs = logs

    @property
    def answers(self) -> Mapping[Question, Answer]:
        """Each offset of a list has a record, and nothing is compacted in it."""
        return {
            Question.FIRST_RECORD: lambda asked, _: [one._replace(first=(unread(one) or [None])[0]) for one in asked],
            Question.LACKS_VERSIONS: lambda asked, _: [
                one._replace(log=one.asked_log._replace(lacks_versions=False)) for one in asked
            ],
        }

    def now_ms(self) -> int:
        """Return this machine's time (ms)."""
        return clock.now_ms()

    def replay(self, store: AnyStore, changelog: TopicPartition, start: int, log: LogRange) -> int:
        """Apply a part of a changelog and return its records."""
        reader = ListReader(changelog, self._logs)
        return replay(store, cast(ChangelogReader, reader), start, log.last_stable).records

    def records(self, changelog: TopicPartition, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records with `start <= offset < end`; values are plain."""
        yield from ListReader(changelog, self._logs).read(start, end)

    def settled(self, changelogs: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return the offsets of changelogs."""
        return {changelog: self._logs.range_of(changelog) for changelog in changelogs}

    def first_from(self, times: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Nothing expires from a list."""
        return {}

    def had_by_commits(self, spec: StorePartitionSpec) -> LastKnown | None:
        """No list is recreated."""
        return None


def added(one: Counts, other: Counts) -> Counts:
    """Return the sums of two counts."""
    return Counts(*(sum(pair) for pair in zip(vars(one).values(), vars(other).values(), strict=True)))
