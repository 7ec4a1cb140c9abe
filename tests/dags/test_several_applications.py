"""A run over several applications: a Spark job for each, of which one that fails hides nothing of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.config import load_settings
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.metastore.metastore import Metastore
from statestore.reports import (
    Action,
    Failure,
    ProcessReport,
    ProcessRow,
    RestoreReport,
    RestoreRow,
    Status,
    VerifyReport,
    VerifyRow,
    read_report,
    write_report,
)
from tests.integration.broker import unique
from tests.integration.support import put


@pytest.fixture
def service(monkeypatch, installation):
    """A catalogue with the applications `bank` and `shop`, which no other test has."""
    monkeypatch.setenv("STATESTORE_SERVICE_ID", unique("several"))
    for name in ("bank", "shop"):
        put_application(name)


def put_application(name):
    definition = ApplicationDefinition(
        name=name, input_topic=f"{name}-in", processor="a:b", stores=(StoreDefinition(name="totals"),)
    )
    put(Metastore.of(load_settings()), definition, {definition.input_topic: 1})


def report_of(application, kind=VerifyReport, **fields):
    row_kind = {VerifyReport: VerifyRow, RestoreReport: RestoreRow}[kind]
    row = row_kind(application=application, store="totals", task="0_0", **fields)
    return kind(run_id="r", applications=(application,), started_ms=0, finished_ms=1, rows=(row,))


def prepare(runner, **reports):
    for application, report in reports.items():
        write_report(runner.directory / f"report.json-{application}", report)


@pytest.mark.long
def test_one_application_whose_job_fails_hides_nothing_of_the_other(service, runner):
    prepare(runner, bank=report_of("bank", status=Status.CORRUPT, action=Action.FULL))
    (runner.directory / "exit-shop").write_text("2")
    states = runner.run("verify")
    assert states["spark"] == [("bank", "success"), ("shop", "failed")]
    assert states["check"] == [("shop", "failed"), ("bank/totals/0_0", "failed")]
    assert sorted(runner.chosen) == [["--application", name] for name in ("bank", "shop")]
    (restore,) = runner.triggered("restore")
    report = Path(restore.conf["verify_report"])
    assert [row.label for row in read_report(report, VerifyReport).rows] == ["bank/totals/0_0"]
    assert report.parent == runner.directory / "reports" / "verify"


@pytest.mark.long
def test_a_restore_of_what_verify_found_is_a_job_for_each_application(service, runner):
    found = {name: report_of(name, status=Status.MISSING, action=Action.FULL) for name in ("bank", "shop")}
    prepare(runner, **found)
    states = runner.run("verify")
    assert states["check"] == [("bank/totals/0_0", "failed"), ("shop/totals/0_0", "failed")]
    (restore,) = runner.triggered("restore")
    assert read_report(Path(restore.conf["verify_report"]), VerifyReport).applications == ("bank", "shop")

    row = report_of("bank", RestoreReport, outcome="restored", mode="full")
    states = runner.run("restore", restore.conf, row)
    assert states["spark"] == [("bank", "success"), ("shop", "success")]
    inputs = [Path(chosen[chosen.index("--verify-report") + 1]) for chosen in runner.chosen[2:]]
    assert sorted(read_report(path, VerifyReport).applications for path in inputs) == [("bank",), ("shop",)]
    assert len(runner.triggered("validate")) == 1


@pytest.mark.long
def test_verify_follows_process_for_the_applications_that_did_not_fail(service, runner, monkeypatch):
    """Given one application whose job fails, and one with a failed task, only the third one is verified."""
    put_application("depot")
    failure = Failure(kind="FencedError", message="fenced")
    for name, failed in (("bank", None), ("depot", failure)):
        row = ProcessRow(application=name, task="0_0", failure=failed)
        report = ProcessReport(run_id="r", applications=(name,), started_ms=0, finished_ms=1, rows=(row,))
        prepare(runner, **{name: report})
    (runner.directory / "exit-shop").write_text("2")
    states = runner.run("process")
    assert runner.dag_run.state == "failed"
    assert states["check"] == [("shop", "failed"), ("bank/0_0", "success"), ("depot/0_0", "failed")]
    assert states["processed"] == "success"
    before = len(runner.chosen)
    runner.run("verify", report=report_of("bank", status=Status.OK, action=Action.NONE), started_by=runner.dag_run)
    assert [chosen[:2] for chosen in runner.chosen[before:]] == [["--application", "bank"]]


@pytest.mark.long
def test_verify_does_not_follow_process_if_every_job_failed(service, runner):
    for name in ("bank", "shop"):
        (runner.directory / f"exit-{name}").write_text("2")
    states = runner.run("process")
    assert (runner.dag_run.state, states["processed"]) == ("failed", "skipped")


@pytest.mark.long
def test_an_empty_catalogue_is_no_failure(installation, runner, monkeypatch):
    monkeypatch.setenv("STATESTORE_SERVICE_ID", unique("empty"))
    states = runner.run("process")
    assert runner.dag_run.state == "success"
    assert (states["spark"], states["check"], states["processed"]) == ("skipped",) * 3
