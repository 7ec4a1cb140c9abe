"""Our own small files tell whether they are as they were written; those of earlier versions are read as they are."""

from __future__ import annotations

import pytest

from statestore.durable import read_checked, write_checked
from statestore.partition.quarantine import UNREADABLE, waits_for_a_person
from statestore.reports import Loss, Status
from statestore.statedir.record import StoreRecord, read_record, write_record
from statestore.statedir.sidecar import Sidecar

RECORD = StoreRecord(topic_id="id", caught_up_ms=5, committed=7, end=9, needed_from=2)


def test_what_was_written_is_read(tmp_path):
    write_checked(tmp_path / "file", '{"a": 1}')
    assert read_checked(tmp_path / "file") == b'{"a": 1}'


def test_a_file_of_an_earlier_version_has_no_checksum_and_is_read(paths):
    paths.record("s").parent.mkdir(parents=True)
    paths.record("s").write_text('{"schema_version":1,"topic_id":"id","caught_up_ms":5,"committed":7}')
    assert read_record(paths, "s") == StoreRecord(topic_id="id", caught_up_ms=5, committed=7)
    write_record(paths, "s", RECORD)
    assert b"sha256" in paths.record("s").read_bytes()


def test_a_record_with_any_bit_flipped_is_none(paths):
    write_record(paths, "s", RECORD)
    whole = paths.record("s").read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            paths.record("s").write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            assert read_record(paths, "s") is None, (at, bit)


def test_a_judgement_with_a_bit_flipped_releases_nothing(paths):
    kept = Sidecar(status=Status.CORRUPT, loss=Loss.NONE)
    path = paths.quarantined_own("s", "run")
    write_checked(path, kept.model_dump_json())
    assert waits_for_a_person(paths, "s", "run") is None
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"CORRUPT", b"CORRUPU"))
    assert waits_for_a_person(paths, "s", "run") == UNREADABLE


@pytest.mark.parametrize("cut", [1, 10, 64, 72])
def test_a_file_that_lost_its_end_is_not_as_it_was_written(tmp_path, cut):
    write_checked(tmp_path / "file", '{"a": 1}')
    whole = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(whole[:-cut])
    if b"\nsha256 " in whole[:-cut]:
        with pytest.raises(ValueError, match="is damaged"):
            read_checked(tmp_path / "file")
    else:
        assert read_checked(tmp_path / "file") != b'{"a": 1}'
