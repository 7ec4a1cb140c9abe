"""Databases that are made without RocksDB, which finds in them what it finds in those it makes of the same files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from statestore.errors import StoreCorruptedError
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY, TIMESTAMPED_COLUMN_FAMILY
from statestore.kafka.record_columns import SCHEMA
from statestore.sst.layout import OtherLayoutError
from statestore.sst.writer import SstFiles
from statestore.stores.manifest import check_manifest, database_identity
from statestore.stores.new_database import make_database, new_identity
from statestore.stores.rocksdb import RocksDB

FAMILIES = (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY)
#: The order in which `RocksDB` makes them.
ORDER = (DEFAULT_COLUMN_FAMILY, TIMESTAMPED_COLUMN_FAMILY, "offsets")


def files_of(directory, rows, file_bytes=1 << 20):
    directory.mkdir(parents=True)
    numbers = pa.array([0] * len(rows), pa.int64())
    with SstFiles(directory, timestamped=False, file_bytes=file_bytes) as files:
        for key, value in rows.items():
            one = [pa.array([key], pa.binary()), pa.array([value], pa.binary()), numbers[:1], numbers[:1]]
            files.add(pa.RecordBatch.from_arrays(one, schema=SCHEMA))
        return files.finish()


def rows_in(database):
    return {family: list(database.scan(family)) for family in ORDER}


def made(directory, rows, *, file_bytes=1 << 20):
    """A database with rows in two families, made without RocksDB."""
    files = {
        DEFAULT_COLUMN_FAMILY: [],
        TIMESTAMPED_COLUMN_FAMILY: files_of(directory / "rows", rows, file_bytes) if rows else [],
        "offsets": files_of(directory / "beside", {b"status": bytes(8)}),
    }
    make_database(directory / "made", files, new_identity())
    return directory / "made"


def ingested(directory, rows, *, file_bytes=1 << 20):
    """The same by RocksDB."""
    database = RocksDB(directory / "ingested", FAMILIES)
    database.ingest(TIMESTAMPED_COLUMN_FAMILY, files_of(directory / "other rows", rows, file_bytes) if rows else [])
    database.ingest("offsets", files_of(directory / "other", {b"status": bytes(8)}))
    return database


def as_found(database):
    found = [
        (file["level"], file["size"], file["start_key"], file["end_key"]) for file in database._open().live_files()
    ]
    return rows_in(database), sorted(found)


@pytest.mark.short_for("several files", "keys at the ends")
@pytest.mark.parametrize(
    ("rows", "file_bytes"),
    [
        pytest.param({}, 1 << 20, id="no row"),
        pytest.param({b"": b"the empty key", b"\xff" * 9: b""}, 1 << 20, id="keys at the ends"),
        pytest.param({b"%05d" % n: b"v" * n for n in range(500)}, 1 << 14, id="several files"),
        # Some of its edits lie in two blocks of the MANIFEST, which have 32 KiB, and one in three.
        pytest.param({b"%d" % n * 1_000: b"v" for n in range(10, 60)}, 1, id="long keys, a file each"),
        pytest.param({b"a" * 50_000: b"1", b"b": b"2"}, 1, id="an edit longer than two blocks"),
    ],
)
def test_rocksdb_finds_what_it_finds_in_a_database_that_it_has_made_of_the_same_files(tmp_path, rows, file_bytes):
    directory, other = made(tmp_path, rows, file_bytes=file_bytes), ingested(tmp_path, rows, file_bytes=file_bytes)
    expected = as_found(other)
    other.close()
    check_manifest(directory)
    for read_only in (True, False):
        database = RocksDB(directory, FAMILIES, read_only=read_only)
        assert as_found(database) == expected
        assert database.last_write > 0, "one that was never written to is taken for new"
        database.close()


def test_it_can_be_written_to_and_opened_again(tmp_path):
    rows = {b"%05d" % n: b"old" for n in range(500)}
    directory = made(tmp_path, rows, file_bytes=1 << 12)
    identity = database_identity(directory)
    database = RocksDB(directory, FAMILIES)
    changed = {b"%05d" % n: b"new" if n % 2 else None for n in range(0, 500, 3)}
    database.write({TIMESTAMPED_COLUMN_FAMILY: changed})
    database.sync()
    database.close()
    database = RocksDB(directory, FAMILIES)
    kept = {key: value for key, value in (rows | changed).items() if value is not None}
    assert dict(database.scan(TIMESTAMPED_COLUMN_FAMILY)) == kept
    database.close()
    assert database_identity(directory) == identity


def test_no_byte_of_its_manifest_can_change_unnoticed(tmp_path):
    rows = {b"%05d" % n: b"value" for n in range(200)}
    directory = made(tmp_path, rows, file_bytes=1 << 12)
    manifest = directory / "MANIFEST-000001"
    whole = manifest.read_bytes()
    for at in range(0, len(whole), 7):
        manifest.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(StoreCorruptedError):
            RocksDB(directory, FAMILIES, read_only=True)
    manifest.write_bytes(whole)
    RocksDB(directory, FAMILIES, read_only=True).close()


def test_a_file_that_is_none_of_ours_is_refused(tmp_path):
    (tmp_path / "rows.sst").write_bytes(b"no SST file")
    with pytest.raises(OtherLayoutError):
        make_database(tmp_path / "made", {"offsets": [tmp_path / "rows.sst"]}, new_identity())
