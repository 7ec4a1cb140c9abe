"""What Spark takes a store for by its files: one that has its times in front of row keys is not read as another."""

import struct

import pytest
from statestore_jobs.sources.described import definition_of
from statestore_jobs.sources.where import Place

from statestore.errors import UnknownFormatError
from statestore.formats import session_key
from statestore.model import TaskId, TopicPartition
from statestore.stores.rocksdb import DEFAULT_COLUMN_FAMILY, RocksDB

SEGMENT = 1_700_000_000_000 // 1_800_000 * 1_800_000
KEY = struct.pack(">q", 7)
TIMES = struct.pack(">qq", SEGMENT + 10, SEGMENT + 5)
TIMES_IN_FRONT = {b"\0" + TIMES + KEY: b"v", b"\1" + KEY + TIMES: b""}


@pytest.fixture
def place(tmp_path):
    def write(rows):
        directory = tmp_path / "s"
        database = RocksDB(directory / f"s.{SEGMENT}", [DEFAULT_COLUMN_FAMILY])
        database.write({DEFAULT_COLUMN_FAMILY: rows}, {TopicPartition("app-s-changelog", 0): 7}, status=0)
        database.sync()
        database.close()
        return Place("app", "s", TaskId(0, 0), True, directory, None)

    return write


@pytest.mark.parametrize("options", [{}, {"kind": "session"}])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_store_with_its_times_in_front_is_refused_whatever_options_say(place, options, indexed):
    rows = TIMES_IN_FRONT if indexed else dict(list(TIMES_IN_FRONT.items())[:1])
    with pytest.raises(UnknownFormatError, match=r"s has row keys that begin with 00 or 01 and their times"):
        definition_of(options, [place(rows)])


def test_a_session_store_whose_keys_begin_with_00_is_read(place):
    found = definition_of({}, [place({session_key.encode(KEY, SEGMENT, SEGMENT + 5): b"v"})])
    assert found.kind == "session"
