"""Opening a store: one left open before, one with a file of former versions, one with a user's options."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from killed import leave_open, open_only, run
from store_under_test import StoreUnderTest, contents

from statestore.errors import InvalidStateError, RebuildError, StoreCorruptedError, StoreUncleanError
from statestore.formats import offsets as offsets_format
from statestore.model import StoreFormat, TopicPartition
from tests.compositions import CHANGELOG, INPUT, STORE, compositions

OTHER = TopicPartition("app-s-changelog", 1)
OTHER_INPUT = TopicPartition("input", 1)
on_disk = compositions(persistent=True)


@on_disk
@pytest.mark.behaviour("K9")
def test_the_status_is_open_while_open_and_closed_after_a_clean_close(store):
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 1})
    assert store.statuses() == {offsets_format.STATUS_OPEN}
    store.close()
    assert store.statuses() == {offsets_format.STATUS_CLOSED}
    store.open()
    assert store.statuses() == {offsets_format.STATUS_OPEN}
    store.close(clean=False)
    assert store.statuses() == {offsets_format.STATUS_OPEN}


@pytest.mark.short_for(every=4)
@compositions(persistent=True, transactional=False, format=StoreFormat.TIMESTAMPED)
@pytest.mark.behaviour("K10", "K11")
@pytest.mark.parametrize("killed", [True, False], ids=["killed", "closed after a failure"])
def test_a_store_left_open_opens_under_at_least_once_and_not_under_exactly_once(composition, home, killed):
    if killed:
        assert run(leave_open, composition, home, True) == -signal.SIGKILL
    else:
        store = StoreUnderTest(composition, home)
        store.fill([1, 7], "text")
        store.store.commit({CHANGELOG: 1})
        store.close(clean=False)
    before = contents(home.root)
    with pytest.raises(StoreUncleanError, match=r"store s in .* was left open") as refused:
        StoreUnderTest(composition, home, exactly_once=True)
    assert isinstance(refused.value, RebuildError)
    assert contents(home.root) == before, "and is left alone"
    store = StoreUnderTest(composition, home, exactly_once=False)
    assert (store.rows(), store.store.committed_offset(CHANGELOG)) == ({1: "text", 7: "text"}, 1)
    store.close()
    StoreUnderTest(composition, home, exactly_once=True).close()


@pytest.mark.short_for(every=4)
@compositions(persistent=True, transactional=True, format=StoreFormat.TIMESTAMPED)
@pytest.mark.behaviour("K17")
@pytest.mark.parametrize("transactional_now", [True, False])
def test_k17_left_open_by_use_without_transactions_it_is_unclean_whatever_it_is_now(
    composition, home, transactional_now
):
    direct = replace(composition, transactional=False)
    assert run(leave_open, direct, home, True) == -signal.SIGKILL
    with pytest.raises(StoreUncleanError):
        StoreUnderTest(replace(composition, transactional=transactional_now), home)


@compositions(persistent=True, transactional=True, format=StoreFormat.TIMESTAMPED)
def test_a_store_without_transactions_is_never_trusted_when_left_open(composition, home):
    assert run(leave_open, composition, home, True) == -signal.SIGKILL
    with pytest.raises(StoreUncleanError):
        StoreUnderTest(replace(composition, transactional=False), home)


@on_disk
@pytest.mark.behaviour("K15")
@pytest.mark.parametrize("slots", [[1], [1, 7]])
def test_a_position_file_is_merged_by_maximum_and_removed(store, slots):
    store.fill(slots, "text")
    store.store.commit({CHANGELOG: 5}, {INPUT: 50, OTHER_INPUT: 3})
    store.close()
    file = store.home.task_directory / f"{STORE}.position"
    file.write_text("0\n3\ninput 0 49\ninput 1 4\ninput 2 9\n")
    store.open()
    expected = {INPUT: 50, OTHER_INPUT: 4, TopicPartition("input", 2): 9}
    assert (store.store.position(), store.store.committed_offset(CHANGELOG)) == (expected, 5)
    assert not file.exists()


@compositions(persistent=True, transactional=True, format=StoreFormat.TIMESTAMPED)
@pytest.mark.behaviour("K15")
def test_a_position_file_goes_only_when_its_offsets_are_on_disk(composition, home):
    home.settings["exactly_once"] = False
    store = StoreUnderTest(composition, home)
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 5})
    store.close()
    file = home.task_directory / f"{STORE}.position"
    file.write_text("0\n1\ninput 0 49\n")
    assert run(open_only, composition, home) == -signal.SIGKILL
    assert not file.exists()
    store.open()
    assert store.store.position() == {INPUT: 49}
    store.close()


@on_disk
def test_a_torn_position_file_is_an_error_and_kept(store):
    store.put(1, "text")
    store.close()
    file = store.home.task_directory / f"{STORE}.position"
    file.write_text("0\n2\ninput 0 49\n")
    with pytest.raises(StoreCorruptedError, match="not a complete checkpoint file"):
        store.open()
    assert file.exists()
    file.unlink()
    store.open(exactly_once=False)


@on_disk
@pytest.mark.behaviour("K16")
def test_an_option_that_turns_atomic_flush_off_is_overruled_with_a_warning(composition, home):
    def setter(store, options):
        assert store == STORE
        options.set_atomic_flush(False)
        options.set_write_buffer_size(1 << 20)

    def opened():
        store = StoreUnderTest(composition, home, config_setter=setter)
        store.put(1, "text")
        return store

    with pytest.warns(UserWarning, match=r"store s: set_atomic_flush\(False\) is overruled"):
        store = opened()
    store.store.commit({CHANGELOG: 1})
    store.close()
    for directory in store.directories:
        written = max(directory.glob("OPTIONS-*")).read_text()
        assert "atomic_flush=true" in written
        assert "write_buffer_size=1048576" in written, "other options are the user's"


@compositions(persistent=True, transactional=True, format=StoreFormat.TIMESTAMPED)
@pytest.mark.behaviour("K16", "K17")
def test_an_option_that_would_have_rocksdb_make_new_manifests_is_overruled_with_a_warning(composition, home):
    def setter(store, options):
        options.set_max_manifest_file_size(1)

    store = StoreUnderTest(composition, home)
    store.fill([1, 7], "text")
    store.close()
    with pytest.warns(UserWarning, match=r"store s: set_max_manifest_file_size\(1\) is overruled; a new MANIFEST must"):
        StoreUnderTest(composition, home, config_setter=setter)


@on_disk
@pytest.mark.behaviour("T3")
def test_another_reader_sees_the_rows_and_offsets_of_a_commit_together_and_nothing_staged(store):
    store.fill([1, 7], "old")
    store.store.commit({CHANGELOG: 1}, {INPUT: 10})
    store.store.sync()
    if store.composition.transactional:
        store.fill([1, 8], "staged")
    reader = StoreUnderTest(store.composition, store.home, read_only=True, exactly_once=False)
    assert reader.rows() == {1: "old", 7: "old"}
    assert (reader.store.committed_offset(CHANGELOG), reader.store.position()) == (1, {INPUT: 10})
    reader.close()
    assert store.statuses() == {offsets_format.STATUS_OPEN}, "a reader marks nothing"


@on_disk
def test_a_store_opened_to_be_read_refuses_writes_and_leaves_no_trace(store):
    store.fill([1, 7], "text")
    store.store.commit({CHANGELOG: 1})
    store.close()
    before = contents(store.home.root)
    store.open(read_only=True)
    for call in (
        lambda: store.put(1, "x"),
        lambda: store.put(1, None),
        lambda: store.store.commit({CHANGELOG: 2}),
        store.store.clear_offsets,
    ):
        with pytest.raises(InvalidStateError, match="opened to be read"):
            call()
    assert store.rows() == {1: "text", 7: "text"}
    store.close()
    assert contents(store.home.root) == before
