"""Segments of window and session stores: where offsets are, when one goes, and what one bad segment means."""

from __future__ import annotations

import shutil

import pytest
from killed import EXPIRING_SLOT
from store_under_test import Home, StoreUnderTest, contents, looked_at, time_of

from statestore.errors import StoreUncleanError
from statestore.formats import offsets as offsets_format
from statestore.model import StoreFormat
from statestore.stores.rocksdb import RocksDB
from tests.compositions import ALL, CHANGELOG, INPUT, Composition, gated

LATER = EXPIRING_SLOT  # makes the segment of the slots 0 to 5 expire


def segmented(**fixed):
    """Run a test over the windowed compositions with these properties."""
    chosen = [
        one
        for one in ALL
        if one.kind != "key-value" and all(getattr(one, name) == value for name, value in fixed.items())
    ]
    return pytest.mark.parametrize("composition", gated(chosen), ids=str)


@segmented(persistent=True)
@pytest.mark.behaviour("S4")
def test_every_segment_gets_the_offsets_of_a_commit(store):
    store.fill([1, 7, 13], "text")
    store.store.commit({CHANGELOG: 2}, {INPUT: 20})
    store.put(13, "more")
    store.store.commit({CHANGELOG: 3}, {INPUT: 30})
    store.close()
    assert len(store.directories) == 3
    for directory in store.directories:
        found = looked_at(directory, store.composition, lambda one: (one.committed_offset(CHANGELOG), one.position()))
        assert found == (3, {INPUT: 30})


@segmented(persistent=True)
@pytest.mark.behaviour("S4")
def test_the_committed_offset_is_the_smallest_of_the_segments(store):
    """They reach the disk each in its own time; the newest one can be ahead of the others' rows."""
    store.fill([1, 7, 13], "text")
    store.store.commit({CHANGELOG: 9})
    for offsets, expected in [((9, 4, 9), 4), ((9, 9, None), None)]:
        store.close()
        for directory, offset in zip(store.directories, offsets, strict=True):
            number = offsets_format.UNKNOWN_OFFSET if offset is None else offset
            looked_at(
                directory, store.composition, lambda one, n=number: one.write({}, {CHANGELOG: n}), read_only=False
            )
        store.open()
        assert store.store.committed_offset(CHANGELOG) == expected


@segmented(persistent=True)
@pytest.mark.behaviour("S4")
def test_a_new_segment_starts_with_the_stores_offset_so_that_the_smallest_is_not_lost(store):
    store.put(1, "text")
    store.store.commit({CHANGELOG: 4})
    store.put(7, "in a new segment, never committed")
    assert store.store.committed_offset(CHANGELOG) == 4
    store.reopen(clean=False, exactly_once=False)
    assert store.store.committed_offset(CHANGELOG) == 4


@segmented(persistent=True)
@pytest.mark.behaviour("S4")
def test_without_a_segment_the_offset_is_in_our_own_directory(store):
    store.store.commit({CHANGELOG: 3})
    assert not store.directories
    assert [path for path in store.home.own_directory.rglob("*") if path.is_file()]
    store.reopen()
    assert store.store.committed_offset(CHANGELOG) == 3
    store.put(1, "text")
    store.store.commit({CHANGELOG: 4})
    store.store.inner.advance_stream_time(time_of(LATER))
    store.store.commit({CHANGELOG: 5})
    assert not store.directories
    store.reopen()
    assert (store.store.committed_offset(CHANGELOG), store.rows()) == (5, {})
    store.store.clear_offsets()
    store.reopen()
    assert store.store.committed_offset(CHANGELOG) is None


@segmented()
@pytest.mark.behaviour("S5")
def test_an_expired_segment_goes_at_the_commit_and_with_it_its_rows(store):
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 1})
    store.put(LATER, "now")
    assert store.rows() == {LATER: "now"}, "expired rows are hidden at once"
    store.store.commit({CHANGELOG: 2})
    assert store.rows() == {LATER: "now"}
    if store.composition.persistent:
        assert [path.name for path in store.directories] == ["s.10800000", "s.32400000"]
        store.reopen()
        assert store.rows() == {7: "text", LATER: "now"}, "stream time is not kept, so what is there shows again"
        assert store.store.committed_offset(CHANGELOG) == 2


@segmented(transactional=True)
@pytest.mark.behaviour("S5", "T4")
def test_a_rollback_brings_back_what_would_have_expired(store):
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 1})
    store.put(LATER, "never")
    store.store.rollback()
    assert store.rows() == {1: "text", 7: "text"}
    store.put(2, "still live")
    store.store.commit({CHANGELOG: 2})
    assert store.rows() == {1: "text", 2: "still live", 7: "text"}


@segmented()
@pytest.mark.behaviour("T7", "S5")
@pytest.mark.parametrize("committed", [[1, 2, 7], [2], []], ids=["committed", "in part", "staged"])
def test_an_iterator_that_is_open_while_its_segment_expires_shows_the_rows_of_its_opening(store, committed):
    store.fill(committed, "text")
    store.store.commit({CHANGELOG: 2})
    store.fill({1, 2, 7} - set(committed), "text")
    forward, backward = store.scan(), store.scan(backward=True)
    first = next(forward)
    store.put(LATER, "now")
    store.store.commit({CHANGELOG: 3})
    expected = [(1, "text"), (2, "text"), (7, "text")]
    assert [first, *forward] == expected
    assert list(backward) == expected[::-1]
    del forward, backward
    store.store.commit({CHANGELOG: 4})
    if store.composition.persistent:
        assert [path.name for path in store.directories] == ["s.10800000", "s.32400000"]


@segmented(persistent=True)
@pytest.mark.behaviour("S5", "T5")
def test_nothing_is_left_of_an_expired_segment(composition, home):
    store = StoreUnderTest(composition, home, uncommitted_max_bytes=64 * 1024)
    for slot in (1, 7, LATER, 2 * LATER):
        store.put(slot, "spilled " * 10_000)
        store.store.commit({CHANGELOG: slot})
    store.close()
    assert [path.name for path in store.directories] == [f"s.{time_of(2 * LATER) // 10_800_000 * 10_800_000}"]
    live = {path.name.replace(".", "pill-") for path in store.directories}
    assert {path.name for path in home.own_directory.rglob("spill-*")} <= live
    assert not list((home.own_directory / "segments" / "s" / "expired").iterdir())


@segmented(persistent=True)
@pytest.mark.behaviour("S6", "K12")
def test_one_segment_left_open_makes_the_store_unclean_and_leaves_the_others_as_they_were(store):
    store.fill([1, 7, 13], "text")
    store.store.commit({CHANGELOG: 2})
    store.close()
    looked_at(
        store.directories[1],
        store.composition,
        lambda one: one.write({}, status=offsets_format.STATUS_OPEN),
        read_only=False,
    )
    before = contents(store.home.root)
    with pytest.raises(StoreUncleanError, match=r"s\.10800000 was left open"):
        store.open()
    assert contents(store.home.root) == before
    status = [looked_at(directory, store.composition, RocksDB.status) for directory in store.directories]
    assert status == [offsets_format.STATUS_CLOSED, offsets_format.STATUS_OPEN, offsets_format.STATUS_CLOSED]
    store.open(exactly_once=False)
    assert store.rows() == {1: "text", 7: "text", 13: "text"}


@segmented(persistent=True)
def test_segments_of_one_store_are_not_another_tasks(composition, tmp_path):
    for root in ("one", "two"):
        store = StoreUnderTest(composition, Home(tmp_path / root))
        store.put(1, root)
        store.store.commit({CHANGELOG: 1})
        store.reopen()
        assert store.rows() == {1: root}
        store.close()


@pytest.mark.parametrize("kind", ["window", "session"])
def test_a_store_whose_directory_was_removed_and_of_whose_log_all_has_expired_has_lost_nothing(kind, tmp_path):
    home = Home(tmp_path / "state")
    store = StoreUnderTest(Composition(kind, StoreFormat.PLAIN, True, True), home)
    store.put(1, "text")
    store.store.commit({CHANGELOG: 1})
    store.store.sync()
    store.close(clean=False)
    shutil.rmtree(home.task_directory)
    store.open()
    store.store.inner.advance_stream_time(time_of(100))
    store.replay([(1, "text")])
    store.store.commit({CHANGELOG: 1})
    store.close(clean=False)
    store.open()
    assert store.rows() == {}
    store.close()
