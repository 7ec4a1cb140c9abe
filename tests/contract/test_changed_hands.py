"""A store that somebody else has used, or whose definition was changed, in between."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.errors import WrongStoreError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import TaskId, TopicPartition
from statestore.statedir.context import store_context
from statestore.statedir.paths import TaskPaths
from statestore.stores import builders, suppliers
from statestore.stores.open import build_store
from statestore.stores.readers import IsolationLevel
from statestore.stores.serdes import BYTES
from statestore.stores.views import read_only

CHANGELOG = TopicPartition("app-s-changelog", 0)
HOUR_MS = 3_600_000


@pytest.fixture
def paths(tmp_path):
    return TaskPaths(tmp_path / "state", "app", TaskId(0, 0))


def test_what_is_done_before_a_store_is_opened_is_not_done_where_it_is_refused(paths):
    store = build_store(StoreDefinition(name="s", format="plain"))
    store.init(store_context(paths))
    store.close()
    told = []
    plain = build_store(StoreDefinition(name="s", format="plain"))
    context = replace(store_context(paths), opening=told.append, changelogs={"s": (CHANGELOG._replace(partition=5),)})
    with pytest.raises(WrongStoreError):
        plain.init(context)
    assert told == []


@pytest.mark.parametrize("now_ms", [48 * HOUR_MS, 12 * HOUR_MS])
def test_a_changed_retention_is_refused_because_rows_would_be_hidden(paths, now_ms):
    def build(retention_ms):
        return build_store(
            StoreDefinition(name="s", kind="window", format="plain", retention_ms=retention_ms, window_size_ms=1_000)
        )

    store = build(24 * HOUR_MS)
    store.init(store_context(paths))
    store.put(b"k", b"old", 24 * HOUR_MS)
    store.commit({CHANGELOG: 0})
    store.close()
    with pytest.raises(WrongStoreError, match="retention was changed"):
        build(now_ms).init(store_context(paths))
    store.init(store_context(paths))
    assert store.fetch(b"k", 24 * HOUR_MS) == b"old"
    store.close()


def test_the_last_of_retained_duplicates_is_read_whatever_was_put_since(paths):
    window = timedelta(minutes=1)
    supplier = suppliers.persistent_window_store("s", timedelta(hours=1), window, True, transactional=True)
    store = builders.window_store_builder(supplier, BYTES, BYTES).build()
    store.init(store_context(paths))
    store.put(b"k", b"1", 0)
    store.put(b"k", b"2", 0)
    store.commit({CHANGELOG: 1})
    committed = read_only(store, IsolationLevel.READ_COMMITTED)
    store.put(b"other", b"x", 0)
    assert (store.fetch(b"k", 0), committed.fetch(b"k", 0), committed.fetch(b"other", 0)) == (b"2", b"2", None)
    store.rollback()
    assert store.fetch(b"k", 0) == b"2"
    store.close()
    store.init(store_context(paths))
    assert store.fetch(b"k", 0) == b"2"
    store.close()


def test_a_plain_store_of_ours_in_a_timestamped_builder_has_a_committed_view(paths):
    supplier = suppliers.persistent_key_value_store("s", transactional=True)
    store = builders.timestamped_key_value_store_builder(supplier, BYTES, BYTES).build()
    store.init(store_context(paths))
    store.put(b"k", ValueAndTimestamp(b"1", 5))
    committed = read_only(store, IsolationLevel.READ_COMMITTED)
    assert committed.get(b"k") is None
    store.commit({CHANGELOG: 0})
    assert committed.get(b"k") == ValueAndTimestamp(b"1", -1)
    assert list(committed.all()) == [(b"k", ValueAndTimestamp(b"1", -1))]
    store.close()
