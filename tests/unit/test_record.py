"""What we keep about a store outside of it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from statestore.durable import write_durably
from statestore.errors import LockedError
from statestore.statedir.lock import locked
from statestore.statedir.record import (
    StoreRecord,
    read_record,
    write_record,
)
from tests.records import recorded


def test_a_later_record_replaces_an_earlier_one_of_the_same_store_only(paths):
    write_record(paths, "s", recorded("first", 1))
    write_record(paths, "t", recorded("other", 1))
    write_record(paths, "s", recorded("second", 2))
    assert [read_record(paths, store).topic_id for store in ("s", "t")] == ["second", "other"]


def test_the_record_of_an_in_memory_store_is_another_than_that_of_a_store_on_disk(paths):
    write_record(paths, "s", recorded("disk", 1))
    assert read_record(paths, "s", in_memory=True) is None
    write_record(paths, "s", recorded("memory", 1), in_memory=True)
    assert (read_record(paths, "s").topic_id, read_record(paths, "s", in_memory=True).topic_id) == ("disk", "memory")
    assert read_record(paths, "t", in_memory=True) is None


@pytest.mark.parametrize("in_memory", [False, True])
def test_given_a_lock_file_that_was_deleted_then_no_record_is_written(paths, in_memory):
    with locked(paths):
        (paths.own_dir / "lock").unlink()
        with pytest.raises(LockedError):
            write_record(paths, "s", recorded("id", 1), in_memory=in_memory)
    assert read_record(paths, "s") is read_record(paths, "s", in_memory=True) is None


OF_A_LATER_VERSION = '{"schema_version": 2, "topic_id": "id", "caught_up_ms": 5}'


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "\x00", '{"topic_id": 5}', OF_A_LATER_VERSION])
def test_a_record_that_cannot_be_read_is_none_and_proves_nothing(paths, text):
    assert read_record(paths, "s") is None
    write_durably(paths.record("s"), text)
    assert read_record(paths, "s") is None


def test_a_record_from_the_future_says_all_but_when_the_store_was_whole():
    record = StoreRecord(topic_id="id", caught_up_ms=1_060_000, committed=3)
    assert record.whole_ms(3, now_ms=1_000_000) == 1_060_000  # the clocks of two hosts may differ by a minute
    assert record.whole_ms(3, now_ms=999_999) is None
    assert record.topic_id == "id"


def test_a_record_says_up_to_where_the_log_was_seen_of_a_store_that_is_not_behind_it():
    record = StoreRecord(topic_id="id", caught_up_ms=5, committed=10, end=12)
    assert record.seen_end(10) == record.seen_end(11) == 12
    assert record.seen_end(9) is None
    assert record.seen_end(None) is None
    assert StoreRecord(topic_id="id", caught_up_ms=5, committed=10).seen_end(10) is None
    assert StoreRecord(topic_id="id", caught_up_ms=5, end=2).seen_end(0) == 2


def test_a_record_has_all_that_was_written(paths):
    record = StoreRecord(topic_id="id", caught_up_ms=5, committed=7, end=9, needed_from=2, stream_time=4, adopted=True)
    write_record(paths, "s", record)
    assert read_record(paths, "s") == record


def test_r6_the_time_of_a_record_says_nothing_of_a_store_that_is_behind_it():
    record = StoreRecord(topic_id="id", caught_up_ms=5, committed=10)
    assert record.whole_ms(10, 9) == record.whole_ms(11, 9) == 5
    assert record.whole_ms(9, 9) is None
    assert record.whole_ms(None, 9) is None
    assert StoreRecord(topic_id="id", caught_up_ms=5).whole_ms(None, 9) == 5


def test_given_a_record_that_the_disk_cannot_read_then_the_error_names_it(paths, monkeypatch):
    def refuse(_):
        raise OSError(errno.EIO, "Input/output error")  # as reading raises it: without a name

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OSError, match="Input/output error") as raised:
        read_record(paths, "s")
    assert raised.value.filename == str(paths.record("s"))
