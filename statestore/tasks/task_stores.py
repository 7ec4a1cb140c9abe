"""The stores of a task: opened, brought to the end of their changelogs, committed and closed together.

A store that cannot be used as it is, such as one left open without transactions, is rebuilt from its changelog by
itself; the others stay as they are (conformance T13, R13). Its successor is built beside it, as a restore does it, and
takes its place when it is whole; the store goes to quarantine. None is replaced whose changelog has lost what it had.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple, NoReturn

from statestore import clock, kill_switch
from statestore.changelog.epochs import LogEnd, compare_ends, log_ends
from statestore.changelog.reader import LogReader, first_offset
from statestore.changelog.standing import next_offset
from statestore.changelog.topics import LogRange, Topics
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_durably
from statestore.errors import (
    ChangelogReplacedError,
    LockedError,
    RebuildError,
    StateStoreError,
    StoreAheadError,
    StoreBehindLogStartError,
)
from statestore.model import TopicPartition
from statestore.partition.inspection import had, inspect
from statestore.partition.judgement import (
    Had,
    Lost,
    Supply,
    cut_at,
    log_end,
    needs_stream_time,
    rebuild_loss,
    standing_of,
)
from statestore.partition.log_time import stream_time_at_least
from statestore.partition.needed import advanced_need, recorded_need
from statestore.partition.quarantine import keep_set_aside
from statestore.partition.replacing import clear_built, require_tombstones, staged_context
from statestore.reports import Action, Loss, Status, StoreFigures
from statestore.statedir.beside import Verdict
from statestore.statedir.context import forget_mode, store_context
from statestore.statedir.legacy import forget_legacy_offset, legacy_offsets
from statestore.statedir.lock import require_locks
from statestore.statedir.record import StoreRecord, read_record, write_record
from statestore.statedir.seal import break_seal, check_seal, forget_digests, seal
from statestore.statedir.swap import swap
from statestore.stores.open import build_store
from statestore.stores.serdes import load_serde
from statestore.stores.supplied import load_config_setter
from statestore.stores.typed import AnyStore
from statestore.tasks.replay import replay
from statestore.tasks.spec import TaskSpec

#: Name in quarantine of what a task has replaced.
_QUARANTINED_AS = "process"
#: For so long the markers of the last transaction are waited for before a store is recorded, s.
_MARKERS_S = 2.0
_PAUSE_S = 0.01
#: As what a task refuses to rebuild a store, unasked, whose changelog may have lost something that it has.
_REFUSED: dict[Status, type[RebuildError]] = {
    Status.AHEAD: StoreAheadError,
    Status.REPLACED: ChangelogReplacedError,
    Status.TRUNCATED: StoreBehindLogStartError,
}


class _End(NamedTuple):
    """Where a log ends, exclusive, and with which leader epoch; None: not known."""

    offset: int | None = None
    epoch: int | None = None


class _Before(NamedTuple):
    """What a store has from before this run, as its record says.

    Attributes
    ----------
    needed_from
        First offset that a rebuild needs.
    adopted
        It was there before its first record.
    stream_time
        Largest timestamp (ms) of its rows.
    """

    needed_from: int | None
    adopted: bool = False
    stream_time: int | None = None


class TaskStores:
    """The stores of one task, under its lock.

    Parameters
    ----------
    read_in_full
        Read every row while opening: something in one of the stores could not be read, and it is not known where.

    Attributes
    ----------
    by_name
        The stores.
    restored
        Changelog records replayed, by store.
    rebuilt
        Why a store was rebuilt, by store.
    """

    def __init__(self, spec: TaskSpec, *, read_in_full: bool = False) -> None:
        self._spec = spec
        self._paths = spec.paths
        self._config_setter = load_config_setter(spec.application.rocksdb_config_setter)
        self._definitions = {store.name: store for store in spec.subtopology.stores}
        self.by_name: dict[str, AnyStore] = {name: _build(store) for name, store in self._definitions.items()}
        self._damaged: dict[str, RebuildError] = {}
        self.committed: dict[str, int] = {}
        self.restored: dict[str, int] = {}
        self.rebuilt: dict[str, str] = {}
        self._ends: dict[str, _End] = {}
        self._cut: dict[TopicPartition, int] = {}
        self._before: dict[str, _Before] = {}
        self._migrated = legacy_offsets(self._paths)
        try:
            for name in self.by_name:
                try:
                    self._open(name, read_in_full=read_in_full)
                except RebuildError as error:
                    self.by_name[name].close(clean=False)
                    self._damaged[name] = error
            kill_switch.reached("legacy offsets taken over, the file still there")
            self._forget_legacy_offsets()
        except BaseException:
            self.close(clean=False)
            raise

    # -- opening --------------------------------------------------------------------------------------------------

    def _open(self, name: str, *, read_in_full: bool) -> None:
        store, definition = self.by_name[name], self._definitions[name]
        there = store.persistent and self._paths.live(definition).exists()
        if not there:
            remove_durably(self._paths.offsets(name))  # it speaks of a store that is lost
        if there and not check_seal(self._paths, name, definition.store_kind):
            forget_digests(self._paths, name)  # somebody else may have built it anew
        self._init(name, self._migrated.get(self._spec.changelog(name)))
        if read_in_full:
            for _ in store.all():
                pass

    def _init(self, name: str, migrated: int | None = None) -> None:
        store, application = self.by_name[name], self._spec.application
        store.init(
            store_context(
                self._paths,
                # A commit comes first; only what a single record writes far beyond the bound spills.
                uncommitted_max_bytes=4 * application.uncommitted_max_bytes,
                recording_level=self._spec.recording_level,
                opening=lambda store: break_seal(self._paths, store),
                exactly_once=self._spec.exactly_once,
                config_setter=self._config_setter,
            )
        )
        if migrated is not None and not store.is_empty:
            store.commit({self._spec.changelog(name): migrated}, {})
            kill_switch.reached("legacy offset taken over, not on disk")
            store.sync()

    def _forget_legacy_offsets(self) -> None:
        if not self._damaged:
            remove_durably(self._paths.checkpoint)
            return
        for name in self.by_name:
            if name not in self._damaged:  # of a damaged one, it may be all that tells how far it was
                forget_legacy_offset(self._paths, name)

    # -- recovery -------------------------------------------------------------------------------------------------

    def recover(self, ranges: dict[TopicPartition, LogRange], asked_ms: int | None = None) -> None:
        """Bring every store to the end of its changelog; rebuild those that cannot be used as they are.

        Parameters
        ----------
        asked_ms
            Wall clock time before the ranges were asked for; None: now.

        Raises
        ------
        RebuildError
            If a store cannot catch up, and its changelog may have lost what it has.
        """
        asked_ms = clock.now_ms() if asked_ms is None else asked_ms
        self._compare_ends()
        logs = {self._spec.changelog(name): ranges[self._spec.changelog(name)] for name in self.by_name}
        ends = _ends(logs, log_ends(self._spec.bootstrap_servers, logs, self._spec.kafka_timeout_s))
        for name, store in self.by_name.items():
            log = ranges[self._spec.changelog(name)]
            keep_set_aside(self._paths, name)
            reason = self._damaged.get(name) or self._catch_up(name, log)
            if reason is not None:
                if store.is_open:
                    store.close(clean=False)
                self._rebuild(name, reason, log, asked_ms)
            self._ends[name] = ends[self._spec.changelog(name)]
            if store.persistent:
                write_record(self._paths, name, self._known(name).model_copy(update={"caught_up_ms": asked_ms}))
        self._damaged = {}

    def _compare_ends(self) -> None:
        """Find out which logs were cut since their stores were recorded: these grow again, and offsets do not tell."""
        records = {name: read_record(self._paths, name) for name, store in self.by_name.items() if store.persistent}
        ends = {
            self._spec.changelog(name): end
            for name, record in records.items()
            if (end := log_end(record, self._spec.changelogs[name])) is not None
        }
        found = compare_ends(self._spec.bootstrap_servers, ends, self._spec.kafka_timeout_s) if ends else {}
        self._cut = {changelog: at for changelog, comparison in found.items() if (at := cut_at(comparison)) is not None}

    def _catch_up(self, name: str, log: LogRange) -> RebuildError | None:
        """Bring a store that can be used to the end of its changelog; say why it has to be rebuilt instead."""
        store, topic = self.by_name[name], self._spec.changelogs[name]
        record = read_record(self._paths, name) if store.persistent else None
        changelog = self._spec.changelog(name)
        offset = store.committed_offset(changelog)
        if store.transactional and not store.recover(offset):
            return RebuildError(f"store {name} says that it cannot be brought to what was committed at offset {offset}")
        committed, empty = store.committed_offset(changelog), store.is_empty
        found = standing_of(committed, log, record, topic, empty=empty, now_ms=clock.now_ms())
        begins = committed is None and empty
        if found.status not in (Status.OK, Status.LAGGING) or begins or self._spec.changelog(name) in self._cut:
            lost = self._lost(name, had(record, committed, anything=not begins), log)
            if lost.loss is Loss.LIKELY:
                self._refuse(name, lost, "is not there" if begins else f"is {found.status}")
        self._before[name] = _Before(log.start) if begins else _before(record, log)
        if found.action is Action.NONE:
            return None
        start = log.start
        if committed is not None:
            start = next_offset(committed, record.seen_end(committed) if record else None)
        if found.action is not Action.TAIL:
            lags = found.status is Status.LAGGING and committed is not None
            return None if lags and self._nothing_left(name, start, log) else RebuildError(found.detail)
        self.restored[name] = self._replay(store, name, start, log)
        if committed is not None and record is not None and topic.compacted:
            whole_ms = record.whole_ms(committed, clock.now_ms()) or 0
            if clock.now_ms() - whole_ms >= topic.delete_retention_ms > 0:
                return RebuildError("replaying its tail took longer than its changelog keeps tombstones")
        return None

    def _rebuild(self, name: str, reason: RebuildError, log: LogRange, asked_ms: int) -> None:
        """Build a store anew from its changelog, beside the one that is there, and put it in its place."""
        spec = self._spec.store_partition(name)
        seen = inspect(spec)
        lost = self._lost(name, seen.had, log)
        if lost.loss is Loss.LIKELY:
            self._refuse(name, lost, f"cannot be used ({reason})")
        clear_built(self._paths)
        staged = build_store(spec.store)
        staged.init(replace(staged_context(spec, read_only=False), config_setter=self._config_setter))
        kill_switch.reached("store being rebuilt")
        try:
            self.restored[name] = self._replay(staged, name, log.start, log)
            require_tombstones(
                spec, asked_ms, clock.now_ms(), "run restore for it, which is faster, or raise that setting"
            )
            record = StoreRecord(
                topic_id=self._spec.changelogs[name].topic_id,
                caught_up_ms=asked_ms,
                committed=staged.committed_offset(spec.partition),
                end=log.last_stable,
                needed_from=log.start,
                stream_time=_stream_time(staged),
            )
            staged.close(clean=True)
        finally:
            if staged.is_open:
                staged.close(clean=False)
        kill_switch.reached("store rebuilt, not in its place")
        verdict = Verdict(seen.trouble.status if seen.trouble else Status.LAGGING, lost.loss, lost.why)
        swap(self._paths, spec.store, _QUARANTINED_AS, spec.partitions, verdict=verdict, record=record)
        kill_switch.reached("store rebuilt, the old one in quarantine")
        self._before[name] = _Before(log.start)
        self.rebuilt[name] = str(reason)
        self.by_name[name] = _build(self._definitions[name])
        self._init(name)

    def _replay(self, store: AnyStore, name: str, start: int, log: LogRange) -> int:
        """Apply a part of a changelog; at least once also what an open transaction hides, but nothing aborted.

        The changelog may be of a time when the application processed exactly once.
        """
        spec, changelog, end = self._spec, self._spec.changelog(name), log.last_stable
        stable = end if spec.exactly_once else min(self._topics().log_ranges([changelog])[changelog].last_stable, end)
        records = 0
        for committed, first, last in ((True, start, stable), (False, max(start, stable), end)):
            if first < last:
                with LogReader(
                    spec.bootstrap_servers, changelog, read_committed=committed, stall_timeout_s=spec.kafka_timeout_s
                ) as reader:
                    records += replay(store, reader, first, last).records
        store.sync()
        return records

    def _nothing_left(self, name: str, start: int, log: LogRange) -> bool:
        spec = self._spec
        changelog = spec.changelog(name)
        return first_offset(spec.bootstrap_servers, changelog, start, log.last_stable, spec.kafka_timeout_s) is None

    def _lost(self, name: str, known: Had, log: LogRange) -> Lost:
        """Say what a rebuild of a store would lose."""
        spec = self._spec.store_partition(name)
        supply = Supply(spec.changelog, log, self._cut.get(spec.partition))
        if needs_stream_time(spec, known.record, log):
            supply = supply._replace(stream_time=stream_time_at_least(spec, log))
        return rebuild_loss(known, supply, retention_ms=spec.store.retention_ms, now_ms=clock.now_ms())

    def _refuse(self, name: str, lost: Lost, what: str) -> NoReturn:
        raise _REFUSED[lost.status](
            f"store {name} of {self._spec.application.name} task {self._spec.task} {what}, and would lose something if "
            f"it was rebuilt ({lost.status}: {lost.why}): that is not done by itself; run restore for it with "
            "--accept-loss, which keeps the old store in quarantine"
        )

    def _topics(self) -> Topics:
        return Topics(self._spec.bootstrap_servers, self._spec.kafka_timeout_s)

    # -- at work --------------------------------------------------------------------------------------------------

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted rows."""
        return sum(store.staged_bytes for store in self.by_name.values())

    def holding(self) -> list[str]:
        """Names of the stores that have anything of their changelogs."""
        return [
            name
            for name, store in self.by_name.items()
            if store.committed_offset(self._spec.changelog(name)) is not None
        ]

    @property
    def stream_times(self) -> dict[str, int]:
        """Stream time (ms) of each window and session store, which decides on what has expired."""
        times = {name: getattr(store.inner, "stream_time", -1) for name, store in self.by_name.items()}
        return {name: time for name, time in times.items() if time >= 0}

    def advance_stream_times(self, times: Mapping[str, int]) -> None:
        """Let stores go on from the stream times (ms) that an earlier run had reached."""
        for name, time_ms in times.items():
            advance = getattr(self.by_name[name].inner, "advance_stream_time", None) if name in self.by_name else None
            if advance is not None:
                advance(time_ms)

    def commit(self, delivered: dict[TopicPartition, int], position: dict[TopicPartition, int]) -> None:
        """Commit every store, also if one of them fails; raise the first failure (conformance R12).

        Raises
        ------
        LockedError
            If somebody has deleted the task's lock files; no store is committed then.
        """
        require_locks(self._paths)
        first: StateStoreError | None = None
        for name, store in self.by_name.items():
            changelog = self._spec.changelog(name)
            if changelog not in delivered and not store.staged_bytes:  # a lazy migration is staged, but not logged
                continue
            try:
                store.commit({changelog: delivered[changelog]} if changelog in delivered else {}, position)
            except StateStoreError as error:
                first = first or error
            else:
                self.committed.update({name: delivered[changelog]} if changelog in delivered else {})
            kill_switch.reached("store committed")
        if first is not None:
            raise first

    def figures(self) -> tuple[StoreFigures, ...]:
        """What each store did so far."""
        return tuple(self._figures(store) for store in self.by_name.values())

    def _figures(self, store: AnyStore) -> StoreFigures:
        commits, restores = store.metrics.figures("commit"), store.metrics.figures("restore")
        return StoreFigures(
            store=store.name,
            commits=commits.count,
            commit_latency_avg_ms=round(commits.latency_avg / 1e6, 3),
            commit_latency_max_ms=round(commits.latency_max / 1e6, 3),
            committed=self.committed.get(store.name),
            restored=self.restored.get(store.name, 0),
            restore_seconds=round(restores.count * restores.latency_avg / 1e9, 3),
            rebuilt=self.rebuilt.get(store.name),
            expired=store.expired_records,
        )

    def close(self, *, clean: bool) -> None:
        """Close every store, also if closing one fails; clean ones are vouched for.

        Raises
        ------
        LockedError
            If somebody has deleted the task's lock files; the stores are closed, and nothing vouches for them.
        """
        if clean:
            try:
                require_locks(self._paths)
            except LockedError:
                self.close(clean=False)
                raise
        opened = {name: store for name, store in self.by_name.items() if store.is_open and store.persistent}
        vouched = {name: self._known(name) for name in opened} if clean else {}
        with ExitStack() as resources:
            for store in self.by_name.values():
                if store.is_open:
                    resources.callback(kill_switch.reached, "store closed")
                    resources.callback(store.close, clean=clean)
        kill_switch.reached("stores closed, nothing recorded")
        for name, record in self._with_ends(vouched).items():
            write_record(self._paths, name, record)
            kill_switch.reached("store recorded, not sealed")
            definition = self._definitions[name]
            seal(self._paths, name, definition.store_kind, supplied=definition.supplied)
            kill_switch.reached("store sealed, mode not forgotten")
            forget_mode(self._paths, name)  # it tells of a lost segment until the seal does

    def _known(self, name: str) -> StoreRecord:
        """What is known of an open store that has all of its log."""
        store, end, before = self.by_name[name], self._ends[name], self._before[name]
        return StoreRecord(
            topic_id=self._spec.changelogs[name].topic_id,
            caught_up_ms=clock.now_ms(),
            committed=store.committed_offset(self._spec.changelog(name)),
            end=end.offset,
            epoch=end.epoch,
            needed_from=before.needed_from,
            stream_time=_stream_time(store),
            adopted=before.adopted,
        )

    def _with_ends(self, records: Mapping[str, StoreRecord]) -> dict[str, StoreRecord]:
        """Add to the records of stores that were committed where their logs end, and what of these they need.

        Nothing becomes wrong without it, so a Kafka that does not answer any more is no failure.
        """
        found = dict(records)
        asked = {self._spec.changelog(name): name for name in records if name in self.committed}
        oldest = {
            changelog: max(stream_time - (self._definitions[name].retention_ms or 0), 0)
            for changelog, name in asked.items()
            if (stream_time := records[name].stream_time) is not None
        }
        try:
            unexpired = self._topics().first_from(oldest) if oldest else {}
            logs, ends = self._ask_ends(asked)
        except StateStoreError:
            unexpired, logs, ends = {}, {}, {}
        for changelog, name in asked.items():
            # Behind our last record there is the marker of its transaction; whatever comes then is not known.
            last = self.committed[name] + (2 if self._spec.exactly_once else 1)
            end = ends.get(changelog)
            told = end if end is not None and end.offset is not None and end.offset <= last else _End()
            update = {"end": told.offset, "epoch": told.epoch}
            if changelog in unexpired:
                before, log = self._before[name], logs[changelog]
                update["needed_from"] = advanced_need(
                    before.needed_from, log, unexpired[changelog], oldest[changelog], before.stream_time
                )
            found[name] = records[name].model_copy(update=update)
        return found

    def _ask_ends(
        self, changelogs: Collection[TopicPartition]
    ) -> tuple[dict[TopicPartition, LogRange], dict[TopicPartition, _End]]:
        """Ask for the offsets of logs, and where they end, behind the markers of what was committed last."""
        if not changelogs:
            return {}, {}
        topics, deadline = self._topics(), time.monotonic() + _MARKERS_S
        logs = topics.log_ranges(changelogs)
        while any(log.last_stable < log.high_watermark for log in logs.values()) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)  # a commit is answered before its markers are in the log
            logs = topics.log_ranges(changelogs)
        return logs, _ends(logs, log_ends(self._spec.bootstrap_servers, logs, self._spec.kafka_timeout_s))


def record_new_stores(spec: TaskSpec) -> None:
    """Record where the changelogs of stores end that the task is about to make; call it before they are opened.

    If the task is killed before it has recovered them, nothing else would tell that what it left is no loss.
    """
    new = {
        store.name: spec.changelog(store.name)
        for store in spec.subtopology.stores
        if store.engine != "in_memory"
        and not spec.paths.live(store).exists()
        and read_record(spec.paths, store.name) is None
    }
    logs = Topics(spec.bootstrap_servers, spec.kafka_timeout_s).log_ranges(new.values()) if new else {}
    for name, changelog in new.items():
        log, topic_id = logs[changelog], spec.changelogs[name].topic_id
        record = StoreRecord(topic_id=topic_id, caught_up_ms=0, end=log.high_watermark, needed_from=log.start)
        write_record(spec.paths, name, record)


def _ends(
    logs: Mapping[TopicPartition, LogRange], known: Mapping[TopicPartition, LogEnd]
) -> dict[TopicPartition, _End]:
    """Where logs end, with their epochs where these were told."""
    return {at: _End(log.last_stable, known[at].epoch if at in known else None) for at, log in logs.items()}


def _before(record: StoreRecord | None, log: LogRange) -> _Before:
    needed = recorded_need(record, log)
    return _Before(needed, adopted=True) if record is None else _Before(needed, record.adopted, record.stream_time)


def _stream_time(store: AnyStore) -> int | None:
    latest = getattr(store.inner, "stream_time", -1)
    return latest if latest >= 0 else None


def _build(definition: StoreDefinition) -> AnyStore:
    return build_store(definition, load_serde(definition.key_serde), load_serde(definition.value_serde))
