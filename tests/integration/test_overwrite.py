"""Other rows take the place of a store's, under a new changelog: all of them, or none, whatever comes in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from statestore_jobs.planning import prepare

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, InvalidCommandError, LockedError, StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.partitioner import partition_of
from statestore.metastore.apply import plan_definitions
from statestore.metastore.dropping import drop_store
from statestore.partition.quarantine import waits_for_a_person
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status
from statestore.statedir.lock import locked
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import broker, dying
from tests.integration.broker import T0, consume, unique
from tests.integration.overwriting import Overwriting
from tests.integration.support import STORE, Application, register
from tests.oracle.rows import fold

KEYS = [b"key-%02d" % number for number in range(20)]
ROWS = {key: b"7" for key in KEYS[:15]}


class Overwritable:
    """An application of a catalogue, with two tasks, that has processed something."""

    def __init__(self, servers: str, directory: Path, *, processed: bool = True, **settings: Any) -> None:
        self.app = Application(servers, directory, partitions=2, **settings)
        self.first = self.app.definition
        self.write = Overwriting(servers, unique("service"), self.app.name, STORE, self.app.state_dir, ROWS)
        register(servers, self.first, service_id=self.write.service_id)
        self.topics = Cluster(servers, 60).topics
        if processed:
            self.process()

    def process(self, at: int = T0) -> None:
        for task in range(2):
            self.app.send([(key, b"1") for key in KEYS if partition_of(key, 2) == task], task, at)
            row = self.app.run(task)
            assert row.failure is None, row.failure

    def now(self) -> str:
        """Take the definition of the catalogue, and return the changelog that it names."""
        entry = self.write.metastore.view().catalogue.entry(self.app.name)
        self.app.definition = entry.definition
        prepare(self.topics, self.write.metastore, [entry])
        return self.app.changelog

    def names(self) -> list[str]:
        return sorted(name for name in self.topics.names() if name.startswith(f"{self.app.name}-{STORE}"))

    def rows(self) -> list[Any]:
        return [self.app.contents(task) for task in range(2)]

    def statuses(self) -> list[Status]:
        return [verify(self.app.store_spec(task), VerifyOptions("deep")).status for task in range(2)]

    def left(self) -> list[Path]:
        own = self.app.store_spec().paths.own_dir.parent
        return [*own.glob("overwrite-*"), *own.glob("*/swap-*"), *own.glob("*/staging"), *own.glob("*/runs/*")]

    def values(self, number: int) -> dict[bytes, bytes]:
        return {key: row.value for key, row in self.app.contents(number).items()}

    def assert_written(self, changelog: str) -> None:
        """The stores have the rows, the catalogue's changelog gives them, and nothing is left."""
        assert self.now() == changelog
        assert {**self.values(0), **self.values(1)} == ROWS
        assert [fold(consume(self.app.servers, changelog, task)[0]) for task in range(2)] == self.rows()
        assert self.statuses() == [Status.OK, Status.OK]
        assert self.left() == []


@pytest.fixture
def store(bootstrap_servers: str, tmp_path: Path) -> Overwritable:
    return Overwritable(bootstrap_servers, tmp_path)


def test_other_rows_take_the_place_of_a_store_and_processing_counts_on(store: Overwritable) -> None:
    before, positions = store.now(), [store.app.position(task) for task in range(2)]
    old = [consume(store.app.servers, before, task)[0] for task in range(2)]
    done = store.write.carry_out()
    assert sum(row.rows for row in done) == len(ROWS)
    store.assert_written(f"{before}-2")
    assert [store.app.position(task) for task in range(2)] == positions
    assert [consume(store.app.servers, before, task)[0] for task in range(2)] == old
    for task, row in enumerate(done):
        assert row.quarantine is not None
        kept = waits_for_a_person(store.app.store_spec(task).paths, STORE, row.quarantine.name)
        assert "overwritten" in str(kept)
    store.process(T0 + 1_000)
    assert {**store.values(0), **store.values(1)} == dict.fromkeys(KEYS, b"1") | dict.fromkeys(ROWS, b"8")
    # A definition that names no changelog keeps the one that the catalogue has; no other can be said.
    view = store.write.metastore.view()
    (step,) = plan_definitions(store.topics, view.catalogue, [store.first]).steps
    assert step.kind == "unchanged"
    with pytest.raises(InvalidCommandError, match=f"changelog: {before}-2 -> {before}"):
        plan_definitions(store.topics, view.catalogue, [store.first.with_changelog(STORE, before)])


@pytest.mark.long
def test_what_speaks_against_rows_is_named_and_nothing_is_changed(store: Overwritable) -> None:
    before, names, rows = store.now(), store.names(), store.rows()

    def refused(
        kind: type[StateStoreError], reason: str, pairs: Sequence[tuple[bytes, bytes]] = (), **hook: Any
    ) -> None:
        with pytest.raises(kind, match=reason):
            store.write._replace(rows=pairs or ROWS).carry_out(**hook)
        assert (store.now(), store.names(), store.rows(), store.left()) == (before, names, rows, [])

    refused(InputError, "1 keys more than once, such as b'key-03'", [*ROWS.items(), (b"key-03", b"8")])
    with locked(store.app.store_spec(1).paths):
        refused(LockedError, "is locked by another process")

    def judge(stores: Sequence[StorePartitionSpec]) -> None:
        assert {found.partition.topic for found in stores} == {f"{before}-2"}
        raise InputError("the suite does not pass")

    refused(InputError, "the suite does not pass", judge=judge)
    assert store.statuses() == [Status.OK, Status.OK]


BEFORE = [
    "rewrite, topic not made",
    "rewrite, topic made, not in the journal",
    "rewrite, topic in the journal",
    "rewrite, batch sent",
    "rewrite, partition written:2",
    "restore, databases written:2",
    "rewrite, store built:2",
    "rewrite, judged",
]
BEHIND = [
    "rewrite, adopted",
    "swap, journal written",
    "swap, old store in quarantine:2",
    "swap, before the last rename",
    "swap, new store live",
    "restore, swapped, not sealed:2",
    "rewrite, store replaced",
    "rewrite, store replaced:2",
    "rewrite, settings made",
]
IN_THE_GATE = ("swap, old store in quarantine:2",)


def _marked(points: Sequence[str]) -> list[Any]:
    return [pytest.param(point, marks=[] if point in IN_THE_GATE else pytest.mark.long) for point in points]


@pytest.mark.parametrize("point", _marked(BEFORE))
def test_a_kill_before_the_catalogue_has_the_topic_changes_nothing_and_it_is_run_again(
    store: Overwritable, point: str
) -> None:
    before, rows = store.now(), store.rows()
    dying.die_in(store.write, point)
    assert (store.now(), store.rows(), store.statuses()) == (before, rows, [Status.OK, Status.OK])
    store.process(T0 + 500)
    store.write.carry_out()
    store.assert_written(f"{before}-2")
    assert store.names() == [before, f"{before}-2"]
    store.process(T0 + 1_000)


@pytest.mark.parametrize("point", _marked(BEHIND))
def test_a_kill_behind_it_leaves_new_stores_and_tasks_that_refuse_and_it_is_run_again(
    store: Overwritable, point: str
) -> None:
    before, rows = store.now(), store.rows()
    dying.die_in(store.write, point)
    assert store.now() == f"{before}-2"
    for task in range(2):
        row, status = store.app.run(task), store.statuses()[task]
        if row.failure is None:
            assert status is Status.OK
            assert store.values(task) == {key: b"7" for key in ROWS if partition_of(key, 2) == task}
        else:
            assert (store.app.contents(task), status is Status.OK) == (rows[task], False)
    store.write.carry_out()
    store.assert_written(f"{before}-3")
    store.process(T0 + 1_000)


@pytest.mark.long
def test_a_topic_that_somebody_took_while_it_was_half_written_is_not_removed(store: Overwritable) -> None:
    before = store.now()
    dying.die_in(store.write, "rewrite, partition written:2")
    broker.produce(store.app.servers, f"{before}-2", [(b"new", b"1")] * 40, 1)
    with pytest.raises(InputError, match="another process has written to it"):
        store.write.carry_out()
    assert (store.now(), store.statuses()) == (before, [Status.OK, Status.OK])


@pytest.mark.long
def test_an_application_that_never_ran_gets_rows_and_asks_where_its_input_begins(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    store = Overwritable(bootstrap_servers, tmp_path, processed=False)
    before = store.now()
    assert [row.quarantine for row in store.write.carry_out()] == [None, None]
    store.assert_written(f"{before}-2")
    failure = store.app.run(0).failure
    assert failure is not None
    assert failure.kind == "InputOffsetError"


@pytest.mark.long
def test_a_rollback_is_refused_and_the_replaced_directory_named(store: Overwritable) -> None:
    done = store.write.carry_out()
    store.now()
    failure = roll_back(RollbackSpec(store.app.store_spec(), "back")).failure
    assert failure is not None
    assert str(done[0].quarantine) in failure.message
    assert store.statuses() == [Status.OK, Status.OK]


@pytest.mark.long
def test_a_store_that_is_dropped_does_not_come_back_with_the_changelog_from_before(store: Overwritable) -> None:
    other = StoreDefinition(name="other")
    metastore = store.write.metastore
    store.first = store.first.model_copy(update={"stores": (*store.first.stores, other)})
    register(store.app.servers, store.first, service_id=store.write.service_id)
    store.write.carry_out()
    metastore.submit(drop_store(store.app.name, STORE))
    with pytest.raises(InvalidCommandError, match="has the rows from before it was overwritten"):
        plan_definitions(store.topics, metastore.view().catalogue, [store.first])


@pytest.mark.long
def test_a_member_of_the_group_is_named(store: Overwritable) -> None:
    with (
        broker.member_of(store.app.servers, store.app.name, store.app.input),
        pytest.raises(InputError, match="has active members"),
    ):
        store.write.carry_out()
