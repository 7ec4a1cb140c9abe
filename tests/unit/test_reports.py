"""Reports: complete or absent, whatever happens to the writer; and what is told apart when read."""

from __future__ import annotations

import json
import math
import os
import signal
from itertools import count

import pytest
from children import write_report_dying
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.errors import InputError, KafkaUnavailableError, ProcessingError
from statestore.reports import (
    Action,
    FailedRows,
    Failure,
    MaintenanceReport,
    MaintenanceRow,
    ProcessReport,
    ProcessRow,
    RestoreReport,
    RestoreRow,
    Status,
    ValidatedStore,
    ValidateReport,
    ValidateRow,
    VerifyReport,
    VerifyRow,
    read_report,
    write_report,
)
from tests.forked import exit_code
from tests.session.examples import examples

HEAD = {"run_id": "run", "applications": ("app",), "started_ms": 1_000, "finished_ms": 3_500}
STORE = {"application": "app", "store": "s", "task": "0_3"}
ROWS = {
    ProcessReport: ProcessRow(application="app", task="0_3", records_in=5, lag=0),
    VerifyReport: VerifyRow(**STORE, status=Status.AHEAD, action=Action.FULL, detail="why", committed=7),
    RestoreReport: RestoreRow(**STORE, before=Status.AHEAD, mode="full", outcome="restored", keys=3),
    ValidateReport: ValidateRow(**STORE, verdict="failed", failed_expectations=("a", "b")),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_report_comes_back_as_it_was_written(tmp_path, kind):
    report = kind(**HEAD, rows=(ROWS[kind],))
    write_report(tmp_path / "new" / "run.json", report)
    assert read_report(tmp_path / "new" / "run.json", kind) == report
    assert report.seconds == 2.5


@settings(max_examples=examples(25))
@given(st.lists(st.text(), max_size=3))
def test_any_text_in_a_report_comes_back(tmp_path_factory, details):
    path = tmp_path_factory.mktemp("report") / "run.json"
    rows = tuple(ROWS[VerifyReport].model_copy(update={"detail": detail}) for detail in details)
    write_report(path, VerifyReport(**HEAD, rows=rows))
    assert tuple(row.detail for row in read_report(path, VerifyReport).rows) == tuple(details)


def test_a_report_written_again_replaces_the_first_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "run.json"
    for status in (Status.AHEAD, Status.OK):
        row = ROWS[VerifyReport].model_copy(update={"status": status})
        write_report(path, VerifyReport(**HEAD, rows=(row,)))
    assert read_report(path, VerifyReport).rows[0].status is Status.OK
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_a_report_from_before_the_metastore_is_still_read(tmp_path):
    path = tmp_path / "run.json"
    write_report(path, VerifyReport(**HEAD, rows=(), catalogue="7:abc"))
    assert read_report(path, VerifyReport).catalogue == "7:abc"
    path.write_text(path.read_text().replace(',\n "catalogue": "7:abc"', ""))
    assert read_report(path, VerifyReport).catalogue is None


def test_a_writer_killed_at_any_step_leaves_the_old_report_or_the_new_one(tmp_path):
    path = tmp_path / "reports" / "verify" / "run.json"
    new = VerifyReport(**HEAD, rows=(ROWS[VerifyReport],) * 500)
    for step in count(1):
        old = VerifyReport(**HEAD, rows=()) if step % 2 else None
        path.unlink(missing_ok=True)
        if old:
            write_report(path, old)
        code = exit_code(write_report_dying, path, new, step)
        if old or path.exists():
            assert read_report(path, VerifyReport) in (old, new)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert read_report(path, VerifyReport) == new
    assert step > 3
    assert [file.name for file in path.parent.glob("*.json") if not file.name.startswith(".")] == ["run.json"]


def test_a_report_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(OSError, match=r"run\.json"):
        write_report(tmp_path / "run.json", VerifyReport(**HEAD, rows=()))
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_a_report_that_is_not_there_says_that_its_job_did_not_finish(tmp_path):
    with pytest.raises(InputError, match=r"has not finished\. See its log"):
        read_report(tmp_path / "run.json", VerifyReport)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b"null", b'{"schema_version": 2}'])
def test_what_is_no_report_is_refused_and_the_file_named(tmp_path, raw):
    (tmp_path / "run.json").write_bytes(raw)
    with pytest.raises(InputError, match=r"run\.json is not a VerifyReport of schema version 1"):
        read_report(tmp_path / "run.json", VerifyReport)


@pytest.mark.parametrize("kind", ROWS)
def test_a_report_of_another_kind_or_version_is_refused(tmp_path, kind):
    path = tmp_path / "run.json"
    write_report(path, kind(**HEAD, rows=()))
    for other in ROWS:
        if other is not kind:
            with pytest.raises(InputError, match=f"is not a {other.__name__}"):
                read_report(path, other)
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(InputError):
        read_report(path, kind)


def test_a_failure_says_what_to_do_next():
    assert Failure.of(KafkaUnavailableError("gone")) == Failure(
        kind="KafkaUnavailableError", message="gone", retriable=True
    )
    assert Failure.of(ProcessingError("bad")).retriable is False


def test_an_error_with_text_that_is_no_unicode_is_still_reported(tmp_path):
    # JSON input may hold a lone surrogate, and the application's own error may quote it.
    row = ProcessRow(application="app", task="0_0", failure=Failure.of(ProcessingError("bad value \ud800")))
    write_report(tmp_path / "run.json", ProcessReport(**HEAD, rows=(row,)))
    assert "bad value" in read_report(tmp_path / "run.json", ProcessReport).rows[0].failure.message


def test_only_what_needs_no_action_is_healthy():
    healthy = {status for status in Status if status.healthy}
    intact = {Status.OK, Status.EMPTY, Status.OLD_FORMAT, Status.STALE, Status.UNLOGGED}
    assert healthy == intact | {Status.PROVEN, Status.IN_USE}
    assert ROWS[VerifyReport].healthy is False
    assert ROWS[RestoreReport].healthy is True
    assert ROWS[ValidateReport].healthy is False
    assert ProcessRow(application="a", task="0_0", failure=Failure(kind="k", message="m")).healthy is False


def test_the_labels_are_those_of_the_airflow_ui():
    assert ROWS[VerifyReport].label == "app/s/0_3"
    assert ROWS[ProcessReport].label == "app/0_3"


# -- what no JSON has ------------------------------------------------------------------------------------------------

ODD_NAME = os.fsdecode(b"caf\xe9.sst")
SHOWN = r"caf\udce9.sst"


def test_file_names_that_are_no_utf8_are_shown_with_their_bytes(tmp_path):
    row = VerifyRow(**STORE, status=Status.CORRUPT, action=Action.FULL, file=ODD_NAME, detail=f"{ODD_NAME} is damaged")
    removed = MaintenanceRow(place=ODD_NAME, removed=(ODD_NAME,), failure=Failure.of(InputError(ODD_NAME)))
    write_report(tmp_path / "v.json", VerifyReport(**HEAD, rows=(row,)))
    write_report(tmp_path / "m.json", MaintenanceReport(**{**HEAD, "applications": (ODD_NAME,)}, rows=(removed,)))
    (found,) = read_report(tmp_path / "v.json", VerifyReport).rows
    assert (found.file, found.detail) == (SHOWN, f"{SHOWN} is damaged")
    report = read_report(tmp_path / "m.json", MaintenanceReport)
    (cleaned,) = report.rows
    assert (cleaned.place, cleaned.removed, cleaned.failure.message) == (SHOWN, (SHOWN,), SHOWN)
    assert report.applications == (SHOWN,)


def test_values_of_a_users_rows_are_what_every_reader_of_json_has(tmp_path):
    row = {"nan": math.nan, "far": [-math.inf, 1.5], "many": 10**400, "more": 10**5000, ODD_NAME: ODD_NAME, "n": 2**62}
    failed = FailedRows(expectation="e", rows=(row,))
    store = ValidatedStore(application="app", store="s", verdict="failed", failed_rows=(failed,))
    path = tmp_path / "validate.json"
    write_report(path, ValidateReport(**HEAD, stores=(store,), rows=()))

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    (sample,) = json.loads(path.read_text("utf-8"), parse_constant=refuse)["stores"][0]["failed_rows"][0]["rows"]
    assert sample == {
        "nan": "nan",
        "far": ["-inf", 1.5],
        "many": str(10**400),
        "more": "a number of 16,610 bits",
        SHOWN: SHOWN,
        "n": 2**62,
    }
    (read,) = read_report(path, ValidateReport).stores
    assert read.failed_rows[0].rows == (sample,)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400", "1" * 400, "1" * 5000])
@pytest.mark.parametrize("field", ["seconds", "lag", "finished_ms"])
def test_a_report_with_a_number_that_is_none_is_no_report(tmp_path, field, number):
    path = tmp_path / "r.json"
    row = VerifyRow(**STORE, status=Status.OK, action=Action.NONE, lag=4711, seconds=4711)
    write_report(path, VerifyReport(**{**HEAD, "finished_ms": 4712}, rows=(row,)))
    text, before = path.read_text("utf-8"), {"seconds": "4711.0", "lag": "4711", "finished_ms": "4712"}[field]
    path.write_text(text.replace(f'"{field}": {before}', f'"{field}": {number}'), "utf-8")
    assert number in path.read_text("utf-8")
    with pytest.raises(InputError, match="is not a VerifyReport"):
        read_report(path, VerifyReport)
