"""The commands `report` and `progress`: what jobs have left, from files alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from statestore.recovery.restore_progress import RestoreProgress
from statestore.reports import (
    Action,
    ArchivedRow,
    FailedRows,
    Failure,
    JobReport,
    MaintenanceReport,
    MaintenanceRow,
    ProcessReport,
    ProcessRow,
    RestorePlanReport,
    RestorePlanRow,
    RestoreReport,
    RestoreRow,
    SnapshotReport,
    Status,
    ValidatedStore,
    ValidateReport,
    ValidateRow,
    VerifyReport,
    VerifyRow,
    write_report,
)
from statestore.tasks.task_progress import TaskProgress
from tests.integration.command_line import Command
from tests.ui.made_reports import surveyed

HEAD = {"run_id": "run", "applications": ("shop",), "started_ms": 1, "finished_ms": 2}
WHERE = {"application": "shop", "store": "totals", "task": "0_1"}
AWAY = Failure(kind="KafkaUnavailableError", message="no broker [answers]", retriable=True)
PARTS = RestorePlanRow(**WHERE, mode="full", disk_each=7)
FULL = Failure(kind="DiskSpaceError", message="no space")


def verified(status: Status, action: Action) -> VerifyReport:
    return VerifyReport(**HEAD, rows=(VerifyRow(**WHERE, status=status, action=action),))


def validated(verdict: str) -> ValidateReport:
    store = ValidatedStore(application="shop", store="totals", verdict=verdict, failed_expectations=("a rule",))
    row = ValidateRow(**WHERE, verdict=verdict, rollback="statestore restore --rollback totals/1 --application shop")
    return ValidateReport(**HEAD, stores=(store,), rows=(row,))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capfd, {"REPORTS_DIR": str(tmp_path)})


@pytest.mark.short_for(every=8)
@pytest.mark.parametrize(
    ("report", "code", "shown"),
    [
        (verified(Status.OK, Action.NONE), 0, "OK"),
        (verified(Status.TRUNCATED, Action.FULL), 1, "TRUNCATED"),
        (verified(Status.LOCKED, Action.LATER), 3, "LOCKED"),
        (RestoreReport(**HEAD, rows=(RestoreRow(**WHERE, outcome="restored", mode="full"),)), 0, "restored"),
        (RestoreReport(**HEAD, rows=(RestoreRow(**WHERE, outcome="failed", failure=FULL),)), 1, "DiskSpaceError"),
        (RestoreReport(**HEAD, rows=(RestoreRow(**WHERE, outcome="failed", failure=AWAY),)), 3, "no broker [answers]"),
        (RestorePlanReport(**HEAD, records_per_s=1, rows=(RestorePlanRow(**WHERE, mode="tail"),)), 0, "tail"),
        (RestorePlanReport(**HEAD, records_per_s=1, rows=(PARTS,)), 0, "many nodes build it"),
        (ProcessReport(**HEAD, rows=(ProcessRow(application="shop", task="0_1", records_in=7),)), 0, "7"),
        (
            ProcessReport(**HEAD, rows=(ProcessRow(application="shop", task="0_1", never_read=1333),)),
            0,
            "never read: 1,333",
        ),
        (ProcessReport(**HEAD, rows=(ProcessRow(application="shop", task="0_1", failure=FULL),)), 1, "no space"),
        (validated("passed"), 0, "passed"),
        (validated("failed"), 1, "a rule"),
        pytest.param(validated("not judged"), 1, "not judged", marks=pytest.mark.behaviour("G3"), id="g3-not judged"),
        (SnapshotReport(**HEAD, archive="file:///a", rows=(ArchivedRow(**WHERE, snapshot="0-7-a"),)), 0, "0-7-a"),
        (SnapshotReport(**HEAD, archive="file:///a", rows=(ArchivedRow(**WHERE, failure=AWAY),)), 3, "no broker"),
        (surveyed("shop"), 1, "cluster has one broker"),
        (surveyed(unread=1), 1, "refused"),
        (surveyed(), 0, "two cores"),
        (MaintenanceReport(**HEAD, rows=(MaintenanceRow(place="shop/0_1", removed_count=3),)), 0, "shop/0_1"),
    ],
    ids=lambda value: value.job if isinstance(value, JobReport) else str(value),
)
def test_a_report_is_shown_and_its_worst_row_decides_on_the_exit_code(
    command: Command, tmp_path: Path, report: JobReport, code: int, shown: str
) -> None:
    path = tmp_path / "report.json"
    write_report(path, report)
    ran = command("report", str(path))
    assert (ran.code, shown in ran.out, ran.err) == (code, True, "")
    ran = command("report", str(path), "--json", "-")
    assert (ran.code, json.loads(ran.out), shown in ran.err) == (code, report.model_dump(mode="json"), True)


def test_a_failed_validation_names_the_way_back(command: Command, tmp_path: Path) -> None:
    write_report(tmp_path / "validate" / "run.json", validated("failed"))
    assert "statestore restore --rollback totals/1 --application shop" in command("report", "validate").out


def test_a_failed_validation_says_how_many_rows_failed_and_shows_the_first(command: Command, tmp_path: Path) -> None:
    rows = tuple({"partition": number, "key_text": f"[{number}]"} for number in range(5))
    failed = FailedRows(expectation="a rule", count=1204, rows=rows)
    told = {"failed_expectations": ("a rule", "a rule of all rows"), "failed_rows": (failed,), "data_docs": "page.html"}
    store = ValidatedStore(application="shop", store="totals", verdict="failed", keys=3000, **told)
    write_report(tmp_path / "validate" / "run.json", ValidateReport(**HEAD, stores=(store,), rows=()))
    out = command("report", str(tmp_path / "validate" / "run.json")).out
    assert "shop/totals: failed: a rule, in 1,204 of 3,000 rows\n" in out
    assert "partition=2, key_text=[2]\n" in out
    assert "key_text=[3]" not in out
    assert "shop/totals: failed: a rule of all rows\n    all of them: page.html\n" in out


def test_the_newest_report_of_a_job_is_the_one_written_last(command: Command, tmp_path: Path) -> None:
    for name, status, at in (("b", Status.OK, 1), ("a", Status.MISSING, 2)):
        write_report(tmp_path / "verify" / f"{name}.json", verified(status, Action.FULL))
        os.utime(tmp_path / "verify" / f"{name}.json", (at, at))
    assert "MISSING" in command("report", "verify").out


def test_where_there_is_no_report_it_is_said_what_there_should_be(command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"job": "verify", "rows"')
    for arguments, expected in (
        (("report", "verify"), f"{tmp_path / 'verify'} has no report of verify"),
        (("report", str(tmp_path / "broken.json")), "is not a report of schema version 1"),
    ):
        ran = command(*arguments)
        assert (ran.code, expected in ran.err) == (2, True), ran.err
    ran = command("report", "verify", REPORTS_DIR="")
    assert (ran.code, "--reports-dir: expected the directory" in ran.err) == (2, True), ran.err


def test_progress_tells_of_every_run_that_works_at_this_moment(command: Command, tmp_path: Path) -> None:
    restoring = RestoreProgress(
        **WHERE, phase="reading", start=0, next=40, end=100, records=40, records_per_s=20.0, seconds_left=3.0
    )
    processing = TaskProgress(application="shop", task="0_0", phase="processing", first=5, next=6, end=9)
    for job, file in (("restore", restoring), ("process", processing)):
        directory = tmp_path / job / ".progress-run-1"
        directory.mkdir(parents=True)
        (directory / "part.json").write_text(file.model_dump_json())
        (directory / "half-written.json").write_text("{")
    ran = command("progress", "--json", "-")
    assert json.loads(ran.out) == {
        "process": [{"run_id": "run-1", **processing.model_dump()}],
        "restore": [{"run_id": "run-1", **restoring.model_dump()}],
        "snapshot": [],
    }
    assert (ran.code, "2 pieces of work" in ran.err, "shop/totals/0_1" in ran.err) == (0, True, True)
