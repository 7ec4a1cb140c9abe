"""Stores have the changelogs and rows again that they had before a rewrite, or nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.errors import InputError, InvalidStateError, StoreBehindLogStartError
from statestore.model import StoreFormat
from statestore.partition.quarantine import last_replaced, release
from statestore.reports import Status
from statestore.rewrite import undo
from statestore.rewrite.undo import UndoPlan
from statestore.statedir.lock import locked
from tests.integration import broker, dying
from tests.integration.broker import T0
from tests.integration.catalogued import CatalogueCommand
from tests.integration.support import STORE
from tests.integration.test_overwrite import KEYS, ROWS, Overwritable
from tests.integration.test_reseed import Lost
from tests.integration.test_transform import STORES, Transformable
from tests.integration.transforming import Transforming
from tests.integration.undoing import Undoing


def undoing(of: Overwritable | Transformable, **asked: Any) -> Undoing:
    work = of.write if isinstance(of, Overwritable) else of.work
    return Undoing(work.servers, work.service_id, work.application, work.state_dir, **asked)


@pytest.fixture
def store(bootstrap_servers: str, tmp_path: Path) -> Overwritable:
    return Overwritable(bootstrap_servers, tmp_path)


@pytest.fixture
def app(bootstrap_servers: str, tmp_path: Path) -> Transformable:
    return Transformable(bootstrap_servers, tmp_path)


def left(of: Overwritable) -> list[Path]:
    own = of.app.store_spec().paths.own_dir.parent
    return [*of.left(), *own.glob("done-*"), *own.glob("undo*")]


def release_replaced(of: Overwritable, number: int) -> None:
    paths = of.app.store_spec(number).paths
    replaced = last_replaced(paths, STORE)
    assert replaced is not None
    with locked(paths):
        release(paths, STORE, replaced.name)


def test_an_overwrite_is_undone_and_processing_counts_on(store: Overwritable) -> None:
    before, rows, positions = store.now(), store.rows(), [store.app.position(task) for task in range(2)]
    store.write.carry_out()
    plans: list[UndoPlan] = []
    done = undoing(store).carry_out(plans.append)
    assert plans[0].topics == {f"{before}-2": before}
    assert (store.now(), store.rows(), store.statuses()) == (before, rows, [Status.OK, Status.OK])
    assert [store.app.position(task) for task in range(2)] == positions
    assert all(row.put_back is not None and row.quarantine is not None for row in done)
    assert left(store) == []
    store.process(T0 + 1_000)
    assert {**store.values(0), **store.values(1)} == dict.fromkeys(KEYS, b"2")
    with pytest.raises(InputError, match="nothing to undo"):
        undoing(store).carry_out()
    store.write.carry_out()
    store.assert_written(f"{before}-3")


@pytest.mark.long
def test_each_of_several_overwrites_is_undone(store: Overwritable) -> None:
    before, rows = store.now(), store.rows()
    store.write.carry_out()
    store.write._replace(rows=dict.fromkeys(KEYS[:3], b"9")).carry_out()
    assert store.now() == f"{before}-3"
    undoing(store, store=STORE).carry_out()
    store.assert_written(f"{before}-2")
    undoing(store).carry_out()
    assert (store.now(), store.rows(), store.statuses()) == (before, rows, [Status.OK, Status.OK])
    assert left(store) == []


@pytest.mark.long
def test_what_was_written_since_is_not_lost_unless_that_is_asked_for(store: Overwritable) -> None:
    before, rows = store.now(), store.rows()
    store.write.carry_out()
    store.now()
    store.process(T0 + 1_000)
    after = store.rows()
    with pytest.raises(InputError, match=r"changelog-2-0 has \d+ records more.*--accept-loss"):
        undoing(store).carry_out()
    assert (store.now(), store.rows(), store.statuses()) == (f"{before}-2", after, [Status.OK, Status.OK])
    undoing(store, accept_loss=True).carry_out()
    assert (store.now(), store.rows(), store.statuses()) == (before, rows, [Status.OK, Status.OK])


@pytest.mark.long
def test_a_store_that_is_no_longer_kept_is_built_from_its_changelog(store: Overwritable) -> None:
    before, rows, positions = store.now(), store.rows(), [store.app.position(task) for task in range(2)]
    store.write.carry_out()
    store.now()
    release_replaced(store, 1)
    done = undoing(store).carry_out()
    assert [row.put_back is None for row in done] == [False, True]
    assert (store.now(), store.rows(), store.statuses()) == (before, rows, [Status.OK, Status.OK])
    assert [store.app.position(task) for task in range(2)] == positions


def test_a_former_changelog_that_has_lost_rows_of_a_store_that_is_no_longer_kept_is_named(store: Overwritable) -> None:
    before, rows = store.now(), store.rows()
    store.write.carry_out()
    broker.set_topic_config(store.app.servers, before, cleanup_policy="compact,delete")
    for task in range(2):
        broker.delete_records(store.app.servers, before, 3, task)
    store.now()
    written = store.rows()
    release_replaced(store, 1)
    with pytest.raises(InputError, match=r"0_1: its changelog begins at offset 3\. .*--accept-loss"):
        undoing(store).carry_out()
    assert (store.now(), store.rows(), left(store) != []) == (f"{before}-2", written, True)
    undoing(store, accept_loss=True).carry_out()
    assert (store.now(), store.rows()[0], len(store.rows()[1])) == (before, rows[0], len(rows[1]) - 3)


def test_a_log_that_loses_records_after_it_was_judged_changes_nothing(
    store: Overwritable, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.now()
    store.write.carry_out()
    broker.set_topic_config(store.app.servers, before, cleanup_policy="compact,delete")
    release_replaced(store, 1)
    build = undo.stage

    def cut_before(*found: Any) -> Any:
        broker.delete_records(store.app.servers, before, 3, 1)
        return build(*found)

    monkeypatch.setattr(undo, "stage", cut_before)  # no other moment is between the judgement and the build
    with pytest.raises(StoreBehindLogStartError):
        undoing(store).carry_out()
    store.assert_written(f"{before}-2")
    with pytest.raises(InputError, match=r"0_1: its changelog begins at offset 3\. .*--accept-loss"):
        undoing(store).carry_out()


@pytest.mark.long
def test_records_that_are_written_after_the_plan_was_shown_are_not_given_up(store: Overwritable) -> None:
    before = store.now()
    store.write.carry_out()
    later = store.now()
    store.process(T0 + 1_000)
    after = store.rows()

    def written_meanwhile(plan: UndoPlan) -> None:
        assert plan.written
        broker.produce(store.app.servers, later, [(b"key-00", b"1")])

    with pytest.raises(InputError, match="when the undo was planned, and have"):
        undoing(store, accept_loss=True).carry_out(written_meanwhile)
    assert (store.now(), store.rows()) == (later, after)
    undoing(store, accept_loss=True).carry_out()
    assert store.now() == before


@pytest.mark.long
@pytest.mark.parametrize("point", ["rewrite, store built", "undo, adopted"])
def test_a_store_that_is_built_after_a_kill_is_judged_again(store: Overwritable, point: str) -> None:
    before, rows = store.now(), store.rows()
    store.write.carry_out()
    broker.set_topic_config(store.app.servers, before, cleanup_policy="compact,delete")
    release_replaced(store, 1)
    dying.die_in(undoing(store), point)
    broker.delete_records(store.app.servers, before, 3, 1)
    adopted = point == "undo, adopted"
    assert store.now() == (before if adopted else f"{before}-2")
    with pytest.raises(InputError, match=r"0_1: its changelog begins at offset 3\. .*--accept-loss"):
        undoing(store).carry_out()
    if not adopted:
        store.assert_written(f"{before}-2")
    undoing(store, accept_loss=True).carry_out()
    assert (store.now(), store.rows()[0], len(store.rows()[1])) == (before, rows[0], len(rows[1]) - 3)
    assert left(store) == []


@pytest.mark.long
def test_a_former_changelog_that_is_gone_is_named_and_nothing_is_changed(store: Overwritable) -> None:
    before = store.now()
    store.write.carry_out()
    broker.delete_topic(store.app.servers, before)
    with pytest.raises(InputError, match=r"its former changelog .* is gone: .* found no topic"):
        undoing(store).carry_out()
    store.assert_written(f"{before}-2")


@pytest.mark.long
def test_a_member_of_the_group_is_named(store: Overwritable) -> None:
    before = store.now()
    store.write.carry_out()
    with (
        broker.member_of(store.app.servers, store.app.name, store.app.input),
        pytest.raises(InputError, match="has active members"),
    ):
        undoing(store).carry_out()
    store.assert_written(f"{before}-2")


@pytest.mark.long
def test_all_stores_of_a_transform_go_back_together_with_their_format(app: Transformable) -> None:
    before, rows = app.now(), app.rows()
    app.work._replace(format=StoreFormat.HEADERS).carry_out()
    app.now()
    assert {store.format for store in app.app.definition.stores} == {StoreFormat.HEADERS}
    undoing(app, store="first").carry_out()
    assert (app.now(), app.rows()) == (before, rows)
    assert {store.format for store in app.app.definition.stores} == {StoreFormat.TIMESTAMPED}
    assert [app.statuses(name) for name in STORES] == [[Status.OK, Status.OK]] * 2
    app.process(T0 + 1_000)
    found = {key: row.value for task in range(2) for key, row in app.app.contents(task).items()}
    assert found == dict.fromkeys(KEYS, b"2")


BEHIND = [
    "undo, adopted",
    "swap, journal written",
    "swap, old store in quarantine:2",
    "swap, before the last rename",
    "swap, new store live:4",
    "undo, store put back",
    "undo, store put back:3",
    "undo, record removed",
]
POINTS = [
    pytest.param(point, marks=[] if point == "undo, store put back" else pytest.mark.long)
    for point in ("undo, journal written", *BEHIND)
]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_leaves_stores_of_one_rewrite_and_it_is_run_again(app: Transformable, point: str) -> None:
    before, old = app.now(), app.rows()
    app.work.carry_out()
    later, new = app.now(), app.rows()
    dying.die_in(undoing(app), point)
    names, adopted = app.now(), point in BEHIND
    assert names == (before if adopted else later)
    for task in range(2):
        row = app.app.run(task)
        found = {name: app.app.contents(task, name) for name in STORES}
        assert all(found[name] in (old[name, task], new[name, task]) for name in STORES)
        if row.failure is None:
            assert found == {name: (old if adopted else new)[name, task] for name in STORES}
    if point != "undo, record removed":
        with pytest.raises(InvalidStateError, match="a rewrite of the kind undo was interrupted"):
            app.work.carry_out()
    undoing(app).carry_out()
    assert (app.now(), app.rows()) == (before, old)
    assert [app.statuses(name) for name in STORES] == [[Status.OK, Status.OK]] * 2
    assert app.left() == []
    app.process(T0 + 1_000)


@pytest.mark.long
def test_a_rewrite_that_was_interrupted_is_finished_before_it_is_undone(store: Overwritable) -> None:
    before, rows = store.now(), store.rows()
    dying.die_in(store.write, "rewrite, way back kept")
    with pytest.raises(InvalidStateError, match="a rewrite of the kind overwrite was interrupted"):
        undoing(store).carry_out()
    store.write.carry_out()
    store.assert_written(f"{before}-3")
    undoing(store).carry_out()
    assert {**store.values(0), **store.values(1)} == ROWS
    undoing(store).carry_out()
    assert (store.now(), store.rows()) == (before, rows)


@pytest.mark.long
def test_the_command_shows_what_it_would_do_and_does_it(command: CatalogueCommand, tmp_path: Path) -> None:
    made = Lost(command, tmp_path)
    made.process()
    app, rows, before = made.app, made.rows(), made.app.changelog
    asked = ("rewrite", "undo", "--application", app.name)
    assert "nothing to undo" in command(*asked, "--yes").err
    Transforming(app.servers, command.service_id, app.name, app.state_dir).carry_out()
    planned = command.shown(*asked, "--dry-run")
    assert planned["topics"] == {f"{before}-2": before}
    assert (planned["written"], planned["rows"], len(planned["plan"])) == ({}, [], 2)
    assert made.command.catalogue.entry(app.name).definition.stores[0].changelog_of(app.name) == f"{before}-2"
    done = command.shown(*asked, "--store", STORE, "--yes")
    assert [row["put_back"] for row in done["rows"]] == [part["put_back"] for part in planned["plan"]]
    assert made.command.catalogue.entry(app.name).definition.stores[0].changelog_of(app.name) == before
    made.assert_whole(rows)
    made.assert_counts_on()
