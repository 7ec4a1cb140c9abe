"""Our SST files are to RocksDB what its own writer's are: each row, each way of reading it, each flipped byte."""

from __future__ import annotations

import shutil
import struct

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from rocksdict import DBCompressionType, Options, Rdict
from samples import batches

from statestore.errors import DiskSpaceError, StateStoreError, StoreAccessError, StoreCorruptedError
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY
from statestore.sst.writer import SstFiles
from statestore.stores.rocksdb import RocksDB
from statestore.stores.sst import write_sst
from tests.session.examples import examples

_PARTS = [b"", b"\0", b"a", b"a\0", b"\xff", b"\xff\xff\xff", b"\xfe\xff\xff", b"prefix-of-some-length-"]
KEYS = (
    st.binary(max_size=3)
    | st.binary(min_size=20, max_size=60)
    | st.lists(st.sampled_from(_PARTS), max_size=5).map(b"".join)
    | st.integers(0, 5_000).map(b"key-%06d".__mod__)
    | st.tuples(st.binary(max_size=4), st.integers(1_000, 100_000)).map(lambda row: (row[0] or b"k") * row[1])
)
VALUES = st.binary(max_size=40) | st.just(b"") | st.integers(100, 9_000).map(bytes)
ROWS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=120).map(lambda rows: sorted(rows.items()))
SIZES = st.lists(st.integers(1, 30), max_size=20)


def written(rows, directory, sizes=(), **options):
    """SST files with the rows; the timestamp of each is its number."""
    directory.mkdir(parents=True, exist_ok=True)
    files = SstFiles(directory, **{"timestamped": False, **options})
    try:
        for batch in batches([(key, value, number) for number, (key, value) in enumerate(rows)], sizes):
            files.add(batch)
        return files.finish()
    finally:
        files.close()


def reference_file(rows, path):
    """An SST file with the rows, and deletes for those without a value, from RocksDB's own writer."""
    write_sst(rows, path)


def opened(directory, files, family=DEFAULT_COLUMN_FAMILY):
    database = RocksDB(directory, [family])
    database.ingest(family, files)
    return database


def levels(database, family=DEFAULT_COLUMN_FAMILY):
    """Number of files in each level."""
    rdict = database.family(family).rdict
    return [int(rdict.property_value(f"rocksdb.num-files-at-level{level}")) for level in range(7)]


def seen(database, keys):
    """What each way of reading finds for these keys: those that are there, and their neighbours that may not be."""
    family = DEFAULT_COLUMN_FAMILY
    around = [near for key in keys for near in (key, key + b"\0", key[:-1], key[:-1] + b"\x7f")]
    return (
        list(database.scan(family)),
        list(database.scan(family, reverse=True)),
        [database.get(family, key) for key in around],
        database.get_many(family, around),
        [next(database.scan(family, near), None) for near in around],
        [next(database.scan(family, None, near, reverse=True), None) for near in around],
    )


@settings(max_examples=examples(40), phases=(Phase.explicit, Phase.generate))  # shrinking opens too many databases
@given(rows=ROWS, sizes=SIZES, file_bytes=st.sampled_from([1, 10_000, 1 << 26]))
@example(rows=[(b"", b"")], sizes=[], file_bytes=1)
@example(
    rows=[(b"a" * 100_000, b"1"), (b"a" * 100_001, b"2"), (b"b", bytes(1 << 20))], sizes=[1, 1], file_bytes=1 << 26
)
def test_rocksdb_reads_from_our_files_what_it_reads_from_those_of_its_own_writer(
    tmp_path_factory, rows, sizes, file_bytes
):
    directory = tmp_path_factory.mktemp("sst")
    reference_file(rows, directory / "reference.sst")
    reference = opened(directory / "reference", [directory / "reference.sst"])
    ours = opened(directory / "db", written(rows, directory / "sst", sizes, file_bytes=file_bytes))
    keys = [key for key, _ in rows][:: max(len(rows) // 20, 1)]
    try:
        expected = seen(reference, keys)
        assert expected[0] == rows
        assert seen(ours, keys) == expected
        assert levels(ours)[:6] == [0] * 6
        ours.family(DEFAULT_COLUMN_FAMILY).rdict.compact_range(None, None)
        assert seen(ours, keys) == expected
    finally:
        ours.close()
        reference.close()
    shutil.rmtree(directory)


@settings(max_examples=examples(30), phases=(Phase.explicit, Phase.generate))
@given(
    before=ROWS,
    rows=st.dictionaries(KEYS, st.none() | VALUES, min_size=1, max_size=80),
    some=st.integers(0, 40),
    file_bytes=st.sampled_from([1, 10_000, 1 << 26]),
)
def test_deletes_in_our_files_hide_what_those_of_rocksdbs_own_writer_hide(
    tmp_path_factory, before, rows, some, file_bytes
):
    directory = tmp_path_factory.mktemp("sst")
    rows = sorted((dict.fromkeys((key for key, _ in before[:some]), None) | rows).items())
    databases = []
    for name in ("reference", "ours"):
        databases.append(opened(directory / name, written(before, directory / f"before-{name}")))
    reference, ours = databases
    reference_file(rows, directory / "reference.sst")
    reference.ingest(DEFAULT_COLUMN_FAMILY, [directory / "reference.sst"])
    ours.ingest(DEFAULT_COLUMN_FAMILY, written(rows, directory / "sst", file_bytes=file_bytes))
    keys = [*[key for key, _ in rows[:20]], *[key for key, _ in before[:20]]]
    expected = {key: value for key, value in (dict(before) | dict(rows)).items() if value is not None}
    try:
        assert dict(ours.scan(DEFAULT_COLUMN_FAMILY)) == expected
        assert seen(ours, keys) == seen(reference, keys)
        assert ours.row_count(DEFAULT_COLUMN_FAMILY) == reference.row_count(DEFAULT_COLUMN_FAMILY)
        ours.family(DEFAULT_COLUMN_FAMILY).rdict.compact_range(None, None)
        assert seen(ours, keys) == seen(reference, keys)
    finally:
        ours.close()
        reference.close()
    shutil.rmtree(directory)


@pytest.mark.short_for("100")
@pytest.mark.parametrize("value_bytes", [0, 100, 5_000])
def test_many_rows_of_one_size_lie_in_files_of_the_size_asked_for(tmp_path, value_bytes):
    rows = [(b"key-%08d" % number, bytes(value_bytes)) for number in range(3_000_000 // (value_bytes + 30))]
    files = written(rows, tmp_path / "sst", [1_000] * 200, file_bytes=1 << 20)
    sizes = [file.stat().st_size for file in files]
    assert len(files) > 1
    assert all(1 << 20 <= size < (1 << 20) + (1 << 16) for size in sizes[:-1])
    database = opened(tmp_path / "db", files)
    try:
        assert list(database.scan(DEFAULT_COLUMN_FAMILY)) == rows
        assert levels(database) == [0] * 6 + [len(files)]
        assert database.row_count(DEFAULT_COLUMN_FAMILY) == len(rows)
    finally:
        database.close()


def test_a_timestamp_goes_in_front_of_the_value(tmp_path):
    database = opened(tmp_path / "db", written([(b"a", b""), (b"b", b"2")], tmp_path / "sst", timestamped=True))
    try:
        expected = [(b"a", struct.pack(">q", 0)), (b"b", struct.pack(">q", 1) + b"2")]
        assert list(database.scan(DEFAULT_COLUMN_FAMILY)) == expected
    finally:
        database.close()


def test_rows_written_later_lie_over_those_of_our_files(tmp_path):
    rows = [(b"%04d" % number, b"old") for number in range(2_000)]
    database = opened(tmp_path / "db", written(rows, tmp_path / "sst"))
    database.put(DEFAULT_COLUMN_FAMILY, b"0007", b"new")
    database.put(DEFAULT_COLUMN_FAMILY, b"0008", None)
    database.sync()
    database.family(DEFAULT_COLUMN_FAMILY).rdict.compact_range(None, None)
    expected = dict(rows) | {b"0007": b"new"}
    del expected[b"0008"]
    try:
        assert dict(database.scan(DEFAULT_COLUMN_FAMILY)) == expected
    finally:
        database.close()


def test_the_same_rows_give_the_same_files_whatever_batches_they_came_in(tmp_path):
    rows = [(b"%04d" % number, bytes(number)) for number in range(1_000)]
    first, second = (written(rows, tmp_path / name, sizes) for name, sizes in (("1", [3, 50]), ("2", [7] * 200)))
    assert [file.name for file in first] == ["000001.sst"]
    assert [file.read_bytes() for file in second] == [file.read_bytes() for file in first]


def test_no_rows_give_no_file(tmp_path):
    assert written([], tmp_path) == []


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A closed database of one file of ours, and its rows."""
    directory = tmp_path_factory.mktemp("small")
    rows = [(b"key-%03d" % number, b"value-%03d" % number * 5) for number in range(400)]
    opened(directory / "db", written(rows, directory / "sst")).close()
    [file] = (directory / "db").glob("*.sst")
    return directory / "db", file.name, rows


def _read(directory):
    database = RocksDB(directory, [DEFAULT_COLUMN_FAMILY], read_only=True)
    try:
        return list(database.scan(DEFAULT_COLUMN_FAMILY))
    finally:
        database.close()


def test_a_flipped_byte_anywhere_is_found_or_changes_nothing(small, tmp_path):
    directory, name, rows = small
    shutil.copytree(directory, tmp_path / "db")
    path = tmp_path / "db" / name
    raw = path.read_bytes()
    data_bytes = raw.index(b"rocksdb.block.based") - 20  # the first property: blocks with rows end before it
    harmless = []
    for at in [*range(0, data_bytes, 41), *range(data_bytes, len(raw), 5)]:
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :])
        try:
            assert _read(tmp_path / "db") == rows
            harmless.append(at)
        except StateStoreError:
            pass
    assert all(at >= len(raw) - 53 for at in harmless), "the footer is padded; all else has a checksum"


@pytest.mark.parametrize("left", [0, 53, 1_000, -1])
def test_a_file_that_was_cut_is_found(small, tmp_path, left):
    directory, name, _ = small
    shutil.copytree(directory, tmp_path / "db")
    path = tmp_path / "db" / name
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(StoreCorruptedError):
        _read(tmp_path / "db")


def test_a_database_with_another_setup_takes_our_files_and_compresses_them_when_it_compacts(tmp_path):
    rows = [(b"%06d" % number, b"value " * 20) for number in range(10_000)]
    [file] = written(rows, tmp_path / "sst")
    compressed = Options(raw_mode=True)
    compressed.set_compression_type(DBCompressionType.lz4())
    database = Rdict(str(tmp_path / "db"), compressed)
    database.ingest_external_file([str(file)])
    assert database[b"000007"] == rows[7][1]
    database.compact_range(None, None)
    found = database.iter()
    found.seek_to_first()
    assert (found.key(), found.value()) == rows[0]
    assert database[b"009999"] == rows[-1][1]
    del found
    database.close()


def test_a_full_disk_is_told_in_our_words(tmp_path, monkeypatch):
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(type(tmp_path), "open", lambda *_, **__: full)
        with pytest.raises(DiskSpaceError):
            written([(b"a", bytes(100))], tmp_path)


def test_a_directory_that_is_not_there_is_told_in_our_words(tmp_path):
    files = SstFiles(tmp_path / "absent", timestamped=False)
    with pytest.raises(StoreAccessError):
        files.add(batches([(b"a", b"1", 1)], [])[0])
