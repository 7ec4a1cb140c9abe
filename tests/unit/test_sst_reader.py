"""Reading the bulk path's SST files without RocksDB: the same rows, every changed byte noticed, others refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import ValueAndTimestamp, encode
from statestore.kafka.record_columns import SCHEMA
from statestore.model import StoreFormat
from statestore.sst.layout import OtherLayoutError
from statestore.sst.reader import rows_of
from statestore.sst.writer import SstFiles
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB
from statestore.stores.row_files import files_of_rows
from statestore.stores.scan import STORED_SCHEMA, ScannedDatabase
from statestore.stores.sst import write_sst
from statestore.verification.row_files import count
from tests.session.examples import examples
from tests.unit.samples import CHANGELOG, TIMESTAMPED

FAMILY = "keyValueWithTimestamp"
KEYS = st.one_of(st.binary(max_size=8), st.binary(max_size=3).map(lambda end: b"prefix" * 40 + end))
ROWS = st.dictionaries(KEYS, st.binary(max_size=400), min_size=1, max_size=60)


def write(directory, rows, *, timestamped=True, file_bytes=64 << 20):
    directory.mkdir(exist_ok=True)
    files = SstFiles(directory, timestamped=timestamped, file_bytes=file_bytes)
    keys, values = zip(*sorted(rows.items()), strict=True)
    files.add(pa.record_batch([list(keys), list(values), [7] * len(keys), [0] * len(keys)], schema=SCHEMA))
    return files.finish()


def read(files):
    return [
        row
        for file in files
        for batch in rows_of(file, STORED_SCHEMA)
        for row in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]


@settings(max_examples=examples(60))
@given(rows=ROWS, timestamped=st.booleans(), file_bytes=st.sampled_from([1, 64 << 20]))
def test_rows_are_read_as_they_were_written(tmp_path_factory, rows, timestamped, file_bytes):
    directory = tmp_path_factory.mktemp("sst")
    files = write(directory, rows, timestamped=timestamped, file_bytes=file_bytes)
    expected = [(key, encode(value, 7) if timestamped else value) for key, value in sorted(rows.items())]
    assert read(files) == expected


@pytest.mark.long
def test_large_rows_and_many_of_them(tmp_path):
    rows = {b"%06d" % number: b"x" * (number % 300) for number in range(20_000)} | {b"z": b"y" * 3_000_000}
    assert read(write(tmp_path, rows)) == [(key, encode(value, 7)) for key, value in sorted(rows.items())]


def test_a_changed_byte_is_noticed_or_means_nothing(tmp_path):
    [file] = write(tmp_path, {b"%05d" % number: b"value %d" % number for number in range(600)})
    whole, rows = file.read_bytes(), read([file])
    noticed = 0
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            assert read([file]) == rows
        except OtherLayoutError:
            noticed += 1
    assert noticed > len(whole) // 7 * 0.9


def test_every_shorter_file_is_refused(tmp_path):
    [file] = write(tmp_path, {b"%05d" % number: b"value %d" % number for number in range(100)})
    whole = file.read_bytes()
    for length in range(0, len(whole), 13):
        file.write_bytes(whole[:length])
        with pytest.raises(OtherLayoutError):
            read([file])
    file.unlink()
    with pytest.raises(OtherLayoutError):
        read([file])


def test_files_of_rocksdb_itself_are_refused(tmp_path):
    write_sst([(b"k", b"v"), (b"l", None)], tmp_path / "one.sst")
    with pytest.raises(OtherLayoutError):
        read([tmp_path / "one.sst"])
    store = open_key_value_store(TIMESTAMPED, tmp_path / "store")
    store.put(b"k", ValueAndTimestamp(b"v", 1))
    store.commit({})
    store.close()
    for file in (tmp_path / "store").glob("*.sst"):
        with pytest.raises(OtherLayoutError):
            read([file])


# -- a database --------------------------------------------------------------------------------------------------------


def ingested(tmp_path, *parts):
    """A database with a file for each part, and an offset, which RocksDB itself writes."""
    database = RocksDB(tmp_path / "store", [FAMILY])
    for number, rows in enumerate(parts):
        for file in write(tmp_path / str(number), rows):
            database.ingest(FAMILY, [file])
    database.write({}, {CHANGELOG: 5})
    database.sync()
    return database


def rows_of_store(tmp_path):
    database = ScannedDatabase(tmp_path / "store", StoreFormat.TIMESTAMPED)
    try:
        files = files_of_rows(database)
        return None if files is None else read(files)
    finally:
        database.close()


def test_files_of_a_database_that_do_not_overlap_are_its_rows(tmp_path):
    ingested(tmp_path, {b"m": b"1", b"p": b"2"}, {b"a": b"3"}).close()
    assert rows_of_store(tmp_path) == [(b"a", encode(b"3", 7)), (b"m", encode(b"1", 7)), (b"p", encode(b"2", 7))]


def test_a_database_without_rows(tmp_path):
    ingested(tmp_path).close()
    assert rows_of_store(tmp_path) == []


def test_files_that_overlap_are_left_to_rocksdb(tmp_path):
    ingested(tmp_path, {b"m": b"1", b"p": b"2"}, {b"p": b"3"}).close()
    assert rows_of_store(tmp_path) is None


@pytest.mark.parametrize("change", ["a put", "a delete", "a range delete", "a plain row"])
def test_a_database_that_was_written_to_is_left_to_rocksdb(tmp_path, change):
    database = ingested(tmp_path, {b"m": b"1", b"p": b"2"})
    if change == "a put":
        database.write({FAMILY: {b"z": encode(b"1", 7)}})
    elif change == "a delete":
        database.write({FAMILY: {b"m": None}})
    elif change == "a range delete":
        database.delete_range(FAMILY, b"a", b"z")
    else:
        database.write({"default": {b"q": b"plain"}})
    database.sync()
    database.close()
    assert rows_of_store(tmp_path) is None


def test_a_damaged_file_of_a_database_is_left_to_rocksdb(tmp_path):
    ingested(tmp_path, {b"%03d" % number: b"1" for number in range(500)}).close()
    [file] = [path for path in (tmp_path / "store").glob("*.sst") if path.stat().st_size > 5_000]
    content = bytearray(file.read_bytes())
    content[len(content) // 4] ^= 1
    file.write_bytes(content)
    with pytest.raises(OtherLayoutError):
        rows_of_store(tmp_path)


# -- counting ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=examples(40))
@given(
    parts=st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=90), min_size=1, max_size=60), max_size=9),
    file_bytes=st.sampled_from([1, 64 << 20]),
)
def test_rows_are_counted_straight_from_files_that_overlap_and_have_deletes(tmp_path_factory, parts, file_bytes):
    directory = tmp_path_factory.mktemp("counted")
    database = RocksDB(
        directory / "store", [FAMILY], config_setter=lambda _, options: options.set_disable_auto_compactions(True)
    )
    expected = {}
    for number, rows in enumerate(parts):
        database.ingest(FAMILY, write(directory / str(number), rows, file_bytes=file_bytes))
        expected |= rows
    database.sync()
    database.close()
    database = ScannedDatabase(directory / "store", StoreFormat.TIMESTAMPED)
    left = sum(value is not None for value in expected.values())
    with pytest.MonkeyPatch.context() as patch:
        assert database.count() == left
        patch.setattr(database, "count", None)  # only the files are read
        assert count(database) == left
    database.close()


@pytest.mark.parametrize("change", ["a put", "a delete", "a range delete", "a plain row"])
def test_rows_that_rocksdb_has_written_are_counted_too(tmp_path, change):
    database = ingested(tmp_path, {b"m": b"1", b"p": b"2"}, {b"p": b"3"})
    if change == "a put":
        database.write({FAMILY: {b"z": encode(b"1", 7)}})
    elif change == "a delete":
        database.write({FAMILY: {b"m": None}})
    elif change == "a range delete":
        database.delete_range(FAMILY, b"n", b"z")
    else:
        database.write({"default": {b"q": b"plain"}})
    database.sync()
    database.close()
    database = ScannedDatabase(tmp_path / "store", StoreFormat.TIMESTAMPED)
    assert count(database) == {"a put": 3, "a delete": 1, "a range delete": 1, "a plain row": 3}[change]
    database.close()


def test_the_deletes_of_older_rows_are_not_taken_for_those_of_newer_ones(tmp_path):
    database = ingested(tmp_path, {b"m": b"1", b"p": b"2"})
    database.ingest("default", write(tmp_path / "older", {b"m": None, b"p": None}))
    database.close()
    database = ScannedDatabase(tmp_path / "store", StoreFormat.TIMESTAMPED)
    assert count(database) == 2
    database.close()


def test_a_changed_byte_in_any_block_is_told_while_rows_are_counted(tmp_path):
    ingested(tmp_path, {b"%03d" % number: b"1" * 40 for number in range(500)}, {b"007": b"2"}).close()
    file = max((tmp_path / "store").glob("*.sst"), key=lambda path: path.stat().st_size)
    whole = file.read_bytes()
    for at in range(0, len(whole) - 2_000, 997):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        database = ScannedDatabase(tmp_path / "store", StoreFormat.TIMESTAMPED)
        with pytest.raises(StoreCorruptedError):
            count(database)
        database.close()
