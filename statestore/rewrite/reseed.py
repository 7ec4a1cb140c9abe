"""Writes a new changelog from its stores, if the old one was lost and the stores are the last copy of the state.

    locks of all tasks -> all that speaks against it -> earlier processes fenced -> a new topic (journal) -> the rows of
    the stores, as records -> stores built from it beside the live ones -> both have the same rows -> the topic is whole
    (journal) -> the stores are replaced -> the topic is adopted -> the journal goes

Nobody owns the topic before it is whole: killed until then, the next reseed removes it and begins anew. Killed later,
the next one finishes. A store is replaced by the swap of a restore, so it is the old one or the new one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pyarrow as pa

from statestore import kill_switch
from statestore.bulk.digest import Digest
from statestore.discovery.changelogs import changelog_spec
from statestore.errors import StateStoreError, StoreCorruptedError
from statestore.kafka.groups import ConsumerGroup
from statestore.kafka.topics import Topic
from statestore.model import TopicPartition
from statestore.partition.replacement import clear_built
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.disk_space import disk_needed, free_bytes
from statestore.recovery.staging import Staging
from statestore.rewrite.changelog_writing import (
    ChangelogPart,
    fence,
    final_settings,
    make_changelog,
    require_written,
    surplus,
    write_changelog,
)
from statestore.rewrite.examination import Examined, examine, require_rewritable
from statestore.rewrite.journal import (
    NewTopic,
    Rewrite,
    RewriteJournal,
    end_journal,
    read_journal,
    remove_journal,
    require_no_other,
    write_journal,
)
from statestore.rewrite.lost_changelog import Made, Remains, lost_changelog
from statestore.rewrite.rows import form_of, stored_rows
from statestore.rewrite.staged_stores import (
    Expected,
    Rewritten,
    Staged,
    clear_staged,
    replace,
    require_room,
    stage,
    whole_restore,
)
from statestore.statedir.record import read_record
from statestore.statedir.swap import locked_task

_log = logging.getLogger(__name__)
#: Rate that durations are estimated with: rows are read, written, read from the topic, and read again.
_ROWS_PER_S = 125_000
_BEGINS = "a reseed of its changelog"
_LOST = "its changelog was lost; the store that replaced it was restored from one that was written from its rows"


class ReseedSpec(NamedTuple):
    """Changelogs to write anew.

    Attributes
    ----------
    stores
        All partitions of the store.
    tasks
        How many there must be; None: as many as the topic that is there has partitions.
    any_partitioner
        Keys may be in other partitions than Kafka's partitioner puts them into.
    recorded
        Id of the changelog in the catalogue; None: it is in none.
    run_bytes
        Bound of a sorted run in memory.
    started_ms
        Now, ms since the epoch.
    """

    stores: Sequence[StorePartitionSpec]
    tasks: int | None
    any_partitioner: bool
    recorded: str | None
    run_bytes: int
    started_ms: int


class ReseedPlan(NamedTuple):
    """Plan of a reseed.

    Attributes
    ----------
    topic
        Name of the changelog.
    found
        What is there of it, and what becomes of that.
    parts
        Its store partitions; of a reseed that is finished, those that are still to be replaced.
    replaced
        How many store partitions an earlier attempt has replaced.
    finishes
        An earlier attempt has written the topic: what is left is to replace stores and to adopt it.
    disk_needed, disk_free
        Bytes below the state directory.
    behind
        Signs that another machine has newer copies of the stores, for people.
    """

    topic: str
    found: str
    parts: Sequence[Examined]
    replaced: int
    finishes: bool
    disk_needed: int
    disk_free: int
    behind: Sequence[str]

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(part.contents.rows for part in self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of their keys and values."""
        return sum(part.contents.bytes for part in self.parts)

    @property
    def seconds(self) -> float:
        """How long it may take."""
        return round(self.rows / _ROWS_PER_S, 1)


class Reseed:
    """A reseed whose tasks are locked; made by `reseed`."""

    def __init__(self, spec: ReseedSpec) -> None:
        self._spec = spec
        self._store = store = spec.stores[0]
        self._topics = store.cluster.topics
        self._topics.require_no_members(store.application)
        self._rewrite = Rewrite("reseed", store.application, store.store.name)
        self._journal = read_journal(store.state_dir, self._rewrite)
        self._made = self._lost(spec.tasks)
        self._finishes = self._made.remains is Remains.WHOLE
        self._replaced = [found for found in spec.stores if self._finishes and self._is_replaced(found)]
        left = sorted((found for found in spec.stores if found not in self._replaced), key=lambda found: found.task)
        self._parts = [examine(found, None if spec.any_partitioner else self._made.partitions) for found in left]
        self.plan = self._planned()

    def _planned(self) -> ReseedPlan:
        needed = sum(disk_needed(part.contents.bytes, self._spec.run_bytes, part.contents.rows) for part in self._parts)
        free = free_bytes(self._store.state_dir)
        return ReseedPlan(
            topic=self._store.partition.topic,
            found=self._made.said,
            parts=self._parts,
            replaced=len(self._replaced),
            finishes=self._finishes,
            disk_needed=needed,
            disk_free=free,
            behind=[*self._behind()],
        )

    def _behind(self) -> Iterator[str]:
        """Compare the input that the rows are of with what the application has committed.

        A sign and no proof: input that changes no row is committed, too.
        """
        store = self._store
        with ConsumerGroup(store.cluster, store.application) as group:
            for part in self._parts:
                for source, last in part.position.items():
                    committed = group.committed(source)
                    if committed is not None and committed.next_offset > last + 1:
                        yield (
                            f"{part.store.store_partition} has rows of {source} up to offset {last}, and the "
                            f"application has committed {committed.next_offset}. That may be input that changed no "
                            "row. But if another machine has worked on this task since, its store is the newer one"
                        )

    def _is_replaced(self, store: StorePartitionSpec) -> bool:
        record = read_record(store.paths, store.store.name)
        return self._journal is not None and record is not None and record.topic_id == self._new(self._journal).topic_id

    def _new(self, journal: RewriteJournal) -> NewTopic:
        return journal.topics[self._store.partition.topic]

    def carry_out(self, adopt: Callable[[Topic], None]) -> list[Rewritten]:
        """Write the changelog, replace the stores, and adopt it; or finish what an earlier attempt began.

        Parameters
        ----------
        adopt
            Have the catalogue know the topic; called when all stores are replaced, also by each further attempt.

        Raises
        ------
        DiskSpaceError
            If the new stores will not fit beside the live ones.
        StoreCorruptedError
            If the new changelog does not give the rows of a store. Nothing was replaced.
        """
        plan, state_dir = self.plan, self._store.state_dir
        require_room(f"writing {plan.topic} anew", state_dir, plan.disk_needed, plan.disk_free)
        journal, staged = (self._journal, {}) if self._finishes else self._write_topic()
        assert journal is not None, "a topic that is whole has a journal"
        clear_staged(self._replaced)  # an attempt that was killed may have left what it was built from
        begins = f"{_BEGINS}, topic {self._new(journal).topic_id}"
        rows = []
        for part in self._parts:
            built = staged.get(part.store.partition) or self._stage(journal, part, _given(part, journal))
            rows.append(replace(built, _LOST, begins))
        adopt(self._new(journal).described(plan.topic))
        kill_switch.reached("rewrite, adopted")
        self._topics.set_config(plan.topic, self._new(journal).settings)
        kill_switch.reached("rewrite, settings made")
        end_journal(state_dir, journal)
        return rows

    # -- the topic ----------------------------------------------------------------------------------------------------

    def _write_topic(self) -> tuple[RewriteJournal, dict[TopicPartition, Staged]]:
        """Make the topic, write the records, build stores of them and compare these; then the journal has it whole."""
        fence(self._spec.stores)  # else they would write into the new topic
        # Whoever was asked may have taken hours, and a topic is about to go.
        self._topics.require_no_members(self._store.application)
        self._made = self._lost(self._made.partitions)
        journal = self._make_topic()
        try:
            digests = self._write_records(journal)
            require_written(self._topics, journal)
            staged = {
                part.store.partition: self._stage(journal, part, digest)
                for part, digest in zip(self._parts, digests, strict=True)
            }
        except (StateStoreError, OSError):
            self._take_back(journal)
            raise
        # Whoever has started meanwhile, elsewhere, takes the topic for the stores' whole log.
        self._topics.require_no_members(journal.application)
        require_written(self._topics, journal)
        journal = journal.model_copy(update={"whole": True})
        write_journal(self._store.state_dir, journal)
        kill_switch.reached("rewrite, whole")
        return journal, staged

    def _lost(self, tasks: int | None) -> Made:
        return lost_changelog(self._topics, self._spec.stores, self._journal, tasks, self._spec.recorded)

    def _make_topic(self) -> RewriteJournal:
        store, made, name = self._store, self._made, self._store.partition.topic
        if made.remains is not Remains.NOTHING:
            self._topics.delete(name)
            kill_switch.reached("rewrite, topic removed")
        remove_journal(store.state_dir, self._rewrite)
        topic = make_changelog(self._topics, name, made.partitions, made.config)
        kill_switch.reached("rewrite, topic made, not in the journal")
        records = tuple(part.contents.rows for part in self._parts)
        new = NewTopic(
            store=store.store.name,
            format=store.store.format,
            topic_id=topic.topic_id,
            records=records,
            settings=final_settings(made.config),
        )
        journal = RewriteJournal(**self._rewrite._asdict(), started_ms=self._spec.started_ms, topics={name: new})
        write_journal(store.state_dir, journal)
        kill_switch.reached("rewrite, topic in the journal")
        return journal

    def _write_records(self, journal: RewriteJournal) -> list[Digest]:
        parts = [ChangelogPart(part.store, _live_rows(part), part.position) for part in self._parts]
        digests = write_changelog(self._topics, self._store.partition.topic, journal.started_ms, parts)
        for part, digest in zip(self._parts, digests, strict=True):
            if digest.rows != part.contents.rows:
                raise StoreCorruptedError(
                    f"{part.store.live} had {part.contents.rows} rows, and {digest.rows} when it was read again"
                )
        return digests

    def _take_back(self, journal: RewriteJournal) -> None:
        """Remove a topic that could not be finished, if nobody else has written to it; else the journal names it.

        What was built from it goes in any case.
        """
        topic, new = self._store.partition.topic, self._new(journal)
        try:
            clear_staged(self._spec.stores)
            if surplus(self._topics, new.described(topic), new.records) is None:
                self._topics.delete(topic)
                remove_journal(self._store.state_dir, self._rewrite)
        except (StateStoreError, OSError) as error:
            _log.warning("reseed: topic %s is left half written: %s; run again", topic, error)

    def _stage(self, journal: RewriteJournal, part: Examined, given: Digest) -> Staged:
        topic = self._new(journal).described(part.store.partition.topic)
        changelog = changelog_spec(topic, {**self._topics.topic_configs([topic.name])[topic.name]})
        store = part.store.model_copy(update={"changelog": changelog})
        clear_built(store.paths)
        spec = whole_restore(store, journal.label, self._spec.run_bytes)
        return stage(spec, part.position, Expected(given.rows, given.hexdigest()))


def _live_rows(part: Examined) -> Iterator[pa.RecordBatch]:
    if part.present:
        for _, batch in stored_rows(part.store, part.contents.first_live):
            yield batch


def _given(part: Examined, journal: RewriteJournal) -> Digest:
    """Return the digest of what the records of a live store's rows give."""
    digest = Digest(part.store.store.values)
    for batch in _live_rows(part):
        form = form_of(part.store.store)
        form.add_expected(digest, part.store, batch, form.records(part.store, batch, journal.started_ms))
    return digest


@contextmanager
def reseed(spec: ReseedSpec) -> Iterator[Reseed]:
    """Lock all tasks of a store, and find out what a reseed would do; `Reseed.carry_out` does it.

    Raises
    ------
    LockedError
        If a task is in use.
    InputError
        If something speaks against it; nothing was changed.
    """
    require_rewritable(spec.stores)
    with ExitStack() as locks:
        for store in spec.stores:
            locks.enter_context(locked_task(store.paths, store.lock_wait_s))
            locks.enter_context(Staging(store.paths, store.store.name).alone(store.lock_wait_s))
        rewrite = Rewrite("reseed", store.application, store.store.name)
        require_no_other(store.state_dir, rewrite, [store.store.name])
        yield Reseed(spec)
