"""Stores that keep headers (KIP-1271): what they log, and rows of older formats that they find."""

from __future__ import annotations

import pytest
from store_under_test import StoreUnderTest, contents
from upgraded import EXPECTED

from statestore.errors import UnknownFormatError
from statestore.formats.headers_value import NO_HEADERS, ValueTimestampHeaders
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreFormat
from statestore.stores.rocksdb import RocksDB, column_families
from tests.compositions import CHANGELOG, Composition, compositions

PLAIN, TIMESTAMPED, HEADERS = StoreFormat.PLAIN, StoreFormat.TIMESTAMPED, StoreFormat.HEADERS
with_headers = compositions(format=HEADERS, persistent=True)


class Upgraded(StoreUnderTest):
    """Slots 1, 2 and 3 were written as plain, 7 and 8 as `between` has it, and 13 with headers."""

    def __init__(self, composition, home, between):
        self.between = between
        for store_format, slots in ((PLAIN, (1, 2, 3)), (between, (7, 8))):
            older = StoreUnderTest(Composition(composition.kind, store_format, True, composition.transactional), home)
            for slot in slots:
                older.put(slot, f"plain {slot}")
            older.store.commit({CHANGELOG: 4})
            older.close()
        super().__init__(composition, home)
        self.put(13, "new")
        self.store.commit({CHANGELOG: 5})
        self.reopen()

    def text(self, value):
        """Older rows have no headers, and plain ones an unknown timestamp."""
        if value is None or not value[0].startswith("plain"):
            return super().text(value)
        text = value[0]
        assert value.headers == ()
        if self.composition.timestamped:
            timestamped = self.between is TIMESTAMPED and text[-1] in "78"
            assert value.timestamp == (1_000 + len(text) if timestamped else -1)
        return text

    def families(self):
        """Row keys of each column family, over all databases."""
        rows = {}
        for directory in self.directories:
            found = [family for family in column_families(directory) if family != "offsets"]
            database = RocksDB(directory, found, read_only=True)
            for family in found:
                rows.setdefault(family, {}).update(database.scan(family))
            database.close()
        return rows


@pytest.fixture(params=[PLAIN, TIMESTAMPED], ids="from {}".format)
def upgraded(request, composition, home):
    """A store of an older format, or of two, open as one with headers."""
    if composition.kind == "session" and request.param is TIMESTAMPED:
        pytest.skip("Kafka Streams has no timestamped session stores")
    opened = Upgraded(composition, home, request.param)
    yield opened
    opened.close(clean=False)


@with_headers
@pytest.mark.behaviour("H3")
def test_older_rows_are_read_without_headers_and_migrated_by_a_get(upgraded):
    assert upgraded.rows() == EXPECTED
    assert list(upgraded.scan(backward=True)) == sorted(EXPECTED.items(), reverse=True)
    assert {slot: upgraded.get(slot) for slot in (1, 7)} == {slot: EXPECTED[slot] for slot in (1, 7)}
    assert upgraded.rows() == EXPECTED
    upgraded.store.commit({CHANGELOG: 6})
    upgraded.close()
    own, *older = upgraded.composition.layout.column_families
    found = upgraded.families()
    assert found[own].keys() == {upgraded.row_key(slot) for slot in (1, 7, 13)}
    front = NO_HEADERS + b"\xff" * 8 * upgraded.composition.timestamped
    assert found[own][upgraded.row_key(1)] == front + b"plain 1"
    left = [key for family in older for key in found.get(family, ())]
    assert sorted(left) == sorted(upgraded.row_key(slot) for slot in (2, 3, 8))


@with_headers
@pytest.mark.behaviour("H3")
def test_a_put_removes_the_older_row_and_a_none_all(upgraded):
    for slot in (2, 8):
        upgraded.put(slot, "now")
    for slot in (3, 7):
        upgraded.put(slot, None)
    assert upgraded.rows() == {1: "plain 1", 2: "now", 8: "now", 13: "new"}
    upgraded.store.commit({CHANGELOG: 7})
    upgraded.close()
    found = upgraded.families()
    assert sorted(key for rows in found.values() for key in rows) == sorted(map(upgraded.row_key, (1, 2, 8, 13)))


@compositions(format=HEADERS, persistent=True, kind="key-value")
@pytest.mark.behaviour("H3")
def test_deletes_of_ranges_and_keys_reach_rows_of_every_format(upgraded):
    assert upgraded.store.delete("k07")[0] == "plain 7"
    upgraded.store.delete_range("k02", "k08")
    assert upgraded.rows() == {1: "plain 1", 13: "new"}
    upgraded.store.commit({CHANGELOG: 7})
    upgraded.reopen()
    assert upgraded.rows() == {1: "plain 1", 13: "new"}


@with_headers
@pytest.mark.behaviour("H3")
def test_no_family_is_made_that_kafka_streams_would_take_for_an_upgrade_of_another_format(composition, home):
    Upgraded(composition, home, PLAIN).close()
    store = StoreUnderTest(composition, home)
    for slot in (1, 20):  # also in a new segment
        store.put(slot, "now")
    store.store.commit({CHANGELOG: 6})
    store.close()
    made = {"offsets", *composition.layout.made_families}
    assert {frozenset(column_families(directory)) for directory in store.directories} == {frozenset(made)}


@with_headers
@pytest.mark.behaviour("F4")
@pytest.mark.parametrize("older", [PLAIN, TIMESTAMPED])
def test_a_store_with_headers_opened_in_an_older_format_is_refused_and_left_alone(composition, home, older):
    store = StoreUnderTest(composition, home)
    store.put(1, "text")
    store.store.commit({CHANGELOG: 1})
    store.close()
    before = contents(home.root)
    with pytest.raises(UnknownFormatError, match=composition.layout.column_families[0]):
        StoreUnderTest(Composition(composition.kind, older, True, composition.transactional), home)
    assert contents(home.root) == before


@compositions(format=HEADERS)
@pytest.mark.behaviour("H4")
def test_a_value_is_logged_plain_with_its_headers_and_an_unknown_timestamp_as_the_records(store):
    logged = []
    store.store.log_changes_to(lambda *change: logged.append(change))
    store.put(1, "a")
    store.put(1, None)
    time = 1_001 if store.composition.timestamped else None
    assert logged == [
        (store.row_key(1), b"a", time, (("of", b"slots"), ("null", None), ("of", b""))),
        (store.row_key(1), None, None),
    ]
    if store.composition.timestamped:
        store.value = lambda text: ValueTimestampHeaders(text, -1)
        store.put(2, "b")
        assert logged[2] == (store.row_key(2), b"b", None, ())


@compositions(format=HEADERS, transactional=True)
@pytest.mark.parametrize(
    "wrong",
    ["text", ValueAndTimestamp("text", 5), ("text", 5, ()), ValueTimestampHeaders("text", 5, (("name", "no bytes"),))],
)
def test_what_is_no_value_with_headers_is_refused_before_it_is_written(store, wrong):
    store.value = lambda text: wrong
    with pytest.raises(TypeError, match=r"headers|header is"):
        store.put(1, "a")
    assert store.store.is_empty
