"""One store of a task: opened, brought to the end of its changelog, rebuilt if it cannot be used, and recorded.

A store that cannot be used as it is, such as one left open without transactions, is rebuilt from its changelog
(conformance T13). Its successor is built beside it, as a restore does it, and takes its place when it is whole; the
store goes to quarantine. It is not replaced if its changelog has lost what it had.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, NoReturn

from statestore import kill_switch
from statestore.advice import message
from statestore.changelog.standing import next_offset
from statestore.durable import remove_durably, remove_tree
from statestore.errors import (
    ArchiveAccessError,
    ArchiveUnavailableError,
    ChangelogReplacedError,
    RebuildError,
    StoreAheadError,
    StoreBehindLogStartError,
)
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.partition.advice import advise, lost_logs
from statestore.partition.archived import had_by_archive
from statestore.partition.facts import NO_ARCHIVE, DiskFacts, Facts, LastKnown, LogFacts, Question, RebuildLoss
from statestore.partition.inspection import inspect, known_of_store
from statestore.partition.needed_offsets import advanced_need, recorded_need
from statestore.partition.plan import Plan, Request, plan
from statestore.partition.replacement import require_tombstones
from statestore.partition.restore_point_advice import DECIDED_BY_SNAPSHOTS, with_restore_point
from statestore.partition.restore_points import restore_points
from statestore.partition.spec import on_this_disk
from statestore.partition.verdict import Verdict, judge, with_loss
from statestore.reports import Action, Advice, Loss, Status, StoreFigures
from statestore.statedir.context import forget_mode, store_context
from statestore.statedir.record import (
    ExpiryCursor,
    StoreRecord,
    read_record,
    seen_end,
    write_record,
)
from statestore.statedir.seal import break_seal, check_seal, forget_digests, seal
from statestore.statedir.sidecar import Judgement
from statestore.statedir.swap import swap
from statestore.stores.open import build_store
from statestore.stores.rocksdb_options import ConfigSetter
from statestore.stores.serdes import load_serde
from statestore.stores.typed import AnyStore
from statestore.tasks.expiry import LEAST_RECORDS, PER_LOGGED, is_due, is_old, pass_records, returned
from statestore.tasks.spec import TaskSpec
from statestore.tasks.staged_store import StagedStore, build_staged, known_stream_time
from statestore.tasks.task_changelogs import ChangelogEnd, TaskChangelogs
from statestore.tasks.task_sources import TASK_SOURCES
from statestore.verification.gathering import Answer, resolve

_log = logging.getLogger(__name__)

#: Name in quarantine of what a task has replaced.
_QUARANTINED_AS = "process"
#: As what a task refuses to rebuild a store, unasked, whose changelog may have lost something that it has.
_REFUSED: dict[Status, type[RebuildError]] = {
    Status.AHEAD: StoreAheadError,
    Status.REPLACED: ChangelogReplacedError,
    Status.TRUNCATED: StoreBehindLogStartError,
}


class _Before(NamedTuple):
    """State of a store before this run, from its record.

    Attributes
    ----------
    needed_from
        First offset that a rebuild needs.
    adopted
        It was there before its first record.
    stream_time
        Largest timestamp (ms) of its rows.
    at_least_once
        It was written at least once.
    """

    needed_from: int | None
    adopted: bool = False
    stream_time: int | None = None
    at_least_once: bool = False


class TaskStore:
    """One store of a task, under the task's lock.

    Attributes
    ----------
    store
        The store itself; another one after a rebuild.
    changelog
        Its changelog partition.
    damage
        Why it could not be opened; None: it is open, or was rebuilt.
    committed
        Offset that this run has committed in it; None: nothing.
    logged
        Records that this run has committed in its changelog.
    caught_up_ms
        Time of the brokers at which it was last known to have all of its log, ms since the epoch.
    is_untouched
        Whether the store was sealed when this run opened it, and nothing was written to it since.
    """

    def __init__(
        self, spec: TaskSpec, name: str, changelogs: TaskChangelogs, config_setter: ConfigSetter | None
    ) -> None:
        self._task = spec
        self._spec = spec.store_partition(name)
        self._name = name
        self._changelogs = changelogs
        self._config_setter = config_setter
        self._restored = 0
        self._restore_ns = 0.0
        self._deleted = 0
        self._is_new = False
        self._rebuilt: str | None = None
        self._end = ChangelogEnd()
        self._before = _Before(None)
        self._expiry: ExpiryCursor | None = None
        self.store: AnyStore = self._build()
        self.changelog = self._spec.partition
        self.damage: RebuildError | None = None
        self.committed: int | None = None
        self.logged = 0
        self.caught_up_ms = 0
        self.is_untouched = False

    def _build(self) -> AnyStore:
        definition = self._spec.store
        return build_store(definition, load_serde(definition.key_serde), load_serde(definition.value_serde))

    # -- opening --------------------------------------------------------------------------------------------------

    def open(self, legacy_offset: int | None, *, read_in_full: bool) -> None:
        """Open the store; one that cannot be used is closed again, and `damage` says why.

        Parameters
        ----------
        legacy_offset
            Its offset in the legacy checkpoint file, which it takes over.
        read_in_full
            Read every row: something in one of the task's stores could not be read, and it is not known where.
        """
        paths, definition = self._spec.paths, self._spec.store
        try:
            there = self.store.persistent and self._spec.live.exists()
            self._is_new = self.store.persistent and not there
            if not there:
                for of_lost in (paths.offsets(self._name), paths.snapshot(self._name)):
                    remove_durably(of_lost)
            sealed = there and check_seal(paths, self._name, definition.store_kind) is not None
            if there and not sealed:
                forget_digests(paths, self._name)  # somebody else may have built it anew
            self._init(legacy_offset)
            self.is_untouched = sealed and legacy_offset is None
            if read_in_full:
                for _ in self.store.all():
                    pass
        except RebuildError as error:
            self.store.close(clean=False)
            self.damage = error

    def _init(self, legacy_offset: int | None = None) -> None:
        self.store.init(
            store_context(
                self._spec.paths,
                # A commit comes first; only what a single record writes far beyond the bound spills.
                uncommitted_max_bytes=4 * self._task.application.uncommitted_max_bytes,
                recording_level=self._task.recording_level,
                opening=lambda store: break_seal(self._spec.paths, store),
                changelogs={self._name: (self.changelog,)},
                exactly_once=self._spec.exactly_once,
                logged=self._spec.store.logged,
                config_setter=self._config_setter,
            )
        )
        if legacy_offset is not None and not self.store.is_empty:
            self.store.commit({self.changelog: legacy_offset}, {})
            kill_switch.reached("legacy offset taken over, not on disk")
            self.store.sync()

    # -- recovery -------------------------------------------------------------------------------------------------

    @property
    def record(self) -> StoreRecord | None:
        """Its record; None if there is none."""
        return read_record(self._spec.paths, self._name, in_memory=not self.store.persistent)

    def write_record(self, record: StoreRecord) -> None:
        """Replace its record."""
        write_record(self._spec.paths, self._name, record, in_memory=not self.store.persistent)

    def recover(self, log: LogRange, end: ChangelogEnd, cut: int | None, asked_ms: int) -> None:
        """Bring the store to the end of its changelog; rebuild it if it cannot be used as it is.

        Parameters
        ----------
        cut
            Offset at which the changelog was cut since the store was recorded; None: it was not.
        asked_ms
            Time of the brokers before `log` was asked for.

        Raises
        ------
        RebuildError
            If it cannot catch up, and its changelog may have lost what it has.
        """
        self._expiry = self._recorded_expiry(cut)
        reason = self.damage or self._catch_up(log, cut, asked_ms)
        if reason is not None:
            if self.store.is_open:
                self.store.close(clean=False)
            self._rebuild(reason, log, cut, asked_ms)
        self.damage = None
        self._end = end
        self.caught_up_ms = asked_ms
        self.write_record(self.known().model_copy(update={"caught_up_ms": asked_ms}))
        self.store.metrics.begin_processing()

    def _catch_up(self, log: LogRange, cut: int | None, asked_ms: int) -> RebuildError | None:
        """Bring a store that can be used to the end of its changelog; say why it has to be rebuilt instead."""
        store, topic, record = self.store, self._task.changelogs[self._name], self.record
        offset = store.committed_offset(self.changelog)
        if store.transactional and not store.recover(offset):
            return RebuildError(
                f"store {self._name} reports that it cannot be set to its state at committed offset {offset}"
            )
        committed, empty = store.committed_offset(self.changelog), store.is_empty
        begins = committed is None and empty
        known = known_of_store(record, committed, anything=not begins)
        disk = DiskFacts(True, committed, empty, record, known=known, has_database=True)
        made, verdict, loss = self._decide(disk, log, cut, asked_ms, if_unusable=True)
        if made is None:
            if begins:
                self.store.close(clean=False)
                self._discard_new(record)
            self._refuse(verdict, loss)
        self._before = _Before(log.start) if begins else _before(record, log)
        if made.source is None:
            return None
        if begins:
            self._begin(record, loss, log, asked_ms)
            return None
        if made.source != "tail":
            return RebuildError(verdict.detail)
        start = log.start
        if committed is not None:
            start = next_offset(committed, seen_end(record, committed))
        self.is_untouched = False
        self._restored = self._changelogs.replay(store, self.changelog, start, log)
        if committed is not None and record is not None and topic.compacted and self._spec.store.compaction_keeps_rows:
            whole_ms = record.whole_ms(committed, self._changelogs.now_ms()) or 0
            if self._changelogs.now_ms() - whole_ms >= topic.delete_retention_ms > 0:
                return RebuildError("replaying its tail took longer than its changelog keeps tombstones")
        return None

    def _decide(
        self, disk: DiskFacts, log: LogRange, cut: int | None, asked_ms: int, *, if_unusable: bool = False
    ) -> tuple[Plan | None, Verdict, RebuildLoss]:
        """Judge the store, and plan what a task does with it unasked; None if it refuses.

        Parameters
        ----------
        if_unusable
            Determine the loss only if the store cannot be used.

        Returns
        -------
        Plan or None
            The plan for the store.
        Verdict
            The store's status, with the evidence.
        RebuildLoss
            The loss by a rebuild from its log.
        """
        spec = on_this_disk(self._spec)
        disk = disk._replace(known=disk.known._replace(in_memory=not self.store.persistent))
        logs = LogFacts(spec.changelog, log, cut, asked_ms=asked_ms, all_logs={self.changelog: log})
        facts = Facts(spec, disk, self._changelogs.now_ms(), logs, archive=NO_ARCHIVE)
        cluster = spec.cluster
        [(facts, verdict)] = resolve([facts], partial(judge, if_unusable=if_unusable), cluster, self._answers())
        loss = verdict.loss or RebuildLoss(Loss.NONE)
        made = plan(facts, verdict, Request(accept_loss=self._accepts_loss), TASK_SOURCES)
        return made if isinstance(made, Plan) else None, verdict, loss

    def _answers(self) -> dict[Question, Answer]:
        """Return how questions about the store are answered during a task."""

        def last_known(asked: Sequence[Facts], cluster: Cluster) -> Iterable[Facts]:
            [facts] = asked
            log = facts.asked_log
            found = self._had_elsewhere(log.log)
            if found is None:
                return [facts._replace(elsewhere=True)]
            cut = self._changelogs.cuts({self.changelog: found.record}).get(self.changelog)
            known = found._replace(in_memory=facts.disk.known.in_memory)
            disk = facts.disk._replace(record=found.record, known=known)
            return [facts._replace(disk=disk, log=log._replace(cut_at=cut), elsewhere=True)]

        return {**self._changelogs.answers, Question.LAST_KNOWN: last_known}

    def _begin(self, record: StoreRecord | None, lost: RebuildLoss, log: LogRange, asked_ms: int) -> None:
        """Give a store that has nothing its whole changelog; on disk it takes its place only when it is whole."""
        if not self.store.persistent:
            self._restored = self._changelogs.replay(self.store, self.changelog, log.start, log)
            require_tombstones(self._spec, asked_ms, self._changelogs.now_ms(), "raise that setting")
            return
        self.store.close(clean=True)
        staged = build_staged(self._spec, self._changelogs, log, asked_ms, self._config_setter)
        self._discard_new(record)
        self._swap_in(staged, log, Judgement(Status.LAGGING, lost.loss, lost.why))
        if self._restored and not (record is not None and record.is_begun):
            self._rebuilt = "it did not exist"

    def _discard_new(self, record: StoreRecord | None) -> None:
        """Remove the store if this task created it, in this run or in one that was killed before it was filled."""
        if self._is_new or (record is not None and record.is_begun):
            remove_tree(self._spec.live)
            remove_tree(self._spec.paths.segments(self._name))

    def _rebuild(self, reason: RebuildError, log: LogRange, cut: int | None, asked_ms: int) -> None:
        """Build a store anew from its changelog, beside the one that is there, and put it in its place."""
        spec = self._spec
        _, verdict, lost = self._decide(inspect(spec), log, cut, asked_ms)
        if lost.loss is Loss.LIKELY:
            self._refuse(with_loss(verdict, lost), lost, str(reason))
        status = Status.LAGGING if verdict.usable else verdict.status
        staged = build_staged(spec, self._changelogs, log, asked_ms, self._config_setter)
        self._swap_in(staged, log, Judgement(status, lost.loss, lost.why))
        self._rebuilt = str(reason)

    def _swap_in(self, staged: StagedStore, log: LogRange, verdict: Judgement) -> None:
        """Put a staged store in its place, and open it; `verdict` goes to quarantine with the present one."""
        spec = self._spec
        self._restored, self._restore_ns = staged.restored, staged.restore_ns
        swap(spec.paths, spec.store, _QUARANTINED_AS, spec.partitions, verdict=verdict, record=staged.record)
        kill_switch.reached("store rebuilt, the old one in quarantine")
        self._before = _Before(log.start)
        self.is_untouched = False
        self.store = self._build()
        self._init()

    @property
    def _accepts_loss(self) -> bool:
        """True if an in-memory store may begin with what its log still has; no restore can accept that for it."""
        return self._task.accept_loss and not self.store.persistent

    def _had_elsewhere(self, log: LogRange) -> LastKnown | None:
        """Return the content of the store by its newest snapshot, or by the task's last commit; None: nothing is known.

        Raises
        ------
        ArchiveUnavailableError, ArchiveAccessError
            If the archive cannot be read, unless nothing was ever logged: a new application need not wait for it.
        """
        by_commits = self._changelogs.had_by_commits(self._spec)
        if not self.store.persistent:
            return by_commits
        try:
            return had_by_archive(self._spec) or by_commits
        except (ArchiveUnavailableError, ArchiveAccessError) as error:
            if log.high_watermark:
                raise
            _log.warning("%s: whether it has snapshots is unknown: %s", self._spec.store_partition, error)
            return by_commits

    def _refuse(self, verdict: Verdict, lost: RebuildLoss, reason: str = "") -> NoReturn:
        """Raise the error that stops the task, with the same advice as `verify` gives."""
        spec = self._spec
        [log] = lost_logs([spec], [verdict])
        step = advise(spec, verdict._replace(rebuildable=True), Action.BY_HAND, lost=log)
        assert step is not None, "a refused store has advice"
        step = self._with_snapshots(step)
        evidence = [reason or verdict.detail, f"a rebuild would lose data ({lost.status}: {lost.why})"]
        if lost.status is Status.REPLACED:  # a person may have deleted the changelog to start over
            own, offsets = spec.paths.own_dir.parent, self._task.offsets.topic
            evidence.append(f"to start over instead, delete {own} and topic {offsets} as well")
        error = _REFUSED[lost.status](message(str(spec.store_partition), step))
        raise error.with_evidence("; ".join(filter(None, evidence)))

    def _with_snapshots(self, step: Advice) -> Advice:
        """Return the advice, given the snapshots of the store, if they decide and can be listed."""
        if self._spec.home.offers_snapshots and step.situation in DECIDED_BY_SNAPSHOTS:
            with suppress(ArchiveUnavailableError, ArchiveAccessError):
                [point] = restore_points([self._spec], look_at_files=False)
                return step if point is None else with_restore_point(self._spec, step, point)
        return step

    def note_commit(self) -> None:
        """Note that Kafka and the store have committed."""

    # -- at work --------------------------------------------------------------------------------------------------

    @property
    def stream_time(self) -> int | None:
        """Stream time (ms) of a window or session store, which decides on what has expired; None: it has none."""
        return known_stream_time(self.store)

    def advance_stream_time(self, time_ms: int) -> None:
        """Let the store go on from the stream time (ms) that an earlier run had reached."""
        self.store.inner.advance_stream_time(time_ms)

    def take_expired(self, stream_time: int) -> Iterator[list[bytes]]:
        """Yield the keys of rows that are older than stream time (ms) minus the ttl, in parts that the caller deletes.

        The caller has committed everything that this run has logged. The iteration ends at the run's limit of changelog
        records (expiry.py).
        """
        ttl_ms, cursor = self._spec.store.ttl_ms, self._expiry or ExpiryCursor()
        limit = stream_time - (ttl_ms or 0)
        if ttl_ms is None or not is_due(cursor, limit):
            return
        log = self._changelogs.settled([self.changelog])[self.changelog]
        if cursor.offset > log.high_watermark:  # the log lost its end: read it again from its start
            cursor = ExpiryCursor()
        cursor, left = returned(cursor, limit), max(LEAST_RECORDS, PER_LOGGED * self.logged)
        for records in self._changelogs.records(self.changelog, max(cursor.offset, log.start), log.last_stable):
            cursor, keys, stopped = pass_records(cursor, records, limit, stream_time)
            rows = zip(keys, self.store.get_rows(keys), strict=True)
            if old := [key for key, stored in rows if is_old(stored, self.store.layout, limit)]:
                yield old
                self._deleted += len(old)
            self._expiry = cursor
            left -= len(records)
            if stopped or left <= 0:
                return
        self._expiry = cursor.model_copy(update={"offset": max(cursor.offset, log.last_stable)})

    def _recorded_expiry(self, cut: int | None) -> ExpiryCursor | None:
        """Return the recorded cursor if it is of this changelog, and no part of the log was replaced since."""
        record, topic_id = self.record, self._task.changelogs[self._name].topic_id
        return record.expiry if record is not None and record.topic_id == topic_id and cut is None else None

    def figures(self) -> StoreFigures:
        """Figures of the store so far."""
        store = self.store
        commits, restores = store.metrics.figures("commit"), store.metrics.figures("restore")
        return StoreFigures(
            store=self._name,
            commits=commits.count,
            commit_latency_avg_ms=round(commits.latency_avg / 1e6, 3),
            commit_latency_max_ms=round(commits.latency_max / 1e6, 3),
            committed=self.committed,
            restored=self._restored,
            restore_seconds=round((self._restore_ns + restores.count * restores.latency_avg) / 1e9, 3),
            rebuilt=self._rebuilt,
            expired=store.expired_records,
            thread=threading.current_thread().name,
            scope=store.metrics.scope,
            deleted=self._deleted,
        )

    # -- closing --------------------------------------------------------------------------------------------------

    @property
    def logged_alone(self) -> bool:
        """False if its changelog has records since it was recovered that this run did not log.

        At least once nobody fences a task that goes on elsewhere; the store lacks what that one has logged.
        """
        if self.committed is None or self._end.offset is None:
            return self.committed is None
        return self.committed + 1 - self._end.offset == self.logged

    @property
    def oldest_ms(self) -> int | None:
        """Rows with a smaller time (ms) have expired; None: rows do not expire."""
        stream_time, retention_ms = self.stream_time, self._spec.store.row_retention_ms
        return None if stream_time is None or retention_ms is None else max(stream_time - retention_ms, 0)

    def known(self) -> StoreRecord:
        """Return what is known of the open store, which has all of its log."""
        return StoreRecord(
            topic_id=self._task.changelogs[self._name].topic_id,
            caught_up_ms=self._changelogs.now_ms(),
            committed=self._held,
            end=self._end.offset,
            epoch=self._end.epoch,
            needed_from=self._before.needed_from,
            stream_time=self.stream_time,
            adopted=self._before.adopted,
            at_least_once=self._before.at_least_once or not self._spec.exactly_once,
            expiry=self._expiry,
        )

    @property
    def _held(self) -> int | None:
        """Offset of the last changelog record in the open store; one in memory knows none, and has all of its log."""
        if self.store.persistent:
            return self.store.committed_offset(self.changelog)
        if self.committed is not None:
            return self.committed
        return self._end.offset - 1 if self._end.offset else None

    def needed_from(self, log: LogRange, unexpired: int | None, oldest_ms: int) -> int | None:
        """Return the first offset that a rebuild needs, now that time went on; see `advanced_need`."""
        before = self._before
        return advanced_need(before.needed_from, log, unexpired, oldest_ms, before.stream_time)

    def vouch(self, record: StoreRecord) -> None:
        """Record the store, which was just closed cleanly, and seal it if it is on disk."""
        self.write_record(record)
        if not self.store.persistent:
            return
        kill_switch.reached("store recorded, not sealed")
        self.seal_again()

    def seal_again(self) -> None:
        """Seal the store, which was just closed cleanly; its record holds."""
        paths, definition = self._spec.paths, self._spec.store
        seal(paths, self._name, definition.store_kind, supplied=not definition.files_are_known)
        kill_switch.reached("store sealed, mode not forgotten")
        forget_mode(paths, self._name)  # it tells of a lost segment until the seal does


def _before(record: StoreRecord | None, log: LogRange) -> _Before:
    needed = recorded_need(record, log)
    if record is None:
        return _Before(needed, adopted=True)
    return _Before(needed, record.adopted, record.stream_time, record.at_least_once)
