"""Properties of SST files are read whoever wrote them, and an incomplete file is never taken for a complete one."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict
from samples import batches

from statestore.formats.varint import varint
from statestore.sst.layout import (
    CREATOR,
    FOOTER,
    MAGIC,
    PROPERTIES,
    VERSION,
    XXH64,
    OtherLayoutError,
    entries,
    is_of_bulk_path,
    read_properties,
    varints,
)
from statestore.sst.writer import SstFiles
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


@pytest.mark.parametrize(
    ("number", "written"),
    [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (1 << 14, b"\x80\x80\x01")],
)
def test_a_number_has_as_many_bytes_as_it_needs(number, written):
    assert varint(number) == written
    assert varints(written, 0, 1) == ([number], len(written))


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


def test_a_file_of_the_bulk_path_is_known_by_its_footer_alone(tmp_path):
    with from_a_restore(tmp_path / "files").open("rb") as file:
        assert is_of_bulk_path(file) is True
        assert is_of_bulk_path(file) is True  # wherever it was read last
        raw = file.read() or file.seek(0) or file.read()
    footer = raw[-FOOTER.size :]
    assert is_of_bulk_path(BytesIO(footer)) is True
    assert is_of_bulk_path(BytesIO(bytes(9) + footer)) is True
    for other in (b"", footer[1:], footer[:-1], footer + b"\0"):
        assert is_of_bulk_path(BytesIO(other)) is False


@pytest.mark.parametrize(
    "other", [(XXH64 + 1, VERSION, MAGIC), (XXH64, VERSION + 1, MAGIC), (XXH64, VERSION, MAGIC + 1)]
)
def test_a_file_with_another_checksum_version_or_magic_is_not_of_the_bulk_path(other):
    checksum, version, magic = other
    assert is_of_bulk_path(BytesIO(FOOTER.pack(checksum, bytes(40), version, magic))) is False
    assert is_of_bulk_path(BytesIO(FOOTER.pack(XXH64, bytes(40), VERSION, MAGIC))) is True


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


# -- blocks and numbers, byte by byte ---------------------------------------------------------------------------------


def block(*rows):
    """A block of entries (bytes shared with the key before, own bytes of the key, value), with one restart."""
    raw = b"".join(bytes([shared, len(own), len(value)]) + own + value for shared, own, value in rows)
    return raw + bytes(4) + (1).to_bytes(4, "little")


def test_keys_of_a_block_are_put_together_from_what_they_share():
    found = entries(block((0, b"key", b"1"), (2, b"x", b"22"), (0, b"z", b"")))
    assert found == {b"key": b"1", b"kex": b"22", b"z": b""}


def test_a_block_without_entries_has_none():
    assert entries(bytes(4)) == {}


_BEYOND = "an entry beyond the end of its block, or of its key"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (bytes(4) + (2).to_bytes(4, "little"), "a block without room for its restarts"),
        (block((1, b"y", b"1")), _BEYOND),
        (block((0, b"key", b"1"), (4, b"x", b"22")), _BEYOND),
        (bytes([0, 2, 0]) + b"k" + bytes(4) + (1).to_bytes(4, "little"), _BEYOND),
        (bytes([0, 1, 5]) + b"k" + bytes(4) + (1).to_bytes(4, "little"), _BEYOND),
        (bytes([0, 9, 9]) + b"k" + bytes(12) + (1).to_bytes(4, "little"), _BEYOND),
    ],
)
def test_what_is_no_block_is_refused(raw, why):
    with pytest.raises(OtherLayoutError) as raised:
        entries(raw)
    assert str(raised.value) == why


@pytest.mark.parametrize(
    ("raw", "number"), [(b"\0", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\x81\x01", 129), (b"\xff\x7f", 16_383)]
)
def test_a_number_has_seven_bits_in_each_byte(raw, number):
    assert varints(raw, 0, 1) == ([number], len(raw))
    assert varints(b"\1" + raw + raw, 1, 2) == ([number, number], 1 + 2 * len(raw))


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\xff\xff"])
def test_a_number_that_does_not_end_is_refused(raw):
    with pytest.raises(OtherLayoutError) as raised:
        varints(raw, 0, 1)
    assert str(raised.value) == "a number that does not end"


@pytest.fixture
def whole(tmp_path):
    return from_a_restore(tmp_path / "files")


def refused(path, raw):
    path.write_bytes(raw)
    with pytest.raises(OtherLayoutError) as raised:
        read_properties(path)
    return str(raised.value)


def test_why_a_file_has_no_properties_is_said(whole):
    raw = whole.read_bytes()
    size, footer = len(raw), FOOTER.size
    assert refused(whole, b"") == f"{whole}: {footer} bytes at -{footer}, expected them in 0 bytes"
    assert refused(whole, bytes(footer)) == f"{whole}: version 0, magic 0"
    checksum, handles, version, magic = FOOTER.unpack(raw[-footer:])

    def with_footer(handles, version, magic):
        return refused(whole, raw[:-footer] + FOOTER.pack(checksum, handles, version, magic))

    assert with_footer(handles, 0, magic) == f"{whole}: version 0, magic {MAGIC:x}"
    assert with_footer(handles, version, 5) == f"{whole}: version {version}, magic 5"
    far = bytes([0x80, 0x80, 0x80, 0x01, 5]) + handles[5:]
    assert with_footer(far, 5, magic) == f"{whole}: 10 bytes at {1 << 21}, expected them in {size} bytes"


def test_meta_blocks_that_are_compressed_or_others_are_refused(whole, tmp_path):
    raw = whole.read_bytes()
    footer = raw[-FOOTER.size :]
    meta = block((0, b"other", b"\0\0"))

    def with_meta(trailer):
        handle = bytes([0, len(meta)])
        checksum, handles, _, magic = FOOTER.unpack(footer)
        return meta + trailer + FOOTER.pack(checksum, handle + handles[2:], 5, magic)

    assert refused(whole, with_meta(bytes(5))) == f"{whole}: meta blocks [b'other']"
    assert refused(whole, with_meta(b"\1" + bytes(4))) == f"{whole}: the block at 0 is compressed"


def test_properties_without_the_one_that_is_always_there_are_refused(whole):
    _, handles, _, magic = FOOTER.unpack(whole.read_bytes()[-FOOTER.size :])
    properties = block((0, b"rocksdb.some", b"1")) + bytes(5)
    meta = block((0, PROPERTIES, bytes([0, len(properties) - 5])))
    handle = bytes([len(properties), len(meta)])
    raw = properties + meta + bytes(5) + FOOTER.pack(0, handle + handles[2:], 5, magic)
    assert refused(whole, raw) == f"{whole}: properties [b'rocksdb.some']"
