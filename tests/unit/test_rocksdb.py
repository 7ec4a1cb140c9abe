"""The database under the stores: opening, refusing, offsets and status, ingestion, and what damage becomes."""

from __future__ import annotations

import random

import pytest
from children import open_without_file_descriptors
from rocksdict import Rdict
from samples import CHANGELOG, PLAIN, TIMESTAMPED, contents

from statestore.errors import (
    DiskSpaceError,
    InvalidStateError,
    LockedError,
    StoreAccessError,
    StoreCorruptedError,
    UnknownFormatError,
)
from statestore.formats import offsets as offsets_format
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY, TIMESTAMPED_COLUMN_FAMILY
from statestore.model import TopicPartition
from statestore.sst.layout import FOOTER, VERSION
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB, column_families
from statestore.stores.rocksdb_errors import translate
from statestore.stores.rocksdb_options import options
from statestore.stores.sst import write_sst
from tests.forked import child, received

FAMILIES = (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY)


@pytest.fixture
def directory(tmp_path):
    """A cleanly closed timestamped store with two rows at offset 1."""
    store = open_key_value_store(TIMESTAMPED, tmp_path / "s")
    store.put(b"a", ValueAndTimestamp(b"1", 1))
    store.put(b"b", ValueAndTimestamp(b"2", 2))
    store.commit({CHANGELOG: 1})
    store.close()
    return tmp_path / "s"


@pytest.fixture
def database(tmp_path):
    opened = RocksDB(tmp_path / "db", FAMILIES)
    yield opened
    opened.close()


def status_of(directory, families=FAMILIES):
    """The store's mark, looked at from outside."""
    database = RocksDB(directory, families, read_only=True)
    try:
        return database.status()
    finally:
        database.close()


# -- offsets and status


def test_k1_the_committed_offset_is_there_after_reopening(directory):
    store = open_key_value_store(TIMESTAMPED, directory)
    assert store.committed_offset(CHANGELOG) == 1
    store.close()


def test_k1_the_offset_is_under_kafka_streams_key(directory):
    database = RocksDB(directory, FAMILIES, read_only=True)
    assert dict(database.scan("offsets")) == {b"app-s-changelog-0": bytes(7) + b"\x01", b"status": bytes(8)}
    database.close()


def test_k2_an_offset_never_committed_is_none(directory):
    store = open_key_value_store(TIMESTAMPED, directory)
    assert store.committed_offset(TopicPartition("app-s-changelog", 1)) is None
    assert store.position() == {}
    store.close()


def test_k6_an_offset_that_kafka_streams_wrote_as_unknown_is_read_as_unknown(database):
    database.write({}, {CHANGELOG: -4})  # ProcessorStateManager writes it for a store with no offset yet
    assert database.committed_offset(CHANGELOG) is None


def test_k9_a_clean_close_leaves_closed_and_an_open_store_is_marked_open(directory):
    assert status_of(directory) == offsets_format.STATUS_CLOSED
    store = open_key_value_store(TIMESTAMPED, directory)
    store.sync()
    assert status_of(directory) == offsets_format.STATUS_OPEN
    store.close()
    assert status_of(directory) == offsets_format.STATUS_CLOSED


def test_k9_a_close_after_a_failure_leaves_the_mark_open_and_keeps_what_was_committed(directory):
    store = open_key_value_store(TIMESTAMPED, directory)
    store.put(b"c", ValueAndTimestamp(b"3", 3))
    store.commit({CHANGELOG: 2})
    store.close(clean=False)
    assert status_of(directory) == offsets_format.STATUS_OPEN
    store = open_key_value_store(TIMESTAMPED, directory)
    assert (store.get(b"c"), store.committed_offset(CHANGELOG)) == (ValueAndTimestamp(b"3", 3), 2)
    store.close()


def test_k12_a_failed_open_does_not_mark_the_store_closed_and_frees_it(directory):
    open_key_value_store(TIMESTAMPED, directory).close(clean=False)
    with pytest.raises(UnknownFormatError):
        open_key_value_store(PLAIN, directory)
    assert status_of(directory) == offsets_format.STATUS_OPEN
    open_key_value_store(TIMESTAMPED, directory).close()


def test_k12_an_open_that_fails_on_damaged_rows_does_not_mark_the_store_closed_and_frees_it(tmp_path):
    store = open_key_value_store(PLAIN, tmp_path / "s")
    store.put(b"a", random.Random(0).randbytes(20_000))
    store.commit({CHANGELOG: 1})
    store.close()
    table = max((tmp_path / "s").glob("*.sst"), key=lambda file: file.stat().st_size)
    table.write_bytes(b"\xff" * 100 + table.read_bytes()[100:])
    for _ in range(2):  # the second time it would be LOCKED, had the first kept it
        with pytest.raises(StoreCorruptedError):
            open_key_value_store(TIMESTAMPED, tmp_path / "s")
    assert status_of(tmp_path / "s") == offsets_format.STATUS_OPEN


def test_flush_puts_all_column_families_and_the_offsets_on_disk(database, tmp_path):
    database.write({TIMESTAMPED_COLUMN_FAMILY: {b"a": b"1"}, DEFAULT_COLUMN_FAMILY: {b"b": b"2"}}, {CHANGELOG: 7})
    database.sync()
    reader = RocksDB(tmp_path / "db", FAMILIES, read_only=True)  # sees the disk, not the writer's memory
    assert reader.get(TIMESTAMPED_COLUMN_FAMILY, b"a") == b"1"
    assert reader.get(DEFAULT_COLUMN_FAMILY, b"b") == b"2"
    assert reader.committed_offset(CHANGELOG) == 7
    reader.close()


def test_flush_puts_rows_committed_without_offsets_on_disk(database, tmp_path):
    database.sync()
    database.write({TIMESTAMPED_COLUMN_FAMILY: {b"a": b"1"}})
    database.sync()
    reader = RocksDB(tmp_path / "db", FAMILIES, read_only=True)
    assert reader.get(TIMESTAMPED_COLUMN_FAMILY, b"a") == b"1"
    reader.close()


# -- opening


def test_a_new_store_has_kafka_streams_column_families(tmp_path, directory):
    assert sorted(column_families(directory)) == ["default", "keyValueWithTimestamp", "offsets"]
    open_key_value_store(PLAIN, tmp_path / "p").close()
    assert sorted(column_families(tmp_path / "p")) == ["default", "offsets"]


def test_a_store_from_before_kip_1035_can_be_read_and_gets_its_offsets_later(tmp_path):
    old = Rdict(str(tmp_path / "s"), options())
    old[b"a"] = b"1"
    old.close()
    assert column_families(tmp_path / "s") == ["default"]
    reader = open_key_value_store(PLAIN, tmp_path / "s", read_only=True)
    assert (list(reader.range()), reader.committed_offset(CHANGELOG), reader.position()) == ([(b"a", b"1")], None, {})
    reader.close(clean=False)
    store = open_key_value_store(PLAIN, tmp_path / "s")
    assert (store.get(b"a"), store.committed_offset(CHANGELOG)) == (b"1", None)
    store.close()


def test_opening_to_read_changes_no_data(directory):
    def data():
        return {name: raw for name, raw in contents(directory).items() if not name.startswith("LOG")}

    before = data()
    reader = open_key_value_store(TIMESTAMPED, directory, read_only=True)
    assert len(list(reader.range())) == 2
    reader.close(clean=False)
    assert data() == before


def test_a_store_to_be_read_that_is_not_there_is_missing_and_is_not_made(tmp_path):
    with pytest.raises(StoreCorruptedError, match="no CURRENT file"):
        open_key_value_store(TIMESTAMPED, tmp_path / "s", read_only=True)
    assert not (tmp_path / "s").exists()


def test_a_store_open_elsewhere_is_locked_not_damaged(directory):
    store = open_key_value_store(TIMESTAMPED, directory)
    with pytest.raises(LockedError):
        open_key_value_store(TIMESTAMPED, directory)
    store.close()
    open_key_value_store(TIMESTAMPED, directory).close()


def test_want_of_file_descriptors_is_not_taken_for_damage(directory):
    with child(open_without_file_descriptors, directory) as (_, connection):
        said = received(connection)
    assert "open files" in said or "file descriptor" in said.lower(), said
    assert not said.startswith("StoreCorruptedError"), said


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IO error: While lock file: /s/LOCK: Resource temporarily unavailable", LockedError),
        (
            "IO error: No space left on device: While appending to file: /s/1.sst: No space left on device",
            DiskSpaceError,
        ),
        ("IO error: While appending to file: /s/1.sst: Disk quota exceeded", DiskSpaceError),
        ("IO error: While open a file for random read: /s/1.sst: Permission denied", StoreAccessError),
        ("Corruption: block checksum mismatch", StoreCorruptedError),
        ("IO error: No such file or directory: While open a file for random read: /s/1.sst", StoreCorruptedError),
    ],
)
def test_the_errors_of_rocksdb_become_ours_by_what_to_do_next(tmp_path, text, kind):
    assert type(translate(Exception(text), tmp_path)) is kind


def test_an_error_that_is_not_of_rocksdb_stays_itself(tmp_path):
    error = RuntimeError("a mistake of ours")
    assert translate(error, tmp_path) is error


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize(
    "damage", ["no CURRENT", "empty CURRENT", "garbage CURRENT", "no MANIFEST", "garbage MANIFEST"]
)
def test_a_store_without_its_catalogue_is_damaged_and_keeps_its_rows(directory, damage, read_only):
    what = directory / "CURRENT" if "CURRENT" in damage else next(directory.glob("MANIFEST-*"))
    if damage.startswith("no "):
        what.unlink()
    else:
        what.write_bytes(b"" if damage.startswith("empty") else b"\x00garbage\xff" * 20)
    tables = {name for name in contents(directory) if name.endswith(".sst")}
    with pytest.raises(StoreCorruptedError):
        open_key_value_store(TIMESTAMPED, directory, read_only=read_only)
    assert tables <= set(contents(directory))


def test_a_missing_sst_file_is_damage(directory):
    for sst in directory.glob("*.sst"):
        sst.unlink()
    with pytest.raises(StoreCorruptedError):
        open_key_value_store(TIMESTAMPED, directory, read_only=True)


# -- writing


@pytest.mark.parametrize(
    "call",
    [
        lambda database: database.get(DEFAULT_COLUMN_FAMILY, b"a"),
        lambda database: database.scan(DEFAULT_COLUMN_FAMILY),
        lambda database: database.write({DEFAULT_COLUMN_FAMILY: {b"a": b"1"}}),
        lambda database: database.write({}),
        lambda database: database.sync(),
        lambda database: database.status(),
        lambda database: database.committed_offset(CHANGELOG),
        lambda database: database.ingest(DEFAULT_COLUMN_FAMILY, ["x.sst"]),
    ],
)
def test_a_closed_database_refuses_every_call(database, call):
    database.close()
    with pytest.raises(InvalidStateError, match="closed"):
        call(database)


def test_of_ingested_files_a_later_one_wins_deletes_included(database, tmp_path):
    write_sst(sorted({b"a": b"1", b"b": b"1", b"c": b"1"}.items()), tmp_path / "1.sst")
    write_sst(sorted({b"b": b"2", b"c": None}.items()), tmp_path / "2.sst")
    database.ingest(DEFAULT_COLUMN_FAMILY, [tmp_path / "1.sst", tmp_path / "2.sst"])
    assert list(database.scan(DEFAULT_COLUMN_FAMILY)) == [(b"a", b"1"), (b"b", b"2")]


def test_ingesting_what_is_no_sst_file_is_damage_and_adds_nothing(database, tmp_path):
    (tmp_path / "1.sst").write_bytes(b"garbage" * 100)
    with pytest.raises(StoreCorruptedError):
        database.ingest(DEFAULT_COLUMN_FAMILY, [tmp_path / "1.sst"])
    assert list(database.scan(DEFAULT_COLUMN_FAMILY)) == []


def test_files_are_of_the_version_that_every_kafka_streams_reads(directory):
    """The RocksDB of Kafka Streams 3.9 takes rows of later versions for none, and says nothing."""
    footers = [FOOTER.unpack(path.read_bytes()[-FOOTER.size :]) for path in directory.glob("*.sst")]
    assert {version for _, _, version, _ in footers} == {VERSION}
