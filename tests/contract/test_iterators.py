"""Iterators: stable against what comes after them, and ended when their store is closed (KIP-844)."""

from __future__ import annotations

import pytest

from statestore.errors import InvalidStateError
from tests.compositions import CHANGELOG, compositions


@pytest.mark.behaviour("T7")
def test_an_open_iterator_shows_the_rows_of_its_opening(store):
    store.fill([1, 3, 7], "old")
    store.store.commit({CHANGELOG: 2})
    store.put(8, "staged")
    forward, backward = store.scan(), store.scan(backward=True)
    first = next(forward)
    store.fill([2, 8], "later")
    store.put(3, None)
    store.store.commit({CHANGELOG: 5})
    store.put(7, None)
    expected = [(1, "old"), (3, "old"), (7, "old"), (8, "staged")]
    assert [first, *forward] == expected
    assert list(backward) == expected[::-1]
    assert list(store.scan()) == [(1, "old"), (2, "later"), (8, "later")]


@pytest.mark.behaviour("T7")
@compositions(transactional=True)
def test_an_open_iterator_outlives_a_rollback(store):
    store.put(1, "old")
    store.store.commit({CHANGELOG: 0})
    store.fill([2, 8], "staged")
    rows = store.scan()
    store.store.rollback()
    assert dict(rows) == {1: "old", 2: "staged", 8: "staged"}


@pytest.mark.behaviour("T7")
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "staged"])
def test_closing_the_store_ends_its_iterators_with_a_clear_error_and_frees_it(store, committed):
    store.fill([1, 2, 3], "text")
    if committed:
        store.store.commit({CHANGELOG: 2})
    started, fresh = store.scan(), store.scan()
    next(started)
    store.close()
    for rows in (started, fresh):
        with pytest.raises(InvalidStateError, match="closed"):
            list(rows)
    store.open()  # iterators that somebody still holds do not keep RocksDB's LOCK
