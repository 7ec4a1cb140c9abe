"""The checkpoint file that is kept for a store which does not manage its offsets (KIP-1035)."""

from __future__ import annotations

import logging

import pytest
from custom import Supplier
from store_under_test import StoreUnderTest

from statestore.errors import StoreCorruptedError
from statestore.formats import checkpoint_file
from statestore.model import StoreFormat, TopicPartition
from tests.compositions import CHANGELOG, STORE, Composition
from tests.integration.file_store import FileStore

TIMESTAMPED = StoreFormat.TIMESTAMPED
plain_key_value = Composition("key-value", StoreFormat.PLAIN, True, False)


class Transactional(FileStore):
    """A store whose writes become rows of its file by a commit."""

    transactional = True

    def commit(self, offsets, position=None):
        """Write the file."""
        self.save()

    def recover(self, changelog_offset):
        """The rows are those of the file: nothing else survives."""
        return True


def mine(home, make=FileStore, **settings):
    """A custom persistent key-value store, open."""
    return StoreUnderTest(plain_key_value, home, supplier=Supplier(make), **settings)


def checkpoint(home):
    """The file of a store that does not manage its offsets, if it is there."""
    path = home.task_directory / f".checkpoint_{STORE}"
    return checkpoint_file.read(path) if path.exists() else None


@pytest.mark.behaviour("K7")
def test_a_store_that_does_not_manage_offsets_says_none_itself_and_gets_the_checkpoint_file(home):
    store = mine(home)
    assert not store.store.manages_offsets
    store.put(1, "text")
    store.store.commit({CHANGELOG: 5})
    assert store.supplier.made.committed_offset(CHANGELOG) is None
    assert checkpoint(home) is None
    store.close()
    assert checkpoint(home) == {CHANGELOG: 5}
    assert (home.task_directory / ".checkpoint_s").read_text() == "0\n1\napp-s-changelog 0 5\n"
    store.open()
    assert store.store.committed_offset(CHANGELOG) == 5
    assert checkpoint(home) is None, "under exactly once it speaks only of a store that was closed cleanly"
    store.close()


@pytest.mark.behaviour("K7")
def test_under_at_least_once_the_file_stays_while_the_store_is_open(home):
    store = mine(home, exactly_once=False)
    store.store.commit({CHANGELOG: 5})
    store.close()
    store.open(exactly_once=False)
    assert checkpoint(home) == {CHANGELOG: 5}
    store.store.clear_offsets()
    store.close()
    assert checkpoint(home) is None


def test_entries_of_other_stores_in_the_file_are_not_taken_over(home):
    store = mine(home)
    store.close()
    path = home.task_directory / f".checkpoint_{STORE}"
    home.task_directory.mkdir(parents=True, exist_ok=True)
    path.write_text(checkpoint_file.write({CHANGELOG: 5, TopicPartition("app-other-changelog", 0): 7}))
    store.open()
    store.close()
    assert checkpoint(home) == {CHANGELOG: 5}


@pytest.mark.behaviour("L3")
def test_a_close_after_a_failure_writes_no_offset(home):
    store = mine(home)
    store.store.commit({CHANGELOG: 5})
    store.close(clean=False)
    assert checkpoint(home) is None
    store.open()
    assert store.store.committed_offset(CHANGELOG) is None
    store.close()


@pytest.mark.behaviour("L4")
def test_a_file_that_cannot_be_written_is_a_warning(home, caplog):
    store = mine(home)
    store.store.commit({CHANGELOG: 5})
    (home.task_directory / f".checkpoint_{STORE}").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        store.close()
    assert "was not written" in caplog.text
    assert not store.store.is_open


def test_a_torn_file_is_an_error_and_is_kept(home):
    store = mine(home)
    store.close()
    path = home.task_directory / f".checkpoint_{STORE}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("0\n2\napp-s-changelog 0 5\n")
    with pytest.raises(StoreCorruptedError, match="not a complete checkpoint file"):
        store.open()
    assert path.exists()


@pytest.mark.behaviour("L7")
def test_under_at_least_once_a_commit_writes_the_file_after_10_000_records_or_more(home):
    store = mine(home, exactly_once=False)
    for offset, written in [(9_998, None), (9_999, 9_999), (19_998, 9_999), (19_999, 19_999), (60_000, 60_000)]:
        store.store.commit({CHANGELOG: offset})
        assert checkpoint(home) == (None if written is None else {CHANGELOG: written}), offset
    store.close()


@pytest.mark.behaviour("L7", "L8")
def test_a_transactional_store_keeps_and_writes_its_file_under_exactly_once(home):
    store = mine(home, Transactional)
    store.put(1, "text")
    for offset, written in [(9_998, None), (9_999, 9_999), (10_000, 9_999)]:
        store.store.commit({CHANGELOG: offset})
        assert checkpoint(home) == (None if written is None else {CHANGELOG: written}), offset
    store.put(2, "never committed")
    store.close(clean=False)
    assert checkpoint(home) == {CHANGELOG: 9_999}
    store.open()
    assert checkpoint(home) == {CHANGELOG: 9_999}
    assert (store.store.committed_offset(CHANGELOG), store.store.recover(9_999)) == (9_999, True)
    assert store.rows() == {1: "text"}
    store.store.commit({CHANGELOG: 10_001})
    store.close()
    assert checkpoint(home) == {CHANGELOG: 10_001}


@pytest.mark.behaviour("L8")
def test_a_file_that_at_least_once_left_is_lost_under_exactly_once_without_transactions_alone(home):
    for make, kept in [(FileStore, None), (Transactional, {CHANGELOG: 20_000})]:
        store = mine(home, make, exactly_once=False)
        store.store.commit({CHANGELOG: 20_000})
        store.close(clean=False)
        assert checkpoint(home) == {CHANGELOG: 20_000}
        store.open()
        assert store.store.committed_offset(CHANGELOG) == 20_000
        assert checkpoint(home) == kept
        store.close(clean=False)


@pytest.mark.behaviour("L7", "L8")
def test_without_transactions_no_commit_writes_the_file_under_exactly_once(home):
    store = mine(home)
    store.store.commit({CHANGELOG: 1_000_000})
    assert checkpoint(home) is None
    store.close()
    assert checkpoint(home) == {CHANGELOG: 1_000_000}


def test_offsets_that_were_cleared_do_not_come_back_after_a_crash(home):
    store = mine(home, exactly_once=False)
    store.store.commit({CHANGELOG: 50_000})
    store.close()
    store.open(exactly_once=False)
    store.store.clear_offsets()
    assert checkpoint(home) is None
    store.store.commit({CHANGELOG: 20_000})
    assert checkpoint(home) == {CHANGELOG: 20_000}


def test_a_store_that_failed_to_close_does_not_vouch_for_an_offset_when_it_is_closed_again(home):
    store = mine(home)
    store.store.commit({CHANGELOG: 5})
    store.close(clean=False)
    store.close()
    assert checkpoint(home) is None


class FailsAtFirst(FileStore):
    """A store whose first opening fails, as on a full disk."""

    failing = True

    def init(self, context):
        """Fail once."""
        if FailsAtFirst.failing:
            raise OSError(28, "No space left on device")
        super().init(context)


@pytest.mark.behaviour("L3", "L8")
def test_an_opening_that_fails_loses_no_offset(home, monkeypatch):
    store = mine(home)
    store.store.commit({CHANGELOG: 5})
    store.close()
    store.supplier = Supplier(FailsAtFirst)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            store.open()
        assert checkpoint(home) == {CHANGELOG: 5}
    monkeypatch.setattr(FailsAtFirst, "failing", False)
    store.open()
    assert store.store.committed_offset(CHANGELOG) == 5
    assert checkpoint(home) is None
    store.close()


def test_a_file_that_cannot_be_removed_leaves_the_store_closed(home, monkeypatch):
    store = mine(home)
    store.store.commit({CHANGELOG: 5})
    store.close()

    def refuse(path):
        raise OSError(30, "Read-only file system", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("statestore.stores.adapters.remove_durably", refuse)
        with pytest.raises(OSError, match="Read-only file system"):
            store.open()
    assert not store.supplier.made.is_open
    assert checkpoint(home) == {CHANGELOG: 5}
