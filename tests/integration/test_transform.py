"""Rows of stores become what a function makes of them: all of them, or none, whatever comes in between."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from statestore_jobs.planning import prepare

from demo.damage import delete_directory
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, InvalidStateError, LockedError, StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.partitioner import partition_of
from statestore.model import StoreFormat
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import RestoreRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.rewrite import transform as transforming
from statestore.rewrite.adoption import AdoptionHooks, Catalogued
from statestore.rewrite.transform import TransformPlan, TransformSpec, transform
from statestore.statedir.lock import locked
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import broker, dying
from tests.integration.broker import T0, consume, unique
from tests.integration.catalogued import CatalogueCommand
from tests.integration.kinds import ALL_STORES, changes, stored
from tests.integration.support import STORE, Application, register
from tests.integration.test_repartition_kinds import Kind, one_after_the_other
from tests.integration.transforming import Transforming
from tests.oracle.rows import fold

KEYS = [b"key-%02d" % number for number in range(20)]
STORES = (STORE, "first")


class Transformable:
    """An application of a catalogue, with two tasks and two stores, that has processed something."""

    def __init__(self, servers: str, directory: Path, *, formats: StoreFormat = StoreFormat.TIMESTAMPED) -> None:
        stores = [StoreDefinition(name=name, format=formats) for name in STORES]
        self.app = Application(servers, directory, partitions=2, stores=stores, processor="count_and_keep_first")
        self.work = Transforming(servers, unique("service"), self.app.name, self.app.state_dir)
        register(servers, self.app.definition, service_id=self.work.service_id)
        self.topics = Cluster(servers, 60).topics
        self.process()

    def process(self, at: int = T0) -> None:
        for task in range(2):
            self.app.send([(key, b"1") for key in KEYS if partition_of(key, 2) == task], task, at)
            row = self.app.run(task)
            assert row.failure is None, row.failure

    def now(self) -> dict[str, str]:
        """Take the definition of the catalogue, and return the changelogs that it names."""
        entry = self.work.metastore.view().catalogue.entry(self.app.name)
        self.app.definition = entry.definition
        prepare(self.topics, self.work.metastore, [entry])
        return {store.name: store.changelog_of(self.app.name) for store in entry.definition.stores}

    def names(self) -> list[str]:
        return sorted(name for name in self.topics.names() if name.startswith(self.app.name))

    def rows(self) -> dict[tuple[str, int], dict[bytes, Any]]:
        return {(name, task): self.app.contents(task, name) for name in STORES for task in range(2)}

    def statuses(self, store: str) -> list[Status]:
        return [verify(self.app.store_spec(task, store), VerifyOptions("deep")).status for task in range(2)]

    def left(self) -> list[Path]:
        own = self.app.store_spec().paths.own_dir.parent
        patterns = ("transform*", "writes/*/*", "*/swap-*", "*/staging", "*/runs/*")
        return [path for pattern in patterns for path in own.glob(pattern)]

    def assert_transformed(self, before: dict[tuple[str, int], dict[bytes, Any]], number: int) -> None:
        """The stores have what the function makes of rows, the catalogue's changelogs give it, and nothing is left."""
        changelogs = self.now()
        assert changelogs == {name: f"{self.app.name}-{name}-changelog-{number}" for name in STORES}
        expected = {
            where: {
                key: row._replace(value=b"%d" % (int(row.value) * 10)) for key, row in rows.items() if key != b"key-03"
            }
            for where, rows in before.items()
        }
        assert self.rows() == expected
        for (name, task), rows in expected.items():
            assert fold(consume(self.app.servers, changelogs[name], task)[0]) == rows
        assert [self.statuses(name) for name in STORES] == [[Status.OK, Status.OK]] * 2
        assert self.left() == []


@pytest.fixture
def app(bootstrap_servers: str, tmp_path: Path) -> Transformable:
    return Transformable(bootstrap_servers, tmp_path)


def test_there_is_no_state_as_of_a_point_among_the_rows_of_a_rewrite(app: Transformable, tmp_path: Path) -> None:
    number = partition_of(KEYS[-1], 2)
    app.app.send([(KEYS[-1], b"1")], number, T0 + 60_000)  # all rows but the last one stay as they were
    assert app.app.run(number).failure is None
    app.work._replace(function="as_it_is").carry_out()
    app.now()
    app.process(T0 + 120_000)
    rows = sum(partition_of(key, 2) == number for key in KEYS)

    def as_of(target: str, **point: Any) -> RestoreRow:
        request = RestoreRequest(mode="as-of", target=tmp_path / target, **point)
        return restore(RestoreSpec(app.app.store_spec(number), request, "then", 1 << 24))

    for point in ({"as_of_timestamp": str(T0 + 30_000)}, {"as_of_offset": rows - 2}):
        refused = as_of("among", **point)
        assert f"A rewrite wrote the offsets 0 to {rows - 1}" in refused.failure.message
        assert not (tmp_path / "among").exists()
    for target, point in (("at", {"as_of_timestamp": str(T0 + 60_000)}), ("behind", {"as_of_offset": rows - 1})):
        row = as_of(target, **point)
        assert (row.failure, row.exact, row.keys) == (None, True, rows)


def test_all_stores_get_what_a_function_makes_of_their_rows_and_processing_counts_on(app: Transformable) -> None:
    before, names, rows = app.now(), app.names(), app.rows()
    positions = [app.app.position(task) for task in range(2)]
    old = [consume(app.app.servers, before[STORE], task)[0] for task in range(2)]
    plans: list[TransformPlan] = []
    done = app.work.carry_out(asked=plans.append)
    assert sum(row.rows for row in done) == plans[0].rows == 2 * (len(KEYS) - 1)
    assert sum(part.deleted for _, part in plans[0].parts) == 2
    app.assert_transformed(rows, 2)
    assert [app.app.position(task) for task in range(2)] == positions
    assert [consume(app.app.servers, before[STORE], task)[0] for task in range(2)] == old
    assert app.names() == sorted([*names, *(f"{topic}-2" for topic in before.values())])
    app.process(T0 + 1_000)
    found = {key: row.value for task in range(2) for key, row in app.app.contents(task).items()}
    assert found == {key: b"1" if key == b"key-03" else b"11" for key in KEYS}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "it raises on one": ({"function": "fail_on_one"}, r"counts/0_\d.*b'key-07': KeyError: 'no such customer'"),
    "a key moves": ({"function": "move"}, "which Kafka's partitioner puts into partition"),
    "keys are the same": ({"function": "one_for_all", "stores": [STORE]}, "more than once|puts into partition"),
    "it returns something else": ({"function": "nothing_of_it"}, "it returned a int; expected a Row"),
    "there is none": ({"function": "not_there"}, "has no attribute 'not_there'"),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case == "it raises on one" else pytest.mark.long) for case in BAD]
)
def test_a_row_that_cannot_be_is_named_and_nothing_is_changed(app: Transformable, case: str) -> None:
    changed, reason = BAD[case]
    _refused(app, StateStoreError, reason, app.work._replace(**changed))


def _refused(
    app: Transformable, kind: type[StateStoreError], reason: str, work: Transforming | None = None, **given: Any
) -> None:
    before = app.now(), app.names(), app.rows()
    with pytest.raises(kind, match=reason):
        (work or app.work).carry_out(**given)
    assert (app.now(), app.names(), app.rows()) == before
    assert app.left() == []


@pytest.mark.long
def test_what_else_speaks_against_it_is_named_and_nothing_is_changed(
    app: Transformable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(app.app.store_spec(1).paths):
        _refused(app, LockedError, "is locked by another process")
    before = app.now(), app.names(), app.rows()
    with (
        broker.member_of(app.app.servers, app.app.name, app.app.input),
        pytest.raises(InputError, match="has active members"),
    ):
        app.work.carry_out()
    assert (app.now(), app.names(), app.rows()) == before

    def judge(stores: Sequence[StorePartitionSpec]) -> None:
        raise InputError("the suite does not pass")

    _refused(app, InputError, "the suite does not pass", judge=judge)
    assert [app.statuses(name) for name in STORES] == [[Status.OK, Status.OK]] * 2
    monkeypatch.setattr(transforming, "free_bytes", lambda _: 1_000)  # no disk of this size has the tests' stores
    _refused(app, StateStoreError, "1000 are free")
    monkeypatch.undo()
    _refused(app, StateStoreError, "cannot have format", app.work._replace(format=StoreFormat.TIMESTAMPED_IN_DEFAULT))
    app.app.send([(b"key-00", b"1")], partition_of(b"key-00", 2))
    _refused(app, InputError, "has not processed all of its input")


@pytest.mark.long
def test_input_that_comes_while_somebody_is_asked_is_not_lost(app: Transformable) -> None:
    def answer_late(_: TransformPlan) -> None:
        app.app.send([(b"key-00", b"1")], partition_of(b"key-00", 2))

    _refused(app, InputError, "has not processed all of its input", asked=answer_late)


@pytest.mark.long
def test_a_store_that_is_gone_is_refused(app: Transformable) -> None:
    delete_directory(app.app.store_spec(1).live)
    with pytest.raises(InputError, match="is MISSING"):
        app.work.carry_out()
    assert app.left() == []


BEFORE = [
    "rewrite, rows staged",
    "rewrite, topic not made",
    "rewrite, topic made, not in the journal",
    "rewrite, topic in the journal:2",
    "rewrite, batch sent",
    "rewrite, partition written:3",
    "restore, databases written:2",
    "rewrite, store built:4",
    "rewrite, judged",
]
BEHIND = [
    "rewrite, adopted",
    "swap, journal written",
    "swap, old store in quarantine:3",
    "swap, before the last rename",
    "swap, new store live:2",
    "restore, swapped, not sealed:2",
    "rewrite, store replaced",
    "rewrite, store replaced:4",
    "rewrite, settings made",
]
IN_THE_GATE = ("swap, old store in quarantine:3",)


def _marked(points: Sequence[str]) -> list[Any]:
    return [pytest.param(point, marks=[] if point in IN_THE_GATE else pytest.mark.long) for point in points]


@pytest.mark.parametrize("point", _marked(BEFORE))
def test_a_kill_before_the_catalogue_has_the_topics_changes_nothing_and_it_is_run_again(
    app: Transformable, point: str
) -> None:
    before, names, rows = app.now(), app.names(), app.rows()
    dying.die_in(app.work, point)
    assert (app.now(), app.rows()) == (before, rows)
    assert [app.statuses(name) for name in STORES] == [[Status.OK, Status.OK]] * 2
    app.process(T0 + 500)
    rows = app.rows()
    app.work.carry_out()
    app.assert_transformed(rows, 2)
    assert app.names() == sorted([*names, *(f"{topic}-2" for topic in before.values())])


@pytest.mark.parametrize("point", _marked(BEHIND))
def test_a_kill_behind_it_leaves_tasks_that_refuse_or_work_and_it_is_only_finished(
    app: Transformable, point: str
) -> None:
    app.now()
    rows = app.rows()
    dying.die_in(app.work, point)
    app.now()
    for task in range(2):
        statuses = [app.statuses(name)[task] for name in STORES]
        row = app.app.run(task)
        assert (row.failure is None) == (statuses == [Status.OK, Status.OK]), (row.failure, statuses)
    plans: list[TransformPlan] = []
    app.work.carry_out(asked=plans.append)
    assert plans[0].finishes
    app.assert_transformed(rows, 2)
    app.process(T0 + 1_000)


@pytest.mark.long
def test_others_wait_for_a_transform_that_was_interrupted(app: Transformable) -> None:
    dying.die_in(app.work, "rewrite, store replaced")
    with pytest.raises(InvalidStateError, match="run it for these stores first"):
        app.work._replace(stores=["first"]).carry_out()


@pytest.mark.long
def test_a_rollback_is_refused_and_the_replaced_directory_named(app: Transformable) -> None:
    done = app.work.carry_out()
    app.now()
    failure = roll_back(RollbackSpec(app.app.store_spec(0, STORE), "back")).failure
    assert failure is not None
    assert str(next(row.quarantine for row in done if row.store.store.name == STORE)) in failure.message


@pytest.mark.long
@pytest.mark.parametrize("store_format", [StoreFormat.HEADERS, StoreFormat.PLAIN])
def test_rows_get_another_format_and_what_it_keeps(app: Transformable, store_format: StoreFormat) -> None:
    app.now()
    rows = app.rows()
    app.work._replace(function="with_trace", format=store_format, stores=[STORE]).carry_out()
    app.now()
    assert app.app.definition.store(STORE).format is store_format
    assert app.statuses(STORE) == [Status.OK, Status.OK]
    layout = app.app.definition.store(STORE).values
    for task in range(2):
        spec = app.app.store_spec(task, STORE)
        assert {key: layout.logged(value) for key, value in stored(spec, spec.live).items()} == {
            key: (row.value, row.timestamp, (("trace", b"1"),)) if layout.keeps_headers else (row.value, None)
            for key, row in rows[STORE, task].items()
        }


@pytest.mark.long
@pytest.mark.parametrize("kind", ALL_STORES)
def test_rows_of_every_kind_come_out_as_they_went_in(bootstrap_servers: str, tmp_path: Path, kind: str) -> None:
    definition = ALL_STORES[kind]
    old = Kind(bootstrap_servers, tmp_path, definition, changes(definition, 200, 1), 2)
    before = [stored(store, store.live) for store in old.stores]
    topic = old.stores[0].partition.topic
    spec = TransformSpec(
        stores=old.stores,
        format=None,
        function="tests.integration.transforming:as_it_is",
        as_bytes=True,
        inputs=[old.application.input],
        run_bytes=1 << 24,
        started_ms=T0,
    )
    hooks = AdoptionHooks(lambda _: Catalogued(topic, None), lambda _: None, lambda _: None)
    with transform(spec, hooks, one_after_the_other) as work:
        assert sum(part.changed + part.deleted for _, part in work.plan.parts) == 0
        done = work.carry_out()
    assert [stored(row.store, row.store.live) for row in done] == before
    assert {verify(row.store, VerifyOptions("deep")).status for row in done} <= {Status.OK, Status.EMPTY}


@pytest.mark.long
def test_the_command_shows_a_plan_and_has_the_suites_asked(command: CatalogueCommand, tmp_path: Path) -> None:
    app = Application(command.servers, tmp_path, partitions=1)
    register(command.servers, app.definition, service_id=command.service_id)
    app.process([(key, b"1") for key in KEYS])
    rows = app.contents()
    arguments = ["rewrite", "transform", "--application", app.name, "--parallel", "2"]
    arguments += ["--function", "tests.integration.transforming:times_ten"]
    planned = command.shown(*arguments, "--dry-run")
    assert (planned["plan"][0]["deleted"], planned["plan"][0]["rows"], planned["rows"]) == (1, 19, [])
    assert app.contents() == rows
    assert command(*arguments).code == 2  # nobody is there to answer
    done = command.shown(*arguments, "--yes")
    assert [row["rows"] for row in done["rows"]] == [19]
    app.definition = command.catalogue.entry(app.name).definition
    assert {row.value for row in app.contents().values()} == {b"10"}
    assert [*tmp_path.rglob("verdicts/*/transform-*.json")]
