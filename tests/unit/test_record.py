"""What we keep about a store outside of it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from statestore.durable import write_durably
from statestore.statedir import record as record_module
from statestore.statedir.record import StoreRecord, read_record, write_record


def test_a_record_comes_back_with_the_time_of_its_writing(paths):
    before = int(time.time() * 1000)
    write_record(paths, "s", "topic id", 5)
    record = read_record(paths, "s")
    assert record is not None
    assert record.topic_id == "topic id"
    assert before <= record.caught_up_ms <= int(time.time() * 1000)


def test_a_later_record_replaces_an_earlier_one_of_the_same_store_only(paths):
    write_record(paths, "s", "first", 1)
    write_record(paths, "t", "other", 1)
    write_record(paths, "s", "second", 2)
    assert [read_record(paths, store).topic_id for store in ("s", "t")] == ["second", "other"]


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "\x00", '{"topic_id": 5}'])
def test_a_record_that_cannot_be_read_is_none_and_proves_nothing(paths, text):
    assert read_record(paths, "s") is None
    write_durably(paths.record("s"), text)
    assert read_record(paths, "s") is None


def test_a_store_that_was_whole_in_the_future_has_no_record_of_it(paths):
    for ahead_s, known in ((3_600, True), (10 * 86_400, False)):
        made = StoreRecord(topic_id="id", caught_up_ms=int((time.time() + ahead_s) * 1000))
        write_durably(paths.record("s"), made.model_dump_json())
        assert (read_record(paths, "s") is not None) == known


def test_clocks_of_two_hosts_may_differ_by_a_day_and_not_by_more(paths, monkeypatch):
    monkeypatch.setattr(record_module, "time", SimpleNamespace(time=lambda: 1_000.0))
    for caught_up_ms, known in ((1_000_000 + 86_400_000, True), (1_000_001 + 86_400_000, False)):
        made = StoreRecord(topic_id="id", caught_up_ms=caught_up_ms)
        write_durably(paths.record("s"), made.model_dump_json())
        assert read_record(paths, "s") == (made if known else None)


def test_a_record_has_the_topic_the_time_in_ms_and_the_offset(paths, monkeypatch):
    monkeypatch.setattr(record_module, "time", SimpleNamespace(time=lambda: 1_000.5))
    write_record(paths, "s", "id", 7)
    assert read_record(paths, "s") == StoreRecord(topic_id="id", caught_up_ms=1_000_500, committed=7)


def test_a_record_of_a_later_version_is_not_read_as_ours(paths):
    write_durably(paths.record("s"), '{"schema_version": 2, "topic_id": "id", "caught_up_ms": 5}')
    assert read_record(paths, "s") is None


def test_a_record_lies_outside_of_kafka_streams_directory(paths):
    write_record(paths, "s", "id", None)
    assert not paths.application_dir.exists()


def test_r6_the_time_of_a_record_says_nothing_of_a_store_that_is_behind_it():
    record = StoreRecord(topic_id="id", caught_up_ms=5, committed=10)
    assert record.whole_ms(10) == record.whole_ms(11) == 5
    assert record.whole_ms(9) is None
    assert record.whole_ms(None) is None
    assert StoreRecord(topic_id="id", caught_up_ms=5).whole_ms(None) == 5
