"""Stores whose files the bulk path wrote are opened to be read straight from these, with RocksDB's rows and errors."""

from __future__ import annotations

import shutil
import sys

import pytest

from statestore.discovery import opening
from statestore.discovery.opening import close_all, open_databases
from statestore.discovery.store_directory import StoreDirectory
from statestore.errors import StoreCorruptedError
from statestore.model import StoreFormat
from statestore.stores.scan import ScannedDatabase
from tests.unit.test_sst_reader import FAMILY, ingested

MANY = [{b"%d%03d" % (part, number): b"x" * 90 for number in range(500)} for part in range(3)]


@pytest.fixture
def opened(tmp_path):
    """Open the store in a directory; it is closed at the end."""
    databases = []

    def open_store():
        databases.extend(open_databases(StoreDirectory("s", False, tmp_path / "store", None, None), "timestamped"))
        return databases[-1]

    yield open_store
    close_all(databases)


def rows(batches):
    found = [batch.to_pydict() for batch in batches]
    return [row for batch in found for row in zip(batch["key"], batch["value"], strict=True)]


def rows_by_rocksdb(tmp_path):
    database = ScannedDatabase(tmp_path / "store", StoreFormat.TIMESTAMPED)
    try:
        return rows(database.rows())
    finally:
        database.close()


def test_rows_come_straight_from_the_files(tmp_path, opened, monkeypatch):
    ingested(tmp_path, *MANY).close()
    expected = rows_by_rocksdb(tmp_path)
    monkeypatch.setattr(ScannedDatabase, "rows", None)  # only the files are read
    assert rows(opened().rows()) == expected
    assert len(expected) == 1500


def test_bounds_are_sought_by_rocksdb(tmp_path, opened):
    ingested(tmp_path, *MANY).close()
    assert [key for key, _ in rows(opened().rows(b"1498", b"2001"))] == [b"1498", b"1499", b"2000"]


def test_the_files_are_read_to_their_end_whatever_the_owner_does(tmp_path, opened):
    ingested(tmp_path, *MANY).close()
    expected, database = rows_by_rocksdb(tmp_path), opened()
    assert len(database.files) == 3
    batches = database.rows()
    first = next(batches)
    shutil.rmtree(tmp_path / "store")
    assert rows([first, *batches]) == expected


@pytest.mark.parametrize("part", range(3))
def test_a_damaged_block_is_told_by_rocksdb_behind_the_rows_before_it(tmp_path, opened, part):
    ingested(tmp_path, *MANY).close()
    expected = rows_by_rocksdb(tmp_path)
    file = sorted(path for path in (tmp_path / "store").glob("*.sst") if path.stat().st_size > 5_000)[part]
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    found = []
    with pytest.raises(StoreCorruptedError, match=str(tmp_path / "store")):
        found.extend(row for batch in opened().rows() for row in rows([batch]))
    assert found == expected[: len(found)]
    assert len(found) < 500 * (part + 1)


def test_rocksdb_reads_on_from_what_is_laid_out_otherwise(tmp_path, opened, monkeypatch):
    """Deletes, as an example: a later file has some."""
    ingested(tmp_path, MANY[0], {b"1": None, b"10": b"here", b"11": None}, MANY[2]).close()
    asked = []
    rows_of_rocksdb = ScannedDatabase.rows
    monkeypatch.setattr(
        ScannedDatabase, "rows", lambda self, *bounds: asked.append(bounds) or rows_of_rocksdb(self, *bounds)
    )
    database = opened()
    found = rows(database.rows())
    assert asked == [(b"0499\0", None)]
    assert found == rows_by_rocksdb(tmp_path)
    assert len(found) == 1001


def test_a_store_that_was_replaced_while_it_was_opened_is_left_to_rocksdb(tmp_path, opened, monkeypatch):
    ingested(tmp_path, *MANY).close()
    shutil.copytree(tmp_path / "store", tmp_path / "other")

    def replaced(database):
        shutil.move(tmp_path / "store", tmp_path / "before")
        shutil.move(tmp_path / "other", tmp_path / "store")
        return files_of_rows(database)

    files_of_rows = opening.files_of_rows
    monkeypatch.setattr(opening, "files_of_rows", replaced)
    database = opened()
    assert database.files is None
    assert len(rows(database.rows())) == 1500


def test_what_rocksdb_wrote_itself_is_left_to_it(tmp_path, opened):
    database = ingested(tmp_path, *MANY)
    database.write({FAMILY: {b"0000": None}})
    database.sync()
    database.close()
    assert opened().files is None
    assert len(rows(opened().rows())) == 1499


def test_no_compiled_loops_are_loaded_for_a_small_store(tmp_path, opened, monkeypatch):
    ingested(tmp_path, *MANY).close()
    monkeypatch.delitem(sys.modules, "statestore.sst.reader")
    assert opened().files is None
