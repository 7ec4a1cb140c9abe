"""How a store was last used is known when it is opened again."""

from __future__ import annotations

import pytest
from samples import CHANGELOG

from statestore.errors import StoreUncleanError
from statestore.model import StoreDefinition
from statestore.statedir.context import forget_mode, remember_mode, store_context
from statestore.stores.api import UNCOMMITTED_MAX_BYTES, StoreContext
from statestore.stores.open import build_store

DIRECT = StoreDefinition(name="s", format="plain", engine="rocksDB")
TRANSACTIONAL = StoreDefinition(name="s", format="plain", engine="txn_rocksDB")


def use_and_leave_open(paths, definition, tmp_path):
    """Open the store as a task does, commit, and put on disk what a crash would find."""
    store = build_store(definition)
    store.init(store_context(paths, ["s"]))
    remember_mode(paths, "s", transactional=store.transactional)
    store.put(b"a", b"1")
    store.commit({CHANGELOG: 0})
    store.sync()
    store.close(clean=False)


def reopen(paths, definition):
    store = build_store(definition)
    store.init(store_context(paths, ["s"]))
    rows = dict(store.all())
    store.close()
    return rows


def test_a_transactional_store_left_open_is_used_as_it_is(paths, tmp_path):
    use_and_leave_open(paths, TRANSACTIONAL, tmp_path)
    assert reopen(paths, TRANSACTIONAL) == {b"a": b"1"}


@pytest.mark.behaviour("K17")
@pytest.mark.parametrize("now", [DIRECT, TRANSACTIONAL])
def test_k17_a_store_left_open_without_transactions_is_unclean_whatever_it_is_now(paths, tmp_path, now):
    use_and_leave_open(paths, DIRECT, tmp_path)
    with pytest.raises(StoreUncleanError, match="store s"):
        reopen(paths, now)


@pytest.mark.behaviour("K17")
def test_k17_how_it_was_used_goes_with_the_next_clean_use(paths, tmp_path):
    use_and_leave_open(paths, TRANSACTIONAL, tmp_path)
    assert reopen(paths, TRANSACTIONAL)
    remember_mode(paths, "s", transactional=False)
    assert reopen(paths, DIRECT)
    assert store_context(paths, ["s"]).last_transactional == {"s": False}


@pytest.mark.parametrize("text", ["", "other", "\udcff"])
def test_a_record_of_use_that_cannot_be_read_is_no_record(paths, text):
    paths.own_dir.mkdir(parents=True)
    paths.mode("s").write_bytes(text.encode(errors="surrogateescape"))
    assert store_context(paths, ["s"]).last_transactional == {}


def test_a_store_is_opened_in_the_context_of_its_task_and_with_what_was_asked_for(paths):
    def opening(store):
        raise AssertionError(f"{store} is not opened here")

    remember_mode(paths, "s", transactional=True)
    remember_mode(paths, "t", transactional=False)
    remember_mode(paths, "of nobody", transactional=False)
    made = store_context(
        paths,
        ["s", "t", "new"],
        uncommitted_max_bytes=5,
        recording_level="DEBUG",
        opening=opening,
        read_only=True,
        exactly_once=False,
    )
    assert made == StoreContext(
        application="app",
        task=paths.task,
        task_directory=paths.task_dir,
        own_directory=paths.own_dir,
        last_transactional={"s": True, "t": False},
        read_only=True,
        exactly_once=False,
        uncommitted_max_bytes=5,
        recording_level="DEBUG",
        opening=opening,
    )
    usual = store_context(paths, [])
    assert (usual.read_only, usual.exactly_once, usual.recording_level) == (False, True, "INFO")
    assert (usual.uncommitted_max_bytes, usual.opening) == (UNCOMMITTED_MAX_BYTES, None)


def test_how_a_store_is_used_is_written_down_once_and_forgotten_when_it_is_closed(paths):
    remember_mode(paths, "s", transactional=True)
    first = paths.mode("s").stat().st_ino
    remember_mode(paths, "s", transactional=True)
    assert (paths.mode("s").stat().st_ino, paths.mode("s").read_text()) == (first, "transactional")
    remember_mode(paths, "s", transactional=False)
    assert paths.mode("s").read_text() == "direct"
    remember_mode(paths, "t", transactional=False)
    forget_mode(paths, "s")
    assert store_context(paths, ["s", "t"]).last_transactional == {"t": False}
