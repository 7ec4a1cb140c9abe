"""Swapping a store, killed by SIGKILL before each of its steps: old or new, whole, and a rerun completes."""

from __future__ import annotations

import json
import os
import signal
import time
from itertools import count

import pytest
from children import finish_swaps_dying, swap_dying, write_durably_dying
from samples import TIMESTAMPED as KEY_VALUE
from samples import WINDOW, contents

from statestore.durable import remove_durably, remove_tree, rename_durably, write_durably
from statestore.errors import InvalidStateError, StateStoreError
from statestore.formats import checkpoint_file
from statestore.model import TopicPartition
from statestore.reports import Loss, Status
from statestore.statedir import swap as swap_module
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.record import read_record, write_record
from statestore.statedir.sidecar import Judgement
from statestore.statedir.swap import finish_swaps, swap
from tests.forked import exit_code
from tests.records import recorded

OLD = {"CURRENT": b"MANIFEST-1\n", "000001.sst": b"old rows"}
NEW = {"CURRENT": b"MANIFEST-2\n", "000002.sst": b"new rows"}
OLD_SEGMENTS, NEW_SEGMENTS = {"interval": b"60000", "offsets": b"0\n0\n"}, {"interval": b"90000"}
KILLED = -signal.SIGKILL
both_kinds = pytest.mark.parametrize("store", [KEY_VALUE, WINDOW], ids=["key-value", "window"])
#: Segments have many steps, and each is a process that is killed.
windows_at_length = pytest.mark.parametrize(
    "store", [KEY_VALUE, pytest.param(WINDOW, marks=pytest.mark.long)], ids=["key-value", "window"]
)


def lay_out(paths, store=KEY_VALUE, *, live=True):
    """A task with a live store and a checkpoint file, and a replacement that is ready."""
    laid = {paths.live(store): OLD if live else {}, paths.staging("s"): NEW}
    if store.kind != "key-value":
        laid |= {paths.segments("s"): OLD_SEGMENTS if live else {}, paths.staged_segments("s"): NEW_SEGMENTS}
    for directory, files in laid.items():
        remove_tree(directory)
        for name, raw in files.items():
            directory.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(raw)
    paths.task_dir.mkdir(parents=True, exist_ok=True)
    if live:
        paths.checkpoint.write_text("0\n0\n")
        write_record(paths, "s", recorded("old", None))


def state(paths, store=KEY_VALUE, label="run"):
    """What lies where: live, staged, quarantine, journal."""
    return (
        contents(paths.live(store)),
        contents(paths.staging("s")),
        contents(paths.quarantine("s", label)),
        paths.journal("s").exists(),
    )


def segments(paths, label="run"):
    """What is kept of segments: live, staged, quarantine."""
    places = (paths.segments("s"), paths.staged_segments("s"), paths.quarantined_segments("s", label))
    return tuple(map(contents, places))


BEFORE = (OLD, NEW, {}, False)
AFTER = (NEW, {}, OLD, False)
SEGMENTS_BEFORE, SEGMENTS_AFTER = (OLD_SEGMENTS, NEW_SEGMENTS, {}), (NEW_SEGMENTS, {}, OLD_SEGMENTS)


@both_kinds
def test_a_swap_puts_the_new_store_in_place_and_the_old_one_in_quarantine(paths, store):
    lay_out(paths, store)
    assert swap(paths, store, "run") == paths.quarantine("s", "run")
    assert state(paths, store) == AFTER
    assert segments(paths) == (SEGMENTS_AFTER if store is WINDOW else ({}, {}, {}))
    assert not paths.checkpoint.exists()
    assert finish_swaps(paths) == []


def test_offsets_of_the_new_store_that_lie_in_the_tasks_file_take_the_place_of_the_old_ones(paths):
    lay_out(paths)
    write_durably(paths.checkpoint, checkpoint_file.write({OWN: 7, NEIGHBOUR: 3}))
    swap(paths, KEY_VALUE, "run", record=recorded("new", 9), legacy=((OWN, 9),))
    assert legacy_offsets(paths) == {OWN: 9, NEIGHBOUR: 3}


@both_kinds
def test_a_swap_without_a_live_store_has_no_quarantine(paths, store):
    lay_out(paths, store, live=False)
    assert swap(paths, store, "run") is None
    assert state(paths, store) == (NEW, {}, {}, False)


def test_nothing_is_changed_if_no_store_is_staged(paths):
    lay_out(paths)
    swap(paths, KEY_VALUE, "first", verdict=Judgement(Status.OK, Loss.NONE, ""))
    before = {path: path.read_bytes() for path in paths.state_dir.rglob("*") if path.is_file()}
    with pytest.raises(InvalidStateError, match="there is no store in"):
        swap(paths, KEY_VALUE, "second", verdict=Judgement(Status.CORRUPT, Loss.LIKELY, "by a test"))
    assert {path: path.read_bytes() for path in paths.state_dir.rglob("*") if path.is_file()} == before


INPUT, NEIGHBOUR = TopicPartition("orders", 0), TopicPartition("app-t-changelog", 0)
OWN = TopicPartition("app-s-changelog", 0)


def write_checkpoint(paths, changelog=INPUT):
    write_durably(paths.checkpoint, checkpoint_file.write({changelog: 7, NEIGHBOUR: 3}))


def begun_journal(paths, store, **other):
    """Write the journal of a swap that was killed before anything was moved."""
    name = store.name
    places = {"staged": paths.staging(name), "live": paths.live(store), "quarantine": paths.quarantine(name, "run")}
    more = {"label": "run", "changelogs": [], "legacy": [], "staged_segments": paths.staged_segments(name)}
    beside = {"kept": {}, "back": None, "keeps_commits": False}
    write_durably(paths.journal(name), json.dumps({"store": name, **places, **more, **beside, **other}, default=str))


def test_l6_a_swap_that_is_finished_later_forgets_the_offset_of_an_input_that_is_the_changelog(paths):
    lay_out(paths)
    write_checkpoint(paths)
    begun_journal(paths, KEY_VALUE, changelogs=[INPUT])
    paths.store("s").rename(paths.task_dir / "moved")
    assert finish_swaps(paths) == ["s"]
    assert contents(paths.store("s")) == NEW
    assert legacy_offsets(paths) == {NEIGHBOUR: 3}


@pytest.mark.long
@pytest.mark.parametrize("step_of_finishing", [None, 1, 4, 7, 10])
@both_kinds
def test_l6_a_swap_killed_before_any_step_leaves_its_offset_to_the_old_store_and_to_nothing_else(
    paths, store, step_of_finishing
):
    seen = set()
    for step in count(1):
        remove_tree(paths.state_dir)
        lay_out(paths, store)
        write_checkpoint(paths, OWN)
        if exit_code(swap_dying, paths, store, "run", step) == 0:
            break
        old_is_live = contents(paths.live(store)) == OLD
        seen.add((old_is_live, OWN in legacy_offsets(paths)))
        if step_of_finishing is not None:
            exit_code(finish_swaps_dying, paths, step_of_finishing)
            assert contents(paths.live(store)) == OLD or OWN not in legacy_offsets(paths)
        finish_swaps(paths)
        assert legacy_offsets(paths) == ({OWN: 7, NEIGHBOUR: 3} if old_is_live else {NEIGHBOUR: 3}), step
    assert legacy_offsets(paths) == {NEIGHBOUR: 3}
    assert seen == {(True, True), (True, False), (False, False)}


@pytest.mark.long
def test_an_offset_that_lies_beside_the_new_store_never_lies_beside_another_one_or_too_early(paths):
    seen = set()
    for step in count(1):
        remove_tree(paths.state_dir)
        lay_out(paths)
        write_checkpoint(paths, OWN)
        os.utime(paths.checkpoint, (1, 1))
        if exit_code(swap_dying, paths, KEY_VALUE, "run", step, None, ((OWN, 9),)) == 0:
            break
        live, offset = contents(paths.live(KEY_VALUE)), legacy_offsets(paths).get(OWN)
        assert (live, offset) in [(OLD, 7), (OLD, None), ({}, None), (NEW, None), (NEW, 9)], step
        seen.add(offset)
        finish_swaps(paths)
        assert legacy_offsets(paths) == {OWN: 7 if contents(paths.live(KEY_VALUE)) == OLD else 9, NEIGHBOUR: 3}, step
        # By its time, who looks at the neighbour tells whether that one was written to since.
        assert paths.checkpoint.stat().st_mtime == 1
    assert legacy_offsets(paths) == {OWN: 9, NEIGHBOUR: 3}
    assert seen == {7, None, 9}


def test_the_age_of_a_replaced_store_is_right_though_the_swap_ends_with_its_rename(paths, monkeypatch):
    def rename_and_fail(source, target):
        rename_durably(source, target)
        raise OSError("power cut")

    lay_out(paths)
    os.utime(paths.store("s"), (1, 1))
    began = time.time()
    with monkeypatch.context() as patch:
        patch.setattr(swap_module, "rename_durably", rename_and_fail)
        with pytest.raises(OSError, match="power cut"):
            swap(paths, KEY_VALUE, "run")
    assert finish_swaps(paths) == ["s"]
    assert paths.quarantine("s", "run").stat().st_mtime >= began - 1


@pytest.mark.short_for("window")
@pytest.mark.behaviour("R8")
@both_kinds
def test_r8_a_swap_killed_before_any_step_is_forgotten_or_completed_and_a_rerun_completes(paths, store):
    seen = set()
    for step in count(1):
        remove_tree(paths.state_dir)
        lay_out(paths, store)
        code = exit_code(swap_dying, paths, store, "run", step)
        if code == 0:
            break
        assert code == KILLED
        live, staged, quarantine, journal = state(paths, store)
        assert live in (OLD, NEW, {}), "a store that is neither the old nor the new one is live"
        assert live == OLD or journal or (quarantine, staged) == (OLD, {}), "unfinished, and nobody could know"
        assert live == OLD or not paths.checkpoint.exists(), "l6: a stale checkpoint file beside another store"
        if store is WINDOW:
            assert live != NEW or segments(paths) == SEGMENTS_AFTER, "new rows with the old store's interval"
            assert live != OLD or segments(paths) == SEGMENTS_BEFORE, "old rows with the new store's interval"
        begun = live != OLD
        seen.add(tuple(sorted(live)))
        finish_swaps(paths)
        assert state(paths, store) == (AFTER if begun else BEFORE), step
        assert read_record(paths, "s").topic_id == ("new" if begun else "old"), step
        if store is WINDOW:
            assert segments(paths) == (SEGMENTS_AFTER if begun else SEGMENTS_BEFORE), step
        assert finish_swaps(paths) == []
        if not begun:
            swap(paths, store, "run")
            assert state(paths, store) == AFTER
    assert state(paths, store) == AFTER
    assert step > 6
    assert seen == {tuple(sorted(files)) for files in (OLD, NEW, {})}, "some state between the steps was not reached"


@pytest.mark.short_for("window")
@pytest.mark.behaviour("R8")
@windows_at_length
def test_r8_a_swap_without_a_live_store_killed_before_any_step_ends_with_the_new_one(paths, store):
    for step in count(1):
        remove_tree(paths.state_dir)
        lay_out(paths, store, live=False)
        code = exit_code(swap_dying, paths, store, "run", step)
        assert contents(paths.live(store)) in ({}, NEW)
        assert contents(paths.live(store)) or contents(paths.staging("s")) == NEW
        finish_swaps(paths)
        assert (read_record(paths, "s") is not None) == (contents(paths.live(store)) == NEW), step
        if contents(paths.staging("s")):
            swap(paths, store, "run")
        assert state(paths, store) == (NEW, {}, {}, False)
        assert segments(paths) == ((NEW_SEGMENTS, {}, {}) if store is WINDOW else ({}, {}, {}))
        if code == 0:
            break
    assert step > 3


@pytest.mark.long
@pytest.mark.behaviour("R8")
@both_kinds
def test_r8_finishing_a_swap_may_itself_be_killed_before_any_step(paths, store):
    def begin(step):
        remove_tree(paths.state_dir)
        lay_out(paths, store)
        exit_code(swap_dying, paths, store, "run", step)
        return not paths.live(store).exists()

    between_the_renames = next(step for step in count(1) if begin(step))
    for step in count(1):
        assert begin(between_the_renames)
        code = exit_code(finish_swaps_dying, paths, step)
        assert contents(paths.live(store)) in ({}, NEW)
        finish_swaps(paths)
        assert state(paths, store) == AFTER
        assert segments(paths) == (SEGMENTS_AFTER if store is WINDOW else ({}, {}, {}))
        if code == 0:
            break
    assert step > 2


@pytest.mark.short_for("window")
@pytest.mark.behaviour("R8")
@windows_at_length
def test_r8_a_store_that_is_put_back_killed_before_any_step_comes_with_all_that_lay_beside_it(paths, store):
    beside = {"seal": paths.seal("s"), "record": paths.record("s"), "mode": paths.mode("s")}
    seen = set()
    for step in count(1):
        remove_tree(paths.state_dir)
        lay_out(paths, store)
        write_checkpoint(paths, OWN)
        for name, path in beside.items():
            write_durably(path, f"old {name}")
        swap(paths, store, "first")
        assert [name for name, path in beside.items() if path.exists()] == ["record"]
        for name, path in beside.items():
            write_durably(path, f"new {name}")
        code = exit_code(swap_dying, paths, store, "second", step, "first")
        finish_swaps(paths)
        back = contents(paths.live(store)) == OLD
        seen.add(back)
        assert {path.read_text() for path in beside.values()} == {
            f"{'old' if back else 'new'} {name}" for name in beside
        }
        assert legacy_offsets(paths) == ({OWN: 7, NEIGHBOUR: 3} if back else {NEIGHBOUR: 3})
        assert contents(paths.live(store)) == (OLD if back else NEW)
        assert contents(paths.quarantine("s", "second" if back else "first")) == (NEW if back else OLD)
        if store is WINDOW:
            assert contents(paths.segments("s")) == (OLD_SEGMENTS if back else NEW_SEGMENTS)
        if code == 0:
            break
    assert seen == {False, True}
    swap(paths, store, "third", replaced="second")
    assert {path.read_text() for path in beside.values()} == {f"new {name}" for name in beside}


def test_swaps_of_several_stores_are_finished_together(paths):
    lay_out(paths)
    for name in ("t", "u"):
        paths.staging(name).mkdir(parents=True)
        begun_journal(paths, KEY_VALUE.model_copy(update={"name": name}), quarantine=None)
    assert finish_swaps(paths) == ["t", "u"]
    assert all(paths.store(name).exists() for name in ("t", "u"))


def test_a_swap_that_the_disk_refuses_leaves_the_live_store_and_no_trap(paths):
    lay_out(paths)
    remove_tree(paths.staging("s"))  # so that the second rename fails
    with pytest.raises((OSError, StateStoreError)):
        swap(paths, KEY_VALUE, "run")
    finish_swaps(paths)
    assert OLD in (contents(paths.store("s")), contents(paths.quarantine("s", "run")))


@pytest.mark.long
def test_of_a_swap_whose_new_store_is_gone_the_old_one_is_put_back_with_its_segments(paths):
    for step in count(1):
        remove_tree(paths.state_dir)
        lay_out(paths, WINDOW)
        write_checkpoint(paths, OWN)
        if exit_code(swap_dying, paths, WINDOW, "run", step) == 0:
            break
        if not paths.live(WINDOW).exists():
            remove_tree(paths.staging("s"))
            finish_swaps(paths)
            assert contents(paths.live(WINDOW)) == OLD
            assert legacy_offsets(paths) == {OWN: 7, NEIGHBOUR: 3}
            assert contents(paths.segments("s")) == OLD_SEGMENTS
    assert step > 6


def test_a_small_file_killed_while_it_is_replaced_is_the_old_or_the_new_one(tmp_path):
    path = tmp_path / "journal.json"
    for step in count(1):
        write_durably(path, "old")
        code = exit_code(write_durably_dying, path, "new" * 10_000, step)
        assert path.read_text() in ("old", "new" * 10_000)
        if code == 0:
            break
    assert path.read_text() == "new" * 10_000
    assert [file.name for file in tmp_path.iterdir()] == ["journal.json"]
    assert step > 2


def test_removing_what_is_not_there_is_no_error(tmp_path):
    remove_durably(tmp_path / "absent")
    remove_tree(tmp_path / "absent")


@pytest.mark.behaviour("U6")
def test_commits_of_a_store_without_a_changelog_go_and_come_back_with_it_if_killed_before_any_step(paths):
    store = KEY_VALUE.model_copy(update={"logged": False})
    old, new = {"1": b"a commit", "prepared-2": b"another"}, {"7": b"a commit of the new store"}

    def commits(label=None):
        return contents(paths.commits("s") if label is None else paths.quarantined_commits("s", label))

    def write(files):
        for name, raw in files.items():
            write_durably(paths.commits("s") / name, raw)

    seen = set()
    for step in count(1):
        remove_tree(paths.state_dir)
        lay_out(paths, store)
        write(old)
        code = exit_code(swap_dying, paths, store, "first", step)
        finish_swaps(paths)
        if contents(paths.live(store)) == OLD:
            assert (commits(), commits("first")) == (old, {}), step
            swap(paths, store, "first")
        assert (contents(paths.live(store)), commits(), commits("first")) == (NEW, {}, old), step
        write(new)
        exit_code(swap_dying, paths, store, "second", step, "first")
        finish_swaps(paths)
        back = contents(paths.live(store)) == OLD
        seen.add(back)
        assert commits() == (old if back else new), step
        assert commits("second" if back else "first") == (new if back else old), step
        if code == 0:
            break
    assert seen == {False, True}
