"""Going back to the changelogs that stores had before a rewrite, and to the stores of those.

A rewrite is an overwrite, a transform, or a restore to a point. After the latter, the group's offsets go back, too.

    locks of all tasks -> all that speaks against it -> earlier processes fenced -> journal -> stores that are no longer
    kept are built -> the catalogue names the former changelogs -> the group's offsets -> the other stores are put back
    -> the journal goes

The catalogue decides here, too: until it names the former changelogs, nothing has changed. From then on only those
count: a task with a store of the later one refuses to work, and the next attempt puts back what is left. A replaced
store that is no longer kept is built from the former changelog, up to the offsets by which its loss was judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from statestore import kill_switch
from statestore.changelog import brokers_clock
from statestore.changelog.input_offsets import input_offsets
from statestore.discovery.changelogs import changelog_spec
from statestore.errors import InputError, StateStoreError
from statestore.kafka.groups import GroupOffset
from statestore.model import StorePartition, TaskId, TopicPartition, is_repartition_topic
from statestore.partition.grouping import by_store
from statestore.partition.quarantine import replaced_by
from statestore.partition.replacement import clear_built
from statestore.partition.rollback import put_back
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import store_logs
from statestore.recovery.snapshot_building import incomplete_log
from statestore.recovery.staging import Staging
from statestore.reports import Status
from statestore.rewrite.adoption import Adopted, AdoptionHooks, Catalogued
from statestore.rewrite.changelog_writing import fence, fence_tasks
from statestore.rewrite.group_move import hold, position_at, release, settle
from statestore.rewrite.group_offsets import require_stable
from statestore.rewrite.journal import (
    NewTopic,
    Positions,
    Rewrite,
    RewriteJournal,
    forget_done,
    listed,
    listed_offsets,
    read_done,
    read_journal,
    remove_journal,
    require_no_other,
    write_journal,
)
from statestore.rewrite.staged_stores import Staged, clear_staged, replace, stage, whole_restore
from statestore.statedir.paths import task_paths
from statestore.statedir.record import read_record
from statestore.statedir.swap import locked_task
from statestore.verification.gathering import AskedLogs


class UndoSpec(NamedTuple):
    """Settings of an undo.

    Attributes
    ----------
    stores
        All partitions of all stores of an application.
    store
        One of those that were rewritten; None: only one rewrite can be undone.
    accept_loss
        Give up what was written to the later changelogs since, and what former ones have lost.
    run_bytes
        Bound of a sorted run in memory.
    started_ms
        Now, ms since the epoch.
    tasks
        All tasks of the application, also those without a store.
    """

    stores: Sequence[StorePartitionSpec]
    store: str | None
    accept_loss: bool
    run_bytes: int
    started_ms: int
    tasks: Sequence[TaskId]


class UndoPlan(NamedTuple):
    """Plan of an undo.

    Attributes
    ----------
    undoes
        Label of the rewrite that is undone.
    topics
        The former changelogs by the later ones.
    parts
        Each store partition as it is to be, and the directory that is put back; None: it is built from its changelog.
    written
        Records that were written to the later changelogs since.
    finishes
        The catalogue has the former changelogs since an earlier attempt.
    offsets
        After a restore to a point: the group's next input offset now, and after the undo.
    processed
        Where the group has gone on since such a restore.
    """

    undoes: str
    topics: Mapping[str, str]
    parts: Sequence[tuple[StorePartitionSpec, Path | None]]
    written: Mapping[TopicPartition, int]
    finishes: bool
    offsets: Mapping[TopicPartition, tuple[int | None, int]]
    processed: Sequence[TopicPartition]


class Undone(NamedTuple):
    """One store partition that has its former changelog again.

    Attributes
    ----------
    put_back
        Directory that the store was in; None: it was built from its changelog.
    quarantine
        Where the later store is; None: there was none.
    """

    store: StorePartitionSpec
    put_back: Path | None
    quarantine: Path | None


class Undo:
    """An undo whose tasks are locked; made by `undo`."""

    def __init__(self, spec: UndoSpec, hooks: AdoptionHooks) -> None:
        self._spec, self._hooks = spec, hooks
        self._first = first = spec.stores[0]
        self._topics = first.cluster.topics
        self._topics.require_no_members(first.application)
        self._rewrite = Rewrite("undo", first.application)
        journal = read_journal(first.state_dir, self._rewrite)
        finishes = journal is not None and self._counts(journal)
        if journal is not None and not finishes:  # nothing has come of it
            self._take_back(journal)
        if read_journal(first.state_dir, Rewrite("point", first.application)) is not None:
            require_no_other(first.state_dir, self._rewrite, by_store(spec.stores))
        self._journal = journal if journal is not None and finishes else self._begun()
        require_no_other(first.state_dir, self._rewrite, [new.store for new in self._journal.topics.values()])
        self._stores = self._former_stores()
        self.plan = UndoPlan(
            undoes=self._journal.undoes,
            topics={new.before or "": name for name, new in self._journal.topics.items()},
            parts=[(store, self._replaced(store)) for store in self._stores if not self._is_back(store)],
            written={} if finishes else self._written(),
            finishes=finishes,
            offsets=self._offsets(),
            processed=() if finishes else self._processed(),
        )

    # -- what is undone -----------------------------------------------------------------------------------------------

    def _counts(self, journal: RewriteJournal) -> bool:
        return all(
            self._hooks.catalogued(new.store) == Catalogued(name, new.topic_id) for name, new in journal.topics.items()
        )

    def _begun(self) -> RewriteJournal:
        """Find the rewrite whose changelogs the catalogue names, and return the journal of its undo."""
        application, name = self._first.application, self._spec.store
        found = [done for done in read_done(self._first.state_dir, application) if self._counts(done)]
        if name is not None:
            found = [done for done in found if name in {new.store for new in done.topics.values()}]
        if not found:
            raise InputError(
                f"{application}{'' if name is None else f'/{name}'} has nothing to undo: expected a changelog of an "
                "overwrite, a transform, or a restore to a point that was completed with the state directory "
                f"{self._first.state_dir}"
            )
        if len(found) > 1:
            names = sorted({new.store for done in found for new in done.topics.values()})
            raise InputError(f"--store: {application} has several rewrites to undo, of {', '.join(names)}; say one")
        (done,) = found
        topics = {}
        for later, new in done.topics.items():
            former = None if new.before is None else self._topics.find(new.before)
            if former is None or new.before_id != former.topic_id or new.before_format is None:
                expected = f"id {new.before_id}" if new.before_id else "one that existed when it was replaced"
                raise InputError(
                    f"{application}/{new.store}: its former changelog {new.before} is gone: expected {expected}, found "
                    f"{'no topic' if former is None else former.topic_id}. Nothing was changed"
                )
            topics[former.name] = NewTopic(
                store=new.store,
                format=new.before_format,
                topic_id=former.topic_id,
                records=new.records,
                settings={},
                before=later,
                before_id=new.topic_id,
                before_format=new.format,
                positions=self._positions(done, new),
            )
        return RewriteJournal(
            **self._rewrite._asdict(),
            started_ms=self._spec.started_ms,
            topics=topics,
            undoes=done.label,
            offsets=done.former_offsets,
            former_offsets=done.offsets,
        )

    def _positions(self, done: RewriteJournal, new: NewTopic) -> Positions:
        """Return the input that the former rows of a store are of."""
        if not done.offsets:
            return new.positions
        stores = by_store(self._spec.stores)[new.store]
        return tuple(listed(position_at(done.former_group_offsets, store)) for store in stores)

    # -- the group's offsets ------------------------------------------------------------------------------------------

    def _now(self) -> dict[TopicPartition, int]:
        """Return the next input offsets of the group, of the topics whose offsets go back."""
        read = {where.topic for where in self._journal.former_group_offsets}
        found = input_offsets(self._topics, self._first.application, read) if read else {}
        return {where: its.next_offset for where, its in found.items()}

    def _offsets(self) -> dict[TopicPartition, tuple[int | None, int]]:
        now = self._now()
        return {where: (now.get(where), then.next_offset) for where, then in self._journal.group_offsets.items()}

    def _processed(self) -> list[TopicPartition]:
        now, restored = self._now(), self._journal.former_group_offsets
        return [where for where, its in restored.items() if now.get(where) != its.next_offset]

    def _offsets_back(self) -> dict[TopicPartition, GroupOffset]:
        """Return the offsets that the group gets; earlier processes are fenced.

        Records sent to repartition topics since the restore are of input that is given up, so they are passed over.

        Raises
        ------
        InputError
            If a repartition topic had records on their way at the restore, and others came since.
        """
        back, restored = self._journal.group_offsets, self._journal.former_group_offsets
        internal = [where for where in restored if is_repartition_topic(self._first.application, where.topic)]
        logs = self._topics.log_ranges(internal)
        require_stable(logs)
        for where, log in logs.items():
            before, end = back.get(where, GroupOffset(0)), restored[where].next_offset
            if before.next_offset == end:
                back[where] = before._replace(next_offset=log.last_stable)
            elif log.high_watermark != end or log.start > before.next_offset:
                raise InputError(
                    f"{where} had the offsets {before.next_offset} to {end} on their way when the application was "
                    f"restored, and has {log.start} to {log.high_watermark} now: they cannot be told from what was "
                    "sent since. Nothing was changed"
                )
        return back

    def _former_stores(self) -> list[StorePartitionSpec]:
        """Return the store partitions as they are with the former changelogs."""
        configs, stores = self._topics.topic_configs(self._journal.topics), by_store(self._spec.stores)
        return [
            store.model_copy(
                update={
                    "changelog": changelog_spec(new.described(name), {**configs[name]}),
                    "store": store.store.model_copy(update={"changelog": name, "format": new.format}),
                }
            )
            for name, new in self._journal.topics.items()
            for store in stores[new.store]
        ]

    def _new(self, store: StorePartitionSpec) -> NewTopic:
        return self._journal.topics[store.partition.topic]

    def _is_back(self, store: StorePartitionSpec) -> bool:
        record = read_record(store.paths, store.store.name)
        return record is not None and record.topic_id == self._new(store).topic_id

    def _replaced(self, store: StorePartitionSpec) -> Path | None:
        return replaced_by(store.paths, store.store.name, self._journal.undoes, self._new(store).topic_id)

    def _written(self) -> dict[TopicPartition, int]:
        expected = {
            TopicPartition(new.before or "", number): count
            for new in self._journal.topics.values()
            for number, count in enumerate(new.records)
        }
        logs = self._topics.log_ranges(expected)
        more = {where: log.high_watermark - expected[where] for where, log in sorted(logs.items())}
        return {where: count for where, count in more.items() if count}

    def _require_expected(self) -> None:
        """Refuse to give up records that are not in the plan, or without --accept-loss."""
        written, processed = self._written(), self._processed()
        since = [f"{where} has {count} records more than the rewrite has written" for where, count in written.items()]
        since += [f"{where} was processed" for where in processed]
        if since and not self._spec.accept_loss:
            raise InputError(
                f"{', '.join(since)}: what was processed or appended since would be lost. Say --accept-loss to "
                "give it up. Nothing was changed"
            )
        if processed != self.plan.processed:
            raise InputError(
                f"group {self._first.application} has committed input since the undo was planned: the application "
                "runs. Stop it wherever it runs, then run again. Nothing was changed"
            )
        if written != self.plan.written:
            raise InputError(
                f"the later changelogs had {_counted(self.plan.written)} records from after the rewrite when the undo "
                f"was planned, and have {_counted(written)} now: something still writes to them, or an open "
                "transaction has ended. Find out what writes to them, then run again. Nothing was changed"
            )

    # -- going back ---------------------------------------------------------------------------------------------------

    def carry_out(self) -> list[Undone]:
        """Have the catalogue name the former changelogs, and put the replaced stores back.

        Raises
        ------
        InputError
            If something was written since that would be lost, a former changelog has lost what a store is to be built
            of, or the application is running. Nothing was changed.
        StoreBehindLogStartError
            If a former changelog loses records while a store is built from it. Nothing was changed.
        """
        if self.plan.finishes:
            built = self._build()
        else:
            fence(self._stores)  # else what they write from now on would be lost
            if self._journal.offsets:
                fence_tasks(self._first.cluster, self._first.application, self._spec.tasks)
            self._topics.require_no_members(self._first.application)
            self._require_expected()
            back = listed_offsets(self._offsets_back())
            self._journal = self._journal.model_copy(update={"offsets": back})
            write_journal(self._first.state_dir, self._journal)
            kill_switch.reached("undo, journal written")
            try:
                built = self._build()
            except (StateStoreError, OSError):
                self._take_back(self._journal)
                raise
            hold(self._first.state_dir, self._journal)
            # Whether it was logged is not known if this fails: then the next attempt asks the catalogue.
            self._hooks.adopt([self._adopted(name, new) for name, new in self._journal.topics.items()])
            kill_switch.reached("undo, adopted")
        settle(self._topics, self._first.state_dir, self._journal)
        rows = []
        for store in self._stores:
            if not self._is_back(store):
                rows.append(self._go_back(store, built.get(store.store_partition)))
            kill_switch.reached("undo, store put back")
        forget_done(self._first.state_dir, self._journal)
        kill_switch.reached("undo, record removed")
        release(self._first.state_dir, self._journal)
        remove_journal(self._first.state_dir, self._rewrite)
        return rows

    def _take_back(self, journal: RewriteJournal) -> None:
        release(self._first.state_dir, journal)
        clear_staged(self._spec.stores)
        remove_journal(self._first.state_dir, self._rewrite)

    def _build(self) -> dict[StorePartition, Staged]:
        """Build the stores that are no longer kept, next to the live ones, from the offsets that loss is judged by.

        Raises
        ------
        InputError
            If former changelogs have lost something at their start.
        """
        clear_staged(store for store in self._stores if self._is_back(store))  # left by a killed attempt
        missing = [store for store, replaced in self.plan.parts if replaced is None]
        asked = {
            store.store_partition: AskedLogs(brokers_clock.now_ms(store.cluster), store_logs(store))
            for store in missing
        }
        found = [(store, incomplete_log(store, asked[store.store_partition].logs)) for store in missing]
        lost = [
            f"{store.store_partition}: {loss.why}"
            for store, loss in found
            if loss is not None and loss.status is Status.TRUNCATED
        ]
        if lost and not self._spec.accept_loss:
            raise InputError(
                f"{'; '.join(lost)}. The stores that the rewrite replaced are no longer kept, and a store that is "
                "built from such a changelog would lack rows. Say --accept-loss to build it. "
                + ("The other stores are put back once you do" if self.plan.finishes else "Nothing was changed")
            )
        for paths in {store.paths for store in missing}:
            clear_built(paths)
        result = {}
        for store in missing:
            spec = whole_restore(store, self._journal.label, self._spec.run_bytes)
            position = self._new(store).position(store.task.partition)
            result[store.store_partition] = stage(spec, position, None, asked[store.store_partition])
        return result

    def _adopted(self, name: str, new: NewTopic) -> Adopted:
        assert new.before is not None, "it has a later one"
        return Adopted(new.store, new.described(name), new.before, new.format)

    def _go_back(self, store: StorePartitionSpec, built: Staged | None) -> Undone:
        new, begins = self._new(store), f"an undo of {self._journal.undoes}"
        if built is None:
            found = self._replaced(store)
            assert found is not None, "it is kept, else it was built"
            quarantine, _ = put_back(store, found, self._journal.label, begins)
            return Undone(store, found, quarantine)
        done = replace(built, f"its rewrite was undone; it has the changelog {new.before}", begins)
        return Undone(store, None, done.quarantine)


def _counted(written: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{count} in {where}" for where, count in written.items()) or "no"


@contextmanager
def undo(spec: UndoSpec, hooks: AdoptionHooks) -> Iterator[Undo]:
    """Lock all tasks of an application, and find what can be undone; `Undo.carry_out` does it.

    Raises
    ------
    LockedError
        If a task is in use.
    InputError
        If nothing can be undone, or a former changelog is gone. Nothing was changed.
    """
    with ExitStack() as locks:
        first = spec.stores[0]
        for task in sorted({*spec.tasks, *(store.task for store in spec.stores)}):
            paths = task_paths(first.state_dir, first.application, task)
            locks.enter_context(locked_task(paths, first.lock_wait_s, rewriting=True))
        for store in spec.stores:
            locks.enter_context(Staging(store.paths, store.store.name).alone(store.lock_wait_s))
        yield Undo(spec, hooks)
