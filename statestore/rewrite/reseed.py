"""Writing a lost changelog anew from its stores, which are the last copy of the state.

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
from pathlib import Path
from typing import NamedTuple

from statestore import clock, kill_switch
from statestore.bulk.digest import Digest
from statestore.changelog.group import ConsumerGroup
from statestore.changelog.topics import Topic, Topics
from statestore.discovery.changelogs import changelog_spec
from statestore.errors import DiskSpaceError, InputError, StateStoreError, StoreCorruptedError
from statestore.model import TopicPartition
from statestore.partition.replacement import clear_built
from statestore.partition.snapshots import publish_row
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Built, Logs, build_full
from statestore.recovery.planning import disk_needed, free_bytes, store_logs
from statestore.recovery.restore import put_in_place
from statestore.recovery.restore_progress import RestoreProgressWriter
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staged_check import check_staged
from statestore.recovery.staging import Staging
from statestore.reports import Loss, SnapshotRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.rewrite.changelog_writing import NewChangelogWriter, fence
from statestore.rewrite.examination import Examined, examine, require_rewritable
from statestore.rewrite.journal import ReseedJournal, read_journal, remove_journal, write_journal
from statestore.rewrite.lost_changelog import Made, Remains, lost_changelog, others_wrote
from statestore.rewrite.rows import Records, add_expected, bytes_of, records_of, stored_rows
from statestore.statedir.record import read_record
from statestore.statedir.sidecar import Judgement
from statestore.statedir.swap import locked_task

_log = logging.getLogger(__name__)
#: Rate that durations are estimated with: rows are read, written, read from the topic, and read again.
_ROWS_PER_S = 125_000
_BEGINS = "a reseed of its changelog"
_LOST = "its changelog was lost; the store that replaced it was restored from one that was written from its rows"


class ReseedSpec(NamedTuple):
    """What is to be written anew.

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
    """What a reseed will do.

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


class Reseeded(NamedTuple):
    """One store partition that was replaced.

    Attributes
    ----------
    committed
        Offset of its last record in the new changelog; None: it has none.
    quarantine
        Where the old store is.
    published
        The snapshot that was published; None: there is no archive.
    """

    store: StorePartitionSpec
    rows: int
    committed: int | None
    quarantine: Path | None
    published: SnapshotRow | None = None


class Reseed:
    """A reseed whose tasks are locked; made by `reseed`."""

    def __init__(self, spec: ReseedSpec) -> None:
        self._spec = spec
        self._store = store = spec.stores[0]
        self._topics = Topics(store.bootstrap_servers, store.kafka_timeout_s)
        self._topics.require_no_members(store.application)
        self._journal = read_journal(store.state_dir, store.application, store.store.name)
        self._made = self._lost(spec.tasks)
        self._finishes = self._made.remains is Remains.WHOLE
        self._replaced = [found for found in spec.stores if self._finishes and self._is_replaced(found)]
        left = [found for found in spec.stores if found not in self._replaced]
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
        with ConsumerGroup(store.bootstrap_servers, store.application, store.kafka_timeout_s) as group:
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
        return self._journal is not None and record is not None and record.topic_id == self._journal.topic_id

    def carry_out(self, adopt: Callable[[Topic], None]) -> list[Reseeded]:
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
        if self.plan.disk_free < self.plan.disk_needed:
            raise DiskSpaceError(
                f"writing {self.plan.topic} anew needs about {self.plan.disk_needed} bytes in {self._store.state_dir}, "
                f"{self.plan.disk_free} are free: free some, then run again"
            )
        journal, staged = (self._journal, {}) if self._finishes else self._write_topic()
        assert journal is not None, "a topic that is whole has a journal"
        topic = Topic(journal.topic, journal.topic_id, len(self._spec.stores))
        for store in self._replaced:  # an attempt that was killed may have left what it was built from
            clear_built(store.paths)
            Staging(store.paths, store.store.name).clear()
        rows = [self._replace(journal, part, staged.get(part.store.partition)) for part in self._parts]
        adopt(topic)
        kill_switch.reached("reseed, adopted")
        self._topics.set_config(topic.name, journal.config)
        kill_switch.reached("reseed, settings made")
        remove_journal(self._store.state_dir, journal.application, journal.store)
        return rows

    # -- the topic ----------------------------------------------------------------------------------------------------

    def _write_topic(self) -> tuple[ReseedJournal, dict[TopicPartition, tuple[Built, Logs]]]:
        """Make the topic, write the records, build stores of them and compare these; then the journal has it whole."""
        fence(self._spec.stores)  # else they would write into the new topic
        # Whoever was asked may have taken hours, and a topic is about to go.
        self._topics.require_no_members(self._store.application)
        self._made = self._lost(self._made.partitions)
        journal = self._make_topic()
        try:
            digests = self._write_records(journal)
            self._require_all(journal)
            staged: dict[TopicPartition, tuple[Built, Logs]] = {}
            for part in self._parts:
                where = part.store.partition
                staged[where] = self._build(journal, part, digests[where])
                kill_switch.reached("reseed, store built")
        except (StateStoreError, OSError):
            self._take_back(journal)
            raise
        # Whoever has started meanwhile, elsewhere, takes the topic for the stores' whole log.
        self._topics.require_no_members(journal.application)
        self._require_all(journal)
        journal = journal.model_copy(update={"whole": True})
        write_journal(self._store.state_dir, journal)
        kill_switch.reached("reseed, topic whole")
        return journal, staged

    def _lost(self, tasks: int | None) -> Made:
        return lost_changelog(self._topics, self._spec.stores, self._journal, tasks, self._spec.recorded)

    def _make_topic(self) -> ReseedJournal:
        store, made = self._store, self._made
        if made.remains is not Remains.NOTHING:
            self._topics.delete(store.partition.topic)
            kill_switch.reached("reseed, topic removed")
        remove_journal(store.state_dir, store.application, store.store.name)
        # Without `delete` nothing is removed, however old: each key is there once.
        config = {**made.config, "cleanup.policy": "compact"}
        topic = self._topics.make(store.partition.topic, made.partitions, config)
        kill_switch.reached("reseed, topic made, not in the journal")
        there = self._topics.topic_configs([topic.name])[topic.name]
        logs = self._topics.log_ranges([found.partition for found in self._spec.stores])
        if topic.partitions != made.partitions or any(log.high_watermark for log in logs.values()):
            raise InputError(f"topic {topic.name} was made by somebody else meanwhile: see who starts the application")
        if wrong := [name for name, value in config.items() if there.get(name) != value]:
            raise InputError(
                f"topic {topic.name} was made by somebody else meanwhile: it has not the settings {', '.join(wrong)}"
            )
        journal = ReseedJournal(
            application=store.application,
            store=store.store.name,
            topic=topic.name,
            topic_id=topic.topic_id,
            started_ms=self._spec.started_ms,
            records={str(part.store.task): part.contents.rows for part in self._parts},
            config={"cleanup.policy": made.config["cleanup.policy"]},
        )
        write_journal(store.state_dir, journal)
        kill_switch.reached("reseed, topic in the journal")
        return journal

    def _write_records(self, journal: ReseedJournal) -> dict[TopicPartition, Digest]:
        limit = int(self._topics.topic_configs([journal.topic])[journal.topic]["max.message.bytes"])
        writer = NewChangelogWriter(self._store, journal.topic, f"reseed of {journal.topic}", limit)
        try:
            return {part.store.partition: self._write_partition(writer, journal, part) for part in self._parts}
        finally:
            writer.close()

    def _write_partition(self, writer: NewChangelogWriter, journal: ReseedJournal, part: Examined) -> Digest:
        digest = Digest(part.store.store.values)
        for size, records in _live_records(part, journal, digest):
            writer.write(part.store.partition.partition, records, size)
            kill_switch.reached("reseed, batch sent")
        writer.flush()
        if digest.rows != part.contents.rows:
            raise StoreCorruptedError(
                f"{part.store.live} had {part.contents.rows} rows, and {digest.rows} when it was read again"
            )
        kill_switch.reached("reseed, partition written")
        return digest

    def _require_all(self, journal: ReseedJournal) -> None:
        """Make sure that the topic has what was written, and nothing else."""
        logs = self._topics.log_ranges([part.store.partition for part in self._parts])
        for part in self._parts:
            log, count = logs[part.store.partition], journal.records[str(part.store.task)]
            if (log.start, log.last_stable, log.high_watermark) != (0, count, count):
                raise InputError(
                    f"{part.store.partition} has the offsets {log.start} to {log.high_watermark}, expected 0 to "
                    f"{count}: somebody else writes to it, or removes what is in it. Stop the application wherever it "
                    "runs, then run again"
                )

    def _take_back(self, journal: ReseedJournal) -> None:
        """Remove a topic that could not be finished, if nobody else has written to it; else the journal names it.

        What was built from it goes in any case.
        """
        try:
            for part in self._parts:
                clear_built(part.store.paths)
                Staging(part.store.paths, part.store.store.name).clear()
            if not others_wrote(self._topics, self._spec.stores, journal):
                self._topics.delete(journal.topic)
                remove_journal(self._store.state_dir, journal.application, journal.store)
        except (StateStoreError, OSError) as error:
            _log.warning("reseed: topic %s is left half written: %s; run again", journal.topic, error)

    # -- the stores ---------------------------------------------------------------------------------------------------

    def _build(self, journal: ReseedJournal, part: Examined, expected: Digest) -> tuple[Built, Logs]:
        """Build a store from the new changelog, beside the live one, and make sure that it has its rows.

        Returns
        -------
        tuple
            The store, and the log that it was built from.

        Raises
        ------
        StoreCorruptedError
            If it has others.
        """
        spec = self._restore_spec(journal, part)
        store, asked_ms = spec.store, clock.now_ms()
        staging, logs = Staging(store.paths, store.store.name), store_logs(store)
        clear_built(store.paths)
        staging.clear_unfinished()
        with RestoreProgressWriter(store, None) as progress:
            built = build_full(spec, staging, logs, progress, asked_ms, part.position)
        rows = check_staged(store, built, "deep")
        if (rows, built.digest) != (expected.rows, expected.hexdigest()):
            raise StoreCorruptedError(
                f"changelog {journal.topic} gives {rows} rows with the digest {built.digest}, {part.store.live} has "
                f"{expected.rows} with {expected.hexdigest()}. Nothing was replaced"
            )
        return built, logs

    def _replace(self, journal: ReseedJournal, part: Examined, staged: tuple[Built, Logs] | None) -> Reseeded:
        spec = self._restore_spec(journal, part)
        if staged is None:
            expected = Digest(part.store.store.values)
            for _ in _live_records(part, journal, expected):
                pass
            staged = self._build(journal, part, expected)
        built, logs = staged
        verdict = Judgement(Status.REPLACED, Loss.UNPROVEN, _LOST)
        quarantine = put_in_place(spec, built, logs, verdict, f"{_BEGINS}, topic {journal.topic_id}")
        kill_switch.reached("reseed, store replaced")
        store = spec.store
        published = None if store.archive is None else publish_row(store, store.archive, "restore")
        return Reseeded(store, built.rows or 0, built.committed_offset, quarantine, published)

    def _restore_spec(self, journal: ReseedJournal, part: Examined) -> RestoreSpec:
        topic = Topic(journal.topic, journal.topic_id, len(self._spec.stores))
        changelog = changelog_spec(topic, {**self._topics.topic_configs([topic.name])[topic.name]})
        store = part.store.model_copy(update={"changelog": changelog})
        request = RestoreRequest(mode="full", force=True, check="deep")
        return RestoreSpec(store, request, journal.label, self._spec.run_bytes)


def _live_records(part: Examined, journal: ReseedJournal, digest: Digest) -> Iterator[tuple[int, Records]]:
    """Yield the records of a live store's rows with their bytes, and add to a digest what they give."""
    if not part.present:
        return
    for _, batch in stored_rows(part.store, part.contents.first_live):
        records = records_of(part.store, batch, journal.started_ms)
        add_expected(digest, part.store, batch, records)
        yield bytes_of(batch), records


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
        yield Reseed(spec)
