"""A store that was left open is used as it is if it was we who left it so, with transactions; whatever kills us."""

from __future__ import annotations

import json
import re
import shutil
import signal
from itertools import count

import pytest
from killed import (
    NEW_SEGMENT_SLOT,
    close_dying,
    expire_all,
    expire_dying,
    leave_open,
    make_segment_dying,
    open_dying,
    open_read_only,
    roll_manifests,
    run,
)
from store_under_test import Elsewhere, StoreUnderTest, contents, time_of

from statestore.errors import StoreCorruptedError, StoreUncleanError
from statestore.model import StoreFormat
from statestore.stores import last_use
from statestore.stores.rocksdb import RocksDB
from tests.compositions import CHANGELOG, STORE, Composition, compositions
from tests.lost_current import begin_anew

ROWS = {1: "text", 7: "text"}
transactional = compositions(persistent=True, transactional=True, format=StoreFormat.TIMESTAMPED)
#: Of one database, and of several.
one_of_each = compositions(kind="key-value", persistent=True, transactional=True, format=StoreFormat.TIMESTAMPED)
several = compositions(kind="window", persistent=True, transactional=True, format=StoreFormat.TIMESTAMPED)


def as_it_was(composition, home):
    """Whether the store can be used as it is; if so, it must be as it was left."""
    try:
        store = StoreUnderTest(composition, home)
    except StoreUncleanError:
        return False
    assert (store.rows(), store.store.committed_offset(CHANGELOG)) == (ROWS, 1)
    store.close()
    return True


def killed_in_use(composition, home):
    assert run(leave_open, composition, home, True) == -signal.SIGKILL


def killed_in_use_by_another(composition, home):
    """Somebody without transactions, who has a directory of its own, puts rows on disk and is killed."""
    direct = Composition(composition.kind, composition.format, persistent=True, transactional=False)
    assert run(leave_open, direct, Elsewhere(home.root), False, "never committed") == -signal.SIGKILL


def killed_at_each_step(dying, composition, home, tmp_path, every=1):
    """Kill something at each step of it; yield steps and copies of the home, up to the first that came to its end."""
    for step in count(1, every):
        here = type(home)(tmp_path / str(step))
        shutil.copytree(home.root, here.root)
        code = run(dying, composition, here, step)
        yield step, here
        if code == -signal.SIGTERM:
            return


@transactional
@pytest.mark.behaviour("K17")
def test_k17_what_we_left_open_with_transactions_is_used_as_it_is(composition, home):
    killed_in_use(composition, home)
    assert as_it_was(composition, home)


@transactional
@pytest.mark.behaviour("K17")
def test_k17_what_another_left_open_behind_us_is_unclean(composition, home):
    killed_in_use(composition, home)
    killed_in_use_by_another(composition, home)
    assert not as_it_was(composition, home)
    assert not as_it_was(composition, home), "nor when it is asked again"


@transactional
@pytest.mark.behaviour("K17")
def test_k17_what_another_left_open_after_we_closed_it_is_unclean(composition, home):
    store = StoreUnderTest(composition, home)
    store.fill(ROWS, "text")
    store.close()
    killed_in_use_by_another(composition, home)
    assert not as_it_was(composition, home)


@transactional
@pytest.mark.behaviour("K17")
def test_k17_another_database_in_its_place_is_unclean(composition, home):
    killed_in_use(composition, home)
    shutil.rmtree(home.task_directory)
    killed_in_use_by_another(composition, home)
    assert not as_it_was(composition, home)


@transactional
@pytest.mark.behaviour("K17")
def test_k17_an_older_copy_that_another_left_open_as_often_as_we_opened_it_is_unclean(composition, home, tmp_path):
    store = StoreUnderTest(composition, home)
    store.fill(ROWS, "text")
    store.store.commit({CHANGELOG: 1})
    store.close()
    shutil.copytree(home.task_directory, tmp_path / "copy")
    killed_in_use(composition, home)
    named = [(directory / "CURRENT").read_text() for directory in store.directories]
    shutil.rmtree(home.task_directory)
    shutil.copytree(tmp_path / "copy", home.task_directory)
    killed_in_use_by_another(composition, home)
    assert named == [(directory / "CURRENT").read_text() for directory in store.directories]
    assert not as_it_was(composition, home)


@transactional
def test_a_copy_of_all_that_we_left_open_is_used_as_it_is(composition, home, tmp_path):
    killed_in_use(composition, home)
    shutil.copytree(home.root, tmp_path / "elsewhere")
    shutil.rmtree(home.root)
    shutil.copytree(tmp_path / "elsewhere", home.root)
    assert as_it_was(composition, home)


@pytest.mark.short_for(every=5)
@transactional
@pytest.mark.parametrize("text", ["transactional", "direct", "", "{}", "\udcff", '{"schema_version":2,"databases":{}}'])
def test_a_record_that_does_not_say_which_opening_was_ours_is_not_believed(composition, home, text):
    killed_in_use(composition, home)
    (home.own_directory / f"mode-{STORE}").write_bytes(text.encode(errors="surrogateescape"))
    before = contents(home.root)
    assert not as_it_was(composition, home)
    assert contents(home.root) == before, "and the store is left as it is"


@pytest.mark.long
@compositions(persistent=True, transactional=True, format=StoreFormat.PLAIN)
@pytest.mark.behaviour("K17", "T4")
def test_no_kill_while_it_is_opened_again_and_again_costs_a_rebuild(composition, home):
    killed_in_use(composition, home)
    for step in count(1):
        code = run(open_dying, composition, home, step)
        if code == -signal.SIGTERM:
            break
        assert code == -signal.SIGKILL
    assert step > 10
    assert as_it_was(composition, home)


@several
@pytest.mark.behaviour("K17")
def test_k17_another_that_came_between_a_killed_opening_and_the_next_is_noticed(composition, home, tmp_path):
    killed_in_use(composition, home)
    for step, here in killed_at_each_step(open_dying, composition, home, tmp_path, every=4):
        killed_in_use_by_another(composition, here)
        assert not as_it_was(composition, here), step
    assert step > 10


@pytest.mark.behaviour("K17")
@transactional
def test_a_killed_opening_to_read_changes_nothing(composition, home):
    killed_in_use(composition, home)
    before = contents(home.root)
    assert run(open_read_only, composition, home) == -signal.SIGKILL
    assert contents(home.root) == before
    assert as_it_was(composition, home)


@several
@pytest.mark.behaviour("K17")
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_a_segment_that_is_lost_behind_our_killed_run_is_missed(composition, home, read_only, which):
    killed_in_use(composition, home)
    lost = home.databases(composition.kind)[which]
    shutil.rmtree(lost)
    before = contents(home.root)
    with pytest.raises(StoreCorruptedError, match=re.escape(str(lost))):
        StoreUnderTest(composition, home, read_only=read_only)
    assert contents(home.root) == before, "and the store is left as it is"


@several
@pytest.mark.behaviour("T4")
def test_no_kill_while_an_expired_segment_is_removed_costs_a_rebuild(composition, home, tmp_path):
    killed_in_use(composition, home)
    for step, here in killed_at_each_step(expire_dying, composition, home, tmp_path):
        store = StoreUnderTest(composition, here)
        assert 7 in store.rows(), step
        assert store.store.committed_offset(CHANGELOG) in (1, 9), "what is not on disk yet is replayed"
        store.close()
    assert step > 5


@several
def test_nobody_is_asked_for_a_segment_that_another_may_have_let_expire(composition, home):
    killed_in_use(composition, home)
    direct = Composition(composition.kind, composition.format, persistent=True, transactional=False)
    StoreUnderTest(direct, Elsewhere(home.root), exactly_once=False).close()
    shutil.rmtree(home.databases(composition.kind)[0])
    store = StoreUnderTest(composition, home)
    assert store.rows() == {7: "text"}
    store.close()


@compositions(persistent=True, format=StoreFormat.TIMESTAMPED)
@pytest.mark.parametrize("which", [0, -1])
def test_rows_beside_an_empty_database_that_another_began_are_not_deleted(composition, home, which):
    """RocksDB begins one where CURRENT is lost, for who asks for that, as Kafka Streams does."""
    store = StoreUnderTest(composition, home)
    store.fill(ROWS, "text")
    store.store.commit({CHANGELOG: 1})
    store.close()
    begin_anew(store.directories[which])
    before = contents(home.root)
    for read_only in (True, False):
        with pytest.raises(StoreCorruptedError, match="belongs to another database"):
            StoreUnderTest(composition, home, read_only=read_only)
    assert contents(home.root) == before


@one_of_each
def test_our_record_does_not_let_the_rows_of_a_lost_database_be_deleted(composition, home):
    killed_in_use(composition, home)
    (directory,) = home.databases(composition.kind)
    begin_anew(directory)
    record = home.own_directory / f"mode-{STORE}"
    recorded = json.loads(record.read_bytes())
    recorded["databases"][""] |= {"identity": (directory / "IDENTITY").read_bytes().hex(), "sequence": 0}
    record.write_text(json.dumps(recorded))  # it speaks of the new one, before its first write
    with pytest.raises(StoreCorruptedError, match="belongs to another database"):
        StoreUnderTest(composition, home)


@pytest.mark.long
@several
@pytest.mark.behaviour("T4")
def test_no_kill_while_a_segment_is_made_costs_a_rebuild(composition, home, tmp_path):
    killed_in_use(composition, home)
    for step, here in killed_at_each_step(make_segment_dying, composition, home, tmp_path):
        reader = StoreUnderTest(composition, here, read_only=True)
        assert reader.store.committed_offset(CHANGELOG) == 1, step
        reader.close()
        assert as_it_was(composition, here), step
        store = StoreUnderTest(composition, here)
        store.put(NEW_SEGMENT_SLOT, "text")
        store.store.commit({CHANGELOG: 2})
        store.reopen()
        assert (store.rows(), store.store.committed_offset(CHANGELOG)) == ({**ROWS, NEW_SEGMENT_SLOT: "text"}, 2)
        store.close()
    assert step > 5


@pytest.mark.short_for("close_dying-window-timestamped-rocksdb-transactional")
@several
@pytest.mark.behaviour("T4")
@pytest.mark.parametrize("dying", [make_segment_dying, close_dying])
def test_no_kill_while_the_only_segment_is_made_costs_a_rebuild(composition, home, tmp_path, dying):
    """A store whose rows have all expired has one again with the next row, or when it is closed."""
    assert run(expire_all, composition, home) == -signal.SIGKILL
    assert home.databases(composition.kind) == []
    for step, here in killed_at_each_step(dying, composition, home, tmp_path):
        for read_only in (True, False):
            store = StoreUnderTest(composition, here, read_only=read_only)
            assert (store.rows(), store.store.committed_offset(CHANGELOG)) == ({}, 5), step
            store.close()
    assert step > 5


@several
@pytest.mark.behaviour("T4")
def test_a_segment_of_which_rocksdb_had_made_nothing_but_its_lock_costs_no_rebuild(composition, home):
    killed_in_use(composition, home)
    begun = home.task_directory / STORE / f"{STORE}.{time_of(NEW_SEGMENT_SLOT)}"
    begun.mkdir()
    (begun / "LOCK").touch()
    assert as_it_was(composition, home)
    assert not begun.exists()


@several
@pytest.mark.behaviour("K17")
def test_k17_what_another_left_in_the_segment_that_we_made_last_is_unclean(composition, home):
    killed_in_use(composition, home)
    run(make_segment_dying, composition, home, 1_000)
    killed_in_use_by_another(composition, home)
    assert not as_it_was(composition, home)


@several
def test_a_recorded_segment_whose_files_are_gone_is_missed(composition, home):
    killed_in_use(composition, home)
    segment = home.databases(composition.kind)[0]
    for file in segment.iterdir():
        file.unlink()
    store = StoreUnderTest(composition, home)
    assert store.store.committed_offset(CHANGELOG) is None, "so the store is rebuilt"
    store.close()


@several
def test_an_empty_segment_beside_those_of_another_is_not_taken_for_one_that_we_had_only_begun(composition, home):
    killed_in_use(composition, home)
    killed_in_use_by_another(composition, home)
    RocksDB(home.task_directory / STORE / f"{STORE}.{time_of(NEW_SEGMENT_SLOT)}", ("default",)).close()
    store = StoreUnderTest(composition, home, exactly_once=False)
    assert store.store.committed_offset(CHANGELOG) is None, "what was in it is not known, so the store is rebuilt"
    store.close()


@one_of_each
@pytest.mark.behaviour("K17")
def test_k17_however_much_is_written_no_manifest_but_the_first_is_made(composition, home):
    assert run(roll_manifests, composition, home) == -signal.SIGKILL
    store = StoreUnderTest(composition, home)
    assert store.get(1) == "4"
    store.close()


@several
def test_all_segments_are_recorded_together(composition, home, monkeypatch):
    written = []
    write_durably = last_use.write_durably
    monkeypatch.setattr(last_use, "write_durably", lambda *what: (written.append(what), write_durably(*what)))
    store = StoreUnderTest(composition, home)
    store.fill(ROWS, "text")
    store.close()
    written.clear()
    store.open()
    assert len(written) == 1, "one record of two segments that were closed"
    store.close(clean=False)
    written.clear()
    store.open()
    assert len(written) == 2, "and one more if they were left open"
    store.close()
