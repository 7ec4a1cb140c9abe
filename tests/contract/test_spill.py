"""Transactions that outgrow their memory go on in a secondary RocksDB, and nobody sees a difference (KIP-844)."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from store_under_test import StoreUnderTest

from statestore.errors import DiskSpaceError, InvalidStateError
from statestore.stores.readers import IsolationLevel
from statestore.stores.rocksdb import RocksDB
from tests.compositions import CHANGELOG, INPUT, compositions

BOUND_BYTES = 64 * 1024
#: Two of these are more than half of the bound, which is when a transaction spills.
TEXT = "spilled " * 2_500
spilling = compositions(persistent=True, transactional=True)


@pytest.fixture
def store(composition, home):
    """Slots 0, 3, 6 and 9 are committed; slots 0 to 8 are staged over them, most of them spilled; 3 is deleted."""
    opened = StoreUnderTest(composition, home, uncommitted_max_bytes=BOUND_BYTES)
    opened.fill(range(0, 12, 3), "committed")
    opened.store.commit({CHANGELOG: 3}, {INPUT: 3})
    opened.put(3, None)
    opened.fill([0, 1, 2, 4, 5, 6, 7, 8], TEXT)
    opened.put(1, "replaced after the spill")
    assert spill_files(opened)
    yield opened
    opened.close(clean=False)


EXPECTED = {slot: TEXT for slot in range(9) if slot != 3} | {1: "replaced after the spill", 9: "committed"}


def spill_files(store):
    """Files of secondary RocksDBs; they lie in our own directory only."""
    return [path for path in store.home.own_directory.rglob("*") if path.is_file() and "spill" in str(path)]


@spilling
@pytest.mark.behaviour("T5")
def test_memory_stays_within_the_bound_while_much_more_is_staged(store):
    largest = 0
    for _ in range(10):
        for slot in range(9):
            store.put(slot, TEXT)
            largest = max(largest, store.store.staged_bytes)
    databases = len(store.directories)
    assert largest <= BOUND_BYTES // 2 * databases
    assert 9 * len(TEXT) > BOUND_BYTES * 2


@spilling
@pytest.mark.behaviour("T5", "T2")
def test_reads_and_their_order_are_as_without_a_spill(store):
    assert {slot: store.get(slot) for slot in [*range(9), 9]} == EXPECTED | {3: None}
    assert list(store.scan()) == sorted(EXPECTED.items())
    assert list(store.scan(backward=True)) == sorted(EXPECTED.items(), reverse=True)
    committed = store.reader(IsolationLevel.READ_COMMITTED)
    assert store.rows(committed) == dict.fromkeys(range(0, 12, 3), "committed")


@spilling
@pytest.mark.behaviour("T5")
def test_a_commit_applies_everything_and_leaves_no_spill(store):
    store.store.commit({CHANGELOG: 30}, {INPUT: 30})
    assert not spill_files(store)
    assert store.rows() == store.rows(store.reader(IsolationLevel.READ_COMMITTED)) == EXPECTED
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (30, {INPUT: 30})
    store.reopen()
    assert store.rows() == EXPECTED


@spilling
@pytest.mark.behaviour("T5", "T4")
@pytest.mark.parametrize(
    "end", [lambda store: store.store.rollback(), lambda store: store.store.recover(3), StoreUnderTest.reopen]
)
def test_a_rollback_recover_or_close_leaves_no_spill_and_nothing_of_it(store, end):
    end(store)
    assert not spill_files(store)
    assert store.rows() == dict.fromkeys(range(0, 12, 3), "committed")
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (3, {INPUT: 3})
    store.fill([2, 4, 5], TEXT)
    assert store.get(2) == TEXT


@spilling
@pytest.mark.behaviour("T5", "T7")
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_an_iterator_outlives_the_transaction_that_had_spilled(store, commit):
    forward, backward = store.scan(), store.scan(backward=True)
    first = next(forward)
    if commit:
        store.store.commit({CHANGELOG: 30})
    else:
        store.store.rollback()
    store.put(2, None)
    assert dict([first, *forward]) == dict(backward) == EXPECTED
    del forward, backward
    store.store.commit({CHANGELOG: 31})
    assert not spill_files(store)


@compositions(kind="key-value", persistent=True, transactional=True)
@pytest.mark.behaviour("T6", "T5")
def test_a_range_delete_hides_spilled_rows_and_a_later_put_wins(store):
    before = store.scan()
    store.store.delete_range("k02", "k07")
    store.put(5, "later")
    store.fill([10, 11], TEXT)
    expected = {slot: text for slot, text in EXPECTED.items() if not 2 <= slot <= 7}
    expected |= {5: "later", 10: TEXT, 11: TEXT}
    assert store.rows() == expected
    assert (store.get(4), store.get(6), store.get(5)) == (None, None, "later")
    assert dict(before) == EXPECTED
    store.store.commit({CHANGELOG: 40})
    assert store.rows() == expected


@spilling
@pytest.mark.behaviour("T8", "T9")
def test_a_commit_that_a_full_disk_ends_half_way_is_not_taken_for_rolled_back(store, monkeypatch):
    write, written = RocksDB.write, []

    def until_full(table, changes, *rest, **how):
        # RocksDB on a real full disk holds up a write for as long as it hopes for space, which no test can wait for.
        if any(changes.values()):
            written.append(changes)
            if len(written) == 2:
                raise DiskSpaceError("No space left on device")
        write(table, changes, *rest, **how)

    monkeypatch.setattr(RocksDB, "write", until_full)
    with pytest.raises(DiskSpaceError):
        store.store.commit({CHANGELOG: 30}, {INPUT: 30})
    assert store.store.recover(3) is False
    with pytest.raises(InvalidStateError, match="half of a commit"):
        store.store.rollback()
    assert store.rows() == EXPECTED  # nothing of the transaction is lost
    assert store.rows(store.reader(IsolationLevel.READ_COMMITTED)) == EXPECTED  # decided, so all of it shows
    assert store.store.committed_offset(CHANGELOG) == 3  # from there the changelog is replayed, if it is not repeated
    store.store.commit({CHANGELOG: 30}, {INPUT: 30})
    assert store.rows() == store.rows(store.reader(IsolationLevel.READ_COMMITTED)) == EXPECTED
    assert (store.store.committed_offset(CHANGELOG), store.store.recover(30)) == (30, True)
    assert not spill_files(store)


@spilling
@pytest.mark.behaviour("T5")
def test_what_a_kill_left_of_a_spill_goes_when_the_store_is_opened_without_transactions(composition, store, home):
    left = [path.relative_to(home.root) for path in spill_files(store)]
    kept = home.root.with_name("kept")
    shutil.copytree(home.own_directory, kept)
    store.close(clean=False)
    shutil.rmtree(home.own_directory)
    kept.rename(home.own_directory)
    assert all((home.root / path).exists() for path in left)
    plain = replace(composition, transactional=False)
    opened = StoreUnderTest(plain, home, exactly_once=False)
    assert not spill_files(opened)
    opened.close(clean=False)
