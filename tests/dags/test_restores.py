"""Several restores at a time: which run works on which application, and what the others do meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowRescheduleException
from statestore_dags.restores import left_out

from statestore.reports import Action, RestoreReport, Status, VerifyReport, read_report, write_report
from tests.dags.test_several_applications import prepare, report_of
from tests.dags.test_several_applications import service as service

ELSEWHERE = {"bank": "manual__1"}


def test_a_restore_of_another_application_does_not_wait():
    assert left_out({"application": "shop"}, ELSEWHERE) == []
    assert left_out({"application": "bank"}, {}) == []


def test_a_restore_of_the_same_application_waits_for_its_turn():
    with pytest.raises(AirflowRescheduleException):
        left_out({"application": "bank", "mode": "tail"}, ELSEWHERE)


@pytest.mark.parametrize("form", [{"dry_run": True}, {"mode": "as-of", "as_of": "7"}])
def test_a_restore_that_changes_no_live_store_does_not_wait(form):
    assert left_out({"application": "bank", **form}, ELSEWHERE) == []


def test_a_restore_that_verify_starts_leaves_out_what_is_restored_already():
    assert left_out({"application": None, "verify_report": "/reports/v.json"}, ELSEWHERE) == ["bank"]


@pytest.fixture
def unfinished(airflow_home):
    """Put a run back to where its report is not evaluated yet."""
    from airflow.utils.session import create_session

    ended = []

    def put_back(run):
        with create_session() as session:
            run = session.merge(run)
            run.state = "running"
            (run.get_task_instance("needs_validate", session=session)).state = None
        ended.append(run)

    yield put_back
    with create_session() as session:
        for run in ended:
            session.merge(run).state = "failed"  # or runs of later tests would wait for it


@pytest.mark.long
def test_a_run_sees_what_other_runs_work_on_as_airflow_tells_it(service, runner, unfinished):
    found = {name: report_of(name, status=Status.MISSING, action=Action.FULL) for name in ("bank", "shop")}
    rows = tuple(row for report in found.values() for row in report.rows)
    both = runner.directory / "reports" / "verify" / "both.json"
    both.parent.mkdir(parents=True)
    write_report(both, VerifyReport(run_id="v", applications=tuple(found), started_ms=0, finished_ms=1, rows=rows))
    prepare(runner, bank=report_of("bank", RestoreReport, outcome="restored", mode="full"))
    runner.run("restore", {"application": "bank", "dry_run": True})
    unfinished(runner.dag_run)
    runner.run("restore", {"application": "bank"})  # the other one only plans
    assert runner.dag_run.state == "success"
    unfinished(runner.dag_run)

    before = len(runner.calls)
    states = runner.run("restore", {"verify_report": str(both)}, report_of("shop", RestoreReport, outcome="restored"))
    assert states["spark"] == [("shop", "success")]
    (chosen,) = runner.chosen[before:]
    assert read_report(Path(chosen[chosen.index("--verify-report") + 1]), VerifyReport).applications == ("shop",)

    alone = both.with_name("alone.json")
    write_report(alone, found["bank"])
    states = runner.run("restore", {"verify_report": str(alone)})
    assert (runner.dag_run.state, states["spark"], states["check"]) == ("success", "skipped", "skipped")
