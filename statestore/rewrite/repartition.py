"""Making an application of the state of another, with another number of partitions.

    locks of the other's tasks -> all that speaks against it -> journal -> new topics -> the rows, each as a record
    where Kafka's partitioner puts it -> stores built from these, with the same rows -> all is whole (journal) ->
    offsets of the new group -> the catalogue records the topics -> the journal goes

The other application is only read. While the journal is there, nobody else opens a task of the new one here. Killed
before all is whole, the next attempt discards what is there and begins anew; killed later, it finishes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

from statestore import kill_switch
from statestore.changelog.input_offsets import input_offsets, keep_offsets
from statestore.changelog.topic_settings import changelog_config
from statestore.discovery.changelogs import changelog_spec
from statestore.errors import InputError, StateStoreError, StoreCorruptedError
from statestore.formats.position import position_headers
from statestore.kafka.groups import GroupOffset, commit_offsets, committed_offsets
from statestore.kafka.topics import Topic
from statestore.kafka.writer import AtLeastOnceWriter
from statestore.model import TopicPartition, is_repartition_topic
from statestore.partition.grouping import by_store
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.disk_space import disk_needed, free_bytes
from statestore.recovery.runner import Runner
from statestore.rewrite.built_tasks import BuiltTasks, Digests, TargetPart, build_tasks
from statestore.rewrite.changelog_writing import (
    compresses,
    fence,
    final_settings,
    kept_settings,
    logged_position,
    make_changelog,
    require_written,
)
from statestore.rewrite.examination import require_rewritable
from statestore.rewrite.group_offsets import (
    Groups,
    InputPair,
    NewOffsets,
    goes_on_everywhere,
    new_offsets,
    require_the_same,
)
from statestore.rewrite.journal import (
    NewTopic,
    Rewrite,
    RewriteJournal,
    end_journal,
    read_journal,
    remove_journal,
    write_journal,
)
from statestore.rewrite.new_application import discard, require_no_more, require_unused
from statestore.rewrite.partitioned import (
    LastRecord,
    SourcePart,
    Surveyed,
    WritePart,
    Written,
    counted,
    last_with_rows,
    survey_part,
    write_part,
)
from statestore.rewrite.repartition_plan import MadeStore, RepartitionPlan, RepartitionSpec, StorePlan
from statestore.rewrite.staged_stores import Expected, require_room, whole_restore
from statestore.statedir.lock import locked_file
from statestore.statedir.paths import rewrite_journal, rewrite_lock
from statestore.statedir.swap import locked_task

_log = logging.getLogger(__name__)
#: Rate of one process that durations are estimated with: rows are read twice, written, read from the topic, checked.
_ROWS_PER_S = 100_000
#: Tasks that are built at a time by one process, within the memory of one: half of what that takes is waiting for the
#: disk. So many pieces at least are left for each process.
_BESIDE, _PIECES_EACH = 4, 2


class Repartition:
    """A repartition whose tasks are locked; made by `repartition`."""

    def __init__(self, spec: RepartitionSpec, run: Runner) -> None:
        self._spec, self._run = spec, run
        self._new = spec.new
        store = spec.source[0]
        self._source = store.application
        self._topics = store.cluster.topics
        self._require_no_members()
        self._rewrite = Rewrite("rewrite", self._new.name)
        self._journal = read_journal(self._new.first.state_dir, self._rewrite)
        self._by_store = by_store(spec.source)
        self._ends = self._ends_of_source()
        self._require_fitting_journal()
        require_unused(self._topics, self._new, self._journal)
        self._finishes = self._journal is not None and self._journal.whole
        self._surveyed: dict[str, list[Surveyed]] = {}
        if not self._finishes:
            self._require_all_tasks()
            self._survey()
        self._offsets = self._find_offsets()
        self.plan = self._planned()

    def _require_fitting_journal(self) -> None:
        journal = self._journal
        if journal is None or not journal.whole:
            return
        made = (journal.source, journal.partitions, journal.snapshot_set is None)
        if made != (self._source, self._spec.partitions, self._spec.cut is None):
            raise InputError(
                f"{self._new.name} was made of {journal.source} with {journal.partitions} partitions by a rewrite that "
                "was interrupted when all but the group's offsets was done: run that command again"
            )
        if self._spec.cut is not None or not self._has_changed(journal):
            return
        store = self._spec.source[0]
        if committed_offsets(store.cluster, self._new.name):
            if goes_on_everywhere(self._groups, self._inputs()):
                return  # it is a copy of the time when it was made, and complete
            raise InputError(
                f"{self._source} has gone on since {self._new.name} was made of it, and the rewrite was interrupted "
                f"when the group had its offsets. If {self._new.name} has been started since, it is whole: delete "
                f"{rewrite_journal(store.state_dir, self._new.name)}. If not, delete the group {self._new.name}, and "
                "run again: then it is made anew. Nothing was changed"
            )
        self._journal = journal.model_copy(update={"whole": False})  # what was made is older than the state by now

    def _has_changed(self, journal: RewriteJournal) -> bool:
        """Return whether the state was processed, corrected, or rewritten since the journal's rows were read."""
        if journal.changelogs and journal.changelogs != self._ends:
            return True
        if goes_on_everywhere(self._groups, self._inputs()):
            return False
        read = {pair.source for pair in self._inputs()}
        found = input_offsets(self._topics, self._source, read)
        return _told(found) != journal.committed

    def _ends_of_source(self) -> tuple[tuple[str, str, int, int], ...]:
        """Return the changelogs of the rows: topic, its id, partition, and end. The rows of a cut stay as they are."""
        if self._spec.cut is not None:
            return ()
        found = self._topics.describe({store.partition.topic for store in self._spec.source})
        logs = self._topics.log_ranges(store.partition for store in self._spec.source if store.partition.topic in found)
        return tuple(
            (where.topic, found[where.topic].topic_id, where.partition, log.high_watermark)
            for where, log in sorted(logs.items())
        )

    # -- what speaks against it ---------------------------------------------------------------------------------------

    def _require_no_members(self) -> None:
        if self._spec.cut is None:
            self._topics.require_no_members(self._source)

    def _require_the_same(self) -> None:
        """Make sure that nobody has worked on the stores, or on their input, since they were read."""
        if self._spec.cut is not None:
            return
        require_the_same(self._topics, self._groups, self._inputs(), self._offsets)
        if self._ends_of_source() != self._ends:
            raise InputError(
                f"{self._source} was changed while its stores were read: its changelogs have other records by now. "
                "Stop what changes it, and run again. Nothing was changed"
            )

    def _require_all_tasks(self) -> None:
        """Make sure that all partitions of each store are here."""
        for name, stores in self._by_store.items():
            self._require_tasks_of(name, stores)

    def _require_tasks_of(self, name: str, stores: Sequence[StorePartitionSpec]) -> None:
        changelog = stores[0].changelog
        if changelog is None:
            raise InputError(f"changelog topic {stores[0].partition.topic} does not exist. Nothing was changed")
        numbers = [store.task.partition for store in stores]
        if numbers != list(range(changelog.partitions or 0)) or len({store.task.subtopology for store in stores}) != 1:
            raise InputError(
                f"the changelog of {self._source}/{name} has {changelog.partitions} partitions, one for each task, and "
                f"the tasks here are {', '.join(str(store.task) for store in stores)}: all of them must be. Nothing "
                "was changed"
            )

    def _survey(self) -> None:
        parts = [self._part(store) for stores in self._by_store.values() for store in stores]
        found = iter(self._run(parts, survey_part, Surveyed))
        self._surveyed = {name: [next(found) for _ in stores] for name, stores in self._by_store.items()}

    def _part(self, store: StorePartitionSpec) -> SourcePart:
        count = len(self._by_store[store.store.name])
        into, spec = len(self._new.stores[store.store.name]), self._spec
        return SourcePart(store, count, into, spec.any_partitioner, caught_up=spec.cut is None)

    @property
    def _snapshot_set(self) -> str | None:
        """Name of the set that the new application is made of, or was when an earlier attempt has made it."""
        if self._journal is not None and self._finishes:
            return self._journal.snapshot_set
        return None if self._spec.cut is None else self._spec.cut.snapshot_set

    # -- the group ----------------------------------------------------------------------------------------------------

    @property
    def _groups(self) -> Groups:
        spec, store = self._spec, self._spec.source[0]
        as_is = all(len(stores) == len(self._new.stores[name]) for name, stores in self._by_store.items())
        return Groups(
            store.cluster,
            self._source,
            self._new.name,
            spec.partitions,
            as_is,
            spec.reads_from,
        )

    def _find_offsets(self) -> NewOffsets:
        if self._journal is not None and self._finishes:
            return NewOffsets(self._journal.group_offsets, {}, [])
        if self._spec.cut is not None:
            return self._spec.cut.offsets
        return new_offsets(self._topics, self._groups, self._inputs())

    def _inputs(self) -> Sequence[InputPair]:
        """Return what the two read, as the definitions say, or as the group of an application without one shows."""
        spec, store = self._spec, self._spec.source[0]
        if spec.inputs is not None:
            return spec.inputs
        committed = committed_offsets(store.cluster, self._source)
        names = self._topics.describe(sorted({where.topic for where in committed}))
        if not names:
            raise InputError(
                f"group {self._source} has no committed offsets, or they have expired: what input the state is of is "
                "not known. Start the application once, so that it commits, stop it, and run again. Nothing was changed"
            )
        if unknown := sorted(set(spec.renamed) - set(names)):
            raise InputError(
                f"--input: {self._source} has not read {', '.join(unknown)}; it has read {', '.join(sorted(names))}"
            )
        return [
            InputPair(name, None, internal=True)
            if is_repartition_topic(self._source, name)
            else InputPair(name, spec.renamed.get(name, name))
            for name in sorted(names)
        ]

    def _positions(self, subtopology: int, partition: int) -> dict[TopicPartition, int]:
        """Return the last input offsets of a new task: all before where its group goes on is in its stores."""
        own = self._topics_of(subtopology)
        return {
            where: found.next_offset - 1
            for where, found in self._offsets.offsets.items()
            if where.topic in own and where.partition == partition and found.next_offset
        }

    def _topics_of(self, subtopology: int) -> set[str]:
        """Return what a new sub-topology reads, as the definitions or the rows of its stores say."""
        pairs = self._inputs()
        if any(pair.subtopology is not None for pair in pairs):
            return {pair.target for pair in pairs if pair.target is not None and pair.subtopology == subtopology}
        of_it = [name for name, stores in self._by_store.items() if stores[0].task.subtopology == subtopology]
        seen = {topic for name in of_it for part in self._surveyed[name] for topic in part.topics}
        return {pair.target for pair in pairs if pair.target is not None and pair.source in seen}

    # -- the plan -----------------------------------------------------------------------------------------------------

    def _planned(self) -> RepartitionPlan:
        spec = self._spec
        stores = [
            StorePlan(name, len(of), into, counted(of[0], self._surveyed[name], into))
            for name, of in self._by_store.items()
            for into in [len(self._new.stores[name])]
            if not self._finishes
        ]
        needed = sum(
            disk_needed(size, spec.run_bytes, rows)
            for store in stores
            for size, rows in zip(store.counted.bytes, store.counted.rows, strict=True)
        )
        cores = min(spec.parallelism, spec.partitions)
        return RepartitionPlan(
            source=self._source,
            target=self._new.name,
            partitions=spec.partitions,
            snapshot_set=self._snapshot_set,
            stores=stores,
            finishes=self._finishes,
            discards=self._journal is not None and not self._finishes,
            offsets=self._offsets.offsets,
            said=self._offsets.said,
            seconds=round(sum(store.rows for store in stores) / _ROWS_PER_S / cores, 1),
            disk_needed=needed,
            disk_free=free_bytes(self._new.first.state_dir),
        )

    # -- doing it -----------------------------------------------------------------------------------------------------

    def carry_out(self, adopt: Callable[[Sequence[Topic]], None]) -> list[MadeStore]:
        """Make the application, or finish what an earlier attempt began.

        Parameters
        ----------
        adopt
            Have the catalogue know the changelogs; called when all else is done, also by each further attempt.

        Raises
        ------
        DiskSpaceError
            If the new stores will not fit. Nothing was made.
        StoreCorruptedError
            If a new changelog does not give the rows that were written. What was made is discarded.
        """
        rows: list[MadeStore] = []
        journal = self._journal
        if not self._finishes:
            application_lock, _ = self._new.first.paths.locks  # Kafka Streams holds it alone while it runs
            with locked_file(application_lock, self._new.first.lock_wait_s, shared=True):
                journal, rows = self._make()
        assert journal is not None
        for name, topic in journal.topics.items():
            self._topics.set_config(name, topic.settings)
        kill_switch.reached("rewrite, settings made")
        self._commit_offsets(journal)
        kill_switch.reached("rewrite, offsets committed")
        adopt([topic.described(name) for name, topic in journal.topics.items()])
        kill_switch.reached("rewrite, adopted")
        end_journal(self._new.first.state_dir, journal)
        return rows

    def _make(self) -> tuple[RewriteJournal, list[MadeStore]]:
        """Write the changelogs and build the stores; then the journal has all whole."""
        # Whoever was asked may have taken hours.
        self._require_no_members()
        require_unused(self._topics, self._new, self._journal)
        self._require_the_same()
        state_dir = self._new.first.state_dir
        if self._journal is not None:
            discard(self._topics, self._new, self._journal)
        require_room(f"making {self._new.name}", state_dir, self.plan.disk_needed, free_bytes(state_dir))
        journal = self._begun()
        write_journal(state_dir, journal)
        kill_switch.reached("rewrite, journal written")
        try:
            with ThreadPoolExecutor(1) as beside:
                nobody_inside = beside.submit(self._require_nobody_inside)
                journal = self._make_topics(journal)
                nobody_inside.result()
            written = self._write(journal)
            require_written(self._topics, journal)
            rows = self._build(journal, written)
            # Whoever has started meanwhile, elsewhere, takes the topics for whole.
            self._require_no_members()
            require_unused(self._topics, self._new, journal)
            self._require_the_same()
            require_written(self._topics, journal)
        except (StateStoreError, OSError):
            self._take_back(journal)
            raise
        journal = journal.model_copy(update={"whole": True})
        write_journal(state_dir, journal)
        kill_switch.reached("rewrite, whole")
        return journal, rows

    def _begun(self) -> RewriteJournal:
        topics = {}
        for store in self.plan.stores:
            config = self._config(store.name)
            name = self._new.stores[store.name][0].partition.topic
            topics[name] = NewTopic(
                store=store.name,
                format=self._new.stores[store.name][0].store.format,
                records=store.counted.rows,
                settings=final_settings(config),
            )
        return RewriteJournal(
            **self._rewrite._asdict(),
            source=self._source,
            snapshot_set=self._snapshot_set,
            partitions=self._spec.partitions,
            started_ms=self._spec.started_ms,
            topics=topics,
            offsets=tuple(
                (where.topic, where.partition, found.next_offset, found.metadata)
                for where, found in self._offsets.offsets.items()
            ),
            committed=_told(self._offsets.committed),
            changelogs=self._ends,
        )

    @property
    def _elsewhere(self) -> bool:
        return self._spec.cut is not None and self._spec.cut.elsewhere

    def _config(self, name: str) -> dict[str, str]:
        """Return the settings of a new changelog: those of a store of its kind, and what the other's has of its own.

        The other's in another cluster is not asked: then it is what somebody has set for the new one, made and empty.
        """
        source = self._by_store[name][0]
        kept = kept_settings(self._topics, (self._new.stores[name][0] if self._elsewhere else source).partition.topic)
        kept.pop("message.timestamp.type", None)
        return changelog_config(source.store) | kept

    def _require_nobody_inside(self) -> None:
        """Wait for who has opened a task of the new application before the journal was there, and fence it."""
        tasks = {store.paths: store for stores in self._new.stores.values() for store in stores}
        for paths, store in tasks.items():
            with locked_task(paths, store.lock_wait_s, rewriting=True):
                pass
        fence(tasks.values())

    def _make_topics(self, journal: RewriteJournal) -> RewriteJournal:
        for store in self.plan.stores:
            new = self._new.stores[store.name][0]
            name = new.partition.topic
            if self._topics.find(name) is not None:  # made when the application was applied, and empty
                self._topics.delete(name)
                kill_switch.reached("rewrite, empty topic removed")
            topic = make_changelog(self._topics, name, store.after, self._config(store.name))
            kill_switch.reached("rewrite, topic made, not in the journal")
            journal = journal.made(topic)
            write_journal(new.state_dir, journal)
            kill_switch.reached("rewrite, topic in the journal")
        return journal

    def _write(self, journal: RewriteJournal) -> dict[str, Digests]:
        configs = self._topics.topic_configs(journal.topics)
        work = []
        for store in self.plan.stores:
            topic = self._new.stores[store.name][0].partition.topic
            limit = int(configs[topic]["max.message.bytes"])
            # What is in another cluster is not asked.
            compress = self._elsewhere or compresses(self._topics, self._by_store[store.name])
            positions = self._logged_positions(store.name)
            parts = list(zip(self._by_store[store.name], self._surveyed[store.name], strict=True))
            # The part that writes the last rows of a new partition returns the last one, which gets the position.
            ending = last_with_rows([seen for _, seen in parts], store.counted.first_live)
            for number, (part, seen) in enumerate(parts):
                bounds = tuple(max(bound, seen.first_live) for bound in store.counted.first_live)
                ends = tuple(to for to, last in enumerate(ending) if last == number and positions[to])
                write = WritePart(self._part(part), topic, limit, bounds, journal.started_ms, compress, ends)
                work.append(write)
        found = iter(self._run(work, write_part, Written))
        result = {}
        for store in self.plan.stores:
            digests, held = Digests(store.after, self._by_store[store.name][0]), list[LastRecord]()
            for _ in self._by_store[store.name]:
                written = next(found)
                digests.add(written)
                held += written.held
            self._write_last(store.name, held)
            if (rows := digests.rows) != store.counted.rows:
                raise StoreCorruptedError(
                    f"{self._source}/{store.name} had {store.counted.rows} rows for the new partitions, and {rows} "
                    "when it was read again"
                )
            result[store.name] = digests
        kill_switch.reached("rewrite, all written")
        return result

    def _logged_positions(self, name: str) -> list[Mapping[TopicPartition, int]]:
        """Return the positions that the new changelogs of a store carry, by partition."""
        subtopology = self._by_store[name][0].task.subtopology
        return [
            logged_position(store, self._positions(subtopology, number))
            for number, store in enumerate(self._new.stores[name])
        ]

    def _write_last(self, name: str, held: Sequence[LastRecord]) -> None:
        """Write the last record of each partition of a store's new changelog, with the position of its rows."""
        if not held:
            return
        store, positions = self._new.stores[name][0], self._logged_positions(name)
        writer = AtLeastOnceWriter(store.cluster, f"rewrite of {self._source}/{name}")
        with closing(writer):
            writer.begin()
            for number, key, value, timestamp in (last.record for last in held):
                headers = position_headers(positions[number])
                writer.produce(store.partition.topic, key, value, timestamp, number, headers)
            writer.flush()

    def _build(self, journal: RewriteJournal, written: Mapping[str, Digests]) -> list[MadeStore]:
        """Build the new stores task by task, several at a time; each goes into its place when its rows are right."""
        configs = self._topics.topic_configs(journal.topics)
        tasks: dict[object, list[TargetPart]] = {}
        positions = {
            (store.task.subtopology, number): self._positions(self._by_store[name][0].task.subtopology, number)
            for name, stores in self._new.stores.items()
            for number, store in enumerate(stores)
        }
        for name, stores in self._new.stores.items():
            topic = stores[0].partition.topic
            changelog = changelog_spec(journal.topics[topic].described(topic), configs[topic])
            for number, store in enumerate(stores):
                store = store.model_copy(update={"changelog": changelog})
                rows, digest = written[name].of(number)
                restore = whole_restore(store, journal.label, self._spec.run_bytes, publish=False)
                position = positions[store.task.subtopology, number]
                tasks.setdefault(store.paths, []).append(TargetPart(restore, position, Expected(rows, digest)))
        beside = min(max(len(tasks) // (_PIECES_EACH * self._spec.parallelism), 1), _BESIDE)
        each = list(tasks.values())
        pieces = [each[first : first + beside] for first in range(0, len(each), beside)]
        built = [task for found in self._run(pieces, build_tasks, BuiltTasks) for task in found.tasks]
        kill_switch.reached("rewrite, all built")
        return [
            MadeStore(part.restore.store, part.expected.rows, committed)
            for piece, found in zip(each, built, strict=True)
            for part, committed in zip(piece, found.committed, strict=True)
        ]

    def _take_back(self, journal: RewriteJournal) -> None:
        """Discard what could not be finished, if nobody else has begun to use it; else the journal stays."""
        try:
            # Topics that were made since have an id in the journal on disk.
            journal = read_journal(self._new.first.state_dir, self._rewrite) or journal
            require_unused(self._topics, self._new, journal)
            discard(self._topics, self._new, journal)
            remove_journal(self._new.first.state_dir, self._rewrite)
        except (StateStoreError, OSError) as error:
            _log.warning("rewrite: %s is left half made: %s; run again", self._new.name, error)

    def _commit_offsets(self, journal: RewriteJournal) -> None:
        """Commit the new group's offsets, unless an earlier attempt has: then the application may have gone on."""
        store, wanted = self._new.first, journal.group_offsets
        there = committed_offsets(store.cluster, journal.application)
        for where, offset in wanted.items():
            if where in there and there[where].next_offset < offset.next_offset:
                raise InputError(
                    f"group {journal.application} is at offset {there[where].next_offset} of {where}, expected "
                    f"{offset.next_offset}: somebody has started the application before it was whole. Stop it, delete "
                    "the group, its changelogs and its directories, and run again"
                )
        if not there:
            for name, topic in journal.topics.items():
                require_no_more(self._topics, journal.application, topic.described(name), topic.records)
        if left := {where: offset for where, offset in wanted.items() if where not in there}:
            keep_offsets(self._topics, journal.application, left)
            kill_switch.reached("rewrite, input offsets kept, not committed")
            commit_offsets(store.cluster, journal.application, left)


def _told(offsets: Mapping[TopicPartition, GroupOffset]) -> tuple[tuple[str, int, int], ...]:
    return tuple((where.topic, where.partition, found.next_offset) for where, found in sorted(offsets.items()))


@contextmanager
def repartition(spec: RepartitionSpec, run: Runner) -> Iterator[Repartition]:
    """Lock all tasks of an application, and find out what making another of it would do; `carry_out` does it.

    Parameters
    ----------
    run
        Does the pieces of work.

    Raises
    ------
    LockedError
        If a task, or another rewrite of the new application, is at work.
    InputError
        If something speaks against it; nothing was changed.
    """
    stores_by_name = by_store(spec.source)
    for stores in stores_by_name.values():
        require_rewritable(stores)
    store = spec.source[0]
    with ExitStack() as locks:
        locks.enter_context(locked_file(rewrite_lock(spec.new.first.state_dir, spec.new.name), store.lock_wait_s))
        for paths in dict.fromkeys(found.paths for found in spec.source):
            locks.enter_context(locked_task(paths, store.lock_wait_s))
        yield Repartition(spec, run)
