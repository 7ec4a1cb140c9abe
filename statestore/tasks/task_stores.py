"""The stores of a task: opened, brought to the end of their changelogs, committed and closed together.

One that has to be rebuilt is rebuilt by itself; the others stay as they are (conformance R13).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import MappingProxyType

from statestore import kill_switch
from statestore.durable import remove_durably
from statestore.errors import LockedError, StateStoreError
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.partition.last_commit import LastCommit
from statestore.reports import StoreFigures
from statestore.statedir.legacy import forget_legacy_offset, legacy_offsets
from statestore.statedir.lock import require_locks
from statestore.statedir.record import StoreRecord, read_record, write_record
from statestore.stores.supplied import load_config_setter
from statestore.stores.typed import AnyStore
from statestore.tasks.spec import TaskSpec
from statestore.tasks.task_changelogs import ChangelogEnd, TaskChangelogs
from statestore.tasks.task_store import TaskStore
from statestore.tasks.unlogged_store import UnloggedTaskStore


class TaskStores:
    """The stores of one task, under its lock.

    Parameters
    ----------
    changelogs
        Whom to ask for their changelogs; Kafka if not said.
    read_in_full
        Read every row while opening: something in one of the stores could not be read, and it is not known where.
    """

    def __init__(self, spec: TaskSpec, changelogs: TaskChangelogs | None = None, *, read_in_full: bool = False) -> None:
        self._spec = spec
        self._paths = spec.paths
        self._changelogs = changelogs or TaskChangelogs(spec)
        setter = load_config_setter(spec.application.rocksdb_config_setter)
        names = [store.name for store in spec.subtopology.stores]
        unlogged = set(spec.unlogged_stores)
        self._stores = {
            name: (UnloggedTaskStore if name in unlogged else TaskStore)(spec, name, self._changelogs, setter)
            for name in names
        }
        self._logged = {name: part for name, part in self._stores.items() if name not in unlogged}
        self._unlogged = {name: part for name, part in self._stores.items() if isinstance(part, UnloggedTaskStore)}
        legacy = legacy_offsets(self._paths)
        try:
            for part in self._stores.values():
                part.open(legacy.get(part.changelog), read_in_full=read_in_full)
            kill_switch.reached("legacy offsets taken over, the file still there")
            self._forget_legacy_offsets()
        except BaseException:
            self.close(clean=False)
            raise

    def _forget_legacy_offsets(self) -> None:
        damaged = {name for name, part in self._stores.items() if part.damage is not None}
        if not damaged:
            remove_durably(self._paths.checkpoint)
            return
        for name in self._stores:
            if name not in damaged:  # of a damaged one, it may be all that tells how far it was
                forget_legacy_offset(self._paths, name)

    @property
    def by_name(self) -> dict[str, AnyStore]:
        """The stores themselves."""
        return {name: part.store for name, part in self._stores.items()}

    def recover(
        self,
        ranges: Mapping[TopicPartition, LogRange],
        asked_ms: int | None = None,
        last: LastCommit | None = None,
    ) -> None:
        """Bring every store to the end of its changelog; rebuild those that cannot be used as they are.

        Parameters
        ----------
        asked_ms
            Time of the brokers before the ranges were asked for; None: now.
        last
            The task's last commit, for stores without a changelog; None: not asked for.

        Raises
        ------
        RebuildError
            If a store cannot catch up, and its changelog may have lost what it has; or if a store without a changelog
            does not have what was committed.
        """
        asked_ms = self._changelogs.now_ms() if asked_ms is None else asked_ms
        for without_log in self._unlogged.values():  # first: they are refused before anything is replayed
            without_log.begin(last, asked_ms)
        cuts = self._changelogs.cuts({part.changelog: part.record for part in self._logged.values()})
        ends = self._changelogs.ends({part.changelog: ranges[part.changelog] for part in self._logged.values()})
        for part in self._logged.values():
            changelog = part.changelog
            part.recover(ranges[changelog], ends[changelog], cuts.get(changelog), asked_ms)
        for part in self._stores.values():
            part.is_untouched = False  # processing may begin

    # -- at work --------------------------------------------------------------------------------------------------

    @property
    def commit_numbers(self) -> dict[str, int]:
        """Number of the last commit that changed each store without a changelog; those without any are left out."""
        numbers = {name: part.store.committed_offset(part.changelog) for name, part in self._unlogged.items()}
        return {name: number for name, number in numbers.items() if number is not None and number >= 0}

    @property
    def has_accepted_loss(self) -> bool:
        """True if a store without a changelog is not what the last commit names, so that a commit must name it."""
        return any(part.has_accepted_loss for part in self._unlogged.values())

    def prepare(self, position: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Prepare a commit in each changed store without a changelog; return its numbers by store.

        Call it before Kafka's transaction is committed, which decides whether the commit counts.

        Parameters
        ----------
        position
            As given to `commit`.
        """
        if self._unlogged:
            require_locks(self._paths)
        numbers = {name: part.prepare(position) for name, part in self._unlogged.items()}
        return {name: number for name, number in numbers.items() if number is not None}

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted rows."""
        return sum(part.store.staged_bytes for part in self._stores.values())

    @property
    def restored(self) -> int:
        """Changelog records replayed."""
        return sum(figures.restored for figures in self.figures())

    def holding(self) -> list[str]:
        """Names of the stores that have anything of their changelogs."""
        return [name for name, part in self._stores.items() if part.store.committed_offset(part.changelog) is not None]

    def not_empty(self) -> list[str]:
        """Names of the stores that have anything of their changelogs, or uncommitted rows."""
        held = set(self.holding())
        return [name for name, part in self._stores.items() if name in held or not part.store.is_empty]

    @property
    def stream_times(self) -> dict[str, int]:
        """Stream time (ms) of each window and session store, which decides on what has expired."""
        times = {name: part.stream_time for name, part in self._stores.items()}
        return {name: time_ms for name, time_ms in times.items() if time_ms is not None}

    def advance_stream_times(self, times: Mapping[str, int]) -> None:
        """Let stores go on from the stream times (ms) that an earlier run had reached."""
        for name, time_ms in times.items():
            if name in self._stores:
                self._stores[name].advance_stream_time(time_ms)

    def take_expired(self, stream_time: int) -> Iterator[tuple[str, list[bytes]]]:
        """Yield the stores and keys of rows that are older than their ttl, in parts that the caller deletes."""
        for name, part in self._stores.items():
            for keys in part.take_expired(stream_time):
                yield name, keys

    def commit(
        self,
        delivered: Mapping[TopicPartition, int],
        position: dict[TopicPartition, int],
        logged: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Commit every store, also if one of them fails; raise the first failure (conformance R12).

        Parameters
        ----------
        delivered
            Offset of the last record that was sent to each changelog partition since the last commit.
        position
            Input offsets that were processed.
        logged
            How many records each store has logged since the last commit.

        Raises
        ------
        LockedError
            If somebody has deleted the task's lock files; no store is committed then.
        """
        require_locks(self._paths)
        first: StateStoreError | None = None
        for part in self._stores.values():
            offset = delivered.get(part.changelog)
            if offset is None and not part.store.staged_bytes:  # a lazy migration is staged, but not logged
                continue
            try:
                part.store.commit({} if offset is None else {part.changelog: offset}, position)
            except StateStoreError as error:
                first = first or error
            else:
                part.committed = part.committed if offset is None else offset
                part.logged += logged.get(part.store.name, 0)
                part.note_commit()
            kill_switch.reached("store committed")
        if first is not None:
            raise first

    def forget_positions(self) -> None:
        """Forget the input offsets that stores reflect: they are of a former input topic of the same name."""
        for part in self._stores.values():
            if part.store.position() and (offset := part.store.committed_offset(part.changelog)) is not None:
                part.store.commit({part.changelog: offset}, None)

    def figures(self) -> tuple[StoreFigures, ...]:
        """Figures of each store so far."""
        return tuple(part.figures() for part in self._stores.values())

    # -- closing --------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Close every store, also if closing one fails; clean ones are vouched for.

        A store that was sealed, and that a failed run has only opened, is closed cleanly and sealed again.

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
        opened = [name for name, part in self._stores.items() if part.store.is_open]
        untouched = [] if clean else self._untouched(opened)
        vouched = {name: self._stores[name].known() for name in opened} if clean else {}
        oldest = {name: self._stores[name].oldest_ms for name in vouched}
        with ExitStack() as resources:
            for name, part in self._stores.items():
                if part.store.is_open:
                    resources.callback(kill_switch.reached, "store closed")
                    resources.callback(part.store.close, clean=clean or name in untouched)
        kill_switch.reached("stores closed, nothing recorded")
        for name in untouched:
            with suppress(StateStoreError, OSError):  # without a seal, more of it is read the next time
                self._stores[name].seal_again()
        for name, record in self._with_ends(vouched, oldest).items():
            self._stores[name].vouch(record)

    def _untouched(self, opened: Sequence[str]) -> list[str]:
        """Return the stores that a failed run has only opened; none if the task's lock files were deleted."""
        try:
            require_locks(self._paths)
        except LockedError:
            return []
        return [name for name in opened if self._stores[name].is_untouched]

    def _with_ends(
        self, records: Mapping[str, StoreRecord], oldest: Mapping[str, int | None]
    ) -> dict[str, StoreRecord]:
        """Add to the records of stores that were committed where their logs end, and what of these they need.

        Nothing becomes wrong without it, so a Kafka that does not answer any more is no failure.
        """
        asked = {
            name: self._stores[name].changelog
            for name in records
            if name in self._logged and self._stores[name].committed is not None
        }
        times = {changelog: time_ms for name, changelog in asked.items() if (time_ms := oldest[name]) is not None}
        asked_ms = self._changelogs.now_ms()
        try:
            unexpired = self._changelogs.first_from(times)
            logs = self._changelogs.settled(asked.values())
            ends = self._changelogs.ends(logs)
        except StateStoreError:
            unexpired, logs, ends = {}, {}, {}
        # A task may have been stopped since it recovered, and then another one may have worked: what nobody has looked
        # at since is not known to be whole now.
        found = {
            name: record.model_copy(update={"caught_up_ms": min(record.caught_up_ms, self._stores[name].caught_up_ms)})
            for name, record in records.items()
        }
        for name, changelog in asked.items():
            part = self._stores[name]
            # Behind our last record there is the marker of its transaction; whatever comes then is not known.
            last = (part.committed or 0) + (2 if self._spec.exactly_once else 1)
            end = ends.get(changelog, ChangelogEnd())
            ours = end.offset is not None and end.offset <= last and (self._spec.exactly_once or part.logged_alone)
            told = end if ours else ChangelogEnd()
            update = {"end": told.offset, "epoch": told.epoch}
            if ours:
                update["caught_up_ms"] = asked_ms
            if changelog in unexpired:
                update["needed_from"] = part.needed_from(logs[changelog], unexpired[changelog], times[changelog])
            found[name] = found[name].model_copy(update=update)
        return found


def record_new_stores(spec: TaskSpec) -> None:
    """Record where the changelogs of stores end that the task is about to make; call it before they are opened.

    If the task is killed before it has recovered them, only these records show that nothing was lost with them. If a
    log has lost its start, it is judged later which of its offsets the store needs, so that is not recorded here.
    """
    new = {
        store.name: spec.changelog(store.name)
        for store in spec.subtopology.stores
        if store.engine != "in_memory"
        and store.logged
        and not spec.paths.live(store).exists()
        and read_record(spec.paths, store.name) is None
    }
    logs = spec.cluster.topics.log_ranges(new.values()) if new else {}
    for name, changelog in new.items():
        log, topic_id = logs[changelog], spec.changelogs[name].topic_id
        needed_from = 0 if log.start == 0 else None
        record = StoreRecord(topic_id=topic_id, caught_up_ms=0, end=log.high_watermark, needed_from=needed_from)
        write_record(spec.paths, name, record)
