"""All stores of an application and its input offsets go back to one point: all of them, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from statestore_jobs.planning import prepare

from statestore import clock, kill_switch
from statestore.changelog.input_offsets import commits, input_offsets
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, InvalidStateError, StateStoreError
from statestore.kafka.cluster import Cluster
from statestore.kafka.partitioner import partition_of
from statestore.model import StoreFormat, TopicPartition, input_offsets_topic
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status
from statestore.rewrite.point_cut import end_at
from statestore.rewrite.point_restore import PointPlan
from statestore.statedir.paths import point_hold
from statestore.tasks.stream_task import run_task
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration import broker, dying
from tests.integration.broker import T0, consume, unique
from tests.integration.catalogued import CatalogueCommand
from tests.integration.putting_back import PuttingBack
from tests.integration.support import STORE, Application, register
from tests.integration.undoing import Undoing
from tests.oracle.rows import fold

KEYS = [b"key-%02d" % number for number in range(20)]
STORES = (STORE, "first", "latest")


class State(NamedTuple):
    """Rows of all stores, and the next input offset of each task."""

    rows: dict[tuple[str, int], dict[bytes, Any]]
    offsets: dict[TopicPartition, int]


class Restorable:
    """An application of a catalogue, with two tasks and three stores, that has processed two things."""

    def __init__(self, servers: str, directory: Path, service_id: str | None = None) -> None:
        formats = dict.fromkeys(STORES, StoreFormat.TIMESTAMPED) | {"latest": StoreFormat.PLAIN}
        stores = [StoreDefinition(name=name, format=formats[name]) for name in STORES]
        self.app = Application(servers, directory, partitions=2, stores=stores, processor="count_in_three_stores")
        self.service_id = service_id or unique("service")
        register(servers, self.app.definition, service_id=self.service_id)
        self.cluster = Cluster(servers, 60)
        self.process(b"good")
        self.then, self.at_ms = self.state(), self.last_commit_ms()
        self.process(b"bad", KEYS[:12])
        self.process(b"worse")

    @property
    def work(self) -> PuttingBack:
        return PuttingBack(self.app.servers, self.service_id, self.app.name, self.app.state_dir, self.at_ms)

    @property
    def undo(self) -> Undoing:
        return Undoing(self.app.servers, self.service_id, self.app.name, self.app.state_dir)

    def process(self, value: bytes, keys: Sequence[bytes] = KEYS) -> None:
        for task in range(2):
            self.app.send([(key, value) for key in keys if partition_of(key, 2) == task], task)
            self.run(task)

    def run(self, task: int) -> None:
        row = self.app.run(task)
        assert row.failure is None, row.failure

    def last_commit_ms(self) -> int:
        """When the last commit of any task was, by the clock of the brokers."""
        times = []
        for task in range(2):
            where = TopicPartition(input_offsets_topic(self.app.name), task)
            log = self.cluster.topics.log_ranges([where])[where]
            found = commits(self.cluster, where, log, TopicPartition(self.app.input, task))
            times.append(found[-1].at_ms)
        return max(times)

    def now(self) -> dict[str, str]:
        """Take the definition of the catalogue, and return the changelogs that it names."""
        entry = self.work.metastore.view().catalogue.entry(self.app.name)
        self.app.definition = entry.definition
        prepare(self.cluster.topics, self.work.metastore, [entry])
        return {store.name: store.changelog_of(self.app.name) for store in entry.definition.stores}

    def state(self) -> State:
        found = input_offsets(self.cluster.topics, self.app.name, [self.app.input])
        return State(
            {(name, task): self.app.contents(task, name) for name in STORES for task in range(2)},
            {where: its.next_offset for where, its in found.items()},
        )

    def outputs(self) -> list[list[tuple[bytes | None, bytes | None]]]:
        broker.settle(self.app.servers, self.app.output)
        return [
            [(record.key, record.value) for record in consume(self.app.servers, self.app.output, task)[0]]
            for task in range(2)
        ]

    def statuses(self) -> set[Status]:
        found = [self.app.store_spec(task, name) for name in STORES for task in range(2)]
        return {verify(spec, VerifyOptions("deep")).status for spec in found}

    def left(self) -> list[Path]:
        own = self.app.store_spec().paths.own_dir.parent
        patterns = ("point*", "undo*", "writes/*/*", "*/swap-*", "*/staging", "*/runs/*", "../.scratch/*")
        return [path for pattern in patterns for path in own.glob(pattern)]

    @property
    def held(self) -> bool:
        return point_hold(self.app.state_dir, self.app.name).exists()

    def assert_at(self, state: State, number: int | None) -> None:
        """All is as it was, the catalogue names these changelogs, they give the rows, and nothing is left."""
        changelogs = self.now()
        suffix = "" if number is None else f"-{number}"
        assert changelogs == {name: f"{self.app.name}-{name}-changelog{suffix}" for name in STORES}
        assert self.state() == state
        assert self.statuses() == {Status.OK if rows else Status.EMPTY for rows in state.rows.values()}
        assert self.left() == []
        for (name, task), rows in state.rows.items():
            if name == "latest":  # the changelog has the times of a plain store's rows, the store does not
                continue
            assert fold(consume(self.app.servers, changelogs[name], task)[0]) == rows

    def assert_goes_on(self, expected: State, before: Sequence[Sequence[Any]]) -> None:
        """The input after the point is processed exactly once more: the state is as it was, and so are its results."""
        for task in range(2):
            self.run(task)
        assert self.state() == expected
        for task, sent in enumerate(self.outputs()):
            done, again = sent[: len(before[task])], sent[len(before[task]) :]
            assert done == before[task], "what was sent stays"
            repeated = expected.offsets[TopicPartition(self.app.input, task)]
            records = consume(self.app.servers, self.app.input, task)[0]
            since = [
                r for r in records if self.then.offsets[TopicPartition(self.app.input, task)] <= r.offset < repeated
            ]
            assert len(again) == len(since)
            assert again == done[len(done) - len(again) :], "the results of repeated input are the same"


@pytest.fixture
def app(bootstrap_servers: str, tmp_path: Path) -> Restorable:
    return Restorable(bootstrap_servers, tmp_path)


@pytest.mark.long
def test_all_stores_and_offsets_go_back_and_again_after_an_undo(app: Restorable) -> None:
    before, sent = app.state(), app.outputs()
    plans: list[PointPlan] = []
    done = app.work.carry_out(asked=plans.append)
    assert {(row.store.store.name, row.store.task.partition): row.rows for row in done} == {
        where: len(rows) for where, rows in app.then.rows.items()
    }
    assert plans[0].offsets == {where: (before.offsets[where], then) for where, then in app.then.offsets.items()}
    assert sum(plans[0].outputs.values()) >= sum(map(len, sent))
    app.assert_at(app.then, 2)
    app.undo.carry_out()
    app.assert_at(before, None)
    for task in range(2):
        app.run(task)
    assert app.state() == before, "nothing was left to process"
    app.work.carry_out()
    app.assert_at(app.then, 3)
    app.assert_goes_on(before, sent)


@pytest.mark.long
def test_what_was_processed_after_a_restore_is_given_up_only_if_that_is_asked_for(app: Restorable) -> None:
    before, sent = app.state(), app.outputs()
    app.work.carry_out()
    app.now()
    app.assert_goes_on(before, sent)
    with pytest.raises(InputError, match=r"was processed.*--accept-loss"):
        app.undo.carry_out()
    assert app.state() == before
    app.undo._replace(accept_loss=True).carry_out()
    app.assert_at(before, None)
    app.process(b"1")
    assert {row.value for task in range(2) for row in app.app.contents(task).values()} == {b"3", b"4"}


def _assert_nobody_works_between(app: Restorable, states: Sequence[State]) -> None:
    """Either no task opens, or all of them do and find one of the states."""
    rows = [app.app.run(task) for task in range(2)]
    if app.held:
        assert [row.failure.kind for row in rows if row.failure] == ["LockedError", "LockedError"]
    else:
        assert [row.failure for row in rows] == [None, None]
        assert app.state() in states


def test_a_kill_between_two_points_lets_no_task_open_and_is_finished(app: Restorable) -> None:
    before, sent = app.state(), app.outputs()
    dying.die_in(app.work, "point, input offsets kept, not committed")
    app.now()
    assert app.held
    _assert_nobody_works_between(app, [])
    with pytest.raises(InvalidStateError, match="kind point was interrupted"):
        app.undo.carry_out()
    plans: list[PointPlan] = []
    app.work.carry_out(asked=plans.append)
    assert plans[0].finishes
    app.assert_at(app.then, 2)
    app.assert_goes_on(before, sent)


def _steps_of(work: PuttingBack | Undoing, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Do the work, and return all points at which it can be killed: the first and the last time of each."""
    reached: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        patch.setattr(kill_switch, "reached", lambda point: reached.update([point]))
        work.carry_out()
    several = [f"{point}:{count}" for point, count in reached.items() if 1 < count <= 12]
    return [*reached, *several]


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_a_restore_that_is_killed_at_any_step_ends_before_or_after(
    app: Restorable, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    before = app.state()
    steps = _steps_of(app.work, monkeypatch)
    assert {"rewrite, judged", "point, held", "rewrite, adopted", "point, released"} <= {*steps}
    app.undo.carry_out()
    for step in steps[part::4]:
        names = app.now()
        dying.die_in(app.work, step)
        adopted, held = app.now() != names, app.held
        # After it is released, the tasks process the input after the point again, and come to the same.
        _assert_nobody_works_between(app, [before])
        plans: list[PointPlan] = []
        app.work.carry_out(asked=plans.append)
        assert plans[0].finishes == adopted, step
        app.now()
        assert app.state() == (app.then if held or not adopted else before), step
        assert app.left() == [], step
        app.undo._replace(accept_loss=True).carry_out()
        assert (app.now(), app.state()) == (names, before), step
    assert app.statuses() == {Status.OK}
    sent = app.outputs()
    app.work.carry_out()
    app.now()
    app.assert_goes_on(before, sent)


@pytest.mark.long
@pytest.mark.parametrize("part", range(2))
def test_an_undo_that_is_killed_at_any_step_ends_before_or_after(
    app: Restorable, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    before, sent, names = app.state(), app.outputs(), app.now()
    app.work.carry_out()
    steps = _steps_of(app.undo, monkeypatch)
    assert {"point, held", "undo, adopted", "undo, store put back:6", "point, released"} <= {*steps}
    for step in steps[part::2]:
        app.work.carry_out()
        dying.die_in(app.undo, step)
        if app.held:
            app.now()
            _assert_nobody_works_between(app, [])
        with suppress(InputError):  # nothing to undo: only what follows the last step of it is missing
            app.undo.carry_out()
        assert (app.now(), app.state(), app.left()) == (names, before, []), step
    for task in range(2):
        app.run(task)
    assert (app.state(), app.outputs(), app.statuses()) == (before, sent, {Status.OK})


def _refused(
    app: Restorable, kind: type[StateStoreError], reason: str, work: PuttingBack | None = None, **given: Any
) -> None:
    before, names = app.state(), app.now()
    with pytest.raises(kind, match=reason):
        (work or app.work).carry_out(**given)
    assert (app.state(), app.now(), app.left(), app.held) == (before, names, [], False)


@pytest.mark.long
def test_what_speaks_against_it_is_named_and_nothing_is_changed(app: Restorable) -> None:
    def judge(stores: Sequence[StorePartitionSpec]) -> None:
        raise InputError("the suite does not pass")

    _refused(app, InputError, "the suite does not pass", judge=judge)
    _refused(app, InputError, "expected a time in the past", app.work._replace(to=app.at_ms + 10**9))

    def process_meanwhile(_: PointPlan) -> None:
        broker.delete_records(app.app.servers, app.app.input, app.then.offsets[TopicPartition(app.app.input, 0)] + 1, 0)

    with broker.member_of(app.app.servers, app.app.name, app.app.input), pytest.raises(InputError, match="members"):
        app.work.carry_out()
    process_meanwhile(None)  # type: ignore[arg-type]
    _refused(app, InputError, "cannot be processed again")


@pytest.mark.long
def test_before_its_first_commit_an_application_is_empty(app: Restorable) -> None:
    app.work._replace(to=T0).carry_out()
    app.assert_at(State({where: {} for where in app.then.rows}, dict.fromkeys(app.then.offsets, 0)), 2)


@pytest.mark.long
def test_the_command_shows_a_plan_has_the_suites_asked_and_is_undone(command: CatalogueCommand, tmp_path: Path) -> None:
    app = Restorable(command.servers, tmp_path, command.service_id)
    before = app.state()
    asked = ("restore", "--application", app.app.name, "--to", clock.iso(app.at_ms), "--parallel", "2")
    planned = command.shown(*asked, "--dry-run")
    assert {where: tuple(found) for where, found in planned["offsets"].items()} == {
        str(where): (before.offsets[where], then) for where, then in app.then.offsets.items()
    }
    assert (sum(part["rows"] for part in planned["plan"]), planned["rows"]) == (len(KEYS) * 3, [])
    assert app.state() == before
    assert command(*asked).code == 2  # nobody is there to answer
    assert "expected a time in ISO 8601" in command(*asked[:3], "--to", "yesterday", "--yes").err
    assert "--to puts a whole application back" in command(*asked, "--mode", "full").err
    done = command.shown(*asked, "--yes")
    assert sum(row["rows"] for row in done["rows"]) == len(KEYS) * 3
    assert [*tmp_path.rglob("verdicts/*/point-*.json")]
    app.assert_at(app.then, 2)
    undone = command.shown("rewrite", "undo", "--application", app.app.name, "--yes")
    assert undone["processed"] == []
    app.assert_at(before, None)


@pytest.mark.long
def test_a_cut_whose_records_were_compacted_away_is_refused(bootstrap_servers: str, tmp_path: Path) -> None:
    broker.make_compaction_eager(bootstrap_servers)
    app = Application(bootstrap_servers, tmp_path, processor="echo", changelog_config={"cleanup.policy": "delete"})
    app.process([(b"a", b"1"), (b"b", b"1")])
    store, topics = app.store_spec(), Cluster(bootstrap_servers, 60).topics
    at_ms = clock.now_ms()
    assert end_at(topics, store, at_ms) == 2
    app.process([(b"b", b"2")])
    assert end_at(topics, store, at_ms) == 2
    broker.set_topic_config(
        bootstrap_servers, app.changelog, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.001"
    )
    for ahead in (1, 2, 3):
        app.process([(b"c", b"%d" % ahead)], clock.now_ms() + ahead * 1_000)
    broker.wait_for(
        lambda: [record.key for record in consume(bootstrap_servers, app.changelog)[0]].count(b"b") == 1, "compaction"
    )
    with pytest.raises(InputError, match="compaction has removed some"):
        end_at(topics, store, at_ms)


@pytest.mark.long
def test_the_command_finishes_a_restore_that_was_killed(command: CatalogueCommand, tmp_path: Path) -> None:
    app = Restorable(command.servers, tmp_path, command.service_id)
    before, sent = app.state(), app.outputs()
    dying.die_in(app.work, "point, input offsets committed")
    asked = ("restore", "--application", app.app.name, "--to", str(app.at_ms), "--yes")
    done = command.shown(*asked)
    assert (done["finishes"], done["point"], len(done["rows"])) == (True, f"point {app.at_ms}", 6)
    app.assert_at(app.then, 2)
    app.assert_goes_on(before, sent)


@pytest.mark.long
def test_a_run_that_was_planned_before_a_restore_changes_nothing(app: Restorable) -> None:
    planned = [app.app.task_spec(task) for task in range(2)]
    app.work.carry_out()
    rows = [run_task(spec) for spec in planned]
    assert [row.records_in for row in rows if row.failure is not None] == [0, 0], rows
    app.assert_at(app.then, 2)
