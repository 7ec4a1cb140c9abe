"""Properties of SST files are read whoever wrote them, and an incomplete file is never taken for a complete one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict
from samples import batches

from statestore.bulk.sst_file import SstFiles
from statestore.formats.sst_layout import CREATOR, OtherLayoutError, entries, read_properties, varints
from statestore.stores.sst import write_sst

ENTRIES = b"rocksdb.num.entries"


def from_rocksdb(directory, version=6):
    """An SST file that RocksDB flushed."""
    options, table = Options(raw_mode=True), BlockBasedOptions()
    table.set_format_version(version)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    database = Rdict(str(directory), options)
    for number in range(300):
        database[b"key-%d" % number] = b"value" * 10
    database.flush()
    database.close()
    (found,) = directory.glob("*.sst")
    return found


def from_a_restore(directory):
    """An SST file of the bulk path."""
    directory.mkdir()
    files = SstFiles(directory, timestamped=True)
    for batch in batches([(b"key-%03d" % number, b"value", 5) for number in range(300)], [300]):
        files.add(batch)
    (found,) = files.finish()
    return found


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6])
def test_a_file_that_rocksdb_wrote_names_the_database_that_wrote_it(tmp_path, version):
    path = from_rocksdb(tmp_path / "db", version)
    found = read_properties(path)
    assert found[CREATOR] == (tmp_path / "db" / "IDENTITY").read_bytes()
    assert varints(found[ENTRIES], 0, 1) == ([300], 2)
    assert varints(found[b"rocksdb.format.version"], 0, 1)[0] in ([0], [version])


def test_a_file_that_a_restore_wrote_names_no_database(tmp_path):
    found = read_properties(from_a_restore(tmp_path / "files"))
    assert CREATOR not in found
    assert varints(found[ENTRIES], 0, 1) == ([300], 2)


def test_a_file_that_was_written_to_be_ingested_names_no_database_either(tmp_path):
    write_sst([(b"a", b"1")], tmp_path / "a.sst")
    assert read_properties(tmp_path / "a.sst")[CREATOR] == b"SST Writer"


@pytest.mark.parametrize("write", [from_rocksdb, from_a_restore])
def test_a_file_that_was_cut_anywhere_has_no_properties(tmp_path, write):
    path = write(tmp_path / "db")
    raw = path.read_bytes()
    for length in (0, 1, 52, 53, 1_000, len(raw) - 1_000, len(raw) - 53, len(raw) - 1):
        path.write_bytes(raw[:length])
        with pytest.raises(OtherLayoutError):
            read_properties(path)
        path.write_bytes(raw[:length] + bytes(len(raw) - length))  # as after a power cut
        with pytest.raises(OtherLayoutError):
            read_properties(path)


@pytest.mark.parametrize("write", [from_rocksdb, from_a_restore])
def test_properties_that_a_power_cut_made_zeros_are_none(tmp_path, write):
    path = write(tmp_path / "db")
    raw = path.read_bytes()
    begin = raw.index(b"rocksdb.block.based") - 3
    end = begin + raw[begin:].index(b"[]")  # in the last property but a few
    path.write_bytes(raw[:begin] + bytes(end - begin) + raw[end:])
    with pytest.raises(OtherLayoutError):
        read_properties(path)


@pytest.mark.parametrize("write", [from_rocksdb, from_a_restore])
def test_a_changed_byte_is_no_other_error(tmp_path, write):
    path = write(tmp_path / "db")
    raw = path.read_bytes()
    for at in range(max(len(raw) - 1_500, 0), len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0xFF]) + raw[at + 1 :])
        with suppress(OtherLayoutError):
            read_properties(path)


@given(st.binary(max_size=200))
def test_a_block_of_anything_has_entries_or_is_refused(block):
    try:
        found = entries(block)
    except OtherLayoutError:
        return
    assert all(isinstance(value, bytes) for item in found.items() for value in item)
