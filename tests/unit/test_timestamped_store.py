"""The timestamped format over plain rows that are still there (KIP-258)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import CHANGELOG, PLAIN, TIMESTAMPED, contents

from statestore.errors import UnknownFormatError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.stores.accessor import TIMESTAMPED_COLUMN_FAMILY
from statestore.stores.key_value import open_key_value_store, stored_value
from statestore.stores.rocksdb import DEFAULT_COLUMN_FAMILY, RocksDB

NEW = b"new"


@pytest.fixture
def directory(tmp_path):
    """A store in which `a`, `b` and `c` are plain and `new` is timestamped."""
    plain = open_key_value_store(PLAIN, tmp_path / "s")
    for key in (b"a", b"b", b"c"):
        plain.put(key, b"plain " + key)
    plain.commit({CHANGELOG: 2})
    plain.close()
    store = open_key_value_store(TIMESTAMPED, tmp_path / "s")
    store.put(NEW, ValueAndTimestamp(b"value", 5))
    store.commit({CHANGELOG: 3})
    store.close()
    return tmp_path / "s"


@pytest.fixture
def store(directory):
    opened = open_key_value_store(TIMESTAMPED, directory)
    yield opened
    opened.close()


def families(directory):
    """Rows of both column families of a closed store."""
    database = RocksDB(directory, [TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY], read_only=True)
    try:
        return tuple(dict(database.scan(family)) for family in (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY))
    finally:
        database.close()


def test_f1_a_value_is_stored_behind_its_timestamp_and_none_stays_none(store, directory):
    store.put(b"x", ValueAndTimestamp(b"value", 258))
    assert store.get(b"x") == ValueAndTimestamp(b"value", 258)
    assert store.get(b"absent") is None
    store.commit({CHANGELOG: 4})
    store.close()
    assert families(directory)[0][b"x"] == b"\0\0\0\0\0\0\x01\x02value"


def test_f2_plain_rows_read_as_timestamped_have_timestamp_minus_one(store):
    assert store.get(b"a") == ValueAndTimestamp(b"plain a", -1)
    assert list(store.range()) == [
        (b"a", ValueAndTimestamp(b"plain a", -1)),
        (b"b", ValueAndTimestamp(b"plain b", -1)),
        (b"c", ValueAndTimestamp(b"plain c", -1)),
        (NEW, ValueAndTimestamp(b"value", 5)),
    ]


def test_f2_a_store_that_is_all_plain_can_be_opened_to_be_read(tmp_path):
    plain = open_key_value_store(PLAIN, tmp_path / "s")
    plain.put(b"a", b"plain a")
    plain.commit({CHANGELOG: 2})
    plain.close()
    reader = open_key_value_store(TIMESTAMPED, tmp_path / "s", read_only=True)
    try:
        assert reader.get(b"a") == ValueAndTimestamp(b"plain a", -1)
        assert list(reader.range()) == [(b"a", ValueAndTimestamp(b"plain a", -1))]
        assert reader.committed_offset(CHANGELOG) == 2
    finally:
        reader.close(clean=False)


def test_f3_get_migrates_the_row_that_it_finds_with_the_next_commit(store, directory):
    store.get(b"a")
    store.commit({CHANGELOG: 4})
    store.close()
    timestamped, plain = families(directory)
    assert timestamped[b"a"] == b"\xff" * 8 + b"plain a"
    assert sorted(plain) == [b"b", b"c"]


def test_f3_a_migration_that_is_rolled_back_leaves_the_row_plain(store, directory):
    store.get(b"a")
    store.rollback()
    assert store.get(b"a") == ValueAndTimestamp(b"plain a", -1)
    store.close()
    assert sorted(families(directory)[1]) == [b"a", b"b", b"c"]


def test_f3_put_removes_the_plain_row(store, directory):
    store.put(b"b", ValueAndTimestamp(b"now", 9))
    store.commit({CHANGELOG: 4})
    store.close()
    timestamped, plain = families(directory)
    assert timestamped[b"b"].endswith(b"now")
    assert sorted(plain) == [b"a", b"c"]


def test_f3_delete_finds_the_plain_row_and_removes_it_without_migrating(store, directory):
    assert store.delete(b"c") == ValueAndTimestamp(b"plain c", -1)
    assert store.get(b"c") is None
    assert [key for key, _ in store.range()] == [b"a", b"b", NEW]
    store.commit({CHANGELOG: 4})
    store.close()
    timestamped, plain = families(directory)
    assert sorted(timestamped) == [NEW]
    assert sorted(plain) == [b"a", b"b"]


def test_f3_iteration_merges_both_column_families_in_order_within_bounds(store):
    store.put(b"aa", ValueAndTimestamp(b"1", 1))
    store.put(b"bb", ValueAndTimestamp(b"1", 1))
    assert [key for key, _ in store.range()] == [b"a", b"aa", b"b", b"bb", b"c", NEW]
    assert [key for key, _ in store.range(b"aa", b"c")] == [b"aa", b"b", b"bb", b"c"]
    assert [key for key, _ in store.range(b"b", b"b")] == [b"b"]


def test_f3_iteration_shows_a_row_once_while_it_is_being_migrated(store):
    rows = store.range()
    first = next(rows)
    for key in (b"a", b"b", b"c"):
        store.get(key)
    assert [first[0], *(key for key, _ in rows)] == [b"a", b"b", b"c", NEW]
    assert [key for key, _ in store.range()] == [b"a", b"b", b"c", NEW]


@settings(max_examples=15)
@given(
    plain=st.dictionaries(st.binary(min_size=1, max_size=2), st.binary(max_size=4), min_size=1, max_size=8),
    touched=st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.sampled_from(["get", "put", "delete"]))),
)
def test_f3_whatever_is_touched_each_key_lives_in_one_column_family(tmp_path_factory, plain, touched):
    directory = tmp_path_factory.mktemp("f3") / "s"
    old = open_key_value_store(PLAIN, directory)
    for key, value in plain.items():
        old.put(key, value)
    old.commit({})
    old.close()
    store = open_key_value_store(TIMESTAMPED, directory)
    expected = {key: ValueAndTimestamp(value, -1) for key, value in plain.items()}
    for key, what in touched:
        if what == "get":
            assert store.get(key) == expected.get(key)
        elif what == "delete":
            assert store.delete(key) == expected.pop(key, None)
        else:
            store.put(key, expected.setdefault(key, ValueAndTimestamp(b"v", 1)))
    assert list(store.range()) == sorted(expected.items())
    store.commit({CHANGELOG: 1})
    assert list(store.range()) == sorted(expected.items())
    store.close()
    new_rows, old_rows = families(directory)
    assert not set(new_rows) & set(old_rows)


@pytest.mark.parametrize("read_only", [True, False])
def test_f4_m2_a_timestamped_store_opened_as_plain_is_refused_and_left_alone(directory, read_only):
    before = contents(directory)
    with pytest.raises(UnknownFormatError, match="keyValueWithTimestamp"):
        open_key_value_store(PLAIN, directory, read_only=read_only)
    assert contents(directory) == before


@pytest.mark.parametrize("read_only", [True, False])
def test_f4_a_store_with_a_column_family_of_a_later_version_is_refused_and_left_alone(tmp_path, read_only):
    later = RocksDB(tmp_path / "s", [TIMESTAMPED_COLUMN_FAMILY, "keyValueWithTimestampAndHeaders"])
    later.close()
    before = contents(tmp_path / "s")
    with pytest.raises(UnknownFormatError, match="keyValueWithTimestampAndHeaders"):
        open_key_value_store(TIMESTAMPED, tmp_path / "s", read_only=read_only)
    assert contents(tmp_path / "s") == before


def test_f8_the_changelog_gets_the_plain_value_and_its_timestamp(store):
    logged = []
    store.log_changes_to(lambda *change: logged.append(change))
    store.put(b"k", ValueAndTimestamp(b"v", 7))
    store.put(b"k", None)
    assert logged == [(b"k", b"v", 7), (b"k", None, None)]


def test_f8_an_unknown_timestamp_is_never_logged_as_minus_one(store):
    logged = []
    store.log_changes_to(lambda *change: logged.append(change))
    store.put(b"k", store.get(b"a"))
    store.put(b"k", ValueAndTimestamp(b"v", -1))
    assert logged == [(b"k", b"plain a", None), (b"k", b"v", None)]  # None: the record's own time


def test_f8_a_migrated_row_is_not_logged(store):
    logged = []
    store.log_changes_to(lambda *change: logged.append(change))
    store.get(b"a")
    assert logged == []


def test_f8_a_restored_record_takes_the_time_of_the_record(store):
    store.apply_changelog(b"k", b"v", 1_700_000_000_000)
    store.apply_changelog(b"a", None, 1_700_000_000_000)
    assert store.get(b"k") == ValueAndTimestamp(b"v", 1_700_000_000_000)
    assert store.get(b"a") is None
    assert stored_value(TIMESTAMPED.format, b"v", 258) == b"\0\0\0\0\0\0\x01\x02v"
    assert stored_value(PLAIN.format, b"v", 258) == b"v"
