"""Reading all rows of a closed database: complete or an error, whatever byte of it is changed."""

from __future__ import annotations

import shutil

import pytest
from rocksdict import Rdict

from statestore.definitions.store import StoreDefinition
from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import ValueAndTimestamp, encode
from statestore.model import StoreFormat
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB
from statestore.stores.scan import ScannedDatabase
from tests.unit.samples import PLAIN, TIMESTAMPED

ROWS = {b"%05d" % number: ValueAndTimestamp(b"value %d" % number, number) for number in range(3_000)}


def write(directory, rows, definition: StoreDefinition = TIMESTAMPED):
    store = open_key_value_store(definition, directory)
    for key, value in rows.items():
        store.put(key, value)
    store.commit({})
    store.close()


def scanned(directory, start=None, stop=None, store_format=StoreFormat.TIMESTAMPED):
    database = ScannedDatabase(directory, store_format)
    try:
        return {
            key: value
            for batch in database.rows(start, stop)
            for key, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        }
    finally:
        database.close()


def counted(directory, store_format=StoreFormat.TIMESTAMPED):
    database = ScannedDatabase(directory, store_format)
    try:
        return database.count()
    finally:
        database.close()


STORED = {key: encode(value, timestamp) for key, (value, timestamp) in ROWS.items()}


def test_all_rows_come_in_key_order_as_they_are_stored(tmp_path):
    write(tmp_path, ROWS)
    found = scanned(tmp_path)
    assert found == STORED
    assert list(found) == sorted(found)
    assert counted(tmp_path) == len(ROWS)


def test_a_database_without_rows(tmp_path):
    write(tmp_path, {})
    assert scanned(tmp_path) == {}
    assert counted(tmp_path) == 0


@pytest.mark.parametrize(
    ("start", "stop"),
    [(None, b"00010"), (b"02990", None), (b"00100", b"01500"), (b"00100x", b"00101"), (b"9", None), (None, b"")],
)
def test_a_range_of_keys(tmp_path, start, stop):
    write(tmp_path, ROWS)
    inside = {
        key: value for key, value in STORED.items() if (start is None or key >= start) and (stop is None or key < stop)
    }
    assert scanned(tmp_path, start, stop) == inside


def test_rows_larger_than_a_batch(tmp_path):
    write(tmp_path, {b"%02d" % number: b"x" * 3_000_000 for number in range(10)}, PLAIN)
    assert len(scanned(tmp_path, store_format=StoreFormat.PLAIN)) == 10


def test_large_rows_behind_small_ones_do_not_make_a_large_batch(tmp_path):
    small = {b"a%05d" % number: b"v" for number in range(3_000)}
    large = {b"b%05d" % number: bytes(64 * 1024) for number in range(300)}
    write(tmp_path / "store", small | large, PLAIN)
    database = ScannedDatabase(tmp_path / "store", StoreFormat.PLAIN)
    try:
        sizes = [batch.nbytes for batch in database.rows()]
    finally:
        database.close()
    assert sum(sizes) > 300 * 64 * 1024
    assert max(sizes) < 9 * 1024 * 1024


def test_rows_that_are_still_in_the_older_format_are_read_in_the_newer(tmp_path):
    write(tmp_path, {key: value for key, (value, _) in ROWS.items()}, PLAIN)
    expected = {key: encode(value, -1) for key, (value, _) in ROWS.items()}
    assert scanned(tmp_path) == expected
    assert counted(tmp_path) == len(ROWS)


@pytest.mark.long
def test_a_changed_byte_in_a_block_of_rows_is_never_taken_for_the_end(tmp_path):
    whole = tmp_path / "whole"
    write(whole, ROWS)
    damaged = tmp_path / "damaged"
    found = missed = 0
    for at in range(0, _largest(whole).stat().st_size, 1_009):
        shutil.copytree(whole, damaged)
        victim = _largest(damaged)
        content = bytearray(victim.read_bytes())
        content[at] ^= 1
        victim.write_bytes(content)
        for read in (lambda: scanned(damaged) == STORED, lambda: counted(damaged) == len(ROWS)):
            try:
                # Filters and properties are not needed to read all rows.
                assert read(), f"byte {at}: rows are missing, and no error was raised"
                missed += 1
            except StoreCorruptedError:
                found += 1
        shutil.rmtree(damaged)
    assert found > 10 * missed


def test_what_rocksdict_itself_gives_for_a_damaged_file_would_look_complete(tmp_path):
    """Why the end of `items` is looked at: on a damaged block it ends without an error."""
    write(tmp_path, ROWS)
    victim = _largest(tmp_path)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    database = RocksDB(tmp_path, ["keyValueWithTimestamp"], read_only=True)
    family: Rdict = database.family("keyValueWithTimestamp").rdict
    assert len(list(family.items())) < len(ROWS)
    database.close()
    with pytest.raises(StoreCorruptedError):
        scanned(tmp_path)


def _largest(directory):
    return max(directory.glob("*.sst"), key=lambda file: file.stat().st_size)
