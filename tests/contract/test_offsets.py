"""KIP-1035 over every composition: offsets, position and status that the store keeps itself."""

from __future__ import annotations

import pytest
from store_under_test import StoreUnderTest, looked_at

from statestore.errors import InvalidStateError, StoreCorruptedError
from statestore.formats import offsets as offsets_format
from statestore.model import TopicPartition
from statestore.stores.rocksdb import RocksDB
from tests.compositions import CHANGELOG, INPUT, STORE, compositions

OTHER = TopicPartition("app-s-changelog", 1)
OTHER_INPUT = TopicPartition("input", 1)
on_disk = compositions(persistent=True)
#: A global store: the offsets of several partitions in one store.
GLOBAL = {"changelogs": {STORE: (CHANGELOG, OTHER)}}


@on_disk
@pytest.mark.behaviour("K1")
def test_what_was_committed_is_there_after_reopening(store):
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 5}, {INPUT: 50})
    store.reopen()
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (5, {INPUT: 50})
    store.reopen(read_only=True)
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (5, {INPUT: 50})
    assert store.rows() == {1: "text", 7: "text"}


@compositions(persistent=False)
@pytest.mark.behaviour("K1", "K7")
def test_a_store_in_memory_manages_no_offsets_and_is_empty_after_reopening(store):
    assert not store.store.manages_offsets
    store.put(1, "text")
    store.store.commit({CHANGELOG: 5}, {INPUT: 50})
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (None, {})
    store.reopen()
    assert (store.store.committed_offset(CHANGELOG), store.rows()) == (None, {})
    assert not list(store.home.root.rglob("*")), "no file was made"


@pytest.mark.behaviour("K2")
def test_an_offset_never_committed_is_none(store):
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (None, {})
    store.fill([1, 7], "text")
    store.store.commit({})
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (None, {})
    if store.composition.persistent:
        store.reopen()
        assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (None, {})


@on_disk
@pytest.mark.behaviour("K3")
@pytest.mark.parametrize("slots", [[], [1, 7]], ids=["no rows", "rows"])
def test_clearing_is_explicit_and_an_empty_commit_changes_nothing(store, slots):
    store.fill(slots, "text")
    store.store.commit({CHANGELOG: 5}, {INPUT: 50} if slots else {})
    before = (store.store.committed_offset(CHANGELOG), store.store.position())
    assert before == (5, {INPUT: 50} if slots else {})
    for commit in [({},), ({}, {}), ({}, None)]:
        store.store.commit(*commit)
        assert (store.store.committed_offset(CHANGELOG), store.store.position()) == before
    store.store.clear_offsets()
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (None, {})
    assert store.rows() == dict.fromkeys(slots, "text")
    store.store.sync()
    assert store.statuses() <= {offsets_format.STATUS_OPEN}
    store.reopen()
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (None, {})


@on_disk
@pytest.mark.behaviour("R17")
@pytest.mark.parametrize("slots", [[], [1, 7]], ids=["no rows", "rows"])
def test_r17_offsets_that_move_without_a_position_make_it_unknown(store, slots):
    store.fill(slots, "text")
    store.store.commit({CHANGELOG: 5}, {INPUT: 50})
    store.fill(slots, "later")
    store.store.commit({CHANGELOG: 6})
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (6, {})
    store.reopen()
    assert (store.store.committed_offset(CHANGELOG), store.store.position()) == (6, {})
    store.store.commit({CHANGELOG: 7}, {INPUT: 60})
    assert store.store.position() == {INPUT: 60}


@on_disk
@pytest.mark.behaviour("K4", "K18")
def test_a_commit_of_some_partitions_leaves_the_others(composition, home):
    store = StoreUnderTest(composition, home, **GLOBAL)
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 5, OTHER: 9}, {INPUT: 50, OTHER_INPUT: 90})
    store.store.commit({OTHER: 10}, {INPUT: 51})
    store.reopen(**GLOBAL)
    assert [store.store.committed_offset(one) for one in (CHANGELOG, OTHER)] == [5, 10]
    assert store.store.position() == {INPUT: 51, OTHER_INPUT: 90}
    store.store.commit({}, {INPUT: 49})
    assert store.store.position() == {INPUT: 51, OTHER_INPUT: 90}, "a position never goes back"
    store.close()


@on_disk
@pytest.mark.behaviour("K6")
def test_an_offset_that_kafka_streams_wrote_as_unknown_is_read_as_unknown(store):
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 5})
    store.close()
    for directory in store.directories:
        looked_at(
            directory,
            store.composition,
            lambda database: database.write({}, {CHANGELOG: offsets_format.UNKNOWN_OFFSET}),
            read_only=False,
        )
    store.open()
    assert store.store.committed_offset(CHANGELOG) is None
    assert store.rows() == {1: "text", 7: "text"}


@on_disk
def test_an_offset_that_is_none_is_corruption(store):
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: -7})
    with pytest.raises(StoreCorruptedError, match="expected an offset, found -7"):
        store.store.committed_offset(CHANGELOG)


@pytest.mark.behaviour("K8")
def test_a_commit_on_a_closed_store_names_the_store(store):
    store.close()
    assert not store.store.is_open
    with pytest.raises(InvalidStateError, match="store s is closed"):
        store.store.commit({CHANGELOG: 1})


def test_a_closed_store_refuses_every_call_and_may_be_closed_again(store):
    store.put(1, "text")
    store.close()
    store.close()
    calls = [
        lambda: store.get(1),
        lambda: store.put(1, "text"),
        lambda: store.put(1, None),
        store.rows,
        lambda: store.replay([(1, "text")]),
        lambda: store.store.committed_offset(CHANGELOG),
        store.store.position,
        store.store.sync,
        store.store.rollback,
        lambda: store.store.recover(1),
        store.store.clear_offsets,
    ]
    for call in calls:
        with pytest.raises(InvalidStateError, match="closed"):
            call()


@on_disk
@pytest.mark.behaviour("K18")
def test_a_store_that_is_not_logged_commits_without_offsets(composition, home):
    unlogged = {"changelogs": {STORE: ()}}
    store = StoreUnderTest(composition, home, **unlogged)
    store.fill([1, 7], "text")
    store.store.commit({}, {INPUT: 5})
    store.reopen(**unlogged)
    assert (store.rows(), store.store.position()) == ({1: "text", 7: "text"}, {INPUT: 5})
    store.close()
    for directory in store.directories:
        assert looked_at(directory, composition, RocksDB.offset_partitions) == []


@pytest.mark.behaviour("K3")
def test_flush_does_nothing_but_warn(store):
    store.put(1, "text")
    with pytest.warns(DeprecationWarning, match="store s: flush does nothing"):
        store.store.flush()
    if store.composition.transactional:
        store.store.rollback()
        assert store.rows() == {}


@on_disk
@pytest.mark.behaviour("K6")
def test_a_store_closed_without_an_offset_says_that_it_is_unknown(store):
    """Kafka Streams takes a store of its task that says nothing for a corrupted task."""
    store.fill([1, 7], "text")
    store.store.commit({})
    store.close()
    for directory in store.directories:
        offsets = looked_at(directory, store.composition, lambda database: dict(database.scan("offsets")))
        assert offsets[b"app-s-changelog-0"] == (-4).to_bytes(8, "big", signed=True)
