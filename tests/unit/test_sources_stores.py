"""What Spark takes a store for by its files: one that can be read in two ways, or is not known, is not read."""

import struct

import pytest
from statestore_jobs.sources.state_store_metadata import StateStoreMetadataReader
from statestore_jobs.sources.stores import definition_of, directories_of

from statestore.errors import InputError, StoreCorruptedError, UnknownFormatError
from statestore.formats import session_key, window_key
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY, TIMESTAMPED_COLUMN_FAMILY
from statestore.formats.versioned_row import SegmentRow, Version, encode_segment_row, row_key
from statestore.model import TopicPartition
from statestore.stores.rocksdb import RocksDB

SEGMENT = 1_700_000_000_000 // 1_800_000 * 1_800_000
KEY = struct.pack(">q", 7)
TIMES = struct.pack(">qq", SEGMENT + 10, SEGMENT + 5)
TIMES_IN_FRONT = {b"\0" + TIMES + KEY: b"v", b"\1" + KEY + TIMES: b""}
#: If a key ends with the first half of a window's start, and the second half is 0, the row reads as a session, too.
START = 396 << 32
WINDOW_OR_SESSION = {window_key.encode(struct.pack(">q", START)[:4] + struct.pack(">i", 396), START): b"v"}


@pytest.fixture
def written(tmp_path):
    """Write a store of application `app`; return options that name it."""

    def write(rows, start=SEGMENT, families=(DEFAULT_COLUMN_FAMILY,)):
        task = tmp_path / "app" / "0_0"
        directory = task / "rocksdb" / "s" if start is None else task / "s" / f"s.{start}"
        database = RocksDB(directory, list(families))
        database.write({families[0]: rows}, {TopicPartition("app-s-changelog", 0): 7}, status=0)
        database.sync()
        database.close()
        return {"path": str(tmp_path / "app"), "store": "s"}

    return write


def definition(options):
    return definition_of(options, directories_of(options))


def metadata(options):
    reader = StateStoreMetadataReader(options)
    [row] = [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]
    return row


@pytest.mark.parametrize("said", [{}, {"kind": "session"}])
def test_sessions_with_their_times_in_front_and_without_an_index_are_refused_whatever_options_say(written, said):
    options = written(dict(list(TIMES_IN_FRONT.items())[:1]))
    with pytest.raises(UnknownFormatError, match=r"s has row keys that .*begin with 00 or 01 and their times"):
        definition({**options, **said})
    assert "EmitStrategy.onWindowClose" in metadata(options)["problem"]


def test_sessions_with_their_times_in_front_are_read_as_what_they_are(written):
    options = written(TIMES_IN_FRONT)
    assert definition(options).kind == metadata(options)["kind"] == "time-ordered-session"
    with pytest.raises(InputError, match=r"row keys of a time-ordered-session store, not of a session store"):
        definition({**options, "kind": "session"})


def test_windows_with_their_times_in_front_have_their_timestamps_among_plain_rows(written):
    row = b"\0" + struct.pack(">q", SEGMENT + 10) + b"key" + bytes(4)
    options = {**written({row: struct.pack(">q", SEGMENT + 11) + b"v"}), "window_size_ms": "5"}
    for said in ({}, {"format": "timestamped"}):
        found = definition({**options, **said})
        assert (found.kind, found.format) == ("time-ordered-window", "timestamped-in-default")
    with pytest.raises(
        InputError, match="a time-ordered-window store has the format timestamped-in-default, not plain"
    ):
        definition({**options, "format": "plain"})
    row = metadata({"path": options["path"]})
    assert (row["kind"], row["format"]) == ("time-ordered-window", "timestamped-in-default")


def test_a_session_store_whose_keys_begin_with_00_is_read(written):
    options = written({session_key.encode(KEY, SEGMENT, SEGMENT + 5): b"v"})
    assert definition(options).kind == metadata(options)["kind"] == "session"


def test_row_keys_of_two_kinds_ask_which_it_is(written):
    options = {**written(WINDOW_OR_SESSION, START - START % 1_800_000), "window_size_ms": "5"}
    with pytest.raises(InputError, match=r"those of window and of session stores; add .option\('kind', 'window'\)"):
        definition(options)
    for kind in ("window", "session"):
        said = {"window_size_ms": "5"} if kind == "window" else {}
        assert definition({"path": options["path"], "store": "s", "kind": kind, **said}).kind == kind
    row = metadata({"path": options["path"]})
    assert row["kind"] is None
    assert "window and of session" in row["problem"]


def test_a_users_kind_without_segments_is_read_where_key_value_stores_lie(written):
    options = written({b"k": b"v"}, None)
    users = "statestore.kinds.key_value:KEY_VALUE"
    found = definition({**options, "kind": users, "format": "plain"})
    assert (found.kind, found.retention_ms) == (users, None)
    with pytest.raises(InputError, match=r"s is not that of a statestore.kinds.window:WINDOW store; correct its kind"):
        definition({**options, "kind": "statestore.kinds.window:WINDOW"})


def test_a_versioned_store_is_read_as_what_it_is(written):
    latest = struct.pack(">q", -1)
    options = written({latest + b"a": struct.pack(">q", SEGMENT) + b"value"}, None)
    assert definition(options).kind == metadata(options)["kind"] == "versioned"
    with pytest.raises(UnknownFormatError, match="as those of versioned stores, and is not that of a key-value store"):
        definition({**options, "kind": "key-value", "format": "plain"})


def test_rows_that_can_be_those_of_a_versioned_store_ask_whether_it_is_one(written):
    ended = encode_segment_row(SegmentRow(SEGMENT + 5, (Version(SEGMENT, b"v"),)))
    options = written({row_key(7, b"a"): ended}, None)
    with pytest.raises(InputError, match=r"add .option\('kind', 'versioned'\) or 'key-value'"):
        definition(options)
    assert "versioned" in metadata(options)["problem"]
    for kind in ("versioned", "key-value"):
        assert definition({**options, "kind": kind}).kind == kind


def test_a_store_whose_manifest_lost_column_families_is_not_read_as_one_without(written, tmp_path):
    options = written({b"k": b"v"}, None, (TIMESTAMPED_COLUMN_FAMILY, DEFAULT_COLUMN_FAMILY))
    manifest = next((tmp_path / "app/0_0/rocksdb/s").glob("MANIFEST-*"))
    whole = manifest.read_bytes()
    for length in range(0, len(whole), 7):
        manifest.write_bytes(whole[:length])
        try:
            assert definition(options).format == "timestamped", length
        except StoreCorruptedError:
            continue
