"""The life of one task: lock, open, fence, recover, process, commit, close.

The commit order is Kafka first, then the stores, so after a crash a store can only be behind its changelog, and the
next run replays what is missing. Fencing comes before the ends of the changelogs and the group's offset are read:
whatever a former attempt had in flight is settled by then.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from confluent_kafka import Message

from statestore.changelog.group import ConsumerGroup
from statestore.changelog.reader import LogReader, first_offset
from statestore.changelog.standing import Standing, standing
from statestore.changelog.topics import LogRange, Topics
from statestore.changelog.writer import TransactionalWriter
from statestore.durable import remove_durably
from statestore.errors import (
    ChangelogReplacedError,
    InputOffsetError,
    OpenTransactionError,
    ProcessingError,
    RebuildError,
    StateStoreError,
    StoreAheadError,
    StoreBehindLogStartError,
    StoreStaleError,
    of_os_error,
)
from statestore.model import StorePartition, TopicPartition, transactional_id
from statestore.reports import Action, Failure, ProcessRow, Status, StoreFigures
from statestore.statedir.context import forget_mode, remember_mode, store_context
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.lock import locked
from statestore.statedir.record import read_record, write_record
from statestore.statedir.seal import break_seal, check_seal, forget_digests, seal
from statestore.statedir.swap import finish_swaps
from statestore.stores.open import build_store
from statestore.stores.typed import AnyStore, ChangeLog
from statestore.tasks.processor import ProcessorContext, Record, load_processor
from statestore.tasks.replay import replay
from statestore.tasks.spec import TaskSpec

_POLL_EVERY = 1_000
_PAUSE_S = 0.1
_ERRORS: dict[Status, type[RebuildError]] = {
    Status.AHEAD: StoreAheadError,
    Status.REPLACED: ChangelogReplacedError,
    Status.TRUNCATED: StoreBehindLogStartError,
    Status.LAGGING: StoreStaleError,
}


def run_task(spec: TaskSpec) -> ProcessRow:
    """Process the task's input up to its end; a failure of ours becomes part of the row, so that others go on."""
    started = time.monotonic()
    row = ProcessRow(application=spec.application.name, task=str(spec.task))
    task: StreamTask | None = None
    failure: Failure | None = None
    try:
        with locked(spec.paths, spec.lock_wait_s):
            finish_swaps(spec.paths)
            with StreamTask(spec) as task:
                task.recover()
                task.process()
    except StateStoreError as error:
        failure = Failure.of(error)
    except OSError as error:
        failure = Failure.of(of_os_error(error))
    if task is not None:
        row = task.row()
    return row.model_copy(update={"failure": failure, "seconds": round(time.monotonic() - started, 3)})


class StreamTask:
    """One task with its stores open. Use it under the task's lock, as a context manager.

    Raises
    ------
    RebuildError
        If a store cannot be used as it is.
    """

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._name = spec.application.name
        self._input = spec.input
        self._process = load_processor(spec.application.processor)
        self._changelogs = {
            store.name: StorePartition(self._name, store.name, spec.task).changelog for store in spec.application.stores
        }
        self._stores: dict[str, AnyStore] = {}
        self._next_offset = 0
        self._last_record = -1
        self._pending = 0
        self._in_transaction = False
        self._last_commit = time.monotonic()
        self._counts = dict.fromkeys(("records_in", "records_out", "changelog_records", "commits"), 0)
        self._restored: dict[str, int] = {}
        self._uncommitted = dict.fromkeys(("records_in", "records_out", "changelog_records"), 0)
        self._reached_input = False
        self._resources = ExitStack()
        try:
            self._open_stores()
            self._writer = TransactionalWriter(
                spec.bootstrap_servers,
                transactional_id(self._name, spec.task),
                spec.kafka_timeout_s,
                # Twice the interval leaves room for the commit itself; brokers allow 15 minutes by default.
                min(max(60_000, 2 * spec.application.commit_interval_ms), 900_000),
            )
            self._group = self._resources.enter_context(
                ConsumerGroup(spec.bootstrap_servers, self._name, spec.kafka_timeout_s)
            )
        except BaseException:
            self._close(clean=False)
            raise
        self._context = ProcessorContext(
            self._name, str(spec.task), self._stores, tuple(spec.application.output_topics), self._forward
        )

    def __enter__(self) -> StreamTask:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None:
            self._writer.abort()
        self._close(clean=error_type is None)

    # -- opening and recovery -------------------------------------------------------------------------------------

    def _open_stores(self) -> None:
        paths, application = self._spec.paths, self._spec.application
        migrated = legacy_offsets(paths)
        context = store_context(
            paths,
            [definition.name for definition in application.stores],
            # A commit comes first; only what a single record writes far beyond the bound spills.
            uncommitted_max_bytes=4 * application.uncommitted_max_bytes,
            recording_level=self._spec.recording_level,
            opening=self._about_to_open,
        )
        for definition in application.stores:
            if paths.store(definition.name).exists() and not check_seal(paths, definition.name):
                forget_digests(paths, definition.name)  # somebody else may have built it anew
            store = build_store(definition)
            self._stores[definition.name] = store
            store.init(context)
            changelog = self._changelogs[definition.name]
            offset = migrated.get(changelog)
            if offset is not None and not store.is_empty:
                store.commit({changelog: offset})
                store.sync()
        remove_durably(paths.checkpoint)

    def _about_to_open(self, name: str) -> None:
        remember_mode(self._spec.paths, name, transactional=self._stores[name].transactional)
        break_seal(self._spec.paths, name)

    def recover(self) -> None:
        """Fence earlier attempts, bring every store to the end of its changelog, and find the input position.

        Raises
        ------
        RebuildError
            If a store cannot catch up by replay; verification and restore take care of it.
        InputOffsetError
            If the group has no input offset although there is state.
        """
        self._writer.init()
        spec = self._spec
        topics = Topics(spec.bootstrap_servers, spec.kafka_timeout_s)
        ranges = self._settled_ranges(topics)
        for name, store in self._stores.items():
            self._catch_up(name, store, ranges[self._changelogs[name]])
        self._find_input_position(ranges[self._input])

    def _settled_ranges(self, topics: Topics) -> dict[TopicPartition, LogRange]:
        """Wait until no transaction hides the end of a changelog: a replay would stop before it and miss the rest.

        Our own were settled by `init`, but their markers may come a moment later; a foreign one may hang.
        """
        deadline = time.monotonic() + self._spec.kafka_timeout_s
        while True:
            ranges = topics.log_ranges([self._input, *self._changelogs.values()])
            hidden = [
                name for name in self._changelogs.values() if ranges[name].last_stable < ranges[name].high_watermark
            ]
            if not hidden:
                return ranges
            if time.monotonic() > deadline:
                stuck, log = hidden[0], ranges[hidden[0]]
                raise OpenTransactionError(
                    f"{stuck}: a transaction is open from offset {log.last_stable} on, the log ends at "
                    f"{log.high_watermark}; wait for its timeout, or find and abort it with kafka-transactions"
                )
            time.sleep(_PAUSE_S)  # nothing announces that a transaction has ended

    def _catch_up(self, name: str, store: AnyStore, log: LogRange) -> None:
        spec, changelog = self._spec, self._changelogs[name]
        topic_id = spec.changelogs[name].topic_id
        record = read_record(spec.paths, name)
        store.recover(log.last_stable - 1)
        committed = store.committed_offset(changelog)
        found = standing(
            committed,
            log,
            empty=store.is_empty,
            topic_id=topic_id,
            recorded_topic_id=record.topic_id if record else None,
            caught_up_ms=record.whole_ms(committed) if record else None,
            delete_retention_ms=spec.changelogs[name].delete_retention_ms,
            now_ms=int(time.time() * 1000),
        )
        start = log.start if committed is None else committed + 1
        if found.action is Action.TAIL:
            with LogReader(spec.bootstrap_servers, changelog, stall_timeout_s=spec.kafka_timeout_s) as reader:
                self._restored[name] = replay(store, reader, start, log.last_stable).records
            store.sync()
        elif found.action is not Action.NONE and not (
            found.status is Status.LAGGING and committed is not None and self._nothing_left(changelog, start, log)
        ):
            self._refuse(name, found)
        write_record(spec.paths, name, topic_id, store.committed_offset(changelog))

    def _nothing_left(self, changelog: TopicPartition, start: int, log: LogRange) -> bool:
        spec = self._spec
        return first_offset(spec.bootstrap_servers, changelog, start, log.last_stable, spec.kafka_timeout_s) is None

    def _refuse(self, name: str, found: Standing) -> None:
        error = _ERRORS.get(found.status, RebuildError)
        raise error(
            f"store {name} of {self._name} task {self._spec.task} is {found.status}: {found.detail}; "
            "run verify and restore for it"
        )

    def _find_input_position(self, log: LogRange) -> None:
        offset = self._group.next_offset(self._input)
        if offset is None:
            holding = [
                name
                for name, store in self._stores.items()
                if store.committed_offset(self._changelogs[name]) is not None
            ]
            if holding:
                raise InputOffsetError(
                    f"group {self._name} has no committed offset for {self._input}, but {', '.join(holding)} holds "
                    "state: the offset has expired or was deleted; set it to where processing is to go on "
                    "(kafka-consumer-groups --reset-offsets), or reset the application"
                )
            offset = log.start
        if not log.start <= offset <= log.high_watermark:
            raise InputOffsetError(
                f"group {self._name} is to read {self._input} from offset {offset}, the log has "
                f"{log.start} to {log.high_watermark}: the input was deleted or recreated; "
                "set the group's offset to where processing is to go on"
            )
        self._next_offset = offset
        self._reached_input = True

    # -- processing -----------------------------------------------------------------------------------------------

    def process(self) -> None:
        """Process the input up to the end given in the spec, committing on the way and at the end."""
        spec = self._spec
        interval_s = spec.application.commit_interval_ms / 1000
        for name, store in self._stores.items():
            store.log_changes_to(self._changelog_writer(self._changelogs[name]))
        with LogReader(spec.bootstrap_servers, self._input, stall_timeout_s=spec.kafka_timeout_s) as reader:
            for messages in reader.read_messages(self._next_offset, spec.input_end):
                for message in messages:
                    self._process_one(message)
                    staged = sum(store.staged_bytes for store in self._stores.values())
                    if (
                        staged >= spec.application.uncommitted_max_bytes
                        or time.monotonic() - self._last_commit >= interval_s
                    ):
                        self.commit()
        if self._next_offset < spec.input_end:  # markers at the end are read, too
            self._next_offset = spec.input_end
            self._pending += 1
        self.commit()

    def _process_one(self, message: Message) -> None:
        if not self._in_transaction:
            self._writer.begin()
            self._in_transaction = True
            self._last_commit = time.monotonic()
        record = Record(
            self._input.topic,
            self._input.partition,
            message.offset(),
            message.key(),
            message.value(),
            message.timestamp()[1],
            tuple(message.headers() or ()),
        )
        where = f"{self._name} task {self._spec.task}, record {self._input}@{record.offset}"
        if record.timestamp <= 0:  # librdkafka would log 0 as the time of now, and a restored store would differ
            raise ProcessingError(
                f"{where}: its timestamp is {record.timestamp}, expected milliseconds since 1970 above 0; "
                "produce it with one, or move the group's offset past it"
            )
        self._context.timestamp = record.timestamp
        try:
            self._process(record, self._context)
        except StateStoreError:
            raise
        except Exception as error:  # the application's own code may raise anything
            raise ProcessingError(f"{where}: the processor failed with {type(error).__name__}: {error}") from error
        self._last_record = record.offset
        self._next_offset = record.offset + 1
        self._pending += 1
        self._uncommitted["records_in"] += 1
        if self._pending % _POLL_EVERY == 0:
            self._writer.poll()

    def commit(self) -> None:
        """Commit what was processed since the last commit: Kafka first, then every store.

        Raises
        ------
        CommitOutcomeUnknownError
            If Kafka did not answer; the stores are untouched and the next run finds out.
        """
        if not self._pending:
            return
        if not self._in_transaction:
            self._writer.begin()
        delivered = self._writer.flush()
        self._writer.send_offsets(self._name, {self._input: self._next_offset}, self._group.metadata())
        self._writer.commit()
        self._in_transaction = False
        self._commit_stores(delivered, {self._input: self._last_record})
        self._pending = 0
        self._counts["commits"] += 1
        for name, count in self._uncommitted.items():
            self._counts[name] += count
            self._uncommitted[name] = 0
        self._last_commit = time.monotonic()

    def _commit_stores(self, delivered: dict[TopicPartition, int], position: dict[TopicPartition, int]) -> None:
        """Commit every store, also if one of them fails; raise the first failure (conformance R12)."""
        first: StateStoreError | None = None
        for name, store in self._stores.items():
            changelog = self._changelogs[name]
            if changelog not in delivered and not store.staged_bytes:  # a lazy migration is staged, but not logged
                continue
            try:
                store.commit({changelog: delivered[changelog]} if changelog in delivered else {}, position)
            except StateStoreError as error:
                first = first or error
        if first is not None:
            raise first

    def _changelog_writer(self, changelog: TopicPartition) -> ChangeLog:
        def log(key: bytes, value: bytes | None, timestamp: int | None) -> None:
            at = self._context.timestamp if timestamp is None else timestamp
            self._writer.produce(changelog.topic, key, value, at, changelog.partition)
            self._uncommitted["changelog_records"] += 1

        return log

    def _forward(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        self._writer.produce(topic, key, value, timestamp)
        self._uncommitted["records_out"] += 1

    # -- closing --------------------------------------------------------------------------------------------------

    def row(self) -> ProcessRow:
        """What was done and committed so far."""
        lag = max(self._spec.input_end - self._next_offset + self._pending, 0) if self._reached_input else None
        return ProcessRow(
            application=self._name,
            task=str(self._spec.task),
            lag=lag,
            restored=sum(self._restored.values()),
            stores=tuple(self._figures(store) for store in self._stores.values()),
            **self._counts,
        )

    def _figures(self, store: AnyStore) -> StoreFigures:
        commits, restores = store.metrics.figures("commit"), store.metrics.figures("restore")
        return StoreFigures(
            store=store.name,
            commits=commits.count,
            commit_latency_avg_ms=round(commits.latency_avg / 1e6, 3),
            commit_latency_max_ms=round(commits.latency_max / 1e6, 3),
            restored=self._restored.get(store.name, 0),
            restore_seconds=round(restores.count * restores.latency_avg / 1e9, 3),
            expired=store.expired_records,
        )

    def _close(self, *, clean: bool) -> None:
        committed = (
            {name: store.committed_offset(self._changelogs[name]) for name, store in self._stores.items()}
            if clean
            else {}
        )
        with self._resources as resources:  # every store is closed, also if closing one fails
            for store in self._stores.values():
                resources.callback(store.close, clean=clean)
        for name, offset in committed.items():
            forget_mode(self._spec.paths, name)
            write_record(self._spec.paths, name, self._spec.changelogs[name].topic_id, offset)
            seal(self._spec.paths, name)
