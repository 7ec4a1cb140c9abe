"""Stores of users' own: what they lack is put around them, and what contradicts itself is refused."""

from __future__ import annotations

import json

import pytest
from custom import MINE, Supplier
from store_under_test import Home, StoreUnderTest

from statestore.errors import DefinitionError, InvalidStateError, StoreUncleanError
from statestore.formats.headers_value import ValueTimestampHeaders
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.formats.value_format import value_format
from statestore.model import StoreFormat
from statestore.stores.readers import IsolationLevel
from statestore.stores.suppliers import BuiltIn
from tests.compositions import CHANGELOG, FORMATS, STORE, Composition, compositions
from tests.integration.file_store import FileStore, PlainWindowFileStore, TimestampedFileStore

TIMESTAMPED = StoreFormat.TIMESTAMPED
#: One for each kind and format; engine and transactions are the custom store's own matter.
kinds = compositions(persistent=True, transactional=False)
plain_key_value = Composition("key-value", StoreFormat.PLAIN, True, False)


class MyTransactional(FileStore):
    transactional = True


class WithCommit(MyTransactional):
    def commit(self, offsets, position=None):
        pass


class WithBoth(WithCommit):
    def recover(self, changelog_offset):
        return True


@kinds
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "in memory"])
def test_a_custom_store_does_what_ours_do(composition, home, persistent):
    supplier = Supplier(MINE[composition.kind], persistent=persistent)
    store = Custom(composition, home, supplier, timestamps=not persistent)
    logged = []
    store.store.log_changes_to(lambda key, value, *_: logged.append((key, value)))
    store.fill([1, 2, 7], "text")
    store.put(2, None)
    assert store.rows() == {1: "text", 7: "text"}
    assert list(store.scan(backward=True)) == [(7, "text"), (1, "text")]
    assert (store.get(1), store.get(2)) == ("text", None)
    assert logged == [(store.row_key(slot), b"text") for slot in (1, 2, 7)] + [(store.row_key(2), None)]
    store.replay([(8, "from the changelog"), (7, None)])
    assert store.rows() == {1: "text", 8: "from the changelog"}
    assert store.rows(store.reader(IsolationLevel.READ_COMMITTED)) == store.rows()
    store.store.commit({CHANGELOG: 5})
    store.close()


class Custom(StoreUnderTest):
    """A store whose timestamps and headers are lost where a proxy takes them off."""

    def __init__(self, composition, home, supplier, *, timestamps):
        self.timestamps = timestamps
        super().__init__(composition, home, supplier=supplier)

    def text(self, value):
        layout = self.composition.layout
        if value is None or self.timestamps or not (layout.timestamped or layout.keeps_headers):
            return super().text(value)
        assert not layout.timestamped or value.timestamp == -1
        assert not layout.keeps_headers or value.headers == ()
        return value[0]


@compositions(persistent=True, transactional=False, kind="key-value", format=StoreFormat.HEADERS)
def test_a_timestamped_store_under_a_builder_with_headers_keeps_its_timestamps(composition, home):
    supplier = Composition("key-value", TIMESTAMPED, True, False).supplier()
    store = StoreUnderTest(composition, home, supplier=supplier)
    store.put(1, "abc")
    assert store.store.get("k01") == ValueTimestampHeaders("abc", 1_003)
    assert not store.store.inner.keeps_headers
    assert store.store.inner.keeps_timestamps
    store.close()


@compositions(persistent=True, transactional=False, format=TIMESTAMPED)
@pytest.mark.behaviour("F7")
def test_a_persistent_plain_store_gets_a_proxy_that_takes_timestamps_off_and_puts_minus_one_on(composition, home):
    supplier = Supplier(MINE[composition.kind])
    store = Custom(composition, home, supplier, timestamps=False)
    logged = []
    store.store.log_changes_to(lambda *change: logged.append(change))
    store.fill([1, 7], "text")
    assert set(supplier.made.rows.values()) == {b"text"}, "without the timestamp"
    assert store.rows() == {1: "text", 7: "text"}  # with timestamp -1, see `Custom`
    assert store.get(1) == "text"
    assert logged == [(store.row_key(slot), b"text", 1_004) for slot in (1, 7)], "the changelog gets the real one"
    store.replay([(8, "restored")])
    assert b"restored" in supplier.made.rows.values()
    store.store.commit({CHANGELOG: 1})
    store.close()
    again = Supplier(MINE[composition.kind])
    store = Custom(composition, home, again, timestamps=False)
    assert store.rows() == {1: "text", 7: "text", 8: "restored"}
    store.close()


@compositions(persistent=True, transactional=False, format=TIMESTAMPED)
@pytest.mark.behaviour("F7")
def test_a_custom_store_in_memory_gets_no_proxy(composition, home):
    supplier = Supplier(MINE[composition.kind], persistent=False)
    store = StoreUnderTest(composition, home, supplier=supplier)
    store.put(1, "text")
    assert store.get(1) == "text"  # with its timestamp
    assert list(supplier.made.rows.values()) == [(1_004).to_bytes(8, "big") + b"text"]
    store.close()


@pytest.mark.behaviour("F7")
def test_a_custom_store_that_says_it_knows_timestamps_gets_no_proxy(home):
    supplier = Supplier(TimestampedFileStore)
    store = StoreUnderTest(Composition("key-value", TIMESTAMPED, True, False), home, supplier=supplier)
    store.put(1, "text")
    assert store.get(1) == "text"
    assert list(supplier.made.rows.values()) == [(1_004).to_bytes(8, "big") + b"text"]
    assert supplier.made.convert_to_timestamped_format(b"plain") == b"\xff" * 8 + b"plain"
    store.close()


@pytest.mark.behaviour("F7")
def test_our_own_plain_store_under_a_timestamped_builder_gets_the_proxy_too(home):
    plain = Composition("key-value", StoreFormat.PLAIN, True, True)
    supplier = plain.supplier()
    store = Custom(Composition("key-value", TIMESTAMPED, True, True), home, supplier, timestamps=False)
    store.fill([1, 2], "text")
    store.store.commit({CHANGELOG: 1})
    assert store.rows() == {1: "text", 2: "text"}
    assert store.store.get_many(["k02", "k03"]) == [ValueAndTimestamp("text", -1), None]
    assert store.store.delete("k01") == ValueAndTimestamp("text", -1)
    store.store.rollback()
    store.close()
    read_as_plain = StoreUnderTest(plain, home)
    assert read_as_plain.rows() == {1: "text", 2: "text"}
    read_as_plain.close()


@pytest.mark.behaviour("T12")
@pytest.mark.parametrize(("make", "lacks"), [(MyTransactional, "commit"), (WithCommit, "recover")])
def test_a_store_that_says_transactional_but_lacks_a_method_is_refused(make, lacks):
    with pytest.raises(DefinitionError, match=f"{make.__name__}.* transactional, but has no {lacks} of its own"):
        plain_key_value.build(Supplier(make))
    assert plain_key_value.build(Supplier(WithBoth)).transactional


class WithOffsets(FileStore):
    manages_offsets = True

    def commit(self, offsets, position=None):
        pass


class KeepsOffsets(FileStore):
    """A store that keeps its offsets with its rows, and has no transactions: a write is in its file at once."""

    manages_offsets = True

    def init(self, context):
        super().init(context)
        self.offsets = json.loads(self._file.read_text())["offsets"] if self._file.exists() else {}

    def write(self, value, *key):
        super().write(value, *key)
        self.save(offsets=self.offsets)

    def commit(self, offsets, position=None):
        self.offsets |= {str(partition): offset for partition, offset in offsets.items()}
        self.save(offsets=self.offsets)

    def committed_offset(self, topic_partition):
        return self.offsets.get(str(topic_partition))

    def clear_offsets(self):
        self.offsets = {}


@pytest.mark.behaviour("K19")
def test_a_store_manages_its_offsets_without_transactions_and_is_refused_when_left_open_under_exactly_once(home):
    store = StoreUnderTest(plain_key_value, home, supplier=Supplier(KeepsOffsets))
    assert (store.store.manages_offsets, store.store.transactional) == (True, False)
    store.put(1, "text")
    store.store.commit({CHANGELOG: 5})
    store.close()
    store.open()
    assert (store.rows(), store.store.committed_offset(CHANGELOG)) == ({1: "text"}, 5)
    assert not (home.task_directory / f".checkpoint_{STORE}").exists(), "the file is for stores without offsets"
    store.put(2, "perhaps never committed")
    store.close(clean=False)
    for settings in ({}, {"read_only": True}):
        with pytest.raises(StoreUncleanError, match=f"store {STORE} was not closed cleanly"):
            store.open(**settings)
    store.open(exactly_once=False)
    assert (store.rows(), store.store.committed_offset(CHANGELOG)) == ({1: "text", 2: "perhaps never committed"}, 5)
    store.close()
    store.open()
    store.close()


@pytest.mark.behaviour("K19")
def test_an_opening_for_reading_neither_marks_a_store_as_open_nor_as_closed(home):
    store = StoreUnderTest(plain_key_value, home, supplier=Supplier(KeepsOffsets), read_only=True)
    store.close(clean=False)
    store.open()
    reader = StoreUnderTest(plain_key_value, home, supplier=Supplier(KeepsOffsets), read_only=True, exactly_once=False)
    reader.close()
    store.close(clean=False)
    with pytest.raises(StoreUncleanError):
        store.open()


class HalfBatch(FileStore):
    def put_rows(self, row_keys, values):
        return []


class HalfUpgradable(FileStore):
    upgrade_pending = True


class HalfStreamTime(PlainWindowFileStore):
    stream_time = 5

    def advance_stream_time(self, timestamp):
        self.stream_time = timestamp


class Loose:
    name = "s"


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (WithOffsets, "manages_offsets, but has no committed_offset of its own; .* committed_offset, clear_offsets"),
        (HalfBatch, "a part of BatchWritingStore, but no get_rows of its own"),
        (HalfUpgradable, "a part of UpgradableStore, but no stored_row of its own"),
        (HalfStreamTime, "a part of StreamTimeStore, but no set_back_stream_time of its own; .* or none"),
        (Loose, "a Loose is not a store; derive it from KeyValueBytesStore"),
    ],
)
def test_a_store_with_a_part_of_what_belongs_together_is_refused(make, what):
    with pytest.raises(DefinitionError, match=what):
        plain_key_value.build(BuiltIn(STORE, Loose) if make is Loose else Supplier(make))


class MyBatches(FileStore):
    """A store that writes many rows at once."""

    batches = 0

    def get_rows(self, row_keys):
        self.batches += 1
        return [self.get(key) for key in row_keys]

    def put_rows(self, row_keys, values):
        self.batches += 1
        for key, value in zip(row_keys, values, strict=True):
            self.put(key, value)
        return []


@pytest.mark.parametrize("store_format", FORMATS)
def test_the_batch_writes_of_a_custom_store_are_used_whatever_is_put_around_it(home, store_format):
    supplier = Supplier(MyBatches)
    store = StoreUnderTest(Composition("key-value", store_format, True, False), home, supplier=supplier)
    store.store.put_rows([b"a", b"b"], [b"1", None], [7, 7])
    stored = value_format(store_format).migrated("default", b"1")
    assert store.store.get_rows([b"b", b"a"]) == [None, stored]
    assert supplier.made.batches == 2
    assert supplier.made.get(b"a") == b"1", "without the timestamp"
    store.store.begin_record()
    store.store.put_rows([b"a", b"c"], [b"2", b"3"], [8, 8])
    store.store.undo_record()
    assert store.store.get_rows([b"a", b"c"]) == [stored, None]
    store.close()


def test_a_store_without_abilities_of_its_own_does_what_stands_in_for_them(home):
    store = StoreUnderTest(plain_key_value, home, supplier=Supplier(FileStore))
    store.fill([1, 2, 7], "text")
    inner = store.store.inner
    inner.advance_stream_time(9)
    assert (inner.stream_time, inner.upgrade_pending, store.store.staged_bytes) == (-1, False, 0)
    store.store.sync()
    store.store.delete_range("k01", "k02")
    assert store.rows() == {7: "text"}
    store.close()


def test_the_rows_of_a_custom_transactional_store_cannot_be_read_as_committed(home):
    store = StoreUnderTest(plain_key_value, home, supplier=Supplier(WithBoth))
    with pytest.raises(InvalidStateError, match="store s is not a built-in store"):
        store.reader(IsolationLevel.READ_COMMITTED)
    assert store.rows(store.reader(IsolationLevel.READ_UNCOMMITTED)) == {}
    store.close()


def test_a_custom_store_without_transactions_that_only_has_flush_is_flushed_by_a_commit(home):
    class Flushing(FileStore):
        flushed = 0

        def flush(self):
            self.flushed += 1

    store = StoreUnderTest(plain_key_value, Home(home.root), supplier=Supplier(Flushing))
    store.store.commit({CHANGELOG: 1})
    assert store.supplier.made.flushed == 1
    assert store.store.recover(1) is False
    store.close()
