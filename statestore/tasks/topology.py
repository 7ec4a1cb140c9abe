"""Runs one subtopology in a task: its processor, its aggregations, and its output to repartition topics.

It knows stores and an output, and nothing of Kafka: a task puts a producer behind the output, a test driver puts lists.
A record that the application's code fails on leaves nothing behind of what failed: what the processor had written is
undone, an aggregation leaves it out. It goes to the dead-letter topic, or ends the task where there is none.
"""

from __future__ import annotations

import sysconfig
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import ProcessingError, StateStoreError
from statestore.model import TaskId, TopicPartition, repartition_topic
from statestore.stores.processor_store import processor_columns, processor_store
from statestore.stores.shortcuts import WriteAccess
from statestore.stores.typed import AnyStore, KeyValueStore
from statestore.tasks.aggregates import load_aggregate
from statestore.tasks.aggregation import Aggregation, aggregation
from statestore.tasks.dead_letters import error_headers
from statestore.tasks.input_records import InputRecords
from statestore.tasks.outgoing import Outgoing, Output, Sent
from statestore.tasks.processor import Headers, Record, load_key, load_processor
from statestore.tasks.processor_context import ProcessorContext, RecordContext
from statestore.tasks.results import Results
from statestore.tasks.timestamp_bounds import ANY_TIMESTAMP, TimestampBounds
from statestore.tasks.user_writes import UserWrites

#: So many records are given to a topology at once; where they are aggregated, a commit that has become due waits for
#: them.
BATCH = 10_000
#: After so many records it is asked whether a commit is due.
_ASK_EVERY = 8
#: So many records, or bytes of them, are given to `process_batch` at most, but for the last part that comes.
_BATCH_RECORDS, _BATCH_BYTES = 500_000, 64 * 1024 * 1024
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


@dataclass
class Counts:
    """Results of a topology.

    Attributes
    ----------
    late
        Records that came after their window or session had closed.
    dropped
        Records without what they are grouped by: a key or a value.
    poison
        Records sent to the dead-letter topic.
    """

    records_in: int = 0
    records_out: int = 0
    changelog_records: int = 0
    late: int = 0
    dropped: int = 0
    poison: int = 0


class Topology:
    """A subtopology with a task's stores.

    Parameters
    ----------
    stores
        The task's stores, open.
    output
        Where records and changes go.
    timestamps
        Which timestamps the topics written to take.
    logs_positions
        Whether the logs of stores carry positions. A test driver's do not, because its user reads them.

    Attributes
    ----------
    stream_time
        Largest timestamp (ms) of all records so far; -1 before the first.
    """

    def __init__(
        self,
        application: ApplicationDefinition,
        task: TaskId,
        stores: Mapping[str, AnyStore],
        output: Output,
        timestamps: TimestampBounds = ANY_TIMESTAMP,
        *,
        logs_positions: bool = False,
    ) -> None:
        self._application = application
        self._task = task
        self._stores = stores
        self._dead_letters = application.dead_letter_topic
        self._timestamps = timestamps
        self._counts = Counts()
        self._dropped = 0
        self._initialized = False
        #: Failures of stores and of the output, and refused calls. They end the task, also if user code has swallowed
        #: them.
        self._failures: list[Exception] = []
        access, self._record = WriteAccess(), RecordContext()
        # In the log of a store with headers, a position would become a part of the row.
        unlogged = {name for name in stores if not application.store(name).logged}
        positions = {
            name: logs_positions and name not in unlogged and not store.layout.keeps_headers
            for name, store in stores.items()
        }
        self._outgoing = Outgoing(output, positions, self._failed, access, unlogged)
        self._writes = UserWrites(self._outgoing, access, timestamps, self._record, self._failed)
        self.stream_time = -1
        part = application.subtopologies[task.subtopology]
        self._processor = None if part.processor is None else load_processor(part.processor)
        self._takes_batches = self._processor is not None and self._processor.process_batch is not None
        self._regrouped = [
            (repartition_topic(application.name, item.store), load_key(item.group_by or "")) for item in part.regrouped
        ]
        self._aggregations: list[Aggregation] = [
            aggregation(
                item,
                load_aggregate(item.aggregate),
                stores[item.store],
                self._forwarding(item.output_topic),
                self._poison_at,
            )
            for item in part.aggregations
        ]
        for name, store in stores.items():
            store.log_changes_to(*self._writes.logging(name, store.layout.keeps_headers), self._writes.check)
            store.tell_failures_to(self._failed)
            if isinstance(store, KeyValueStore):
                store.take_shortcuts(self._outgoing.changes_of(name))
        self._context = self._made_context(application, task)
        #: Records that are aggregated with the next flush: one of them may turn out to be poison.
        self._held: list[InputRecords] = []
        #: Offsets of the dead letters since the last flush.
        self._poisoned: set[int] = set()
        #: Records that wait for `process_batch`.
        self._waiting: list[InputRecords] = []
        #: Offset of the last record for which rows were read ahead.
        self._ahead_to = -1

    def _made_context(self, application: ApplicationDefinition, task: TaskId) -> ProcessorContext:
        """Make what the processor gets: nothing of it leads to this object or to a task's store."""
        open_stores, failed = self._stores, self._failed
        return ProcessorContext(
            application.name,
            str(task),
            {name: processor_store(store, failed) for name, store in open_stores.items()},
            lambda name: processor_columns(open_stores[name], failed),
            application.output_topics,
            self._writes.forwarder(),
            self._record,
        )

    def start(self, stream_time: int) -> None:
        """Begin where earlier runs have ended; stream time is in ms.

        The processor is initialized with the first record: what it writes then needs a transaction and a timestamp.
        """
        self.stream_time = self._record.stream_time = self._record.timestamp = stream_time

    def take_writes_between_records(self) -> None:
        """Let this thread write to the stores also between records. Tests fill stores this way."""
        self._writes.take_always()

    def _initialize(self, first_timestamp: int) -> None:
        self._initialized = True
        processor, context = self._processor, self._context
        if processor is not None:
            self._record.timestamp = self.stream_time if self.stream_time > 0 else first_timestamp
            self._guarded(lambda: processor.init(context), "its init")

    def close(self) -> None:
        """Let the processor go. Everything is committed by then, so it can write nothing any more."""
        self._writes.close()
        if self._processor is not None and self._initialized:
            self._guarded(self._processor.close, "its close")

    @property
    def commit_requested(self) -> bool:
        """Whether the processor has asked for a commit since the last one."""
        return self._record.commit_requested

    @property
    def counts(self) -> Counts:
        """Results so far."""
        late = sum(item.late_records for item in self._aggregations)
        dropped = self._dropped + sum(item.dropped_records for item in self._aggregations)
        sent, logged = self._outgoing.sent - self._counts.poison, self._outgoing.logged
        return replace(self._counts, late=late, dropped=dropped, records_out=sent, changelog_records=logged)

    @property
    def pending_bytes(self) -> int:
        """Memory held by records that wait for the next flush, and what it takes."""
        return sum(item.pending_bytes for item in self._aggregations) + self._waiting_bytes

    # -- processing -----------------------------------------------------------------------------------------------

    def process(self, records: InputRecords, commit_is_due: Callable[[], bool]) -> int:
        """Process records in their order, until there is none left or a commit is due; return how many were taken."""
        with self._logging_what_is_written():
            with self._writes.taken():
                taken = self._take(records, commit_is_due)
            self._outgoing.hand_on()
        self._counts.records_in += taken
        return taken

    @contextmanager
    def _logging_what_is_written(self) -> Iterator[None]:
        """Log what a store has by now also where a task ends by a failure: at least once, it stays in the store."""
        try:
            yield
        except Exception:
            if self._application.processing_guarantee == "at_least_once":
                with suppress(StateStoreError, OSError):  # the failure that ends the task is told
                    self._outgoing.hand_on()
            raise

    def _take(self, records: InputRecords, commit_is_due: Callable[[], bool]) -> int:
        timestamps = records.timestamps
        refused = self._timestamps.first_refused(timestamps)
        if refused is not None:
            first, error = refused
            if first == 0:
                self._poison(records.part(0, 1).records[0], error)
                return 1
            records, timestamps = records.part(0, first), timestamps[:first]
        before, taken = self.stream_time, len(records)
        if self._regrouped or not (self._processor is None or self._takes_batches):
            taken = self._process_each(records, commit_is_due)
        else:
            self.stream_time = max(before, int(timestamps.max()))
        if taken < len(records):
            records = records.part(0, taken)
        if self._takes_batches:
            self._wait_for_batch(records)
        if self._aggregations:
            if self._dead_letters is not None:
                self._held.append(records)
            for item in self._aggregations:
                item.add(records.columns, before)
        return taken

    def flush(self, position: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        """Bring what is aggregated into the stores, and log all changes; call it before each commit.

        Parameters
        ----------
        position
            Offset of the last record that was processed, by input partition; empty if it is unknown.
        """
        with self._logging_what_is_written():
            with self._writes.taken():
                self._process_waiting()
            with self._writes.refused():
                for item in self._aggregations:
                    item.flush()
            self._outgoing.finish(position)
        self._held = []
        self._poisoned.clear()
        self._raise_swallowed()
        self._record.commit_requested = False

    def delete_rows(self, store: str, keys: Sequence[bytes]) -> None:
        """Delete rows of a store between records, and forward that like any result of an aggregation."""
        part = self._application.subtopologies[self._task.subtopology]
        topic = next((item.output_topic for item in part.aggregations if item.store == store), None)
        timestamps = [self._timestamps.nearest(self.stream_time)] * len(keys)
        with self._logging_what_is_written():
            with self._writes.refused():
                results = Results(self._stores[store], self._forwarding(topic))
                results.write(keys, [None] * len(keys), timestamps, timestamps)
            self._outgoing.hand_on()
        self._raise_swallowed()

    def _process_each(self, records: InputRecords, commit_is_due: Callable[[], bool]) -> int:
        if not self._initialized:
            self._initialize(int(records.timestamps[0]))
        self._read_ahead(records)
        context, now, schedules, failures = self._context, self._record, self._record.schedules, self._failures
        undoable, run_undoably = self._dead_letters is not None, self._run_undoably
        run: Callable[[Record, ProcessorContext], None] = self._run
        if self._processor is not None and self._processor.process is not None and not self._regrouped:
            run = self._processor.process
        stream_time = self.stream_time
        for taken, record in enumerate(records.records, start=1):
            timestamp = now.timestamp = record.timestamp
            now.headers = record.headers
            moved = timestamp > stream_time
            if moved:
                stream_time = self.stream_time = now.stream_time = timestamp
            if undoable:
                run_undoably(record)
            else:
                try:
                    run(record, context)
                except Exception as error:  # the application's own code may raise anything
                    self._raise_own(error)
                    self._poison(record, error)
            if failures:
                self._raise_swallowed()
            if moved and schedules and not self._takes_batches:
                now.headers = ()
                self._guarded(lambda: schedules.advance(self.stream_time), "its punctuation")
            if now.commit_requested or (taken % _ASK_EVERY == 0 and commit_is_due()):
                return taken
        return len(records)

    def _read_ahead(self, records: InputRecords) -> None:
        """Read what the processor is likely to ask for: rows by the keys of the records, of each record once."""
        last = int(records.offsets[-1])
        if self._processor is None or self._takes_batches or last <= self._ahead_to:
            return
        self._ahead_to = last
        for store in self._stores.values():
            if isinstance(store, KeyValueStore):
                store.read_ahead(record.key for record in records.records)

    def _run(self, record: Record, context: ProcessorContext) -> None:
        if self._processor is not None and self._processor.process is not None:
            self._processor.process(record, context)
        for topic, key_of in self._regrouped:
            if record.value is None:
                self._dropped += 1
                continue
            key = key_of(record)
            if key is None:
                continue
            if not isinstance(key, bytes):
                raise TypeError(f"group_by returns bytes or None, found {type(key).__name__}")
            self._send(topic, key, record.value, record.timestamp, record.headers)

    def _run_undoably(self, record: Record) -> None:
        error = self._attempt(lambda: self._run(record, self._context))
        if error is not None:
            self._poison(record, error)

    def _attempt(self, call: Callable[[], None]) -> Exception | None:
        """Call the application's code. If it fails, undo what it did, and return why."""
        dropped, stores, outgoing = self._dropped, self._stores.values(), self._outgoing
        outgoing.begin_record()
        for store in stores:
            store.begin_record()
        try:
            call()
        except Exception as error:  # the application's own code may raise anything
            self._raise_own(error)
            for store in stores:
                store.undo_record()
            outgoing.take_back()
            self._dropped = dropped
            return error
        self._raise_swallowed()
        for store in stores:
            store.end_record()
        outgoing.end_record()
        return None

    # -- many records at once -------------------------------------------------------------------------------------

    def _wait_for_batch(self, records: InputRecords) -> None:
        """Collect records until there are many, or until a commit."""
        if not self._initialized:
            self._initialize(int(records.timestamps[0]))
        self._waiting.append(records)
        if sum(map(len, self._waiting)) >= _BATCH_RECORDS or self._waiting_bytes >= _BATCH_BYTES:
            self._process_waiting()

    @property
    def _waiting_bytes(self) -> int:
        return sum(int(records.columns.nbytes) for records in self._waiting)

    def _process_waiting(self) -> None:
        if not self._waiting:
            return
        batch = InputRecords.joined(self._waiting)
        self._waiting = []
        now, schedules = self._record, self._record.schedules
        now.stream_time = now.timestamp = max(now.stream_time, int(batch.timestamps.max()))
        now.headers = ()
        self._process_batch(batch)
        if schedules:
            self._guarded(lambda: schedules.advance(now.stream_time), "its punctuation")

    def _process_batch(self, batch: InputRecords) -> None:
        """Process a batch; if that fails, its halves, until it is known which records are poison."""
        assert self._processor is not None
        process_batch, context = self._processor.process_batch, self._context
        assert process_batch is not None
        if self._dead_letters is None:
            try:
                process_batch(batch.copy(), context)
            except Exception as error:  # the application's own code may raise anything
                self._raise_own(error)
                first, last = batch.offsets[[0, -1]].tolist()
                where = f"{batch.topic}-{batch.partition}@{first} to {last}"
                raise self._processing_error(where, error, "a record of") from error
            self._raise_swallowed()
            return
        failed = self._attempt(lambda: process_batch(batch.copy(), context))
        if failed is None:
            return
        if len(batch) == 1:
            self._poison(batch.records[0], failed)
            return
        half = len(batch) // 2
        self._process_batch(batch.part(0, half))
        self._process_batch(batch.part(half))

    def _guarded(self, call: Callable[[], None], what: str) -> None:
        try:
            call()
        except Exception as error:  # the application's own code may raise anything
            self._raise_own(error)
            raise ProcessingError(
                f"{self._application.name} task {self._task}: the processor failed in {what}: "
                f"{type(error).__name__}: {error}"
            ) from error
        self._raise_swallowed()

    def _failed(self, error: Exception) -> None:
        """Note a failure of ours before it is raised. User code may swallow it, but writes nothing after it.

        At least once, such a write would be logged when the task ends, and would then replace the right value.
        """
        self._failures.append(error)
        self._writes.stop(error)

    def _raise_own(self, error: Exception) -> None:
        """Raise a failure of ours, also if user code has caught it and then raised an error of its own."""
        if self._failures and self._failures[0] is not error:
            raise self._failures[0] from error
        if isinstance(error, StateStoreError) or self._failures:
            raise error

    def _raise_swallowed(self) -> None:
        """Raise a failure of ours that user code has caught. What it did since then rests on a wrong answer."""
        if self._failures:
            raise self._failures[0]

    # -- poison ---------------------------------------------------------------------------------------------------

    def _poison_at(self, offset: int, error: Exception) -> None:
        """Take a record out that an aggregation failed on."""
        if self._dead_letters is None:
            part = self._application.subtopologies[self._task.subtopology]
            raise self._processing_error(f"{part.input_topic}-{self._task.partition}@{offset}", error) from error
        index = bisect_right(self._held, offset, key=lambda records: int(records.offsets[0])) - 1
        self._poison(self._held[index].at_offset(offset), error)

    def _poison(self, record: Record, error: Exception) -> None:
        if self._dead_letters is None:
            raise self._processing_error(f"{record.topic}-{record.partition}@{record.offset}", error) from error
        if record.offset in self._poisoned:  # several aggregations, or a processor and an aggregation, fail on it
            return
        self._poisoned.add(record.offset)
        self._counts.poison += 1
        timestamp = self._timestamps.nearest(record.timestamp, self.stream_time)
        headers = error_headers(record, error)
        self._outgoing.send(Sent(self._dead_letters, record.key, record.value, timestamp, headers))

    def _processing_error(self, where: str, error: Exception, what: str = "record") -> ProcessingError:
        frames = traceback.extract_tb(error.__traceback__)
        # Where in the application's own code, not in a library that it calls.
        own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
        line = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
        return ProcessingError(
            f"{self._application.name} task {self._task}, {what} {where}: {type(error).__name__}: {error}{line}; fix "
            f"the application's code, name a dead_letter_topic in its definition, or move the group's offset past it"
        )

    # -- output ---------------------------------------------------------------------------------------------------

    def _send(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()) -> None:
        self._outgoing.send(Sent(topic, key, value, timestamp, headers))

    def _forwarding(self, topic: str | None) -> Any:
        if topic is None:
            return None

        def forward(keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]) -> None:
            for key, value, timestamp in zip(keys, values, timestamps, strict=True):
                self._send(topic, key, value, timestamp)

        return forward
