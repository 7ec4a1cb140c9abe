"""Audit records: each is written once, found again by application and time, and never read from a changed file."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.audit import REQUESTED_BY, AuditRecord, new_record, read_records, user, write_record
from statestore.errors import InputError


def record(at_ms: int, *applications: str) -> AuditRecord:
    return new_record("restore", applications).model_copy(update={"at_ms": at_ms})


def test_records_are_found_by_application_and_time_oldest_first(tmp_path: Path) -> None:
    records = [record(30, "orders"), record(10, "orders", "billing"), record(20, "billing")]
    for each in records:
        write_record(tmp_path, each)
    assert [found.at_ms for found in read_records(tmp_path)] == [10, 20, 30]
    assert [found.at_ms for found in read_records(tmp_path, ["orders"])] == [10, 30]
    assert [found.at_ms for found in read_records(tmp_path, since_ms=10, until_ms=30)] == [10, 20]
    assert read_records(tmp_path, ["orders"], since_ms=30) == [records[0]]


def test_two_records_of_one_moment_are_both_kept(tmp_path: Path) -> None:
    for _ in range(2):
        write_record(tmp_path, record(10, "orders"))
    assert len(read_records(tmp_path)) == 2


def test_without_a_reports_directory_no_record_is_kept_and_without_records_none_is_found(tmp_path: Path) -> None:
    write_record(None, record(10))
    assert read_records(tmp_path) == []


@pytest.mark.parametrize("change", [b"{}", b"", b'{"action": "restore"', b"\xff"])
def test_a_changed_record_is_refused_by_its_path(tmp_path: Path, change: bytes) -> None:
    write_record(tmp_path, record(10))
    (path,) = (tmp_path / "audit").iterdir()
    path.write_bytes(change)
    with pytest.raises(InputError, match=str(path)):
        read_records(tmp_path)


def test_a_record_that_cannot_be_written_refuses_the_action(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("a file where the directory should be")
    with pytest.raises(InputError, match="cannot be written"):
        write_record(tmp_path, record(10))


def test_the_user_is_who_started_the_dag_run_or_the_operating_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUESTED_BY, "alice")
    assert user() == "alice"
    monkeypatch.delenv(REQUESTED_BY)
    monkeypatch.delenv("LOGNAME", raising=False)
    monkeypatch.setenv("USER", "bob")
    monkeypatch.delenv("LNAME", raising=False)
    assert user() == "bob"
