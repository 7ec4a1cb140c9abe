"""Giving a store other rows, all at once: a new changelog of them, under a new name, and the stores that it gives.

    locks of all tasks -> what an earlier attempt has left -> all that speaks against it -> earlier processes fenced ->
    a new topic (journal) -> the rows, as records -> stores built from it beside the live ones -> both have the same
    rows -> the store's suite -> the catalogue names the topic -> the stores are replaced -> the journal goes

The catalogue decides: until it names the new topic, the old stores and their changelog are as they were, and a killed
overwrite is thrown away by the next one. From then on only the new one counts: a task whose store is still the old one
refuses to work, and the next attempt replaces what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore import clock, kill_switch
from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.changelog.topics import Topic, Topics, changelog_config
from statestore.discovery.changelogs import changelog_spec
from statestore.errors import DiskSpaceError, InputError, RebuildError, StateStoreError, StoreCorruptedError
from statestore.model import TopicPartition, changelog_number, later_changelog
from statestore.partition.inspection import inspect
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
from statestore.rewrite.examination import require_rewritable
from statestore.rewrite.overwrite_journal import (
    OverwriteJournal,
    read_overwrite_journal,
    remove_overwrite_journal,
    write_overwrite_journal,
)
from statestore.rewrite.row_stage import RowStage, remove_abandoned, require_rows, require_single_keys
from statestore.rewrite.rows import add_expected, bytes_of, records_of
from statestore.statedir.record import read_record
from statestore.statedir.sidecar import Judgement
from statestore.statedir.swap import locked_task
from statestore.stores.open import build_store
from statestore.verification.kernels import numbers_in

_log = logging.getLogger(__name__)
_BEGINS = "an overwrite of its rows"
_OVERWRITTEN = "its rows were overwritten; it has the changelog"


class OverwriteSpec(NamedTuple):
    """What is to be written.

    Attributes
    ----------
    stores
        All partitions of the store, with the changelog that they have now.
    rows
        What they get.
    run_bytes
        Bound of a sorted run in memory.
    started_ms
        Now, ms since the epoch.
    """

    stores: Sequence[StorePartitionSpec]
    rows: RowStage
    run_bytes: int
    started_ms: int


class Catalogued(NamedTuple):
    """The changelog of the store in the catalogue: its name, and its id, if one was recorded."""

    topic: str
    topic_id: str | None


class Overwritten(NamedTuple):
    """One store partition that was replaced.

    Attributes
    ----------
    committed
        Offset of its last record in the new changelog; None: it has none.
    quarantine
        Where the old store is; None: there was none.
    published
        The snapshot that was published; None: there is no archive.
    """

    store: StorePartitionSpec
    rows: int
    committed: int | None
    quarantine: Path | None
    published: SnapshotRow | None = None


class Hooks(NamedTuple):
    """What an overwrite asks of others.

    Attributes
    ----------
    catalogued
        The store's changelog in the catalogue of now.
    judge
        Refuse the stores that were built, given as they are to be with the new changelog; they lie in staging.
    adopt
        Have the catalogue name another topic as the changelog, in the place of the one of this name.
    """

    catalogued: Callable[[], Catalogued]
    judge: Callable[[Sequence[StorePartitionSpec]], None]
    adopt: Callable[[Topic, str], None]


class _Part(NamedTuple):
    """One store partition, its number of rows and their bytes, and the input that its present rows are of."""

    store: StorePartitionSpec
    rows: int
    bytes: int
    position: Mapping[TopicPartition, int] | None


class Overwrite:
    """An overwrite whose tasks are locked; made by `overwrite`."""

    def __init__(self, spec: OverwriteSpec, hooks: Hooks) -> None:
        self._spec, self._hooks = spec, hooks
        self._store = store = spec.stores[0]
        self._topics = Topics(store.bootstrap_servers, store.kafka_timeout_s)

    def carry_out(self) -> list[Overwritten]:
        """Write the changelog, have the catalogue name it, and replace the stores.

        Raises
        ------
        InputError
            If something speaks against it, or the suite does not pass. Nothing was changed.
        DiskSpaceError
            If the new stores will not fit beside the live ones.
        StoreCorruptedError
            If the new changelog does not give the rows. Nothing was changed.
        """
        self._topics.require_no_members(self._store.application)
        require_rows(self._spec.rows)
        self.finish_former()
        parts = [self._examined(store) for store in self._spec.stores]
        self._require_disk(parts)
        fence(self._spec.stores)
        journal = self._make_topic(parts)
        staged = self._built(journal, parts)
        # Whether it was logged is not known if this fails: then the next attempt asks the catalogue.
        self._hooks.adopt(self._topic(journal), journal.before)
        kill_switch.reached("overwrite, adopted")
        rows = [self._replaced(journal, part.store, staged[part.store.partition]) for part in parts]
        self._finish(journal)
        return rows

    def finish_former(self) -> None:
        """Finish what an earlier attempt has begun, if the catalogue has its topic; else throw it away."""
        journal = self._journal()
        if journal is None:
            return
        now = self._hooks.catalogued()
        if journal.topic_id is not None and now == Catalogued(journal.topic, journal.topic_id):
            for store in self._with_changelog(journal):
                record = read_record(store.paths, store.store.name)
                if record is None or record.topic_id != journal.topic_id:
                    was = store.store.model_copy(update={"changelog": journal.before})
                    old = store.model_copy(update={"changelog": None, "store": was})
                    self._replaced(journal, store, self._build(journal, store, None, _position(old)))
                else:  # an attempt that was killed may have left what it was built from
                    clear_built(store.paths)
                    Staging(store.paths, store.store.name).clear()
            self._finish(journal)
            return
        self._throw_away(journal)

    def _journal(self) -> OverwriteJournal | None:
        return read_overwrite_journal(self._store.state_dir, self._store.application, self._store.store.name)

    def _finish(self, journal: OverwriteJournal) -> None:
        self._topics.set_config(journal.topic, {"cleanup.policy": journal.cleanup_policy})
        kill_switch.reached("overwrite, settings made")
        remove_overwrite_journal(self._store.state_dir, journal.application, journal.store)

    # -- what speaks against it ---------------------------------------------------------------------------------------

    def _examined(self, store: StorePartitionSpec) -> _Part:
        rows, number = self._spec.rows, store.task.partition
        require_single_keys(rows, store)
        kind = store.store.store_kind
        if kind.numbers and rows.rows(number):
            times = [numbers_in(batch.column(0), back=kind.suffix_bytes) for batch in rows.batches(number)]
            oldest = routing_of(store.store).oldest_live(max(int(found.max()) for found in times if len(found)))
            expired = sum(int(np.count_nonzero(found < oldest)) for found in times)
            if expired:
                raise InputError(
                    f"{store.store_partition}: {expired} rows are past the store's retention of "
                    f"{store.store.retention_ms} ms, counted from the latest row of their partition: a store does not "
                    f"keep them. Leave out rows of {kind.segment_time} before {oldest}. Nothing was changed"
                )
        return _Part(store, rows.rows(number), rows.size(number), _position(store))

    def _require_disk(self, parts: Sequence[_Part]) -> None:
        needed = sum(disk_needed(part.bytes, self._spec.run_bytes, part.rows) for part in parts)
        free = free_bytes(self._store.state_dir)
        if free < needed:
            raise DiskSpaceError(
                f"overwriting {self._store.application}/{self._store.store.name} needs about {needed} bytes in "
                f"{self._store.state_dir}, {free} are free: free some, then run again"
            )

    # -- the topic ----------------------------------------------------------------------------------------------------

    def _make_topic(self, parts: Sequence[_Part]) -> OverwriteJournal:
        store, before = self._store, self._hooks.catalogued()
        config = changelog_config(store.store)
        found = self._topics.find(before.topic)
        if found is not None:
            own = self._topics.own_settings([before.topic])[before.topic]
            kept = self._topics.topic_configs([before.topic])[before.topic]
            config = {key: value for key, value in kept.items() if key in own} | config
        journal = OverwriteJournal(
            application=store.application,
            store=store.store.name,
            topic=self._free_name(before.topic),
            before=before.topic,
            started_ms=self._spec.started_ms,
            records={str(part.store.task): part.rows for part in parts},
            cleanup_policy=config["cleanup.policy"],
        )
        write_overwrite_journal(store.state_dir, journal)
        kill_switch.reached("overwrite, topic not made")
        # Without `delete` nothing is removed, however old: each key is there once.
        topic = self._topics.make(journal.topic, len(self._spec.stores), {**config, "cleanup.policy": "compact"})
        kill_switch.reached("overwrite, topic made, its id not in the journal")
        logs = self._topics.log_ranges([TopicPartition(topic.name, number) for number in range(topic.partitions)])
        if topic.partitions != len(self._spec.stores) or any(log.high_watermark for log in logs.values()):
            raise InputError(f"topic {topic.name} was made by somebody else meanwhile: run again")
        journal = journal.model_copy(update={"topic_id": topic.topic_id})
        write_overwrite_journal(store.state_dir, journal)
        kill_switch.reached("overwrite, topic in the journal")
        return journal

    def _free_name(self, before: str) -> str:
        store = self._store
        number = (changelog_number(store.application, store.store.name, before) or 1) + 1
        while self._topics.find(name := later_changelog(store.application, store.store.name, number)) is not None:
            number += 1
        return name

    def _topic(self, journal: OverwriteJournal) -> Topic:
        assert journal.topic_id is not None, "the topic was made"
        return Topic(journal.topic, journal.topic_id, len(self._spec.stores))

    def _built(self, journal: OverwriteJournal, parts: Sequence[_Part]) -> dict[TopicPartition, tuple[Built, Logs]]:
        """Write the records, build stores of them, compare these, and have them judged."""
        try:
            digests = self._write_records(journal, parts)
            self._require_all(journal)
            staged: dict[TopicPartition, tuple[Built, Logs]] = {}
            stores = self._with_changelog(journal)
            for part, store in zip(parts, stores, strict=True):
                where = part.store.partition
                staged[where] = self._build(journal, store, digests[where], part.position)
                kill_switch.reached("overwrite, store built")
            self._hooks.judge(stores)
            kill_switch.reached("overwrite, judged")
            # Whoever has started meanwhile, elsewhere, has worked with the old stores.
            self._topics.require_no_members(journal.application)
            self._require_all(journal)
        except (StateStoreError, OSError):
            self._take_back(journal)
            raise
        return staged

    def _write_records(self, journal: OverwriteJournal, parts: Sequence[_Part]) -> dict[TopicPartition, Digest]:
        limit = int(self._topics.topic_configs([journal.topic])[journal.topic]["max.message.bytes"])
        writer = NewChangelogWriter(self._store, journal.topic, f"write to {journal.topic}", limit)
        try:
            return {part.store.partition: self._write_partition(writer, journal, part) for part in parts}
        finally:
            writer.close()

    def _write_partition(self, writer: NewChangelogWriter, journal: OverwriteJournal, part: _Part) -> Digest:
        digest = Digest(part.store.store.values)
        for batch in _of_store(self._spec.rows.batches(part.store.task.partition)):
            records = records_of(part.store, batch, journal.started_ms)
            add_expected(digest, part.store, batch, records)
            writer.write(part.store.partition.partition, records, bytes_of(batch))
            kill_switch.reached("overwrite, batch sent")
        writer.flush()
        kill_switch.reached("overwrite, partition written")
        return digest

    def _require_all(self, journal: OverwriteJournal) -> None:
        """Make sure that the topic has what was written, and nothing else."""
        stores = self._with_changelog(journal)
        logs = self._topics.log_ranges([store.partition for store in stores])
        for store in stores:
            log, count = logs[store.partition], journal.records[str(store.task)]
            if (log.start, log.last_stable, log.high_watermark) != (0, count, count):
                raise InputError(
                    f"{store.partition} has the offsets {log.start} to {log.high_watermark}, expected 0 to {count}: "
                    "somebody else writes to it, or removes what is in it. Find out who, then run again"
                )

    def _take_back(self, journal: OverwriteJournal) -> None:
        try:
            self._throw_away(journal)
        except (StateStoreError, OSError) as error:
            _log.warning("overwrite: topic %s is left half written: %s; run again", journal.topic, error)

    def _throw_away(self, journal: OverwriteJournal) -> None:
        """Remove a topic that never counted, and what was built from it.

        Raises
        ------
        InputError
            If somebody else has written to the topic.
        """
        for store in self._spec.stores:
            clear_built(store.paths)
            Staging(store.paths, store.store.name).clear()
        found = self._topics.find(journal.topic)
        if found is not None and journal.topic_id in (None, found.topic_id):
            logs = self._topics.log_ranges([TopicPartition(found.name, number) for number in range(found.partitions)])
            most = {} if journal.topic_id is None else journal.records
            written = {store.task.partition: most.get(str(store.task), 0) for store in self._spec.stores}
            if any(log.high_watermark > written.get(where.partition, 0) for where, log in logs.items()):
                raise InputError(
                    f"topic {journal.topic} was left by an overwrite that was interrupted, and somebody else has "
                    "written to it since: it is not deleted. Find out who, delete it, and run again"
                )
            self._topics.delete(journal.topic)
        remove_overwrite_journal(self._store.state_dir, journal.application, journal.store)

    # -- the stores ---------------------------------------------------------------------------------------------------

    def _with_changelog(self, journal: OverwriteJournal) -> list[StorePartitionSpec]:
        topic = self._topic(journal)
        changelog = changelog_spec(topic, {**self._topics.topic_configs([topic.name])[topic.name]})
        return [
            store.model_copy(
                update={"changelog": changelog, "store": store.store.model_copy(update={"changelog": topic.name})}
            )
            for store in self._spec.stores
        ]

    def _build(
        self,
        journal: OverwriteJournal,
        store: StorePartitionSpec,
        expected: Digest | None,
        position: Mapping[TopicPartition, int] | None,
    ) -> tuple[Built, Logs]:
        """Build a store from the new changelog, beside the live one, and make sure that it has the rows.

        Raises
        ------
        StoreCorruptedError
            If it has others.
        """
        asked_ms = clock.now_ms()
        staging, logs = Staging(store.paths, store.store.name), store_logs(store)
        clear_built(store.paths)
        staging.clear_unfinished()
        with RestoreProgressWriter(store, None) as progress:
            built = build_full(self._restore_spec(journal, store), staging, logs, progress, asked_ms, position)
        rows = check_staged(store, built, "deep")
        if expected is not None and (rows, built.digest) != (expected.rows, expected.hexdigest()):
            raise StoreCorruptedError(
                f"changelog {journal.topic} gives {rows} rows with the digest {built.digest}, the DataFrame has "
                f"{expected.rows} with {expected.hexdigest()}. Nothing was changed"
            )
        return built, logs

    def _replaced(
        self, journal: OverwriteJournal, store: StorePartitionSpec, staged: tuple[Built, Logs]
    ) -> Overwritten:
        (store,) = (found for found in self._with_changelog(journal) if found.task == store.task)
        built, logs = staged
        verdict = Judgement(Status.REPLACED, Loss.UNPROVEN, f"{_OVERWRITTEN} {journal.before}")
        spec = self._restore_spec(journal, store)
        quarantine = put_in_place(spec, built, logs, verdict, f"{_BEGINS}, topic {journal.topic_id}")
        kill_switch.reached("overwrite, store replaced")
        published = None if store.archive is None else publish_row(store, store.archive, "restore")
        return Overwritten(store, built.rows or 0, built.committed_offset, quarantine, published)

    def _restore_spec(self, journal: OverwriteJournal, store: StorePartitionSpec) -> RestoreSpec:
        request = RestoreRequest(mode="full", force=True, check="deep")
        return RestoreSpec(store, request, journal.label, self._spec.run_bytes)


def _of_store(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.column(1).null_count:
            raise InputError("a row has no value: an overwrite has rows only; leave deleted keys out")
        yield batch


def _position(store: StorePartitionSpec) -> Mapping[TopicPartition, int] | None:
    """Return the input that the live store's rows are of; None: it cannot be told."""
    seen = inspect(store)
    if not seen.present:
        return {}
    if seen.trouble is not None:
        return None
    opened = build_store(store.store)
    try:
        opened.init(store.context(read_only=True))
        return opened.position()
    except RebuildError:
        return None
    finally:
        opened.close(clean=False)


@contextmanager
def overwrite(spec: OverwriteSpec, hooks: Hooks) -> Iterator[Overwrite]:
    """Lock all tasks of a store; `Overwrite.carry_out` then writes it.

    Raises
    ------
    LockedError
        If a task is in use.
    InputError
        If the store's rows are not the whole state.
    """
    require_rewritable(spec.stores)
    with ExitStack() as locks:
        for store in spec.stores:
            locks.enter_context(locked_task(store.paths, store.lock_wait_s))
            locks.enter_context(Staging(store.paths, store.store.name).alone(store.lock_wait_s))
        remove_abandoned(spec.rows.directory.parent, spec.rows.directory)
        yield Overwrite(spec, hooks)
