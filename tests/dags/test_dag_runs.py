"""Whole DAG runs in a real Airflow with a real spark-submit. A stand-in for the job leaves a prepared report.

The jobs themselves are tested with Kafka and stores elsewhere; here it is about what the DAGs make of their reports.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statestore.config import load_settings
from statestore.metastore.command_topic import topic_name
from statestore.metastore.metastore import Metastore
from statestore.reports import (
    Action,
    Failure,
    ProcessReport,
    ProcessRow,
    RestoreReport,
    RestoreRow,
    Status,
    ValidateReport,
    ValidateRow,
    VerifyReport,
    VerifyRow,
)
from tests.dags.runner import Runner
from tests.integration.broker import produce, unique
from tests.integration.support import put

# Started by spark-submit: notes its arguments, then leaves the prepared report or ends with the prepared exit code.
STAND_IN = """\
import json, os, shutil, sys
from pathlib import Path
here = Path(os.environ["STAND_IN_DIR"])
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + chr(10))
if (here / "exit").exists():
    sys.exit(int((here / "exit").read_text()))
target = Path(sys.argv[sys.argv.index("--report") + 1])
target.parent.mkdir(parents=True, exist_ok=True)
shutil.copy(here / "report.json", target)
"""
HEAD = {"run_id": "r", "applications": ("flight-delays",), "started_ms": 0, "finished_ms": 1}


def pin_of_now() -> str:
    """Pin of the catalogue of the environment."""
    return str(Metastore.of(load_settings()).view().pin)


def store_row(kind, task, **fields):
    return kind(application="flight-delays", store="aircraft", task=task, **fields)


@pytest.fixture
def runner(airflow_home, installation, load_dags, monkeypatch):
    jobs = installation / "jobs"
    jobs.mkdir()
    for job in ("process", "verify", "restore", "validate"):
        (jobs / f"{job}.py").write_text(STAND_IN)
    monkeypatch.setenv("STATESTORE_JOBS_DIR", str(jobs))
    monkeypatch.setenv("STAND_IN_DIR", str(installation))
    return Runner(installation, load_dags)


def test_process_is_green_and_emits_its_asset_when_every_task_reached_its_end(runner):
    rows = tuple(ProcessRow(application="flight-delays", task=f"0_{p}", records_in=10) for p in range(2))
    states = runner.run("process", {"application": ""}, ProcessReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "success"
    assert states["check"] == [("flight-delays/0_0", "success"), ("flight-delays/0_1", "success")]
    assert states["processed"] == "success"
    ((flag, report, pinned, pin),) = runner.calls
    assert (flag, pinned, pin) == ("--report", "--catalogue", pin_of_now())
    assert Path(report).parent == runner.directory / "reports" / "process"


def test_process_emits_no_asset_when_a_task_failed(runner):
    rows = (
        ProcessRow(application="flight-delays", task="0_0"),
        ProcessRow(application="flight-delays", task="0_1", failure=Failure(kind="FencedError", message="fenced")),
    )
    states = runner.run("process", report=ProcessReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "failed"
    assert states["check"] == [("flight-delays/0_0", "success"), ("flight-delays/0_1", "failed")]
    assert states["processed"] == "upstream_failed"


def test_verify_of_whole_stores_is_green_and_restores_nothing(runner):
    rows = (
        store_row(VerifyRow, "0_0", status=Status.OK, action=Action.NONE),
        store_row(VerifyRow, "0_1", status=Status.LOCKED, action=Action.LATER, detail="in use"),
    )
    states = runner.run("verify", {"application": "flight-delays"}, VerifyReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "success"
    assert states["check"] == [("flight-delays/aircraft/0_0", "success"), ("flight-delays/aircraft/0_1", "skipped")]
    assert states["trigger_restore"] == "skipped"
    assert runner.triggered("restore") == []
    assert runner.calls[0][4:] == ["--application", "flight-delays", "--depth", "scan"]


def test_verify_of_a_damaged_store_is_red_and_triggers_one_restore(runner):
    rows = (
        store_row(VerifyRow, "0_0", status=Status.OK, action=Action.NONE),
        store_row(VerifyRow, "0_1", status=Status.CORRUPT, action=Action.FULL, detail="checksum mismatch"),
    )
    states = runner.run("verify", report=VerifyReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "failed"
    assert states["check"] == [("flight-delays/aircraft/0_0", "success"), ("flight-delays/aircraft/0_1", "failed")]
    assert states["trigger_restore"] == "success"
    (restore,) = runner.triggered("restore")
    assert restore.conf == {"verify_report": runner.calls[0][1]}
    # The path that verify hands over is one that restore's form accepts.
    restored = store_row(RestoreRow, "0_1", outcome="restored", mode="full", before=Status.CORRUPT)
    runner.run("restore", restore.conf, RestoreReport(**HEAD, rows=(restored,)))
    assert runner.calls[1][4:] == ["--verify-report", runner.calls[0][1]]


def test_damage_that_no_restore_mends_triggers_nothing(runner):
    row = store_row(VerifyRow, "0_0", status=Status.REPLACED, action=Action.BY_HAND)
    states = runner.run("verify", report=VerifyReport(**HEAD, rows=(row,)))
    assert runner.dag_run.state == "failed"
    assert states["trigger_restore"] == "skipped"


def test_restore_validates_what_it_restored_also_when_another_failed(runner):
    rows = (
        store_row(RestoreRow, "0_0", outcome="skipped", before=Status.OK),
        store_row(RestoreRow, "0_1", outcome="restored", mode="full", before=Status.MISSING),
        store_row(RestoreRow, "0_2", outcome="failed", failure=Failure(kind="DiskSpaceError", message="full")),
    )
    form = {"application": "flight-delays", "stores": ["aircraft"], "partitions": [0, 1, 2], "mode": "full"}
    states = runner.run("restore", form, RestoreReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "failed"
    assert [state for _, state in states["check"]] == ["success", "success", "failed"]
    (validate,) = runner.triggered("validate")
    assert validate.conf == {"restore_report": runner.calls[0][1]}
    assert runner.calls[0][4:] == [
        *("--application", "flight-delays", "--store", "aircraft"),
        *("--partition", "0", "--partition", "1", "--partition", "2", "--mode", "full"),
    ]


def test_a_restore_that_found_everything_whole_validates_nothing(runner):
    row = store_row(RestoreRow, "0_0", outcome="skipped", before=Status.OK)
    states = runner.run("restore", {"application": "flight-delays"}, RestoreReport(**HEAD, rows=(row,)))
    assert runner.dag_run.state == "success"
    assert states["trigger_validate"] == "skipped"


def test_validate_is_red_where_an_expectation_failed(runner):
    rows = (
        store_row(ValidateRow, "0_0", verdict="passed", expectations=3),
        store_row(ValidateRow, "0_1", verdict="failed", expectations=3, failed_expectations=("row count",)),
    )
    states = runner.run("validate", {"application": "flight-delays"}, ValidateReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "failed"
    assert [state for _, state in states["check"]] == ["success", "failed"]


@pytest.mark.parametrize(
    ("dag_id", "conf"),
    [
        ("process", {"application": "nope"}),
        ("verify", {"application": "nope"}),
        ("restore", {"application": "flight-delays", "stores": ["nope"]}),
        ("validate", {}),
    ],
)
def test_a_bad_form_fails_the_plan_and_starts_no_spark(runner, dag_id, conf):
    states = runner.run(dag_id, conf)
    assert runner.dag_run.state == "failed"
    assert states["plan"] == "failed"
    assert states["spark"] == "upstream_failed"
    assert runner.calls == []


@pytest.mark.parametrize(("exit_code", "starts"), [(2, 1), (5, 1), (3, 2), (1, 2)])
def test_only_a_failure_that_may_pass_is_tried_again(runner, exit_code, starts):
    states = runner.run("verify", exit_code=exit_code)
    assert states["spark"] == "failed"
    assert len(runner.calls) == starts
    # With the same pin: the job's tests show that the definitions are those.
    assert all(call == runner.calls[0] for call in runner.calls)
    assert runner.calls[0][2:4] == ["--catalogue", pin_of_now()]


def test_a_degraded_metastore_fails_the_plan_and_starts_no_spark(runner, bootstrap_servers, service_id, monkeypatch):
    degraded = unique("dags")
    entry = Metastore(bootstrap_servers, service_id).view().catalogue.entry("flight-delays")
    put(Metastore(bootstrap_servers, degraded), entry.definition, entry.partitions)
    produce(bootstrap_servers, topic_name(degraded), [(b"application/x", b"no command")])
    monkeypatch.setenv("STATESTORE_SERVICE_ID", degraded)
    states = runner.run("process")
    assert (states["plan"], states["spark"]) == ("failed", "upstream_failed")
    assert runner.calls == []


def test_a_job_that_left_no_report_fails_the_rows(runner):
    # An executable job that ends well but writes nothing.
    (Path(os.environ["STATESTORE_JOBS_DIR"]) / "verify.py").write_text("print('nothing')")
    states = runner.run("verify")
    assert states["spark"] == "success"
    assert states["rows"] == "failed"
