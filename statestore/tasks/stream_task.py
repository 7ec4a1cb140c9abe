"""The life of one task: lock, open, fence, recover, process, commit, suspend, close; one that is idle opens nothing.

The commit order is Kafka first, then the stores, so after a crash a store can only be behind its changelog, and the
next run replays what is missing. Fencing comes before the ends of the changelogs and the group's offset are read:
whatever a former attempt had in flight is settled by then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from types import MappingProxyType

from statestore import kill_switch
from statestore.changelog import brokers_clock
from statestore.changelog.input_offsets import of_topic, offset_record, read_kept, stamped
from statestore.errors import (
    CommitOutcomeUnknownError,
    InvalidStateError,
    OpenTransactionError,
    ProcessingError,
    StateStoreError,
    StoreCorruptedError,
    SupersededError,
    of_os_error,
)
from statestore.formats.commit_metadata import CommitMetadata
from statestore.formats.input_offset import InputOffset
from statestore.kafka.groups import ConsumerGroup
from statestore.kafka.open_transaction import advice
from statestore.kafka.reader import LogReader
from statestore.kafka.topics import LogRange, Topics
from statestore.kafka.writer import AtLeastOnceWriter, TransactionalWriter, Writer
from statestore.model import TopicPartition, transactional_id
from statestore.partition.generations import superseded
from statestore.partition.last_commit import LastCommit, last_commit_of
from statestore.reports import Failure, ProcessRow
from statestore.statedir.swap import locked_task
from statestore.tasks.garbage import CollectingNowAndThen
from statestore.tasks.idle import figures, idle_offset
from statestore.tasks.input_position import find_position
from statestore.tasks.input_records import InputRecords
from statestore.tasks.outgoing import Sent
from statestore.tasks.processor import Headers
from statestore.tasks.publishing import open_archive_soon, publish_stores
from statestore.tasks.shape import check_shape, former_input, remember_shape
from statestore.tasks.spec import TaskSpec
from statestore.tasks.task_progress import TaskProgressWriter
from statestore.tasks.task_stores import TaskStores, record_new_stores
from statestore.tasks.topology import BATCH, Counts, Topology

_PAUSE_S = 0.1
_LOOK_AGAIN_S = 0.001
#: What another attempt in the same run may mend: the corrupted store is rebuilt, the outcome is read from the log.
_WORTH_ANOTHER_ATTEMPT = (StoreCorruptedError, CommitOutcomeUnknownError)


def run_task(spec: TaskSpec) -> ProcessRow:
    """Process the task's input up to its end; a failure of ours becomes part of the row, so that others go on."""
    started = time.monotonic()
    kill_switch.enter(str(spec.task))
    kill_switch.reached("task begun")
    row = ProcessRow(application=spec.application.name, task=str(spec.task))
    failure: Failure | None = None
    try:
        with locked_task(spec.paths, spec.lock_wait_s, urgent=True):
            if (offset := idle_offset(spec)) is not None:
                found = {"snapshots": publish_stores(spec, idle=True)}
                seconds = round(time.monotonic() - started, 3)
                return idle_row(spec, offset).model_copy(
                    update={**found, "recover_seconds": seconds, "seconds": seconds}
                )
            kill_switch.reached("task not idle")
            open_archive_soon(spec)
            row, error = _attempt(spec, row)
            if isinstance(error, _WORTH_ANOTHER_ATTEMPT):
                row, error = _attempt(spec, row, read_in_full=isinstance(error, StoreCorruptedError))
            row = row.model_copy(update={"snapshots": publish_stores(spec)})
        failure = None if error is None else Failure.of(error)
    except (StateStoreError, OSError) as error:
        failure = Failure.of(error)
    return row.model_copy(update={"failure": failure, "seconds": round(time.monotonic() - started, 3)})


def idle_row(spec: TaskSpec, offset: int) -> ProcessRow:
    """Return the row of a task that has nothing to do; its next input offset is known."""
    with TaskProgressWriter(spec) as progress:
        progress.tell("recovering")
    return ProcessRow(
        application=spec.application.name, task=str(spec.task), lag=0, input_offset=offset, stores=figures(spec)
    )


def _attempt(
    spec: TaskSpec, before: ProcessRow, *, read_in_full: bool = False
) -> tuple[ProcessRow, StateStoreError | None]:
    task: StreamTask | None = None
    failure: StateStoreError | None = None
    try:
        with StreamTask(spec, read_in_full=read_in_full) as task:
            task.recover()
            task.process()
            task.suspend()
    except StateStoreError as error:
        failure = error
    except OSError as error:
        failure = of_os_error(error)
    return (before if task is None else task.row(before)), failure


class TaskState(StrEnum):
    """Kafka Streams' states of a task."""

    CREATED = "created"
    RESTORING = "restoring"
    RUNNING = "running"
    SUSPENDED = "suspended"
    CLOSED = "closed"


class StreamTask:
    """One task with its stores open. Use it under the task's lock, as a context manager.

    Parameters
    ----------
    read_in_full
        Read the stores in full first, and rebuild those that cannot be read.
    """

    def __init__(self, spec: TaskSpec, *, read_in_full: bool = False) -> None:
        self._spec = spec
        self._name = spec.application.name
        self._input = spec.input
        self.state = TaskState.CREATED
        self._next_offset = 0
        self._sequence = 0
        self._never_read = 0
        self._moved_from: int | None = None
        self._last_record = -1
        self._pending = 0
        self._in_transaction = False
        self._last_commit = time.monotonic()
        self._look_again = 0.0
        self._commits = 0
        self._committed = Counts()
        self._reached_input = False
        self._committed_all = False
        self._resources = ExitStack()
        self._recover_s = self._process_s = 0.0
        check_shape(spec)
        record_new_stores(spec)
        self._stores = TaskStores(spec, read_in_full=read_in_full)
        try:
            self._writer = self._new_writer()
            self._resources.callback(self._writer.close)
            self._group = self._resources.enter_context(ConsumerGroup(spec.cluster, self._name))
            self._progress = self._resources.enter_context(TaskProgressWriter(spec))
        except BaseException:
            self._close(clean=False)
            raise
        self._topology: Topology | None = None
        self._output = _Output(self._writer, spec)

    def _new_writer(self) -> Writer:
        spec = self._spec
        name = transactional_id(self._name, spec.task)
        if not spec.exactly_once:
            return AtLeastOnceWriter(spec.cluster, name, spec.max_batch_bytes)
        # Twice the interval leaves room for the commit itself; brokers allow 15 minutes by default.
        timeout_ms = min(max(60_000, 2 * spec.application.commit_interval_ms), 900_000)
        return TransactionalWriter(spec.cluster, name, timeout_ms, spec.max_batch_bytes)

    def __enter__(self) -> StreamTask:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None:
            self._writer.abort()
        self._close(clean=error_type is None or self._committed_all)

    # -- recovery -------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Fence earlier attempts, bring every store to the end of its changelog, and find the input position.

        Raises
        ------
        RebuildError
            If a store cannot catch up and its changelog may have lost what it has.
        InputOffsetError
            If a person must say where to continue in the input.
        """
        started = time.monotonic()
        self.state = TaskState.RESTORING
        self._progress.tell("recovering")
        self._writer.init()
        kill_switch.reached("transactions initialized")
        self._require_current()
        spec, asked_ms = self._spec, brokers_clock.now_ms(self._spec.cluster)
        ranges = self._settled_ranges(spec.cluster.topics)
        last = self._read_last_commit(ranges[spec.offsets]) if spec.unlogged_stores else None
        self._stores.recover(ranges, asked_ms, last)
        metadata = self._find_input_position(ranges)
        self._stores.advance_stream_times(metadata.times)
        if former_input(spec) is not None:
            self._stores.forget_positions()
        remember_shape(spec)
        bounds = spec.timestamps.measured(spec.cluster)
        # At least once, a store's last change can be in its log while other changes and outputs were never sent.
        positions = spec.exactly_once
        self._topology = Topology(
            spec.application, spec.task, self._stores.by_name, self._output, bounds, logs_positions=positions
        )
        self._topology.start(metadata.partition_time)
        self.state = TaskState.RUNNING
        kill_switch.reached("recovered")
        self._recover_s = time.monotonic() - started

    def _require_current(self) -> None:
        """Refuse stores that others have taken the place of since they were brought here.

        Raises
        ------
        SupersededError
            If there is one.
        """
        for store in self._spec.stores_on_disk:
            if not store.home.disks_are_shared and (why := superseded(store)):
                raise SupersededError(f"{store.store_partition} cannot be used here: {why}; run again to bring it here")

    def _settled_ranges(self, topics: Topics) -> dict[TopicPartition, LogRange]:
        """Wait until no transaction hides the end of a changelog: a replay would stop before it and miss the rest.

        Our own were settled by `init`, but their markers may come a moment later; a foreign one may hang. At least once
        reads what is not committed, too. The topic of input offsets is waited for as the changelogs are.
        """
        changelogs = [self._spec.changelog(name) for name in self._spec.changelogs]
        logs = [*changelogs, self._spec.offsets]
        deadline = time.monotonic() + self._spec.cluster.timeout_s
        while True:
            ranges = topics.log_ranges([self._input, *logs])
            if not self._spec.exactly_once:
                seen = {name: ranges[name]._replace(last_stable=ranges[name].high_watermark) for name in changelogs}
                return {**ranges, **seen}
            hidden = [name for name in logs if ranges[name].last_stable < ranges[name].high_watermark]
            if not hidden:
                return ranges
            if time.monotonic() > deadline:
                stuck, log, spec = hidden[0], ranges[hidden[0]], self._spec
                raise OpenTransactionError(
                    f"{stuck}: a transaction is open from offset {log.last_stable} on, the log ends at "
                    f"{log.high_watermark}; "
                    f"{advice(spec.cluster, stuck, log.last_stable)}"
                )
            time.sleep(_PAUSE_S)  # nothing announces that a transaction has ended

    def _read_last_commit(self, log: LogRange) -> LastCommit:
        """Return the task's last commit; earlier attempts were fenced, so it does not change any more."""
        spec = self._spec
        kept = read_kept(spec.cluster, spec.offsets, log, spec.input)
        return last_commit_of(kept, of_topic(self._group.committed(spec.input), spec.input_id), spec.offsets_id)

    def _find_input_position(self, logs: Mapping[TopicPartition, LogRange]) -> CommitMetadata:
        """Find where to continue in the input, and return the stream times known so far."""
        position = find_position(self._spec, self._group, self._stores, logs)
        found = position.found
        self._next_offset, self._sequence = found.offset, found.sequence
        self._last_record = found.offset - 1
        self._never_read, self._moved_from = position.never_read, found.moved_from
        self._reached_input = True
        if not found.recorded or self._stores.has_accepted_loss:
            if self._spec.exactly_once:
                self._pending += 1  # committed, also if no input follows
            else:  # a run killed before its first commit would leave state without an offset
                self._writer.begin()
                self._commit_offset(found.times)
        return found.times

    def _commit_offset(
        self, times: CommitMetadata, position: Mapping[TopicPartition, int] = MappingProxyType({})
    ) -> dict[TopicPartition, int]:
        """Commit what was written, with the next input offset; return the last offset of each partition written to.

        For a changed store without a changelog, the offset is the number of the commit.
        """
        spec = self._spec
        self._sequence += 1
        changelogs = {
            name: spec.changelogs[name].topic_id for name in self._stores.not_empty() if name in spec.changelogs
        }
        prepared = self._stores.prepare(position)
        numbers = {**self._stores.commit_numbers, **prepared}
        kept = InputOffset.of(self._next_offset, spec.input_id, self._sequence, times, changelogs, numbers)
        self._writer.keep_offset(offset_record(spec.offsets, self._input, kept))
        delivered = self._writer.flush()
        kill_switch.reached("flushed, input offsets not sent")
        self._writer.send_offsets(
            self._group, {self._input: stamped(kept, spec.offsets_id, brokers_clock.now_ms(self._spec.cluster))}
        )
        kill_switch.reached("flushed, not committed")
        self._writer.commit()
        return {**delivered, **{spec.changelog(name): number for name, number in prepared.items()}}

    # -- processing -----------------------------------------------------------------------------------------------

    @property
    def topology(self) -> Topology:
        """The topology that processes the records.

        Raises
        ------
        InvalidStateError
            If the task has not recovered.
        """
        if self._topology is None:
            raise InvalidStateError(f"task {self._spec.task} of {self._name} has not recovered; call recover first")
        return self._topology

    def process(self) -> None:
        """Process the input up to the end given in the spec, committing on the way and at the end."""
        spec, topology = self._spec, self.topology
        started = time.monotonic()
        with (
            LogReader(spec.cluster, self._input) as reader,
            CollectingNowAndThen() as garbage,
        ):
            for arrived in reader.read_records(self._next_offset, spec.input_end):
                for batch in InputRecords.arrived(self._input, arrived, BATCH):
                    self._process_batch(batch)
                    garbage.now_and_then()
                    self._process_s = time.monotonic() - started
                    self._progress.tell("processing", self._next_offset, topology.counts)
        if self._next_offset < spec.input_end:  # markers at the end are read, too
            self._next_offset = spec.input_end
            self._pending += 1
        self.commit()
        if topology.counts.records_in:  # else stream time has not moved
            self._delete_expired()
        self._process_s = time.monotonic() - started

    def _process_batch(self, left: InputRecords) -> None:
        while len(left):
            if not self._in_transaction:
                self._writer.begin()
                self._in_transaction = True
                self._last_commit = time.monotonic()
            taken = self.topology.process(left, self._commit_is_due)
            self._last_record = int(left.offsets[taken - 1])
            self._next_offset = self._last_record + 1
            self._pending += taken
            left = left.part(taken)
            self._writer.poll()
            if self._commit_is_due():
                self.commit()

    def _commit_is_due(self) -> bool:
        if self.topology.commit_requested:
            return True
        now = time.monotonic()
        if now < self._look_again:
            return False
        application = self._spec.application
        staged, most = self._stores.staged_bytes + self.topology.pending_bytes, application.uncommitted_max_bytes
        # Far from both bounds, neither is reached within so short a time.
        self._look_again = now + (_LOOK_AGAIN_S if 2 * staged < most else 0)
        return staged >= most or (now - self._last_commit) * 1000 >= application.commit_interval_ms

    def _delete_expired(self) -> None:
        """Delete rows that are older than the ttl of their stores, in transactions like any other (`expiry.py`)."""
        for store, keys in self._stores.take_expired(self.topology.stream_time):
            if not self._in_transaction:
                self._writer.begin()
                self._in_transaction = True
                self._last_commit = time.monotonic()
            self.topology.delete_rows(store, keys)
            self._pending += 1
            kill_switch.reached("rows expired, not committed")
            if self._commit_is_due():
                self.commit()
        self.commit()

    def commit(self) -> None:
        """Commit what was processed since the last commit: Kafka first, then every store.

        Raises
        ------
        CommitOutcomeUnknownError
            If Kafka did not answer; the stores are untouched and the next attempt finds out.
        """
        if not self._pending:
            return
        if not self._in_transaction:
            self._writer.begin()
        topology = self.topology
        position = {self._input: self._last_record} if self._last_record >= 0 else {}
        topology.flush(position)
        kill_switch.reached("before the flush")
        delivered = self._commit_offset(CommitMetadata(topology.stream_time, self._stores.stream_times), position)
        kill_switch.reached("Kafka committed, stores not")
        self._in_transaction = False
        self._stores.commit(delivered, position, self._output.take_logged())
        self._pending = 0
        kill_switch.reached("stores committed")
        self._commits += 1
        self._committed = topology.counts
        self._last_commit = time.monotonic()

    def suspend(self) -> None:
        """Stop processing with everything committed; the stores stay open until the task is closed.

        Raises
        ------
        ProcessingError
            If the processor fails to close. What was committed stays so, and its stores are closed like any others.
        InvalidStateError
            If the processor asks in `close` for what only the task may do; likewise.
        """
        self.state = TaskState.SUSPENDED
        try:
            self.topology.close()
        except (ProcessingError, InvalidStateError):
            self._committed_all = True
            raise

    # -- closing --------------------------------------------------------------------------------------------------

    def row(self, before: ProcessRow) -> ProcessRow:
        """Committed results so far, including those of an earlier attempt."""
        lag = max(self._spec.input_end - self._next_offset + self._pending, 0) if self._reached_input else None
        counts = self._committed
        return before.model_copy(
            update={
                "records_in": before.records_in + counts.records_in,
                "records_out": before.records_out + counts.records_out,
                "changelog_records": before.changelog_records + counts.changelog_records,
                "late_records": before.late_records + counts.late,
                "dropped_records": before.dropped_records + counts.dropped,
                "poison_records": before.poison_records + counts.poison,
                "commits": before.commits + self._commits,
                "restored": before.restored + self._stores.restored,
                "lag": lag,
                "never_read": max(before.never_read, self._never_read),
                "moved_from": before.moved_from if self._moved_from is None else self._moved_from,
                "input_offset": None if lag is None or self._pending else self._next_offset,
                "recover_seconds": round(before.recover_seconds + self._recover_s, 3),
                "process_seconds": round(before.process_seconds + self._process_s, 3),
                "stores": self._stores.figures(),
            }
        )

    def _close(self, *, clean: bool) -> None:
        self.state = TaskState.CLOSED
        kill_switch.reached("before close")
        with self._resources as resources:  # the stores are closed first, the rest also if that fails
            resources.callback(self._stores.close, clean=clean)


class _Output:
    """A topology's records on their way to Kafka."""

    def __init__(self, writer: Writer, spec: TaskSpec) -> None:
        self._writer = writer
        self._changelogs = {store.name: spec.changelog(store.name) for store in spec.subtopology.stores}
        self._logged = dict.fromkeys(self._changelogs, 0)

    def take_logged(self) -> dict[str, int]:
        """Return how many records each store has logged since this was asked last."""
        found, self._logged = self._logged, dict.fromkeys(self._changelogs, 0)
        return found

    def send_many(self, records: Sequence[Sent]) -> None:
        self._writer.produce_each(records)
        self._writer.poll()

    def log_many(
        self,
        store: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        count: int | None = None,
    ) -> None:
        topic, partition = self._changelogs[store]
        self._writer.produce_many(topic, partition, keys, values, timestamps, headers, count)
        self._logged[store] += len(keys) if count is None else count
        self._writer.poll()
