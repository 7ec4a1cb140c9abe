"""KIP-844 over every composition: what is staged, who sees it, and how it becomes part of the store or goes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from statestore.stores.readers import IsolationLevel
from tests.compositions import CHANGELOG, INPUT, compositions

UNCOMMITTED, COMMITTED = IsolationLevel


@pytest.mark.behaviour("T2")
def test_the_owner_sees_what_it_wrote_over_what_was_committed_in_order(store):
    store.fill(range(0, 12, 2), "committed")
    store.store.commit({CHANGELOG: 5})
    store.fill([3, 4, 11], "staged")
    store.put(0, None)
    store.put(6, None)
    assert (store.get(0), store.get(2), store.get(4), store.get(11)) == (None, "committed", "staged", "staged")
    expected = [(2, "committed"), (3, "staged"), (4, "staged"), (8, "committed"), (10, "committed"), (11, "staged")]
    assert list(store.scan()) == expected
    assert list(store.scan(backward=True)) == expected[::-1]


@pytest.mark.behaviour("T2", "T3")
@compositions(transactional=True)
def test_a_read_committed_view_hides_what_is_staged_until_the_commit_a_view_by_default_shows_it(store):
    store.fill([1, 7], "old")
    store.store.commit({CHANGELOG: 1})
    store.fill([1, 8], "new")
    store.put(7, None)
    committed, default = store.reader(COMMITTED), store.reader(UNCOMMITTED)
    assert store.rows(committed) == {1: "old", 7: "old"}
    assert store.get_from(committed, 8) is None
    assert store.rows(default) == store.rows() == {1: "new", 8: "new"}
    assert store.get_from(default, 7) is None
    store.store.commit({CHANGELOG: 4})
    assert store.rows(committed) == {1: "new", 8: "new"}
    assert store.get_from(committed, 8) == "new"


@compositions(transactional=False)
def test_what_a_store_without_transactions_wrote_is_committed_at_once(store):
    store.put(1, "text")
    assert store.rows(store.reader(COMMITTED)) == {1: "text"}
    store.store.rollback()
    assert store.rows() == {1: "text"}


@pytest.mark.behaviour("T3")
@compositions(transactional=True, persistent=True)
def test_offset_and_position_are_those_of_the_last_commit_while_more_is_staged(store):
    store.put(1, "old")
    store.store.commit({CHANGELOG: 1}, {INPUT: 10})
    store.fill([1, 7], "new")
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (1, {INPUT: 10})
    store.store.commit({CHANGELOG: 3}, {INPUT: 12})
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (3, {INPUT: 12})


@pytest.mark.behaviour("T4")
@compositions(transactional=True)
def test_rollback_drops_what_is_staged_and_its_bytes(store):
    store.fill([1, 2], "old")
    store.store.commit({CHANGELOG: 1}, {INPUT: 1})
    store.fill([2, 8], "new")
    store.put(1, None)
    assert store.store.staged_bytes > 0
    store.store.rollback()
    assert store.store.staged_bytes == 0
    assert store.rows() == {1: "old", 2: "old"}
    store.store.commit({})
    assert store.rows() == store.rows(store.reader(COMMITTED)) == {1: "old", 2: "old"}
    if store.composition.persistent:
        assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (1, {INPUT: 1})


@pytest.mark.behaviour("T4")
@compositions(transactional=True, persistent=True)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a failure"])
def test_closing_drops_what_is_staged(store, clean):
    store.put(1, "old")
    store.store.commit({CHANGELOG: 1})
    store.fill([1, 8], "new")
    store.reopen(clean=clean, exactly_once=clean)
    assert store.rows() == {1: "old"}


@pytest.mark.behaviour("T8")
@compositions(transactional=True)
def test_recover_drops_what_is_staged_and_a_second_time_changes_nothing(store):
    store.fill([1, 7], "old")
    store.store.commit({CHANGELOG: 1})
    store.fill([1, 8], "never committed in Kafka")
    for _ in range(2):
        assert store.store.recover(1) is True
        assert store.rows() == {1: "old", 7: "old"}
        assert store.store.committed_offset(CHANGELOG) == (1 if store.composition.persistent else None)


@pytest.mark.behaviour("T8")
@compositions(transactional=True)
def test_after_recover_the_changelog_rolls_the_store_forward_to_what_kafka_committed(store):
    store.fill([1, 7], "old")
    store.store.commit({CHANGELOG: 1})
    tail = [(1, "new"), (8, "new"), (7, None)]  # committed in Kafka, and lost on the way to the store
    for slot, text in tail:
        store.put(slot, text)
    assert store.store.recover(1) is True
    for _ in range(2):
        store.replay(tail)
        store.store.commit({CHANGELOG: 4})
        assert store.rows() == store.rows(store.reader(COMMITTED)) == {1: "new", 8: "new"}


@pytest.mark.behaviour("T16")
@compositions(transactional=True)
def test_recover_returns_whether_the_committed_rows_are_at_the_offset_or_above_it(store):
    assert [store.store.recover(offset) for offset in (None, 0)] == [True, False]
    store.fill([1, 7], "old")
    store.store.commit({CHANGELOG: 4})
    store.fill([1, 8], "never committed in Kafka")
    assert [store.store.recover(offset) for offset in (None, 0, 4, 5)] == [True, True, True, False]
    assert store.rows() == {1: "old", 7: "old"}, "what was not committed is discarded, whatever the answer"
    store.store.clear_offsets()
    assert store.store.recover(0) is False
    if store.composition.persistent:
        store.store.commit({CHANGELOG: 4})
    store.reopen()
    assert [store.store.recover(offset) for offset in (4, 5)] == [store.composition.persistent, False]


@pytest.mark.behaviour("T8", "T16")
@compositions(transactional=False)
def test_a_store_without_transactions_cannot_recover_a_committed_state(store):
    store.put(1, "perhaps never committed in Kafka")
    assert store.store.recover(0) is False


@pytest.mark.behaviour("T10")
def test_every_kind_of_transaction_commits(store):
    store.fill([1, 7], "old")
    store.store.commit({CHANGELOG: 0})
    transactions = {
        "empty": lambda: None,
        "read-only": lambda: (store.get(1), store.rows()),
        "write-only": lambda: store.fill([2, 8], "new"),
        "delete-only": lambda: store.put(1, None),
        "a delete of nothing": lambda: store.put(9, None),
    }
    for offset, (what, work) in enumerate(transactions.items(), start=1):
        work()
        expected = store.rows()
        store.store.commit({CHANGELOG: offset})
        assert store.rows() == store.rows(store.reader(COMMITTED)) == expected, what
        assert store.store.committed_offset(CHANGELOG) == (offset if store.composition.persistent else None), what
    assert expected == {2: "new", 7: "old", 8: "new"}


@compositions(transactional=True)
def test_staged_bytes_grow_with_what_is_staged_and_not_with_a_value_that_replaces_one_of_its_size(store):
    sizes = []
    for text in ("x" * 100, "y" * 100, "z" * 1_000):
        store.put(1, text)
        sizes.append(store.store.staged_bytes)
    assert sizes[0] == sizes[1] > 100
    assert sizes[2] == sizes[1] + 900
    store.put(8, None)
    assert store.store.staged_bytes > sizes[2]


def test_changes_are_logged_in_order_and_once_those_that_come_from_the_log_are_not(store):
    logged = []
    store.store.log_changes_to(lambda *change: logged.append(change))
    for slot, text in [(1, "a"), (7, "bb"), (1, None)]:
        store.put(slot, text)
    store.replay([(2, "c")])
    store.get(2)
    store.store.commit({CHANGELOG: 3})
    timestamp = (lambda text: 1_000 + len(text)) if store.composition.timestamped else (lambda text: None)
    headers = (lambda text: (store.value(text).headers,)) if store.composition.keeps_headers else (lambda text: ())
    assert logged == [
        (store.row_key(1), b"a", timestamp("a"), *headers("a")),
        (store.row_key(7), b"bb", timestamp("bb"), *headers("bb")),
        (store.row_key(1), None, None),
    ]


def test_slots_are_in_the_order_of_their_rows(store):
    """What the contract relies on."""
    store.fill(range(12), "text")
    assert list(store.rows()) == list(range(12))
    assert all(first < second for first, second in pairwise(map(store.row_key, range(12))))
    if store.composition.persistent:
        assert len(store.directories) == (1 if store.composition.kind == "key-value" else 2)
