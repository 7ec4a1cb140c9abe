"""Commits that take more than one write: their files, and what the next opening makes of them."""

from __future__ import annotations

import resource
import signal

import pytest
from killed import SPILL_BYTES, SPILLED_TEXT, commit_and_stay, commit_half, run, small_memtables
from store_under_test import Elsewhere, Home, StoreUnderTest, commits, read_by_links

from statestore.errors import StoreAccessError
from statestore.model import StoreFormat
from statestore.stores import scan, segments
from statestore.stores.rocksdb import RocksDB
from tests.compositions import CHANGELOG, INPUT, Composition, compositions

BEFORE, AFTER = {0: "before", 11: "before"}, dict.fromkeys(range(12), SPILLED_TEXT)

durable = compositions(persistent=True, transactional=True)
segmented = [compositions(persistent=True, transactional=True, kind=kind) for kind in ("window", "session")]


def fill(composition, home):
    store = StoreUnderTest(composition, home)
    store.fill([0, 11], "before")
    store.store.commit({CHANGELOG: 1}, {INPUT: 1})
    store.close()


@pytest.fixture
def left(composition, home):
    """A store whose process was killed when a spilled commit had been decided."""
    fill(composition, home)
    assert run(commit_half, composition, home, SPILL_BYTES) == -signal.SIGKILL
    assert len(commits(home)) == 1
    return home


def replay(store):
    assert store.store.committed_offset(CHANGELOG) == 1
    store.replay([(slot, SPILLED_TEXT) for slot in range(12)])
    store.store.commit({CHANGELOG: 12}, {INPUT: 12})
    assert store.rows() == AFTER
    store.close()


@pytest.mark.short_for(every=2)
@durable
@pytest.mark.behaviour("T9")
def test_an_opening_that_is_killed_while_it_completes_a_commit_leaves_it_to_the_next(composition, left, monkeypatch):
    def fail(_):
        raise StoreAccessError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(RocksDB, "sync", fail)
        with pytest.raises(StoreAccessError):
            StoreUnderTest(composition, left)
    assert commits(left)
    store = StoreUnderTest(composition, left)
    assert (store.store.committed_offset(CHANGELOG), store.rows()) == (12, AFTER)
    store.close()
    assert not commits(left)


@pytest.mark.short_for(every=2)
@durable
@pytest.mark.behaviour("T9", "T5")
def test_a_reader_shows_a_commit_that_does_not_fit_into_its_memory(composition, left, monkeypatch):
    monkeypatch.setattr(scan, "_STAGED_BYTES", SPILL_BYTES)
    assert read_by_links(composition, left, ["before", SPILLED_TEXT]) == (12, AFTER)
    assert commits(left), "a reader changes nothing"


@pytest.mark.short_for(every=6)
@durable
@pytest.mark.behaviour("T9")
@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: raw[:99] + b"?" + raw[100:], lambda _: b""])
def test_a_damaged_commit_is_not_completed_and_the_changelog_is_replayed(composition, left, damage):
    (path,) = commits(left)
    path.write_bytes(damage(path.read_bytes()))
    replay(StoreUnderTest(composition, left))
    assert not commits(left)


@pytest.mark.short_for(every=2)
@durable
@pytest.mark.behaviour("T9")
def test_a_commit_is_not_completed_in_a_store_that_another_program_has_opened_since(composition, left):
    StoreUnderTest(composition, Elsewhere(left.root), exactly_once=False).close(clean=False)
    assert set(read_by_links(composition, left, ["before", SPILLED_TEXT])[1].values()) <= {"before", SPILLED_TEXT}
    store = StoreUnderTest(composition, left, exactly_once=False)
    assert not commits(left)
    replay(store)


@pytest.mark.short_for(every=2)
@durable
@pytest.mark.behaviour("T9")
def test_a_commit_is_not_completed_in_another_store_that_took_the_place_of_its_own(composition, left, tmp_path):
    other = Home(tmp_path / "other")
    fill(composition, other)
    left.task_directory.rename(tmp_path / "former")
    other.task_directory.rename(left.task_directory)
    store = StoreUnderTest(composition, left)
    assert (store.store.committed_offset(CHANGELOG), store.rows()) == (1, BEFORE)
    assert not commits(left)
    store.close()


def commit_over_the_limit(composition, home):
    """Have the file of a commit refused as too large; nothing of the commit may be there then."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = StoreUnderTest(composition, home, uncommitted_max_bytes=4 << 20)
    for number in range(200):
        store.fill(range(12), f"{number}{SPILLED_TEXT}")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    with pytest.raises(StoreAccessError):
        store.store.commit({CHANGELOG: 12}, {INPUT: 12})
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert not commits(home)
    assert store.store.recover(1), "nothing is committed, so all of it can be discarded"
    assert (store.store.committed_offset(CHANGELOG), store.rows()) == (1, BEFORE)
    store.close()


@segmented[0]
@pytest.mark.behaviour("T9", "T4")
def test_a_commit_whose_file_cannot_be_written_has_not_begun(composition, home):
    fill(composition, home)
    assert run(commit_over_the_limit, composition, home) == -signal.SIGKILL


@segmented[0]
@pytest.mark.behaviour("S4", "T15")
def test_no_commit_flushes_a_segment(composition, home, monkeypatch):
    monkeypatch.setattr(RocksDB, "sync", lambda _: flushed.append(1))
    flushed = []
    store = StoreUnderTest(composition, home)
    store.fill([1, 7], "text")
    opened = len(flushed)
    for number in range(1, 10):
        store.put(7, f"{number}" * 1_000_000)
        store.store.commit({CHANGELOG: number})
    assert len(commits(home)) == 9, "the first is only in memory"
    assert len(flushed) == opened
    store.close()


@segmented[0]
@pytest.mark.behaviour("S4", "T15")
def test_commits_that_rocksdb_has_put_on_disk_by_itself_go(composition, home):
    store = StoreUnderTest(composition, home, config_setter=small_memtables)
    for number in range(1, 100):
        store.put(number % 6, f"{number:05d}" * 1_000)
        store.store.commit({CHANGELOG: number})
    assert 1 <= len(commits(home)) < 50
    store.close()


@segmented[1]
@pytest.mark.behaviour("S4", "T3")
def test_idle_segments_get_the_offset_of_the_last_commit_without_a_flush(composition, home):
    assert run(commit_and_stay, composition, home, 20) == -signal.SIGKILL
    assert read_by_links(composition, home, ["text 1", "text 20"])[0] == 20
    store = StoreUnderTest(composition, home)
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (20, {INPUT: 20})
    assert store.rows() == {**dict.fromkeys(range(12), "text 1"), 1: "text 20"}
    store.close()


@segmented[1]
@pytest.mark.behaviour("S4")
def test_many_small_commits_leave_few_files(composition, home):
    store = StoreUnderTest(composition, home)
    for number in range(1, 700):
        store.put(number % 12, "text")
        store.store.commit({CHANGELOG: number})
    assert 100 < len(commits(home)) <= 257
    store.close(clean=False)
    assert read_by_links(composition, home, ["text"]) == (699, dict.fromkeys(range(12), "text"))


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.behaviour("S4")
def test_a_segment_that_holds_back_many_megabytes_is_put_on_disk(transactional, home, monkeypatch):
    monkeypatch.setattr(segments, "HELD_BACK_BYTES", 1 << 20)
    composition = Composition("window", StoreFormat.TIMESTAMPED, persistent=True, transactional=transactional)
    store = StoreUnderTest(composition, home, exactly_once=False, config_setter=small_memtables)
    store.fill([1, 7], "text")
    for number in range(1, 300):
        store.fill(range(7, 12), f"{number:09d}" * 400)
        store.store.commit({CHANGELOG: number})
    on_disk = RocksDB(store.directories[0], composition.layout.column_families, read_only=True)
    try:
        assert (40 if transactional else 200) < on_disk.committed_offset(CHANGELOG) < 300
    finally:
        on_disk.close()
    assert sum(path.stat().st_size for path in commits(home)) < 2 << 20
    store.close()
    assert not commits(home)
