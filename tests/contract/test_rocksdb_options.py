"""Options of RocksDB that a user may set: rows are the same with them, or the option is refused by name."""

from __future__ import annotations

import pytest
from rocksdict import (
    BlockBasedOptions,
    DBCompactionStyle,
    DBCompressionType,
    DBPath,
    PlainTableFactoryOptions,
    SliceTransform,
)
from store_under_test import StoreUnderTest

from statestore.errors import InputError, StoreCorruptedError
from statestore.model import StoreFormat
from tests.compositions import CHANGELOG, STORE, compositions

on_disk = compositions(persistent=True)
#: Near enough that no window expires.
SLOTS = (1, 2, 4, 5, 7, 8)
MANY = range(1, 90, 3)


def prefixes(store, options):
    """Index keys by their first three bytes, which ranges cross."""
    options.set_prefix_extractor(SliceTransform.create_fixed_prefix(3))
    options.set_memtable_prefix_bloom_ratio(0.1)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)


def blobs(store, options):
    """Keep each value in a blob file."""
    options.set_enable_blob_files(True)
    options.set_min_blob_size(0)
    options.set_enable_blob_gc(True)


def compressed(store, options):
    """Compress, and compact by level."""
    options.set_compression_type(DBCompressionType.zstd())
    options.set_compaction_style(DBCompactionStyle.level())
    options.set_write_buffer_size(1 << 16)


@pytest.mark.short_for(every=3)
@on_disk
@pytest.mark.parametrize("setter", [prefixes, blobs, compressed], ids=lambda setter: setter.__name__)
def test_a_store_has_the_same_rows_in_the_same_order_with_these_options(composition, home, setter):
    store = StoreUnderTest(composition, home, config_setter=setter)
    store.fill(SLOTS, "text")
    expected = dict.fromkeys(SLOTS, "text")
    assert store.rows() == expected
    store.store.commit({CHANGELOG: 1})
    for _ in range(2):
        assert list(store.scan()) == list(expected.items())
        assert list(store.scan(backward=True)) == list(reversed(expected.items()))
        assert [store.get(slot) for slot in (1, 3, 8)] == ["text", None, "text"]
        store.reopen(config_setter=setter)
    store.close()
    for without in (None, setter):  # the options are not needed to read the store
        reader = StoreUnderTest(composition, home, read_only=True, config_setter=without)
        assert list(reader.scan()) == list(expected.items())
        reader.close()


@compositions(kind="key-value", persistent=True, format=StoreFormat.PLAIN)
def test_ranges_across_prefixes_have_all_rows(composition, home):
    store = StoreUnderTest(composition, home, config_setter=prefixes)
    store.fill(MANY, "text")
    store.store.commit({CHANGELOG: 1})
    store.reopen(config_setter=prefixes)
    for first, last in (("k01", "k30"), ("k05", "k05"), ("k0", "k9"), ("k11", "k99")):
        expected = [key for key in (f"k{slot:02d}" for slot in MANY) if first <= key <= last]
        assert [key for key, _ in store.store.range(first, last)] == expected
        assert [key for key, _ in store.store.reverse_range(first, last)] == expected[::-1]
    assert [key for key, _ in store.store.prefix_scan(b"k1")] == ["k10", "k13", "k16", "k19"]


@on_disk
def test_a_store_that_has_lost_a_blob_file_is_damaged(composition, home):
    store = StoreUnderTest(composition, home, config_setter=blobs)
    store.fill(SLOTS, "text")
    store.store.commit({CHANGELOG: 1})
    store.close()
    found = [path for directory in store.directories for path in directory.glob("*.blob")]
    assert found, "the values are in blob files"
    found[0].unlink()
    for read_only in (True, False):
        with pytest.raises(StoreCorruptedError, match="blob files, expected"):
            StoreUnderTest(composition, home, read_only=read_only, config_setter=blobs)


def _call(name, *arguments):
    def setter(store, options):
        getattr(options, name)(*arguments)

    return setter


REFUSED = {
    "set_db_paths": lambda home: _call("set_db_paths", [DBPath(str(home.root), 1 << 40)]),
    "set_plain_table_factory": lambda _: _call("set_plain_table_factory", PlainTableFactoryOptions()),
    "set_inplace_update_support": lambda _: _call("set_inplace_update_support", True),
    "FIFO compaction": lambda _: _call("set_compaction_style", DBCompactionStyle.fifo()),
}


@compositions(kind="key-value", persistent=True, format=StoreFormat.PLAIN)
@pytest.mark.parametrize("option", REFUSED)
def test_an_option_that_cannot_be_supported_is_refused_by_name_and_leaves_the_store_as_it_is(composition, home, option):
    store = StoreUnderTest(composition, home)
    store.fill(SLOTS, "text")
    store.store.commit({CHANGELOG: 1})
    store.close()
    with pytest.raises(InputError, match=rf"store {STORE}: rocksdb_config_setter cannot use {option}"):
        StoreUnderTest(composition, home, config_setter=REFUSED[option](home))
    store.open()
    assert store.rows() == dict.fromkeys(SLOTS, "text")


@compositions(kind="key-value", persistent=True, format=StoreFormat.PLAIN)
@pytest.mark.parametrize("filled", [True, False])
@pytest.mark.parametrize(
    ("setter", "expected"),
    [
        pytest.param(_call("set_no_such_option", 1), "rocksdb_config_setter failed: AttributeError", id="unknown"),
        pytest.param(_call("set_write_buffer_size", "many"), "rocksdb_config_setter failed: TypeError", id="type"),
        pytest.param(_call("set_allow_mmap_reads", True), "", id="fine"),
        pytest.param(
            lambda _, options: (options.set_use_direct_reads(True), options.set_allow_mmap_reads(True)),
            "RocksDB refuses the options",
            id="refused by RocksDB",
        ),
    ],
)
def test_an_error_of_an_option_names_the_store_and_is_no_damage(composition, home, setter, expected, filled):
    store = StoreUnderTest(composition, home)
    if filled:
        store.fill(SLOTS, "text")
        store.store.commit({CHANGELOG: 1})
    store.close()
    if not expected:
        StoreUnderTest(composition, home, config_setter=setter).close()
        return
    with pytest.raises(InputError, match=f"store {STORE}: {expected}"):
        StoreUnderTest(composition, home, config_setter=setter)
    store.open()
    assert store.rows() == (dict.fromkeys(SLOTS, "text") if filled else {})
