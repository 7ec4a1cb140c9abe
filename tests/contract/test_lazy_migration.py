"""Plain rows that a timestamped store finds: read at once, migrated one by one, in every kind of store (KIP-258)."""

from __future__ import annotations

import random

import pytest
from store_under_test import StoreUnderTest, contents
from upgraded import EXPECTED, FAMILIES, Upgraded, families

from statestore.errors import UnknownFormatError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreFormat
from statestore.stores.readers import IsolationLevel
from statestore.stores.rocksdb import RocksDB
from tests.compositions import CHANGELOG, Composition, compositions

PLAIN, TIMESTAMPED = StoreFormat.PLAIN, StoreFormat.TIMESTAMPED
upgrading = compositions(format=TIMESTAMPED, persistent=True)


@pytest.fixture
def upgraded(composition, home):
    """A store that was plain, open as timestamped."""
    opened = Upgraded(composition, home)
    yield opened
    opened.close(clean=False)


@upgrading
@pytest.mark.behaviour("F2", "F6")
def test_plain_rows_read_as_timestamped_have_an_unknown_timestamp(upgraded):
    assert upgraded.rows() == EXPECTED
    assert {slot: upgraded.get(slot) for slot in EXPECTED} == EXPECTED
    assert upgraded.get(4) is None


@upgrading
@pytest.mark.behaviour("F2")
def test_a_store_opened_to_be_read_shows_plain_rows_and_migrates_none(upgraded):
    upgraded.close()
    before = contents(upgraded.home.task_directory)
    upgraded.open(read_only=True)
    assert {slot: upgraded.get(slot) for slot in EXPECTED} == upgraded.rows() == EXPECTED
    upgraded.close()
    assert contents(upgraded.home.task_directory) == before


@upgrading
@pytest.mark.behaviour("F3", "F6")
def test_a_get_migrates_the_row_that_it_finds(upgraded):
    for slot in (1, 7):
        assert upgraded.get(slot) == f"plain {slot}"
    assert upgraded.rows() == EXPECTED
    upgraded.store.commit({CHANGELOG: 6})
    upgraded.close()
    new, old = families(upgraded)
    assert new[upgraded.row_key(1)] == b"\xff" * 8 + b"plain 1"
    assert new.keys() == {upgraded.row_key(slot) for slot in (1, 7, 13)}
    assert old.keys() == {upgraded.row_key(slot) for slot in (2, 3, 8)}


@compositions(format=TIMESTAMPED, persistent=True, transactional=True)
@pytest.mark.behaviour("F3")
def test_a_migration_that_is_rolled_back_leaves_the_row_plain(upgraded):
    upgraded.get(1)
    upgraded.store.rollback()
    assert upgraded.rows() == EXPECTED
    upgraded.close()
    assert upgraded.row_key(1) in families(upgraded)[1]


@upgrading
@pytest.mark.behaviour("F3", "F6")
def test_a_put_removes_the_plain_row_and_a_none_both(upgraded):
    upgraded.put(2, "now")
    upgraded.put(8, None)
    assert upgraded.rows() == {slot: text for slot, text in EXPECTED.items() if slot != 8} | {2: "now"}
    upgraded.store.commit({CHANGELOG: 7})
    upgraded.close()
    new, old = families(upgraded)
    assert new.keys() == {upgraded.row_key(slot) for slot in (2, 13)}
    assert old.keys() == {upgraded.row_key(slot) for slot in (1, 3, 7)}


@compositions(kind="key-value", format=TIMESTAMPED, persistent=True)
@pytest.mark.behaviour("F3")
def test_what_delete_reads_it_does_not_migrate(upgraded):
    assert upgraded.store.delete("k03") == ValueAndTimestamp("plain 3", -1)
    assert upgraded.get(3) is None
    assert upgraded.store.delete("k04") is None
    upgraded.store.commit({CHANGELOG: 6})
    upgraded.close()
    new, old = families(upgraded)
    assert new.keys() == {upgraded.row_key(13)}
    assert upgraded.row_key(3) not in old


@compositions(format=TIMESTAMPED, persistent=True, transactional=True)
@pytest.mark.behaviour("F3")
def test_a_read_committed_view_migrates_nothing(upgraded):
    reader = upgraded.reader(IsolationLevel.READ_COMMITTED)
    assert {slot: upgraded.get_from(reader, slot) for slot in EXPECTED} == upgraded.rows(reader) == EXPECTED
    upgraded.store.commit({CHANGELOG: 6})
    upgraded.close()
    assert families(upgraded)[0].keys() == {upgraded.row_key(13)}


@upgrading
@pytest.mark.behaviour("F3")
def test_iteration_merges_old_and_new_rows_in_order_while_rows_are_migrated(upgraded):
    upgraded.put(4, "new")
    upgraded.put(9, "new")
    expected = sorted((EXPECTED | {4: "new", 9: "new"}).items())
    forward, backward = upgraded.scan(), upgraded.scan(backward=True)
    first = next(forward)
    for slot in EXPECTED:
        upgraded.get(slot)
    assert [first, *forward] == expected
    assert list(backward) == expected[::-1]
    assert list(upgraded.scan()) == expected


@compositions(kind="key-value", format=TIMESTAMPED, persistent=True)
@pytest.mark.behaviour("F3")
def test_ranges_prefixes_and_many_keys_see_old_and_new_rows(upgraded):
    store = upgraded.store
    assert [key for key, _ in store.range("k02", "k08")] == ["k02", "k03", "k07", "k08"]
    assert [key for key, _ in store.prefix_scan(b"k0")] == ["k01", "k02", "k03", "k07", "k08"]
    assert [found and found.value for found in store.get_many(["k13", "k04", "k02"])] == ["new", None, "plain 2"]
    store.delete_range("k02", "k07")
    assert upgraded.rows() == {1: "plain 1", 8: "plain 8", 13: "new"}


@compositions(kind="window", format=TIMESTAMPED, persistent=True)
@pytest.mark.behaviour("F6")
def test_old_segments_keep_the_old_format_and_new_ones_have_the_new_one(upgraded):
    upgraded.close()
    found = []
    for directory in upgraded.directories:
        database = RocksDB(directory, FAMILIES, read_only=True)
        found.append([len(list(database.scan(family))) for family in FAMILIES])
        database.close()
    assert found == [[0, 3], [0, 2], [1, 0]]


@upgrading
def test_it_is_told_whether_an_upgrade_is_pending(upgraded):
    assert upgraded.store.inner.upgrade_pending
    for slot in EXPECTED:
        upgraded.get(slot)
    upgraded.store.commit({CHANGELOG: 6})
    upgraded.reopen()
    assert not upgraded.store.inner.upgrade_pending


@pytest.mark.short_for(every=5)
@upgrading
@pytest.mark.behaviour("F4", "K12")
@pytest.mark.parametrize("read_only", [True, False], ids=["read", "written"])
def test_a_timestamped_store_opened_as_plain_is_refused_and_left_alone(upgraded, read_only):
    upgraded.close()
    before = contents(upgraded.home.root)
    plain = Composition(upgraded.composition.kind, PLAIN, True, upgraded.composition.transactional)
    with pytest.raises(UnknownFormatError, match=r"column families \['keyValueWithTimestamp'\]"):
        StoreUnderTest(plain, upgraded.home, read_only=read_only)
    assert contents(upgraded.home.root) == before
    upgraded.open()
    assert upgraded.rows() == EXPECTED


@upgrading
@pytest.mark.behaviour("F8")
def test_an_unknown_timestamp_is_never_logged_as_minus_one_and_a_migration_is_not_logged(upgraded):
    logged = []
    upgraded.store.log_changes_to(lambda *change: logged.append(change))
    for slot in EXPECTED:
        upgraded.get(slot)
    upgraded.rows()
    assert logged == []
    upgraded.value = lambda text: ValueAndTimestamp(text, -1)
    upgraded.put(2, "written with an unknown timestamp")
    assert logged == [(upgraded.row_key(2), b"written with an unknown timestamp", None)], "None: the record's own time"


@upgrading
@pytest.mark.behaviour("F3", "F6")
@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_touched_in_whatever_order_each_row_lives_in_one_column_family(upgraded, seed):
    chance = random.Random(seed)
    expected = dict(EXPECTED)
    for _ in range(30):
        slot = chance.randrange(12)
        what = chance.choice(["get", "get", "put", "delete", "commit"])
        if what == "get":
            assert upgraded.get(slot) == expected.get(slot)
        elif what == "put":
            upgraded.put(slot, "written")
            expected[slot] = "written"
        elif what == "delete":
            upgraded.put(slot, None)
            expected.pop(slot, None)
        else:
            upgraded.store.commit({CHANGELOG: 6})
        assert upgraded.rows() == expected
    upgraded.store.commit({CHANGELOG: 7})
    upgraded.close()
    new, old = families(upgraded)
    assert not new.keys() & old.keys()
    assert new.keys() | old.keys() == {upgraded.row_key(slot) for slot in expected}
