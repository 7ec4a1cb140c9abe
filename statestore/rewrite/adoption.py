"""Giving stores of an application other rows, all at once: new changelogs of them, under new names.

    locks of all tasks -> what an earlier attempt has left -> all that speaks against it -> earlier processes fenced ->
    new topics (journal) -> the rows, as records -> stores built from them beside the live ones -> both have the same
    rows -> the stores' suites -> the catalogue names the topics -> the group's offsets, if these change, too -> the
    stores are replaced -> the journal goes

The catalogue decides: until it names the new topics, the old stores and their changelogs are as they were, and what an
attempt that was killed has made is thrown away by the next one. From then on only the new ones count: a task with a
store that is still the old one refuses to work, and the next attempt replaces what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore import kill_switch
from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.changelog.topic_settings import changelog_config
from statestore.definitions.store import StoreDefinition
from statestore.discovery.changelogs import changelog_spec
from statestore.errors import InputError, StateStoreError
from statestore.kafka.topics import Topic
from statestore.model import StoreFormat, TopicPartition, changelog_number, later_changelog
from statestore.partition.replacement import clear_built
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.disk_space import disk_needed, free_bytes
from statestore.rewrite.changelog_writing import (
    ChangelogPart,
    fence,
    final_settings,
    kept_settings,
    make_changelog,
    require_written,
    surplus,
    write_changelog,
)
from statestore.rewrite.examination import known_position
from statestore.rewrite.group_move import GroupMove, hold, position_at, release, settle
from statestore.rewrite.journal import (
    NewTopic,
    Rewrite,
    RewriteJournal,
    end_journal,
    keep_done,
    listed,
    listed_offsets,
    read_journal,
    remove_journal,
    write_journal,
)
from statestore.rewrite.row_stage import RowStage
from statestore.rewrite.rows import form_of
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
from statestore.verification.kernels import numbers_in

_log = logging.getLogger(__name__)


class NewRows(NamedTuple):
    """A store that gets other rows.

    Attributes
    ----------
    stores
        All of its partitions, as they are.
    definition
        What they become; the name of the changelog in it does not matter.
    rows
        What they get, in the format of that, each as a record of the new changelog.
    """

    stores: Sequence[StorePartitionSpec]
    definition: StoreDefinition
    rows: RowStage

    @property
    def name(self) -> str:
        """Of the store."""
        return self.definition.name


class AdoptionSpec(NamedTuple):
    """Settings of an adoption.

    Attributes
    ----------
    rewrite
        Whose journal it keeps.
    run_bytes
        Bound of a sorted run in memory.
    started_ms
        Now, ms since the epoch.
    group
        Called once earlier processes are fenced. Returns the input offsets that the group gets; None: they stay.
    point
        Name of the point that the rows are of; empty: they are of no point.
    """

    rewrite: Rewrite
    stores: Sequence[NewRows]
    run_bytes: int
    started_ms: int
    group: Callable[[], GroupMove] | None = None
    point: str = ""


class Catalogued(NamedTuple):
    """The changelog of a store in the catalogue: its name, and its id, if one was recorded."""

    topic: str
    topic_id: str | None


class Adopted(NamedTuple):
    """A changelog that the catalogue is to name in the place of the one named `before`, and the format of its store."""

    store: str
    topic: Topic
    before: str
    format: StoreFormat


class AdoptionHooks(NamedTuple):
    """Interfaces that an adoption needs.

    Attributes
    ----------
    catalogued
        A store's changelog in the catalogue of now.
    judge
        Refuse the stores that were built, given as they are to be with the new changelogs; they lie in staging.
    adopt
        Have the catalogue name other topics as the changelogs, all of them or none.
    """

    catalogued: Callable[[str], Catalogued]
    judge: Callable[[Sequence[StorePartitionSpec]], None]
    adopt: Callable[[Sequence[Adopted]], None]


class Adoption:
    """New rows of stores whose tasks are locked."""

    def __init__(self, spec: AdoptionSpec, hooks: AdoptionHooks) -> None:
        self._spec, self._hooks = spec, hooks
        self._first = first = spec.stores[0].stores[0]
        self._topics = first.cluster.topics

    def carry_out(self) -> list[Rewritten]:
        """Write the changelogs, have the catalogue name them, and replace the stores.

        Raises
        ------
        InputError
            If something speaks against it, or a suite does not pass. Nothing was changed.
        DiskSpaceError
            If the new stores will not fit beside the live ones.
        StoreCorruptedError
            If a new changelog does not give the rows. Nothing was changed.
        """
        self._topics.require_no_members(self._first.application)
        self.finish_former()
        for of in self._spec.stores:
            _require_live(of)
        require_room(
            f"rewriting {self._first.application}/{', '.join(of.name for of in self._spec.stores)}",
            self._first.state_dir,
            self.disk_needed,
            free_bytes(self._first.state_dir),
        )
        fence(store for of in self._spec.stores for store in of.stores)
        journal = self._make_topics()
        staged = self._staged(journal)
        hold(self._first.state_dir, journal)
        # Whether it was logged is not known if this fails: then the next attempt asks the catalogue.
        self._hooks.adopt([_adopted(name, new) for name, new in journal.topics.items()])
        kill_switch.reached("rewrite, adopted")
        settle(self._topics, self._first.state_dir, journal)
        rows = [_replaced(journal, one) for one in staged]
        self._finish(journal)
        return rows

    @property
    def disk_needed(self) -> int:
        """Bytes that the new stores take beside the live ones, at most."""
        return sum(
            disk_needed(of.rows.size(number), self._spec.run_bytes, of.rows.rows(number))
            for of in self._spec.stores
            for number in range(len(of.stores))
        )

    def finish_former(self) -> list[Rewritten] | None:
        """Finish what an earlier attempt has begun, if the catalogue has its topics; else throw it away.

        Returns
        -------
        list of Rewritten or None
            What was replaced by it now; None: there was none that counted.
        """
        if (journal := self.former()) is None:
            if (left := self._journal()) is not None:
                self._throw_away(left)
            return None
        settle(self._topics, self._first.state_dir, journal)
        rows = []
        for store in self._new_stores(journal):
            new, record = journal.topics[store.partition.topic], read_record(store.paths, store.store.name)
            if record is None or record.topic_id != new.topic_id:
                clear_built(store.paths)
                spec = whole_restore(store, journal.label, self._spec.run_bytes)
                rows.append(_replaced(journal, stage(spec, new.position(store.task.partition), None)))
            else:  # an attempt that was killed may have left what it was built from
                clear_staged([store])
        self._finish(journal)
        return rows

    def former(self) -> RewriteJournal | None:
        """Return the journal of an earlier attempt whose topics the catalogue has; None: there is none."""
        journal = self._journal()
        counts = journal is not None and all(
            new.topic_id is not None and self._hooks.catalogued(new.store) == Catalogued(name, new.topic_id)
            for name, new in journal.topics.items()
        )
        return journal if counts else None

    def _journal(self) -> RewriteJournal | None:
        return read_journal(self._first.state_dir, self._spec.rewrite)

    def _finish(self, journal: RewriteJournal) -> None:
        for name, new in journal.topics.items():
            self._topics.set_config(name, new.settings)
        kill_switch.reached("rewrite, settings made")
        keep_done(self._first.state_dir, journal)
        kill_switch.reached("rewrite, way back kept")
        release(self._first.state_dir, journal)
        end_journal(self._first.state_dir, journal)

    # -- the topics ---------------------------------------------------------------------------------------------------

    def _make_topics(self) -> RewriteJournal:
        move = None if self._spec.group is None else self._spec.group()
        catalogued = {of.name: self._hooks.catalogued(of.name) for of in self._spec.stores}
        configs, topics = {}, {}
        for of in self._spec.stores:
            before = catalogued[of.name].topic
            config = kept_settings(self._topics, before) | changelog_config(of.definition)
            name, former = self._free_name(of.name, before), self._topics.find(before)
            configs[name] = config
            topics[name] = NewTopic(
                store=of.name,
                format=of.definition.format,
                records=tuple(of.rows.rows(number) for number in range(len(of.stores))),
                settings=final_settings(config),
                before=before,
                before_id=None if former is None else former.topic_id,
                before_format=of.stores[0].store.format,
                positions=tuple(
                    listed(known_position(store) if move is None else position_at(move.offsets, store))
                    for store in of.stores
                ),
            )
        journal = RewriteJournal(
            **self._spec.rewrite._asdict(),
            started_ms=self._spec.started_ms,
            topics=topics,
            offsets=() if move is None else listed_offsets(move.offsets),
            former_offsets=() if move is None else listed_offsets(move.former),
            point=self._spec.point,
        )
        write_journal(self._first.state_dir, journal)
        kill_switch.reached("rewrite, topic not made")
        for name, new in topics.items():
            topic = make_changelog(self._topics, name, len(new.records), configs[name])
            kill_switch.reached("rewrite, topic made, not in the journal")
            journal = journal.made(topic)
            write_journal(self._first.state_dir, journal)
            kill_switch.reached("rewrite, topic in the journal")
        return journal

    def _free_name(self, store: str, before: str) -> str:
        application = self._first.application
        number = (changelog_number(application, store, before) or 1) + 1
        while self._topics.find(name := later_changelog(application, store, number)) is not None:
            number += 1
        return name

    def _staged(self, journal: RewriteJournal) -> list[Staged]:
        """Write the records, build stores of them, compare these, and have them judged."""
        try:
            stores = self._new_stores(journal)
            digests = self._write_records(journal, stores)
            require_written(self._topics, journal)
            for paths in {store.paths for store in stores}:
                clear_built(paths)
            staged = []
            for store in stores:
                digest, position = digests[store.partition], journal.topics[store.partition.topic].position
                spec = whole_restore(store, journal.label, self._spec.run_bytes)
                expected = Expected(digest.rows, digest.hexdigest())
                staged.append(stage(spec, position(store.task.partition), expected))
            for name in journal.topics:
                self._hooks.judge([store for store in stores if store.partition.topic == name])
            kill_switch.reached("rewrite, judged")
            # Whoever has started meanwhile, elsewhere, has worked with the old stores.
            self._topics.require_no_members(journal.application)
            require_written(self._topics, journal)
        except (StateStoreError, OSError):
            self._take_back(journal)
            raise
        return staged

    def _write_records(
        self, journal: RewriteJournal, stores: Sequence[StorePartitionSpec]
    ) -> dict[TopicPartition, Digest]:
        digests: dict[TopicPartition, Digest] = {}
        rows = {of.name: of.rows for of in self._spec.stores}
        for name, new in journal.topics.items():
            parts = [store for store in stores if store.partition.topic == name]
            given = [
                ChangelogPart(store, _with_values(rows[new.store], store), new.position(store.task.partition) or {})
                for store in parts
            ]
            written = write_changelog(self._topics, name, journal.started_ms, given)
            digests |= {store.partition: digest for store, digest in zip(parts, written, strict=True)}
        return digests

    def _take_back(self, journal: RewriteJournal) -> None:
        try:
            self._throw_away(journal)
        except (StateStoreError, OSError) as error:
            _log.warning("rewrite: %s is left half written: %s; run again", ", ".join(journal.topics), error)

    def _throw_away(self, journal: RewriteJournal) -> None:
        """Remove topics that never counted, and what was built from them.

        Raises
        ------
        InputError
            If somebody else has written to one.
        """
        release(self._first.state_dir, journal)  # a hold without its journal could never be removed
        clear_staged(store for of in self._spec.stores for store in of.stores)
        for name, new in journal.topics.items():
            found = self._topics.find(name)
            if found is None or new.topic_id not in (None, found.topic_id):
                continue
            if surplus(self._topics, found, () if new.topic_id is None else new.records) is not None:
                raise InputError(
                    f"topic {name} was left by an interrupted rewrite, and another process has written to it since. It "
                    "was not deleted. Find that process, delete the topic, and run again"
                )
            self._topics.delete(name)
        remove_journal(self._first.state_dir, journal.rewrite)

    # -- the stores ---------------------------------------------------------------------------------------------------

    def _new_stores(self, journal: RewriteJournal) -> list[StorePartitionSpec]:
        """Return the store partitions as they are with the new changelogs."""
        configs = self._topics.topic_configs(journal.topics)
        stores = {of.name: of.stores for of in self._spec.stores}
        return [
            store.model_copy(
                update={
                    "changelog": changelog_spec(new.described(name), {**configs[name]}),
                    "store": store.store.model_copy(update={"changelog": name, "format": new.format}),
                }
            )
            for name, new in journal.topics.items()
            for store in stores[new.store]
        ]


def _adopted(name: str, new: NewTopic) -> Adopted:
    assert new.before is not None, "it comes in the place of another"
    return Adopted(new.store, new.described(name), new.before, new.format)


def _replaced(journal: RewriteJournal, staged: Staged) -> Rewritten:
    new = journal.topics[staged.spec.store.partition.topic]
    why = f"its rows were overwritten; it has the changelog {new.before}"
    return replace(staged, why, f"other rows, topic {new.topic_id}")


def _with_values(rows: RowStage, store: StorePartitionSpec) -> Iterator[pa.RecordBatch]:
    for batch in rows.batches(store.task.partition):
        if batch.column(1).null_count and not form_of(store.store).may_have_deletes:
            raise InputError("a row has no value: an overwrite has rows only; leave deleted keys out")
        yield batch


def _require_live(of: NewRows) -> None:
    """Refuse rows that the store would not keep.

    Raises
    ------
    InputError
        If rows of a partition are past the retention.
    """
    kind = of.definition.store_kind
    for store in of.stores if kind.numbers else ():
        times = [numbers_in(batch.column(0), back=kind.suffix_bytes) for batch in of.rows.batches(store.task.partition)]
        latest = max((int(found.max()) for found in times if len(found)), default=0)
        oldest = routing_of(of.definition).oldest_live(latest)
        expired = sum(int(np.count_nonzero(found < oldest)) for found in times)
        if expired:
            raise InputError(
                f"{store.store_partition}: {expired} rows are past the store's retention of "
                f"{of.definition.retention_ms} ms, counted from the latest row of their partition: a store does not "
                f"keep them. Leave out rows of {kind.segment_time} before {oldest}. Nothing was changed"
            )
