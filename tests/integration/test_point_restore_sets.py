"""Stores of all kinds go back to a set of snapshots, or to a time, with what was on its way between subtopologies."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from statestore.archive.archive import archive_spec
from statestore.changelog import brokers_clock
from statestore.changelog.input_offsets import input_offsets
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.model import StoreFormat, TaskId, TopicPartition
from statestore.statedir.context import store_context
from statestore.stores.open import build_store
from statestore.tasks.snapshot_sets import set_after_run
from tests.faults import model
from tests.faults.applications import with_aggregations, with_processor
from tests.faults.children import Child
from tests.faults.subject import Contents, Subject, contents
from tests.integration.broker import unique
from tests.integration.putting_back import PuttingBack
from tests.integration.undoing import Undoing

pytestmark = pytest.mark.long
ENGINES = dict.fromkeys(("counts", "latest", "hourly", "visits", "grouped"), "txn_rocksDB")
FORMATS = dict.fromkeys(ENGINES, StoreFormat.TIMESTAMPED)


class Grouping:
    """An application whose runs write sets, with aggregations of all kinds, one of them regrouped."""

    def __init__(self, servers: str, directory: Path, *, regroups: bool = True) -> None:
        name = unique("app")
        definition = with_aggregations(name, ENGINES) if regroups else with_processor(name, ENGINES, FORMATS)
        self.servers, self.directory = servers, directory
        self.subject = Subject(servers, directory, definition, seed=7, archive=f"file://{directory}/archive")
        self.cluster = Cluster(servers, 60)
        found = archive_spec(self.subject.archive, 10, self.cluster.topics)
        assert found is not None
        self.archive = found

    def run(self, records: int = 30) -> str:
        """Process input, and return the name of the set."""
        if records:
            self.subject.produce(records, tombstones=False)
        rows = self.subject.run()
        made = set_after_run(self.subject.definition, rows, self.archive, self.cluster)
        assert made is not None
        assert made.snapshot_set is not None, made.why
        return made.snapshot_set

    def run_first_part(self) -> None:
        """Process input in the tasks of the first subtopology alone: records are on their way then."""
        self.subject.produce(30, tombstones=False)
        rows = Child(self.subject.specs(0), self.directory / "run").rows()
        assert [row.failure for row in rows] == [None] * len(rows)

    def rows(self) -> dict[tuple[TaskId, str], Contents]:
        return {
            (task, store.name): self._stored(task, store)
            for task in self.subject.tasks
            for store in self.subject.definition.subtopologies[task.subtopology].stores
        }

    def _stored(self, task: TaskId, store: StoreDefinition) -> Contents:
        opened, own = build_store(store), TopicPartition(store.changelog_of(self.subject.name), task.partition)
        opened.init(
            store_context(self.subject.paths(task), read_only=True, exactly_once=False, changelogs={store.name: (own,)})
        )
        try:
            return contents(opened, store.kind)
        finally:
            opened.close(clean=False)

    def offsets(self) -> dict[TopicPartition, int]:
        read = [part.input_topic for part in self.subject.definition.subtopologies]
        found = input_offsets(self.cluster.topics, self.subject.name, read)
        return {where: its.next_offset for where, its in found.items()}

    def restore(self, to: int | str, **given: Any) -> None:
        work = PuttingBack(
            self.servers, self.subject.service_id, self.subject.name, self.subject.state_dir, to, self.archive
        )
        work.carry_out(**given)
        self.now()

    def undo(self, *, accept_loss: bool = False) -> None:
        Undoing(
            self.servers,
            self.subject.service_id,
            self.subject.name,
            self.subject.state_dir,
            accept_loss=accept_loss,
        ).carry_out()
        self.now()

    def now(self) -> None:
        """Take the definition of the catalogue."""
        entry = self.subject.metastore.view().catalogue.entry(self.subject.name)
        self.subject.definition = entry.definition
        self.subject.prepare()

    def logs(self, name: str) -> dict[TopicPartition, LogRange]:
        count = self.cluster.topics.require(name).partitions
        return self.cluster.topics.log_ranges([TopicPartition(name, number) for number in range(count)])


@pytest.fixture
def grouping(bootstrap_servers: str, tmp_path: Path) -> Grouping:
    return Grouping(bootstrap_servers, tmp_path)


def test_an_application_goes_back_to_a_set_and_what_is_regrouped_is_counted_once(grouping: Grouping) -> None:
    made = grouping.run()
    then = grouping.rows()
    grouping.run()
    before, offsets = grouping.rows(), grouping.offsets()
    assert then != before
    grouping.restore(made)
    assert grouping.rows() == then
    grouping.undo()
    assert (grouping.rows(), grouping.offsets()) == (before, offsets)
    assert {row.records_in for row in grouping.subject.run()} == {0}
    grouping.restore(made)
    grouping.run(0)
    assert grouping.rows() == before
    with pytest.raises(InputError, match="--accept-loss"):
        grouping.undo()
    grouping.undo(accept_loss=True)
    assert grouping.rows() == before
    assert {row.records_in for row in grouping.subject.run()} == {0}, "what was sent again is passed over"
    assert grouping.rows() == before


def test_records_on_their_way_are_passed_over_and_an_undo_finds_them_again(grouping: Grouping) -> None:
    made = grouping.run()
    then = grouping.rows()
    grouping.run_first_part()
    offsets = grouping.offsets()
    (internal,) = (part.input_topic for part in grouping.subject.definition.subtopologies[1:])
    on_their_way = {where: log.high_watermark - offsets[where] for where, log in grouping.logs(internal).items()}
    assert sum(on_their_way.values()) > 0
    grouping.restore(made)
    assert grouping.rows() == then
    grouping.undo()
    assert grouping.offsets() == offsets
    grouping.restore(made)
    grouping.run(0)
    restored = grouping.rows()
    with pytest.raises(InputError, match="on their way"):
        grouping.undo(accept_loss=True)
    assert grouping.rows() == restored
    found = {
        key: value for (_, name), rows in restored.items() if name == "grouped" for key, (value, _) in rows.items()
    }
    read = grouping.subject.logged(grouping.subject.definition.input_topic)
    expected = model.grouped([record for records, _ in read.values() for record in records])
    assert found == {key: value for key, (value, _) in expected.items()}, "each record was counted once"


def test_rows_of_all_kinds_are_those_of_a_time(bootstrap_servers: str, tmp_path: Path) -> None:
    app = Grouping(bootstrap_servers, tmp_path, regroups=False)
    app.run()
    then, at_ms = app.rows(), brokers_clock.now_ms(app.cluster)
    while brokers_clock.now_ms(app.cluster) <= at_ms:
        time.sleep(0.001)  # until the clock of the brokers advances
    app.run()
    before = app.rows()
    app.restore(at_ms)
    assert app.rows() == then
    app.run(0)
    assert app.rows() == before


def test_a_time_is_refused_where_records_are_on_their_way_between_tasks(grouping: Grouping) -> None:
    grouping.run()
    with pytest.raises(InputError, match="Name a set of snapshots"):
        grouping.restore(brokers_clock.now_ms(grouping.cluster))
