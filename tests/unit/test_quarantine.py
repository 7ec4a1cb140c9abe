"""What is known of stores in quarantine, and when nobody may remove them yet."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace

import pytest
from samples import CHANGELOG, TIMESTAMPED, WINDOW

from demo.damage import flip_bit
from statestore.archive.grown_from import GrownFrom
from statestore.durable import with_checksum, write_durably
from statestore.errors import InvalidStateError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.partition import quarantine as quarantine_module
from statestore.partition.quarantine import (
    ANOTHER_LOG,
    UNJUDGED,
    UNREADABLE,
    clean_quarantine,
    last_replaced,
    old_quarantined,
    quarantined,
    release,
    release_validated,
    replaced_by,
    waits_for_a_person,
)
from statestore.reports import Loss, Status
from statestore.statedir.context import store_context
from statestore.statedir.record import StoreRecord, write_record
from statestore.statedir.seal import break_seal, seal
from statestore.statedir.sidecar import Judgement, Sidecar, beside_quarantined, keep_others
from statestore.stores.open import build_store

NOW_S = 1_000_000.0


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        (Loss.NONE, None),
        (Loss.LIKELY, "it was CORRUPT, and the log is gone"),
        (Loss.UNPROVEN, "it was CORRUPT, and the log is gone"),
        (None, UNJUDGED),
    ],
)
def test_only_a_store_of_which_nothing_can_be_lost_waits_for_nobody(paths, loss, why):
    assert waits_for_a_person(paths, "s", "run") == UNJUDGED
    kept = Sidecar(status=Status.CORRUPT, loss=loss, why="the log is gone")
    write_durably(paths.quarantined_own("s", "run"), kept.model_dump_json())
    assert waits_for_a_person(paths, "s", "run") == why


@pytest.mark.parametrize("text", ["", "{", '{"status":"AHEAF"}', '{"status":"AHEAD","other":1}'])
def test_a_store_of_which_nothing_can_be_read_any_more_is_kept_and_not_put_back(paths, text):
    write_durably(paths.quarantined_own("s", "run"), text)
    assert waits_for_a_person(paths, "s", "run") == UNREADABLE
    with pytest.raises(
        InvalidStateError, match=r"(?s)run\.json is damaged.*remove the file to put that store back without it$"
    ):
        beside_quarantined(paths, "s", "run")


def test_what_may_be_the_only_copy_does_not_go_by_age_unless_that_is_accepted(paths, live, now):
    old = replace(paths, "old", 100, loss=Loss.LIKELY)
    unproven = replace(paths, "unproven", 100, loss=Loss.UNPROVEN)
    assert clean_quarantine(paths, live, 50) == []
    assert quarantined(paths, "s") == [old, unproven]
    assert clean_quarantine(paths, live, 50, accept_loss=True) == [old, unproven]
    assert quarantined(paths, "s") == []


def test_a_file_among_them_is_no_predecessor(paths):
    directory = paths.quarantine("s", "run")
    directory.mkdir(parents=True)
    (directory.parent / "notes.txt").write_text("not a store")
    assert quarantined(paths, "s") == [directory]
    assert last_replaced(paths, "s") == directory


def replace(paths, label, age_s=0.0, loss=Loss.NONE):
    """A store in quarantine for so long, with segments and what lay beside it."""
    directory = paths.quarantine("s", label)
    directory.mkdir(parents=True)
    (directory / "CURRENT").touch()
    paths.quarantined_segments("s", label).mkdir(parents=True)
    write_durably(paths.quarantined_own("s", label), Sidecar(status=Status.CORRUPT, loss=loss).model_dump_json())
    os.utime(directory, (NOW_S - age_s,) * 2)
    return directory


def there(paths, label):
    """What is kept of a store in quarantine."""
    places = paths.quarantine("s", label), paths.quarantined_segments("s", label), paths.quarantined_own("s", label)
    return [path.exists() for path in places]


@pytest.fixture
def now(monkeypatch):
    monkeypatch.setattr(quarantine_module, "time", SimpleNamespace(time=lambda: NOW_S))


def test_a_validation_removes_a_predecessor_of_a_sealed_store_alone(paths, live):
    replace(paths, "run")
    break_seal(paths, "s")  # by a run that could not go on, say
    assert not release_validated(paths, live, "run")
    assert there(paths, "run") == [True, True, True]
    seal(paths, "s", live.store_kind)
    assert release_validated(paths, live, "run")
    assert there(paths, "run") == [False, False, False]


def test_a_validation_does_not_read_the_files_that_it_has_just_read(paths, live, monkeypatch):
    replace(paths, "run")
    asked = []
    monkeypatch.setattr(quarantine_module, "is_whole", lambda *_, **how: asked.append(how) or True)
    assert release_validated(paths, live, "run")
    assert asked == [{"contents": False}]


def test_a_validation_does_not_remove_what_waits_for_a_person(paths, live):
    replace(paths, "run", loss=Loss.LIKELY)
    assert not release_validated(paths, live, "run")
    assert there(paths, "run") == [True, True, True]


def test_the_predecessor_that_was_replaced_last_is_found_whatever_its_name(paths):
    assert last_replaced(paths, "s") is None
    replace(paths, "b", 10)
    last = replace(paths, "a", 5)
    replace(paths, "c", 20)
    assert last_replaced(paths, "s") == last
    assert last_replaced(paths, "t") is None


def test_a_predecessor_goes_with_all_that_is_kept_of_it_and_leaves_the_others(paths):
    for label in ("one", "two"):
        replace(paths, label)
    release(paths, "s", "one")
    assert there(paths, "one") == [False] * 3
    assert there(paths, "two") == [True] * 3
    release(paths, "s", "one")


def test_predecessors_are_old_from_the_very_age_that_was_asked_for(paths, now):
    young, old, older = (replace(paths, f"{age_s}", age_s) for age_s in (99.5, 100, 101))
    assert old_quarantined(paths, "s", 100) == [old, older]
    assert old_quarantined(paths, "s", 0) == sorted([young, old, older])
    assert old_quarantined(paths, "s", 102) == []


def write_to(paths, store, offset):
    """Commit a row, and close the store."""
    opened = build_store(store)
    opened.init(store_context(paths))
    opened.put(b"k", ValueAndTimestamp(b"v", 1), *([] if store.kind == "key-value" else [1]))
    opened.commit({CHANGELOG: offset})
    opened.close()


@pytest.fixture(params=["key-value", "window"])
def live(request, paths):
    """A live store of each kind, closed and sealed."""
    store = TIMESTAMPED if request.param == "key-value" else WINDOW
    write_to(paths, store, 0)
    paths.own_dir.mkdir(parents=True, exist_ok=True)
    seal(paths, "s", store.store_kind)
    return store


def test_old_predecessors_of_a_healthy_store_of_any_kind_are_removed(paths, live, now):
    old, young = replace(paths, "old", 100), replace(paths, "young", 10)
    assert clean_quarantine(paths, live, 50) == [old]
    assert quarantined(paths, "s") == [young]
    assert there(paths, "old") == [False] * 3


def test_what_would_be_removed_can_be_asked_for_without_removing_it(paths, live, now):
    old = replace(paths, "old", 100)
    assert clean_quarantine(paths, live, 50, dry_run=True) == [old]
    assert there(paths, "old") == [True] * 3


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("damage", ["no store", "no seal", "another byte", "open for writing"])
def test_predecessors_stay_while_the_live_store_is_not_proved_whole(paths, live, now, damage, dry_run):
    old = replace(paths, "old", 100)
    if damage == "no store":
        shutil.rmtree(paths.live(live))
    elif damage == "no seal":
        paths.seal("s").unlink()
    elif damage == "another byte":
        flip_bit(next(paths.live(live).rglob("*.sst")).parent)
    else:
        write_to(paths, live, 1)  # without breaking the seal, as a stranger does
    assert clean_quarantine(paths, live, 50, dry_run=dry_run) == []
    assert quarantined(paths, "s") == [old]


RECORD = StoreRecord(topic_id="one", caught_up_ms=1)


@pytest.mark.parametrize(
    ("kept", "live", "why"),
    [
        (RECORD, RECORD.model_copy(update={"caught_up_ms": 2}), None),
        (RECORD, RECORD.model_copy(update={"topic_id": "another"}), ANOTHER_LOG),
        (RECORD, None, ANOTHER_LOG),
        (None, RECORD, None),
    ],
)
def test_a_store_of_another_log_waits_for_a_person(paths, kept, live, why):
    if live is not None:
        write_record(paths, "s", live)
    record = None if kept is None else with_checksum(kept.model_dump_json())
    beside = Sidecar(status=Status.CORRUPT, loss=Loss.NONE, record=record)
    write_durably(paths.quarantined_own("s", "run"), beside.model_dump_json())
    assert waits_for_a_person(paths, "s", "run") == why


@pytest.mark.parametrize("record", ["", "{"])
def test_a_store_of_whose_log_nothing_can_be_read_waits_for_a_person(paths, record):
    write_record(paths, "s", RECORD)
    beside = Sidecar(status=Status.CORRUPT, loss=Loss.NONE, record=record)
    write_durably(paths.quarantined_own("s", "run"), beside.model_dump_json())
    assert waits_for_a_person(paths, "s", "run") == ANOTHER_LOG


def test_copies_are_judged_anew_when_their_log_has_lost_something(paths):
    for label, loss in (("first", Loss.NONE), ("second", Loss.UNPROVEN), ("third", None), ("zeroth", Loss.NONE)):
        kept = Sidecar(status=Status.CORRUPT, loss=loss, why="before")
        write_durably(paths.quarantined_own("s", label), kept.model_dump_json())
    damaged = paths.quarantined_own("s", "fourth")
    write_durably(damaged, "{")
    keep_others(paths, "s", Judgement(Status.REPLACED, Loss.LIKELY, "the topic is another one"))
    labels = ("first", "second", "third", "zeroth")
    first, second, third, behind_a_damaged_one = (beside_quarantined(paths, "s", label) for label in labels)
    for found in (first, behind_a_damaged_one):
        assert (found.status, found.loss) == (Status.CORRUPT, Loss.LIKELY)
        assert found.why == "its changelog has lost something since: the topic is another one"
    assert (second.loss, second.why) == (Loss.UNPROVEN, "before")
    assert third.loss is None
    assert damaged.read_text() == "{"


def keep(paths, label, **beside):
    """Make a predecessor with its sidecar files."""
    paths.quarantine("s", label).mkdir(parents=True)
    kept = Sidecar(status=Status.CORRUPT, loss=Loss.NONE, **beside)
    write_durably(paths.quarantined_own("s", label), kept.model_dump_json())
    return paths.quarantine("s", label)


def test_the_store_that_a_run_replaced_is_found_by_its_label_and_its_log(paths):
    record = with_checksum(RECORD.model_dump_json())
    keep(paths, "other", record=record)
    first, second = keep(paths, "run", record=record), keep(paths, "run-2")
    keep(paths, "runner", record=record)
    assert replaced_by(paths, "s", "run", "one") == first
    assert replaced_by(paths, "s", "run", "two") == second  # it had no record, so any log may be its own
    assert replaced_by(paths, "s", "oth", "one") is None
    assert replaced_by(paths, "s", "other", "two") is None
    assert replaced_by(paths, "t", "run", "one") is None
    write_durably(paths.quarantined_own("s", "run"), "{")
    with pytest.raises(InvalidStateError, match=r"run\.json is damaged"):
        replaced_by(paths, "s", "run", "one")


def snapshot_file(**changes):
    return with_checksum(GrownFrom(url="u", cluster="c", generation=1, snapshot=None, **changes).model_dump_json())


PUT = "it was put in place by a rollback, and its changelog need not give its rows"


@pytest.mark.parametrize(
    ("kept", "live", "why"),
    [
        (None, None, None),
        (snapshot_file(), None, None),
        (snapshot_file(), snapshot_file(by_hand="a rollback"), None),
        (snapshot_file(by_hand="a rollback"), None, PUT),
        (snapshot_file(by_hand="a rollback"), snapshot_file(), PUT),
        (snapshot_file(by_hand="a rollback"), snapshot_file(by_hand="another"), PUT),
        (snapshot_file(by_hand="a rollback"), snapshot_file(by_hand="a rollback"), None),
        ("", None, UNREADABLE),
        ("{", None, UNREADABLE),
        (snapshot_file(by_hand="a rollback"), "{", UNREADABLE),
    ],
)
def test_a_store_that_a_person_chose_waits_for_one_unless_the_live_store_grew_from_it(paths, kept, live, why):
    keep(paths, "run", snapshot=kept)
    if live is not None:
        write_durably(paths.snapshot("s"), live)
    assert waits_for_a_person(paths, "s", "run") == why
