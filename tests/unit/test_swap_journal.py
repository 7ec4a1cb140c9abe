"""What a swap writes down, what lies where at each of its named points, and what finishing it makes of a journal."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from samples import contents
from test_swap import (
    INPUT,
    KEY_VALUE,
    NEIGHBOUR,
    NEW,
    NEW_SEGMENTS,
    OLD,
    OLD_SEGMENTS,
    OWN,
    WINDOW,
    both_kinds,
    lay_out,
    segments,
    state,
    write_checkpoint,
)

from statestore import kill_switch
from statestore.durable import read_checked, remove_tree, with_checksum, write_durably
from statestore.errors import InvalidStateError
from statestore.reports import Loss, Status
from statestore.statedir import swap as swap_module
from statestore.statedir.legacy import legacy_offsets
from statestore.statedir.record import StoreRecord, read_record
from statestore.statedir.sidecar import Judgement, Sidecar, beside_quarantined, keep_others
from statestore.statedir.swap import finish_swaps, swap

RECORD = StoreRecord(topic_id="new", caught_up_ms=1, committed=5)


@pytest.fixture
def points(paths, monkeypatch):
    """The named points of a swap that were reached, and what was where then."""
    reached = []

    def look(point):
        found = state(paths, WINDOW if paths.live(WINDOW).exists() or segments(paths) != ({}, {}, {}) else KEY_VALUE)
        reached.append((point.removeprefix("swap, "), found, segments(paths)))

    monkeypatch.setattr(kill_switch, "reached", look)
    return reached


def test_at_each_named_point_lies_what_its_name_says(paths, points):
    lay_out(paths)
    swap(paths, KEY_VALUE, "run")
    nothing = ({}, {}, {})
    assert points == [
        ("journal written", (OLD, NEW, {}, True), nothing),
        ("old store in quarantine", ({}, NEW, OLD, True), nothing),
        ("before the last rename", ({}, NEW, OLD, True), nothing),
        ("new store live", (NEW, {}, OLD, True), nothing),
        ("before the journal goes", (NEW, {}, OLD, True), nothing),
    ]


def test_the_segments_of_a_window_store_change_places_between_the_renames_of_its_databases(paths, points):
    lay_out(paths, WINDOW)
    swap(paths, WINDOW, "run")
    before, between = (OLD_SEGMENTS, NEW_SEGMENTS, {}), ({}, NEW_SEGMENTS, OLD_SEGMENTS)
    after = (NEW_SEGMENTS, {}, OLD_SEGMENTS)
    assert points == [
        ("journal written", (OLD, NEW, {}, True), before),
        ("old store in quarantine", ({}, NEW, OLD, True), before),
        ("old segments in quarantine", ({}, NEW, OLD, True), between),
        ("before the last rename", ({}, NEW, OLD, True), after),
        ("new store live", (NEW, {}, OLD, True), after),
        ("before the journal goes", (NEW, {}, OLD, True), after),
    ]


def test_the_age_in_quarantine_counts_by_the_clock_that_will_ask_for_it(paths, monkeypatch):
    lay_out(paths)
    monkeypatch.setattr(swap_module, "time", SimpleNamespace(time=lambda: 1_000.0))
    assert swap(paths, KEY_VALUE, "run").stat().st_mtime == 1_000


@pytest.fixture
def journal(paths, monkeypatch):
    """Ends a swap once its journal is written, and returns that."""

    class PowerCut(Exception):
        pass

    def end(_):
        raise PowerCut

    def written(*args, **more):
        with monkeypatch.context() as patch:
            patch.setattr(kill_switch, "reached", end)
            with pytest.raises(PowerCut):
                swap(paths, *args, **more)
        return json.loads(read_checked(paths.journal("s")))

    return written


#: How a replaced store was judged, and how its journal has it.
AHEAD = Judgement(Status.AHEAD, Loss.LIKELY, "the log is shorter")
AS_KEPT = {"status": "AHEAD", "loss": "likely", "why": "the log is shorter"}


def lay_beside(paths, what="old"):
    """Our files of the live store, each with its own text."""
    texts = {name: f"{what} {name}" for name in ("seal", "digests", "mode", "record", "snapshot", "offsets")}
    for name, text in texts.items():
        write_durably(getattr(paths, name)("s"), text)
    return texts


@both_kinds
def test_the_journal_of_a_restore_has_all_that_is_moved_and_all_that_is_forgotten(paths, store, journal):
    lay_out(paths, store)
    write_checkpoint(paths, OWN)
    texts = lay_beside(paths)
    write_durably(paths.staged_offsets("s"), "new offsets")
    assert journal(store, "run", [INPUT], verdict=AHEAD, record=RECORD, grown_from="its snapshot") == {
        "store": "s",
        "staged": str(paths.staging("s")),
        "live": str(paths.live(store)),
        "quarantine": str(paths.quarantine("s", "run")),
        "label": "run",
        "changelogs": [["orders", 0]],
        "legacy": [[["app-s-changelog", 0], 7]],
        "staged_segments": str(paths.staged_segments("s")),
        "kept": {**texts, "legacy": [[["app-s-changelog", 0], 7]], **AS_KEPT},
        "back": {
            "seal": None,
            "digests": None,
            "mode": None,
            "record": with_checksum(RECORD.model_dump_json()),
            "snapshot": "its snapshot",
            "offsets": "new offsets",
            "legacy": [],
            "status": None,
            "loss": None,
            "why": "",
        },
        "keeps_commits": False,
    }


def test_the_journal_of_a_swap_without_a_live_store_keeps_nothing(paths, journal):
    lay_out(paths, live=False)
    lay_beside(paths)
    found = journal(KEY_VALUE, "run")
    assert (found["quarantine"], found["kept"], found["legacy"], found["back"]) == (None, None, [], None)


@both_kinds
def test_the_journal_of_a_rollback_names_what_is_in_quarantine(paths, store, journal):
    lay_out(paths, store)
    texts = lay_beside(paths)
    swap(paths, store, "first", verdict=AHEAD, record=RECORD)
    found = journal(store, "second", replaced="first", grown_from="a new generation")
    assert found["staged"] == str(paths.quarantine("s", "first"))
    assert found["staged_segments"] == str(paths.quarantined_segments("s", "first"))
    assert found["quarantine"] == str(paths.quarantine("s", "second"))
    assert found["back"] == {**texts, "snapshot": "a new generation", "legacy": [], **AS_KEPT}
    assert found["kept"]["record"] == with_checksum(RECORD.model_dump_json())


def test_a_swap_that_was_not_begun_is_forgotten_and_the_old_store_keeps_all_it_had(paths, journal):
    lay_out(paths, WINDOW)
    write_checkpoint(paths, OWN)
    texts = lay_beside(paths)
    journal(WINDOW, "run", record=RECORD)
    paths.checkpoint.unlink()
    assert finish_swaps(paths) == ["s"]
    assert state(paths, WINDOW) == (OLD, NEW, {}, False)
    assert segments(paths) == (OLD_SEGMENTS, NEW_SEGMENTS, {})
    assert {name: getattr(paths, name)("s").read_text() for name in texts} == texts
    assert legacy_offsets(paths) == {OWN: 7}


# -- what lay beside --------------------------------------------------------------------------------------------------


def test_what_is_not_known_of_a_replaced_store_is_left_out_so_that_earlier_versions_read_the_rest(paths):
    lay_out(paths)
    write_durably(paths.record("s"), "old record")
    swap(paths, KEY_VALUE, "run", verdict=AHEAD._replace(loss=Loss.NONE), record=RECORD)
    kept = paths.quarantined_own("s", "run")
    told = {"record", "legacy", "status", "loss", "why"}
    assert json.loads(read_checked(kept)).keys() == told
    keep_others(paths, "s", AHEAD)
    assert json.loads(read_checked(kept)).keys() == told
    assert beside_quarantined(paths, "s", "run").loss is Loss.LIKELY


def test_what_lay_beside_a_store_goes_with_it_into_quarantine_and_the_new_one_has_its_record_alone(paths):
    lay_out(paths)
    write_checkpoint(paths, OWN)
    texts = lay_beside(paths)
    swap(paths, KEY_VALUE, "run", verdict=AHEAD, record=RECORD)
    kept = beside_quarantined(paths, "s", "run")
    assert kept == Sidecar(**texts, legacy=((OWN, 7),), **AHEAD._asdict())
    assert read_record(paths, "s") == RECORD
    assert not [name for name in ("seal", "digests", "mode") if getattr(paths, name)("s").exists()]
    assert legacy_offsets(paths) == {NEIGHBOUR: 3}


def test_a_new_store_of_which_nothing_is_recorded_has_nothing_that_vouched_for_the_old_one(paths):
    lay_out(paths)
    lay_beside(paths)
    for name in ("seal", "digests", "mode"):
        write_durably(getattr(paths, name)("t"), "of another store")
    swap(paths, KEY_VALUE, "run")
    assert not [name for name in ("seal", "digests", "mode") if getattr(paths, name)("s").exists()]
    assert all(getattr(paths, name)("t").exists() for name in ("seal", "digests", "mode"))
    assert not paths.journal("s").exists()


def test_given_a_swap_that_loses_something_then_earlier_copies_may_be_the_only_ones(paths):
    lay_out(paths)
    swap(paths, KEY_VALUE, "first", verdict=Judgement(Status.CORRUPT, Loss.NONE))
    lay_out(paths)
    swap(paths, KEY_VALUE, "second", verdict=Judgement(Status.CORRUPT, Loss.NONE))
    assert beside_quarantined(paths, "s", "first").loss is Loss.NONE
    lay_out(paths)
    swap(paths, KEY_VALUE, "third", verdict=AHEAD)
    for label in ("first", "second"):
        found = beside_quarantined(paths, "s", label)
        assert (found.status, found.loss) == (Status.CORRUPT, Loss.LIKELY)
        assert found.why == "its changelog has lost something since: the log is shorter"


def test_given_a_file_beside_a_store_that_the_disk_cannot_read_then_it_is_not_kept(paths, monkeypatch):
    lay_out(paths)
    lay_beside(paths)
    read_text = Path.read_text

    def read(path, **how):
        if path == paths.mode("s"):
            raise OSError(errno.EIO, "Input/output error")
        return read_text(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", read)
        swap(paths, KEY_VALUE, "run")
    kept = beside_quarantined(paths, "s", "run")
    assert (kept.mode, kept.seal) == (None, "old seal")


def test_given_files_beside_a_store_that_may_not_be_read_then_it_is_not_replaced(paths, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    lay_out(paths)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        with pytest.raises(PermissionError):
            swap(paths, KEY_VALUE, "run")
    assert state(paths) == (OLD, NEW, {}, False)


def test_l6_offsets_of_an_input_that_is_the_changelog_go_with_the_old_store_and_come_back_with_it(paths):
    lay_out(paths)
    write_checkpoint(paths, INPUT)
    swap(paths, KEY_VALUE, "first", [INPUT])
    assert beside_quarantined(paths, "s", "first").legacy == ((INPUT, 7),)
    assert legacy_offsets(paths) == {NEIGHBOUR: 3}
    swap(paths, KEY_VALUE, "second", [INPUT], replaced="first")
    assert legacy_offsets(paths) == {INPUT: 7, NEIGHBOUR: 3}


def test_what_is_no_text_beside_a_store_is_not_kept(paths):
    lay_out(paths)
    lay_beside(paths)
    paths.mode("s").write_bytes(b"\xff")
    swap(paths, KEY_VALUE, "run")
    assert beside_quarantined(paths, "s", "run").mode is None


def test_a_store_that_comes_back_has_what_it_had_and_nothing_of_the_one_it_replaces(paths):
    lay_out(paths)
    write_checkpoint(paths, OWN)
    paths.record("s").unlink()
    texts = {name: text for name, text in lay_beside(paths).items() if name in ("seal", "mode", "offsets")}
    for name in ("digests", "record"):
        getattr(paths, name)("s").unlink()
    swap(paths, KEY_VALUE, "first", record=RECORD)
    lay_beside(paths, "new")
    swap(paths, KEY_VALUE, "second", replaced="first")
    beside = {name: getattr(paths, name)("s") for name in ("seal", "digests", "mode", "record", "snapshot", "offsets")}
    assert {name: path.read_text() for name, path in beside.items() if path.exists()} == texts
    assert legacy_offsets(paths) == {OWN: 7, NEIGHBOUR: 3}


def test_nothing_beside_an_old_store_is_left_beside_a_new_one_of_which_nothing_is_known(paths):
    lay_out(paths)
    texts = lay_beside(paths)
    swap(paths, KEY_VALUE, "run")
    assert [name for name in texts if name != "record" and getattr(paths, name)("s").exists()] == []


def test_of_a_store_replaced_before_that_was_kept_nothing_is_known(paths):
    assert beside_quarantined(paths, "s", "run") == Sidecar()


def test_a_window_store_that_comes_back_without_segments_does_not_get_those_of_the_one_it_replaces(paths):
    lay_out(paths, WINDOW)
    swap(paths, WINDOW, "first")
    remove_tree(paths.quarantined_segments("s", "first").parent.parent)
    swap(paths, WINDOW, "second", replaced="first")
    assert contents(paths.live(WINDOW)) == OLD
    assert contents(paths.segments("s")) == {}
    assert contents(paths.quarantined_segments("s", "second")) == NEW_SEGMENTS


def test_a_key_value_store_that_comes_back_has_no_directory_of_segments(paths):
    lay_out(paths)
    swap(paths, KEY_VALUE, "first")
    swap(paths, KEY_VALUE, "second", replaced="first")
    assert not paths.segments("s").exists()
    assert not paths.quarantined_segments("s", "first").parent.exists()


# -- labels -----------------------------------------------------------------------------------------------------------


def test_runs_of_one_name_number_the_stores_that_they_replace(paths):
    # An Airflow retry has the run id of its first try.
    for number, name in enumerate(["run", "run-2", "run-3", "run-4"]):
        lay_out(paths)
        (paths.store("s") / "CURRENT").write_bytes(b"%d" % number)
        assert swap(paths, KEY_VALUE, "run") == paths.quarantine("s", name)
    assert [contents(path)["CURRENT"] for path in sorted((paths.replaced / "s").iterdir())] == [b"0", b"1", b"2", b"3"]


def test_a_label_of_which_only_segments_are_left_is_not_used_again(paths):
    lay_out(paths, WINDOW)
    paths.quarantined_segments("s", "run").mkdir(parents=True)
    assert swap(paths, WINDOW, "run") == paths.quarantine("s", "run-2")
    assert segments(paths, "run-2") == (NEW_SEGMENTS, {}, OLD_SEGMENTS)


# -- swaps that are undone, and directories that have another name now -------------------------------------------------


def test_an_old_store_that_comes_back_has_all_that_lay_beside_it(paths, journal):
    lay_out(paths, WINDOW)
    texts = lay_beside(paths)
    journal(WINDOW, "run", record=RECORD)
    paths.quarantine("s", "run").parent.mkdir(parents=True)
    paths.live(WINDOW).rename(paths.quarantine("s", "run"))
    for name in texts:
        getattr(paths, name)("s").unlink()
    remove_tree(paths.staging("s"))
    assert finish_swaps(paths) == ["s"]
    assert state(paths, WINDOW) == (OLD, {}, {}, False)
    assert {name: getattr(paths, name)("s").read_text() for name in texts} == texts


def test_segments_that_had_gone_into_quarantine_come_back_with_the_old_store_in_place_of_the_new_ones(paths, journal):
    lay_out(paths, WINDOW)
    journal(WINDOW, "run")
    for source, target in (
        (paths.live(WINDOW), paths.quarantine("s", "run")),
        (paths.segments("s"), paths.quarantined_segments("s", "run")),
        (paths.staged_segments("s"), paths.segments("s")),
    ):
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    remove_tree(paths.staging("s"))
    assert finish_swaps(paths) == ["s"]
    assert state(paths, WINDOW) == (OLD, {}, {}, False)
    assert segments(paths) == (OLD_SEGMENTS, {}, {})


def test_a_swap_that_ended_before_its_notes_were_written_is_completed(paths, journal):
    lay_out(paths)
    texts = lay_beside(paths)
    journal(KEY_VALUE, "run", verdict=AHEAD, record=RECORD)
    paths.quarantine("s", "run").parent.mkdir(parents=True)
    paths.store("s").rename(paths.quarantine("s", "run"))
    paths.staging("s").rename(paths.store("s"))
    assert finish_swaps(paths) == ["s"]
    assert state(paths) == (NEW, {}, OLD, False)
    assert read_record(paths, "s") == RECORD
    assert not [name for name in ("seal", "digests", "mode") if getattr(paths, name)("s").exists()]
    assert beside_quarantined(paths, "s", "run") == Sidecar(**texts, **AHEAD._asdict())


def test_a_new_store_that_somebody_has_moved_on_is_not_given_the_notes_of_one_that_is_gone(paths, journal):
    lay_out(paths)
    lay_beside(paths)
    journal(KEY_VALUE, "run", verdict=AHEAD, record=RECORD)
    for directory in (paths.store("s"), paths.staging("s")):
        remove_tree(directory)
    paths.record("s").unlink()
    assert finish_swaps(paths) == ["s"]
    assert state(paths) == ({}, {}, {}, False)
    assert read_record(paths, "s") is None
    assert not [name for name in ("seal", "digests", "mode") if getattr(paths, name)("s").exists()]
    assert beside_quarantined(paths, "s", "run") == Sidecar()


def test_a_journal_is_believed_that_names_the_same_places_by_another_name(paths, journal):
    lay_out(paths, WINDOW)
    journal(WINDOW, "run")
    other = paths.state_dir.with_name("link")
    other.symlink_to(paths.state_dir)
    paths.live(WINDOW).rename(paths.live(WINDOW).with_name("moved"))
    assert finish_swaps(replace(paths, state_dir=other)) == ["s"]
    assert contents(paths.live(WINDOW)) == NEW


def test_a_rollback_that_was_begun_is_completed_by_whoever_comes_next(paths, journal):
    lay_out(paths, WINDOW)
    swap(paths, WINDOW, "first")
    journal(WINDOW, "second", replaced="first")
    paths.live(WINDOW).rename(paths.quarantine("s", "second"))
    assert finish_swaps(paths) == ["s"]
    assert state(paths, WINDOW, "second") == (OLD, {}, NEW, False)
    assert segments(paths, "second") == (OLD_SEGMENTS, {}, NEW_SEGMENTS)


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"store": "s"}', "\x00"])
def test_a_journal_that_cannot_be_read_moves_nothing_and_says_what_to_do_by_hand(paths, text):
    lay_out(paths)
    write_durably(paths.journal("s"), text)
    said = r"swap-s\.json is not a swap journal: (?s:.*)put it in place by hand, and remove the journal"
    with pytest.raises(InvalidStateError, match=said):
        finish_swaps(paths)
    assert state(paths) == (OLD, NEW, {}, True)


def test_the_journal_of_another_store_moves_nothing(paths, journal):
    lay_out(paths)
    journal(KEY_VALUE, "run")
    paths.journal("s").rename(paths.journal("t"))
    with pytest.raises(
        InvalidStateError, match=r"swap-t\.json is damaged: it names places that are not those of store s"
    ):
        finish_swaps(paths)
    assert state(paths) == (OLD, NEW, {}, False)


@pytest.mark.parametrize("field", ["staged", "live", "quarantine", "staged_segments"])
def test_a_journal_that_names_a_place_beside_the_right_one_moves_nothing(paths, journal, field):
    lay_out(paths, WINDOW)
    found = journal(WINDOW, "run")
    elsewhere = Path(found[field])
    if field in ("staged", "live"):
        found[field] = str(elsewhere.with_name("t"))
    else:
        found[field] = str(elsewhere.parent.with_name("t") / elsewhere.name)
    write_durably(paths.journal("s"), json.dumps(found))
    before = state(paths, WINDOW), segments(paths)
    with pytest.raises(InvalidStateError, match="names places that are not those of store s; see which of live"):
        finish_swaps(paths)
    assert (state(paths, WINDOW), segments(paths)) == before
