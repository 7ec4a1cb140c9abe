"""Who has opened a database for writing since our own last opening of it."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
from samples import CHANGELOG

from statestore.definitions.store import StoreDefinition
from statestore.errors import StoreUncleanError
from statestore.formats.offsets import STATUS_OPEN
from statestore.statedir.context import store_context
from statestore.statedir.swap import swap
from statestore.stores.last_use import LastUse, last_use_file
from statestore.stores.open import build_store
from statestore.stores.rocksdb import RocksDB

DEFINITION = StoreDefinition(name="s", format="plain")


@pytest.fixture
def used(tmp_path):
    """A closed database that was opened for writing once, and our record of that."""
    directory, path = tmp_path / "db", tmp_path / "own" / "mode-s"
    open_and_close(directory)
    LastUse(path, recording=True).opened({"": directory})
    return SimpleNamespace(directory=directory, path=path)


def open_and_close(directory, key=None):
    """Open the database for writing, and leave it open with a row if one is wanted."""
    database = RocksDB(directory, ("default",))
    database.write({"default": {key: b"1"}} if key else {}, status=STATUS_OPEN if key else None)
    database.sync()
    database.close()


def sequence(directory):
    database = RocksDB(directory, ("default",), read_only=True)
    try:
        return database.last_write
    finally:
        database.close()


def ours(used, name="", *, recording=True, at=None):
    last_use = LastUse(used.path, recording=recording)
    return last_use.was_ours(name, used.directory, sequence(used.directory) if at is None else at)


def test_the_record_lies_in_our_directory_and_is_named_after_the_store(tmp_path):
    assert last_use_file(tmp_path, "s") == tmp_path / "mode-s"


def test_a_database_is_ours_until_it_is_opened_for_writing_again(used):
    assert ours(used)
    RocksDB(used.directory, ("default",), read_only=True).close()
    assert ours(used)
    open_and_close(used.directory)
    assert not ours(used)


def test_however_far_the_writes_of_our_own_opening_came_it_is_ours(used):
    assert ours(used, at=0)
    assert ours(used, at=1_000_000)


def test_only_a_store_that_records_takes_a_database_for_its_own(used):
    assert not ours(used, recording=False)
    assert not ours(used, "another")


@pytest.mark.parametrize("lost", ["CURRENT", "IDENTITY"])
def test_a_database_that_lost_what_tells_of_its_opening_is_not_ours(used, lost):
    at = sequence(used.directory)
    (used.directory / lost).unlink()
    assert not ours(used, at=at)


def test_a_current_that_rocksdb_would_not_read_is_of_no_opening(used):
    at = sequence(used.directory)
    (used.directory / "CURRENT").write_text("MANIFEST-000005")
    assert not ours(used, at=at)


def test_another_database_that_came_to_the_same_manifest_is_not_ours(used):
    written = (used.directory / "CURRENT").stat()
    (used.directory / "IDENTITY").write_bytes(b"another")
    os.utime(used.directory / "CURRENT", ns=(written.st_atime_ns, written.st_mtime_ns))
    assert not ours(used)
    LastUse(used.path, recording=True).about_to_open({"": sequence(used.directory)})
    assert not ours(used), "not even without a write"


def test_another_opening_that_came_to_the_same_manifest_is_not_ours(used):
    os.utime(used.directory / "CURRENT", ns=(0, 1))
    assert not ours(used)


def test_while_an_opening_is_under_way_a_database_is_ours_as_long_as_no_write_was_added(used):
    LastUse(used.path, recording=True).about_to_open({"": sequence(used.directory)})
    assert ours(used), "RocksDB has not opened it"
    open_and_close(used.directory)
    open_and_close(used.directory)
    assert ours(used), "RocksDB has"
    open_and_close(used.directory, key=b"k")
    assert not ours(used)


def test_a_recorded_opening_ends_the_trust_in_the_number_of_writes(used):
    at = sequence(used.directory)
    last_use = LastUse(used.path, recording=True)
    last_use.about_to_open({"": at})
    open_and_close(used.directory)
    last_use.opened({"": used.directory})
    assert ours(used)
    open_and_close(used.directory)
    assert not ours(used, at=at)


def test_what_is_not_known_does_not_become_so_by_an_opening_that_is_under_way(used):
    LastUse(used.path, recording=True).about_to_open({"another": 5})
    assert not ours(used, "another", at=5)
    assert ours(used)


def test_opening_again_and_again_is_announced_once(used):
    LastUse(used.path, recording=True).about_to_open({})
    first = used.path.stat().st_ino
    LastUse(used.path, recording=True).about_to_open({"": 7})
    announced = used.path.stat().st_ino
    LastUse(used.path, recording=True).about_to_open({"": 7})
    assert (first != announced, used.path.stat().st_ino) == (True, announced)


def test_one_that_does_not_record_announces_nothing_and_leaves_no_record_of_former_use(used):
    last_use = LastUse(used.path, recording=False)
    before = used.path.read_text()
    last_use.about_to_open({"": 7})
    last_use.dropped("")
    assert used.path.read_text() == before
    last_use.opened({"": used.directory})
    last_use.opened({"": used.directory})
    assert not used.path.exists()


def test_a_record_has_all_databases_that_are_open_and_none_that_is_gone(used):
    last_use = LastUse(used.path, recording=True)
    for name in ("s.0", "s.60000"):
        last_use.opened({name: used.directory})
    assert set(json.loads(used.path.read_text())["databases"]) == {"s.0", "s.60000"}
    last_use.dropped("s.0")
    assert LastUse(used.path, recording=True).databases == {"s.60000"}
    last_use.dropped("s.120000")
    last_use.opened({"s.180000": used.directory})
    now = LastUse(used.path, recording=True)
    assert now.databases == {"s.60000", "s.180000"}


def test_given_a_database_that_is_not_in_the_record_then_dropping_it_writes_nothing(used):
    before = used.path.stat().st_ino
    LastUse(used.path, recording=True).dropped("s.120000")
    assert used.path.stat().st_ino == before


def test_a_replaced_store_that_comes_back_is_trusted_as_it_was_before(paths):
    leave_open(paths)
    replace_and_put_back(paths)
    assert open_again(paths) == {b"a": b"1"}


def test_a_replaced_store_that_comes_back_is_as_unclean_as_it_was_before(paths):
    leave_open(paths)
    open_and_close_as_another(paths)
    replace_and_put_back(paths)
    with pytest.raises(StoreUncleanError):
        open_again(paths)


def leave_open(paths):
    store = build_store(DEFINITION)
    store.init(store_context(paths))
    store.put(b"a", b"1")
    store.commit({CHANGELOG: 0})
    store.close(clean=False)


def open_and_close_as_another(paths):
    open_and_close(paths.store("s"), key=b"never committed")


def replace_and_put_back(paths):
    """Replace the store by another, which is used and closed, and take that back."""
    open_and_close(paths.staging("s"))
    swap(paths, DEFINITION, "first")
    assert not paths.mode("s").exists()
    store = build_store(DEFINITION)
    store.init(store_context(paths))
    store.close()
    swap(paths, DEFINITION, "second", replaced="first")


def open_again(paths):
    store = build_store(DEFINITION)
    store.init(store_context(paths))
    rows = dict(store.all())
    store.close()
    return rows


def test_a_use_at_least_once_is_recorded_and_not_trusted_exactly_once(used):
    at = sequence(used.directory)
    LastUse(used.path, recording=True, at_least_once=True).opened({"": used.directory})
    for later in (LastUse(used.path, recording=True), LastUse(used.path, recording=True, at_least_once=True)):
        assert later.is_as_recorded("", used.directory, at)
        assert not later.was_ours("", used.directory, at)
    LastUse(used.path, recording=True).about_to_open({"": at})
    assert not ours(used, at=at), "an opening that is under way makes nothing trustworthy"
    LastUse(used.path, recording=True).opened({"": used.directory})
    assert ours(used, at=at)
    assert "at_least_once" not in used.path.read_text(), "a former version can read it"
