"""Transactional stores (KIP-844) and their offsets (KIP-1035), case by case."""

from __future__ import annotations

import struct

import pytest
from samples import CHANGELOG, INPUT, PLAIN, TIMESTAMPED

from statestore.errors import InvalidStateError, StateStoreError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import TopicPartition
from statestore.stores.key_value import open_key_value_store


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "s"


@pytest.fixture
def store(directory):
    opened = open_key_value_store(PLAIN, directory)
    yield opened
    opened.close(clean=False)


# -- transactions


def test_t1_the_store_says_that_it_is_transactional(store):
    assert store.transactional
    assert store.persistent
    assert store.manages_offsets


def test_t2_the_owner_sees_staged_rows_over_committed_ones_in_key_order(store):
    for key in (b"a", b"c", b"e"):
        store.put(key, b"committed")
    store.commit({CHANGELOG: 2})
    store.put(b"d", b"staged")
    store.put(b"c", b"staged")
    store.put(b"a", None)
    assert store.get(b"a") is None
    assert store.get(b"c") == b"staged"
    assert list(store.range()) == [(b"c", b"staged"), (b"d", b"staged"), (b"e", b"committed")]


def test_t2_a_range_has_both_its_ends_and_nothing_beyond(store):
    for key in (b"a", b"b", b"b\0", b"c", b"d"):
        store.put(key, b"1")
    store.commit({CHANGELOG: 4})
    assert [key for key, _ in store.range(b"b", b"c")] == [b"b", b"b\0", b"c"]
    assert [key for key, _ in store.range(None, b"b")] == [b"a", b"b"]
    assert [key for key, _ in store.range(b"c", None)] == [b"c", b"d"]
    assert list(store.range(b"d", b"a")) == []


def test_t3_another_reader_sees_rows_and_offset_of_a_commit_together_and_only_those(store, directory):
    store.put(b"a", b"1")
    store.commit({CHANGELOG: 7}, {INPUT: 3})
    store.put(b"a", b"2")
    store.flush()
    reader = open_key_value_store(PLAIN, directory, read_only=True)
    assert (reader.get(b"a"), reader.committed_offset(CHANGELOG), reader.position()) == (b"1", 7, {INPUT: 3})
    reader.close(clean=False)


def test_t4_rollback_discards_rows_and_their_bytes(store):
    store.put(b"a", b"1")
    store.commit({CHANGELOG: 0}, {INPUT: 0})
    store.put(b"a", b"2")
    store.put(b"b", b"2")
    assert store.staged_bytes > 0
    store.rollback()
    assert store.staged_bytes == 0
    assert list(store.range()) == [(b"a", b"1")]
    store.commit({})
    assert list(store.range()) == [(b"a", b"1")]
    assert store.position() == {INPUT: 0}


def test_t4_closing_discards_what_is_staged(store, directory):
    store.put(b"a", b"1")
    store.commit({CHANGELOG: 0})
    store.put(b"a", b"2")
    store.close()
    reopened = open_key_value_store(PLAIN, directory)
    assert reopened.get(b"a") == b"1"
    reopened.close()


def test_t7_an_open_iterator_is_not_touched_by_later_writes_and_commits(store):
    store.put(b"a", b"1")
    store.commit({CHANGELOG: 0})
    store.put(b"b", b"2")
    rows = store.range()
    store.put(b"b", b"3")
    store.put(b"c", b"3")
    store.put(b"a", None)
    store.commit({CHANGELOG: 1})
    assert list(rows) == [(b"a", b"1"), (b"b", b"2")]


def test_t7_closing_the_store_ends_its_iterators_with_a_clear_error_and_frees_it(store, directory):
    for key in (b"a", b"b", b"c"):
        store.put(key, b"1")
    store.commit({CHANGELOG: 0})
    rows = store.range()
    next(rows)
    store.close()
    with pytest.raises(InvalidStateError, match="closed"):
        next(rows)
    open_key_value_store(PLAIN, directory).close()  # the iterator, still referred to, does not keep RocksDB's LOCK


def test_t8_recover_discards_what_is_staged_and_a_second_time_changes_nothing(store):
    store.put(b"a", b"1")
    store.commit({CHANGELOG: 4})
    store.put(b"a", b"2")
    assert store.recover(9)
    assert store.recover(9)
    assert (store.get(b"a"), store.committed_offset(CHANGELOG)) == (b"1", 4)


@pytest.mark.parametrize(
    "work",
    [
        lambda store: None,
        lambda store: store.get(b"a"),
        lambda store: store.put(b"b", b"2"),
        lambda store: store.delete(b"a"),
        lambda store: store.delete(b"absent"),
    ],
    ids=["empty", "read-only", "write-only", "delete", "delete of nothing"],
)
def test_t10_every_kind_of_transaction_commits(store, work):
    store.put(b"a", b"1")
    store.commit({CHANGELOG: 0})
    work(store)
    before = list(store.range())
    store.commit({CHANGELOG: 1})
    assert list(store.range()) == before
    assert store.committed_offset(CHANGELOG) == 1


def test_staged_bytes_grow_with_what_is_staged_and_not_with_a_replaced_value(store):
    store.put(b"a", bytes(1000))
    once = store.staged_bytes
    assert once > 1000
    store.put(b"a", bytes(1000))
    assert store.staged_bytes == once
    store.put(b"a", None)
    assert once - 1000 == store.staged_bytes
    store.put(b"b", bytes(10))
    assert store.staged_bytes > once - 1000


# -- bad calls


@pytest.mark.parametrize("key", [None, "a", 1, bytearray(b"a")])
def test_a_key_that_is_not_bytes_is_refused_at_once(store, key):
    with pytest.raises(TypeError, match="key is bytes"):
        store.put(key, b"1")
    with pytest.raises(TypeError, match="key is bytes"):
        store.get(key)
    assert store.staged_bytes == 0


@pytest.mark.parametrize("value", ["text", 1, ValueAndTimestamp(b"1", 2), ["a"]])
def test_a_value_that_is_not_bytes_is_refused_at_once_not_at_the_commit(store, value):
    logged = []
    store.log_changes_to(lambda *change: logged.append(change))
    with pytest.raises(TypeError):
        store.put(b"a", value)
    assert (store.staged_bytes, logged) == (0, [])


@pytest.mark.parametrize("value", [b"ab", b"plain", "text", ("text", 5), (b"a", None), (b"a", "5"), (None, 5)])
def test_a_timestamped_value_of_another_shape_is_refused_at_once(directory, value):
    store = open_key_value_store(TIMESTAMPED, directory)
    with pytest.raises((TypeError, ValueError, struct.error)):
        store.put(b"a", value)
    assert store.staged_bytes == 0
    store.close()


def test_k8_a_commit_on_a_closed_store_names_the_store(store):
    store.close()
    with pytest.raises(InvalidStateError, match="store s is closed"):
        store.commit({CHANGELOG: 1})


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get(b"a"),
        lambda store: store.put(b"a", b"1"),
        lambda store: store.delete(b"a"),
        lambda store: store.range(),
        lambda store: store.apply_changelog(b"a", b"1", 1),
        lambda store: store.committed_offset(CHANGELOG),
        lambda store: store.position(),
        lambda store: store.flush(),
    ],
    ids=["get", "put", "delete", "range", "apply_changelog", "committed_offset", "position", "flush"],
)
def test_k8_a_closed_store_refuses_every_call(store, call):
    store.close()
    with pytest.raises(InvalidStateError, match="closed"):
        call(store)


def test_closing_twice_is_closing_once(store):
    store.close()
    store.close()


def test_a_store_opened_to_be_read_refuses_a_commit_in_our_words(store, directory):
    store.close()
    reader = open_key_value_store(PLAIN, directory, read_only=True)
    reader.put(b"a", b"1")
    with pytest.raises(StateStoreError):
        reader.commit({CHANGELOG: 1})
    reader.close(clean=False)


# -- logging


def test_every_change_is_logged_once_and_a_replayed_one_is_not(store):
    logged = []
    store.log_changes_to(lambda *change: logged.append(change))
    store.put(b"a", b"1")
    store.put(b"a", None)
    store.delete(b"absent")
    store.put_if_absent(b"b", b"2")
    store.put_if_absent(b"b", b"3")
    store.apply_changelog(b"c", b"4", 5)
    store.get(b"c")
    assert logged == [(b"a", b"1", None), (b"a", None, None), (b"absent", None, None), (b"b", b"2", None)]


def test_k4_offsets_and_position_of_partitions_not_named_stay(store):
    other = TopicPartition("app-s-changelog", 1)
    store.commit({CHANGELOG: 1, other: 5}, {INPUT: 1, TopicPartition("input", 1): 9})
    store.commit({CHANGELOG: 2}, {INPUT: 2})
    assert (store.committed_offset(CHANGELOG), store.committed_offset(other)) == (2, 5)
    assert store.position() == {INPUT: 2, TopicPartition("input", 1): 9}


def test_k3_an_empty_commit_changes_neither_offsets_nor_position(store):
    store.commit({CHANGELOG: 1}, {INPUT: 1})
    store.commit({})
    store.commit({}, {})
    assert (store.committed_offset(CHANGELOG), store.position()) == (1, {INPUT: 1})
