"""An empty database beside rows that it did not write is refused; what it wrote itself, or was given, is not."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from children import take_over_until_killed
from samples import CHANGELOG, TIMESTAMPED, batches, contents, store_partition

from statestore.bulk.databases import write_databases
from statestore.bulk.routing import routing_of
from statestore.bulk.runs import RunWriter
from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.formats.value_format import value_format
from statestore.partition.facts import LastKnown
from statestore.partition.inspection import inspect
from statestore.reports import Status
from statestore.sst.layout import CREATOR, read_properties
from statestore.sst.writer import SstFiles
from statestore.stores.manifest import database_identity
from statestore.stores.open import open_key_value_store
from statestore.stores.rocksdb import RocksDB
from tests.forked import child, received
from tests.lost_current import begin_anew, opened_by_another

FAMILIES = value_format(TIMESTAMPED.format).column_families
LOG = [(b"key-%03d" % number, b"value", 1_000) for number in range(200)]


@pytest.fixture
def directory(tmp_path):
    """A store with rows in several files, closed."""
    store = open_key_value_store(TIMESTAMPED, tmp_path / "s")
    for offset in range(3):
        store.put(b"key-%d" % offset, ValueAndTimestamp(b"value", 1_000))
        store.commit({CHANGELOG: offset})
        store.sync()
    store.close()
    return tmp_path / "s"


@pytest.fixture
def restored(tmp_path):
    """A store that a restore built: no file of rows names a database, the one of offsets does."""
    directory = tmp_path / "restored"
    writer = RunWriter(tmp_path / "runs", routing_of(TIMESTAMPED), 1 << 20, start=0)
    for batch in batches(LOG, []):
        writer.add(batch)
    write_databases([writer.finish(len(LOG))], TIMESTAMPED, directory, {CHANGELOG: len(LOG) - 1})
    assert {creator(path) is None for path in directory.glob("*.sst")} == {True, False}
    return directory


def creator(path):
    return read_properties(path).get(CREATOR)


def assert_refused(directory):
    before = contents(directory)
    expected = rf"{directory}/\d+\.sst belongs to another database.*CURRENT was lost"
    for read_only in (True, False):
        with pytest.raises(StoreCorruptedError, match=expected):
            open_key_value_store(TIMESTAMPED, directory, read_only=read_only)
    assert contents(directory) == before


def assert_opens_empty(directory):
    for read_only in (True, False):
        store = open_key_value_store(TIMESTAMPED, directory, read_only=read_only)
        assert list(store.range()) == []
        store.close(clean=False)


def just_made(directory):
    """A database that was made, and then nothing."""
    RocksDB(directory, FAMILIES).close()
    return directory


def flushed(directory):
    """Let a database flush a row; return the file, but leave the database as it was before."""
    before = directory.with_name("before")
    shutil.copytree(directory, before)
    database = RocksDB(directory, FAMILIES)
    database.write({FAMILIES[0]: {b"a": bytes(8) + b"1"}})
    database.sync()
    files = sorted(directory.glob("*.sst"))
    database.close()
    shutil.copy2(files[0], before / files[0].name)
    shutil.rmtree(directory)
    before.rename(directory)
    return directory / files[0].name


# -- another database's rows


def test_rows_beside_a_database_that_was_begun_anew_are_not_deleted(directory):
    begin_anew(directory)
    assert_refused(directory)


def test_rows_that_a_restore_built_are_not_deleted_either(restored):
    begin_anew(restored)
    assert_refused(restored)


def test_what_is_left_when_rocksdb_was_killed_while_it_deleted_is_kept(restored):
    """RocksDB deletes the newest file first, and that is the only one of a restored store that names a database."""
    begin_anew(restored)
    for path in restored.glob("*.sst"):
        if creator(path) is not None:
            path.unlink()
    assert_refused(restored)


def test_one_whole_file_among_torn_ones_is_enough(directory):
    begin_anew(directory)
    whole, *torn = sorted(directory.glob("*.sst"))
    for path in torn:
        os.truncate(path, path.stat().st_size - 1)
    assert_refused(directory)
    os.truncate(whole, 100)
    assert_opens_empty(directory)


def test_the_manifest_tells_whose_files_they_are_where_identity_is_of_the_lost_database(directory):
    identity = (directory / "IDENTITY").read_bytes()
    begin_anew(directory)
    (directory / "IDENTITY").write_bytes(identity)
    assert_refused(directory)


def test_rows_are_kept_where_nothing_tells_whose_they_are(directory):
    begin_anew(directory)
    (directory / "IDENTITY").unlink()
    assert_refused(directory)


def test_a_look_at_the_store_says_that_it_is_corrupt_and_not_that_nothing_was_committed_to_it(directory, tmp_path):
    spec = store_partition(tmp_path / "state")
    begin_anew(directory)
    spec.live.parent.mkdir(parents=True)
    directory.rename(spec.live)
    seen = inspect(spec)
    assert seen.trouble.status is Status.CORRUPT
    assert Path(seen.file) in spec.live.glob("*.sst")
    assert seen.known == LastKnown(anything=True, committed=None, uncommitted=False)


def test_a_file_that_the_disk_does_not_give_back_is_kept(directory):
    begin_anew(directory)
    path = min(directory.glob("*.sst"))
    path.unlink()
    path.symlink_to("/proc/self/mem")  # has no end to read
    with pytest.raises(StoreCorruptedError, match=f"{path}.*cannot be read"):
        open_key_value_store(TIMESTAMPED, directory)
    assert path.is_symlink()


def test_a_database_that_is_not_empty_has_deleted_the_files_of_before_already(directory):
    """Nothing is left to refuse: RocksDB deletes them as it opens, before anybody can write."""
    old = sorted(directory.glob("*.sst"))
    begin_anew(directory)
    assert all(path.exists() for path in old)
    database = opened_by_another(directory)
    assert not any(path.exists() for path in old)
    database.close()


# -- its own, or none


def test_a_file_that_a_kill_kept_from_being_the_databases_own_is_no_reason(tmp_path):
    """RocksDB writes a file of rows as a whole before the MANIFEST names it."""
    directory = just_made(tmp_path / "s")
    left = flushed(directory)
    assert creator(left) == database_identity(directory)
    assert_opens_empty(directory)


def test_it_is_none_where_identity_was_lost(tmp_path):
    directory = just_made(tmp_path / "s")
    flushed(directory)
    (directory / "IDENTITY").unlink()
    assert_opens_empty(directory)


def test_a_torn_file_is_no_reason(directory):
    begin_anew(directory)
    for path in directory.glob("*.sst"):
        os.truncate(path, path.stat().st_size // 2)
    assert_opens_empty(directory)


def test_a_database_that_has_been_given_files_and_no_write_is_not_empty(tmp_path):
    directory = tmp_path / "s"
    database = RocksDB(directory, FAMILIES)
    database.ingest(FAMILIES[0], files_of_a_restore(tmp_path))
    assert database.last_write == 0
    database.close()
    store = open_key_value_store(TIMESTAMPED, directory)
    assert len(list(store.range())) == len(LOG)
    store.close()


def test_a_file_that_is_being_taken_over_is_no_reason(tmp_path):
    """RocksDB links a file, names it in the MANIFEST, then removes the first name; here it was killed in between."""
    directory = just_made(tmp_path / "s")
    (file,) = files_of_a_restore(tmp_path)
    os.link(file, directory / "000099.sst")
    assert_opens_empty(directory)


def files_of_a_restore(directory, file_bytes=1 << 20):
    directory.joinpath("files").mkdir(parents=True)
    files = SstFiles(directory / "files", timestamped=True, file_bytes=file_bytes)
    for batch in batches(LOG, range(1, 40)):
        files.add(batch)
    return files.finish()


@pytest.mark.long
def test_a_restore_that_is_killed_while_it_takes_files_over_is_no_reason(tmp_path):
    for number in range(15):
        directory = tmp_path / str(number) / "s"
        files = files_of_a_restore(directory.parent, file_bytes=1)
        with child(take_over_until_killed, directory, files) as (process, connection):
            received(connection)
            time.sleep(number * 0.005)
            process.kill()
            process.join(120)
        store = open_key_value_store(TIMESTAMPED, directory)
        list(store.range())
        store.close(clean=False)
