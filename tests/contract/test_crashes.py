"""What is left of a store whose process is killed by SIGKILL."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from killed import (
    EXPIRING_SLOT,
    SPILL_BYTES,
    SPILLED_TEXT,
    close_on_a_full_disk,
    commit_dying,
    commit_twice_and_stage,
    expire_dying,
    run,
)
from store_under_test import Home, StoreUnderTest, commits, read_by_links

from statestore.model import StoreFormat
from tests.compositions import CHANGELOG, INPUT, Composition, compositions

FIRST = {1: "first", 2: "first", 7: "first"}
SECOND = {1: "first", 2: "second", 3: "second", 7: "first", 8: "second"}
durable = compositions(persistent=True, transactional=True)


@durable
@pytest.mark.behaviour("T3", "T4")
def test_a_killed_store_is_whole_at_a_commit_and_the_changelog_brings_it_to_the_last(composition, home):
    assert run(commit_twice_and_stage, composition, home) == -signal.SIGKILL
    store = StoreUnderTest(composition, home)
    committed = store.store.committed_offset(CHANGELOG)
    assert (committed, store.store.position(), store.rows()) in [(2, {INPUT: 20}, FIRST), (5, {INPUT: 50}, SECOND)]
    log = [(1, "first"), (2, "first"), (7, "first"), (2, "second"), (3, "second"), (8, "second")]
    assert [store.store.recover(offset) for offset in (committed, 5)] == [True, committed == 5]
    store.replay(log[committed + 1 :])
    store.store.commit({CHANGELOG: 5}, {INPUT: 50})
    assert (store.rows(), store.store.position()) == (SECOND, {INPUT: 50})
    store.close()


@pytest.mark.short_for(every=3)
@durable
@pytest.mark.parametrize("bound_bytes", [64 << 20, SPILL_BYTES], ids=["in memory", "spilled"])
@pytest.mark.behaviour("T3", "T9")
def test_a_commit_that_is_killed_is_seen_as_a_whole_or_not_at_all(composition, home, bound_bytes):
    """By a reader of the files, and by the next opening, which completes it if it was decided."""
    before, after = (1, dict.fromkeys([0, 11], "before")), (12, dict.fromkeys(range(12), SPILLED_TEXT))
    seen = []
    for number in range(1, 100, 1 if bound_bytes > SPILL_BYTES else 4):
        here = Home(home.root / str(number))
        store = StoreUnderTest(composition, here)
        store.fill([0, 11], "before")
        store.store.commit({CHANGELOG: 1}, {INPUT: 1})
        store.close()
        died = run(commit_dying, composition, here, bound_bytes, number)
        seen.append(read_by_links(composition, here, ["before", SPILLED_TEXT]))
        store = StoreUnderTest(composition, here)
        assert (store.store.committed_offset(CHANGELOG), store.rows()) == seen[-1]
        assert store.store.position() == {INPUT: seen[-1][0]}
        assert not spilled(here)
        store.close()
        assert not commits(here)
        if died == -signal.SIGTERM:
            break
    assert sorted(seen, key=lambda found: found[0]) == seen
    assert before in seen
    assert after in seen or (composition.kind == "key-value" and bound_bytes > SPILL_BYTES), "one write is not forced"
    assert all(found in (before, after) for found in seen)
    assert died == -signal.SIGTERM, "the commit came to its end"


@pytest.mark.parametrize(("kind", "transactional"), [("window", True), ("session", False)])
@pytest.mark.behaviour("S5")
def test_a_crash_while_an_expired_segment_is_removed_leaves_a_usable_store(kind, transactional, tmp_path):
    composition = Composition(kind, StoreFormat.TIMESTAMPED, persistent=True, transactional=transactional)
    for number in range(1, 100, 2):
        home = Home(tmp_path / str(number), {"exactly_once": False})
        store = StoreUnderTest(composition, home)
        store.fill(range(6), "old")
        store.store.commit({CHANGELOG: 5})
        store.close()
        if run(expire_dying, composition, home, number) == -signal.SIGTERM:
            break
        store.open()
        assert store.store.committed_offset(CHANGELOG) == (9 if EXPIRING_SLOT in store.rows() else 5)
        old = {slot for slot in store.rows() if slot != EXPIRING_SLOT}
        assert old in (set(range(6)), set()), "a segment is there as a whole, or gone"
        store.replay([(EXPIRING_SLOT, "now")])
        store.store.commit({CHANGELOG: 9})
        store.reopen()
        assert store.rows() == {EXPIRING_SLOT: "now"}
        assert len(store.directories) == 1
        assert not list(home.own_directory.rglob("*.sst"))
        store.close()
    assert number > 10


@pytest.mark.behaviour("K13")
@pytest.mark.parametrize("kind", ["key-value", "session"])
def test_where_closing_fails_to_write_the_status_the_database_is_freed_all_the_same(kind, home):
    composition = Composition(kind, StoreFormat.TIMESTAMPED, persistent=True, transactional=True)
    assert run(close_on_a_full_disk, composition, home) == -signal.SIGKILL


@pytest.mark.short_for(every=4)
@compositions(persistent=True, transactional=True, format=StoreFormat.TIMESTAMPED)
@pytest.mark.behaviour("T5")
@pytest.mark.parametrize(
    "now",
    [{"transactional": False}, {"persistent": False}, {"persistent": False, "transactional": False}],
    ids=["without transactions", "in memory", "in memory without transactions"],
)
def test_a_spill_that_a_kill_left_goes_when_the_store_is_opened_with_another_engine(composition, home, now):
    assert run(commit_dying, composition, home, SPILL_BYTES, 2) == -signal.SIGKILL
    assert spilled(home)
    StoreUnderTest(replace(composition, **now), home, exactly_once=False, read_only=True).close(clean=False)
    assert spilled(home), "a reader removes nothing"
    StoreUnderTest(replace(composition, **now), home, exactly_once=False).close()
    assert not spilled(home)


@pytest.mark.behaviour("T5")
@pytest.mark.parametrize("kinds", [("key-value", "window"), ("window", "key-value")], ids="to ".join)
def test_a_spill_that_a_kill_left_goes_when_the_store_is_opened_as_one_of_another_kind(kinds, home):
    before, now = (Composition(kind, StoreFormat.TIMESTAMPED, persistent=True, transactional=True) for kind in kinds)
    assert run(commit_dying, before, home, SPILL_BYTES, 2) == -signal.SIGKILL
    assert spilled(home)
    StoreUnderTest(now, home, exactly_once=False).close()
    assert not spilled(home)


def spilled(home):
    """Files of secondary RocksDBs."""
    return [path for path in home.own_directory.rglob("*.sst") if "spill" in str(path)]
