"""Whole DAG runs in a real Airflow. A stand-in for the job leaves a prepared report.

The jobs themselves are tested with Kafka and stores elsewhere; here it is about what the DAGs make of their reports.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from statestore_dags.row_summaries import headline, wants_restore, wants_validation

from statestore.advice import Situation, Target, advice
from statestore.config import load_settings
from statestore.kafka.cluster import Cluster
from statestore.metastore.command_topic import topic_name
from statestore.metastore.metastore import Metastore
from statestore.reports import (
    Action,
    ArchivedRow,
    DrillReport,
    DrillRow,
    Failure,
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
    StoreFigures,
    ValidateReport,
    ValidateRow,
    VerifyReport,
    VerifyRow,
    write_report,
)
from tests.integration.broker import produce, unique
from tests.integration.support import put

HEAD = {"run_id": "r", "applications": ("flight-delays",), "started_ms": 0, "finished_ms": 1}


def pin_of_now() -> str:
    """Pin of the catalogue of the environment."""
    return str(Metastore.of(load_settings()).view().pin)


def store_row(kind, task, **fields):
    return kind(application="flight-delays", store="aircraft", task=task, **fields)


def test_process_is_green_and_emits_its_assets_when_every_task_reached_its_end(runner):
    def figures(committed):
        return StoreFigures(
            store="aircraft", commits=2, commit_latency_avg_ms=1, commit_latency_max_ms=1, committed=committed
        )

    rows = tuple(
        ProcessRow(application="flight-delays", task=f"0_{p}", records_in=10, stores=(figures(7 + p),))
        for p in range(2)
    )
    states = runner.run("process", {"application": ""}, ProcessReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "success"
    assert states["check"] == [("flight-delays/0_0", "success"), ("flight-delays/0_1", "success")]
    assert states["processed"] == "success"
    ((flag, report, *rest),) = runner.calls
    assert (flag, Path(report).parent) == ("--report", runner.directory / "reports" / "process")
    assert rest == [
        *("--catalogue", pin_of_now(), "--dag-id", "process", "--dag-run-id", runner.dag_run.run_id),
        *("--requested-by", runner.dag_run.triggering_user_name or runner.dag_run.run_type.value),
        *("--application", "flight-delays"),
    ]
    event = runner.asset_events()["x-statestore://flight-delays/aircraft"]
    assert (event["event"], event["report"]) == ("process", report)
    assert (event["offsets"], event["counts"]) == ({"0_0": 7, "0_1": 8}, {"commits": 4})


@pytest.mark.long
def test_verify_after_process_looks_at_the_offsets_of_its_application_alone(runner, monkeypatch):
    row = ProcessRow(application="flight-delays", task="0_0")
    head = HEAD | {"applications": ("flight-delays",)}
    runner.run("process", {"application": "flight-delays"}, ProcessReport(**head, rows=(row,)))
    processed = runner.dag_run
    verified = VerifyReport(**HEAD, rows=())
    for depth in ("offsets", "deep"):
        monkeypatch.setenv("STATESTORE_VERIFY_AFTER_PROCESS", depth)
        runner.run("verify", report=verified, started_by=processed)
        assert runner.chosen[-1] == ["--application", "flight-delays", "--depth", depth]
    before = len(runner.calls)
    runner.run("verify", report=verified, started_by="scheduled")
    chosen = runner.chosen[before:]
    assert ["--application", "flight-delays"] in chosen
    runner.run("verify.deep", report=verified, started_by="scheduled")
    assert runner.chosen[-1][2:] == ["--depth", "deep", "--sample", "0.1"]
    assert {Path(call[1]).parent.name for call in runner.calls} >= {"process", "verify"}


@pytest.mark.long
def test_validation_by_time_is_of_all_applications_and_by_hand_of_one(runner):
    rows = (store_row(ValidateRow, "0_0", verdict="passed", expectations=3),)
    runner.run("validate", report=ValidateReport(**HEAD, rows=rows), started_by="scheduled")
    assert runner.dag_run.state == "success"
    assert runner.chosen[-1][:2] == ["--application", "flight-delays"]


@pytest.mark.long
def test_process_emits_no_asset_when_a_task_failed(runner):
    rows = (
        ProcessRow(application="flight-delays", task="0_0"),
        ProcessRow(application="flight-delays", task="0_1", failure=Failure(kind="FencedError", message="fenced")),
    )
    states = runner.run("process", report=ProcessReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "failed"
    assert states["check"] == [("flight-delays/0_0", "success"), ("flight-delays/0_1", "failed")]
    assert states["processed"] == "skipped"


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
    assert runner.chosen[0] == ["--application", "flight-delays"]


def test_verify_of_a_damaged_store_is_red_tells_its_asset_and_triggers_one_restore(runner):
    damage = {"status": Status.CORRUPT, "action": Action.FULL, "detail": "checksum mismatch"}
    rows = (
        store_row(VerifyRow, "0_0", status=Status.OK, action=Action.NONE, committed=7, lag=0, keys=3),
        store_row(VerifyRow, "0_1", **damage, committed=8, lag=5, keys=4),
    )
    states = runner.run("verify", report=VerifyReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "failed"
    assert states["check"] == [("flight-delays/aircraft/0_0", "success"), ("flight-delays/aircraft/0_1", "failed")]
    assert states["trigger_restore"] == "success"
    (restore,) = runner.triggered("restore")
    assert restore.conf == {"verify_report": runner.calls[0][1]}
    event = runner.asset_events()["x-statestore://flight-delays/aircraft"]
    assert (event["event"], event["verdict"]) == ("verify", "unhealthy")
    assert event["counts"] == {"lag": 5, "keys": 7, "OK": 1, "CORRUPT": 1}
    assert event["offsets"] == {"0_0": 7, "0_1": 8}
    # The path that verify hands over is one that restore's form accepts.
    restored = store_row(RestoreRow, "0_1", outcome="restored", mode="full", before=Status.CORRUPT)
    runner.run("restore", restore.conf, RestoreReport(**HEAD, rows=(restored,)))
    assert runner.dag_run.state == "success"
    assert runner.chosen[1] == ["--verify-report", runner.calls[0][1]]


def test_the_log_of_a_store_partition_has_the_next_step_of_its_row():
    step = advice(Situation.CHANGELOG_RECREATED, Target("flight-delays", "aircraft", "0_0"))
    row = store_row(VerifyRow, "0_0", status=Status.REPLACED, action=Action.BY_HAND, detail="ids", advice=step)
    assert headline(row) == f"REPLACED, action: manual. ids. {step.sentence} Next: {step.command}"


@pytest.mark.parametrize("action", Action)
def test_damage_that_no_restore_mends_triggers_nothing(action):
    row = store_row(VerifyRow, "0_0", status=Status.REPLACED, action=action)
    assert wants_restore(VerifyReport(**HEAD, rows=(row,))) is (action in (Action.TAIL, Action.FULL))


@pytest.mark.long
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
    assert runner.chosen[0] == [
        *("--application", "flight-delays", "--store", "aircraft"),
        *("--partition", "0", "--partition", "1", "--partition", "2", "--mode", "full"),
    ]


def test_what_an_earlier_attempt_at_a_restore_has_done_is_told_by_the_last_one():
    row = store_row(RestoreRow, "0_0", outcome="restored", before=Status.OK, keys=3)
    report = RestoreReport(**HEAD, rows=(row,))
    assert headline(row) == "restored by an earlier attempt at this run: 0 records, 3 keys, 0.0 s"
    assert wants_validation(report)
    row = store_row(RestoreRow, "0_0", outcome="restored", mode="full", before=Status.CORRUPT)
    assert headline(row).startswith("restored (full, was CORRUPT): ")
    assert headline(row.model_copy(update={"mode": "as-of", "before": None})).startswith("restored (as-of): ")


def test_a_restore_that_found_everything_whole_validates_nothing():
    row = store_row(RestoreRow, "0_0", outcome="skipped", before=Status.OK)
    assert not wants_validation(RestoreReport(**HEAD, rows=(row,)))


@pytest.mark.behaviour("G3")
def test_validate_is_red_where_an_expectation_failed_or_a_store_was_not_judged(runner):
    rows = (
        store_row(ValidateRow, "0_0", verdict="passed", expectations=3),
        store_row(ValidateRow, "0_1", verdict="failed", expectations=3, failed_expectations=("row count",)),
        store_row(ValidateRow, "0_2", verdict="not judged"),
    )
    states = runner.run("validate", {"application": "flight-delays"}, ValidateReport(**HEAD, rows=rows))
    assert runner.dag_run.state == "failed"
    assert [state for _, state in states["check"]] == ["success", "failed", "failed"]


@pytest.mark.short_for("process-conf0")
@pytest.mark.parametrize(
    ("dag_id", "conf"),
    [
        ("process", {"application": "nope"}),
        ("process", {"applications": ["flight-delays"]}),  # the field has no s: all would be processed
        ("restore", {"application": "flight-delays", "mode": "as-of"}),
        ("validate", {}),
        ("snapshot", {"application": "flight-delays"}),  # there is no archive
    ],
)
def test_a_bad_form_fails_the_plan_and_starts_no_spark(runner, dag_id, conf):
    states = runner.run(dag_id, conf)
    assert runner.dag_run.state == "failed"
    assert states["plan"] == "failed"
    assert (states["spark"], states["rows"], states["check"]) == ("upstream_failed",) * 3
    assert runner.calls == []


@pytest.mark.short_for(every=3)
@pytest.mark.parametrize(("exit_code", "starts"), [(2, 1), (3, 4), (1, 2)])
@pytest.mark.long
def test_only_a_failure_that_may_pass_is_tried_again(runner, monkeypatch, exit_code, starts):
    if exit_code == 2:  # through the JVM of the real spark-submit
        monkeypatch.setenv("PATH", os.environ["PATH"].split(os.pathsep, 1)[1])
    states = runner.run("verify", exit_code=exit_code)
    assert states["spark"] == [("flight-delays", "failed")]
    assert len(runner.calls) == starts
    assert states["check"] == [("flight-delays", "failed")]
    assert runner.dag_run.state == "failed"
    # With the same pin: the job's tests show that the definitions are those.
    assert all(call == runner.calls[0] for call in runner.calls)
    assert runner.calls[0][2:4] == ["--catalogue", pin_of_now()]


@pytest.mark.long
def test_a_degraded_metastore_fails_the_plan_and_starts_no_spark(runner, bootstrap_servers, service_id, monkeypatch):
    degraded = unique("dags")
    entry = Metastore(Cluster(bootstrap_servers), service_id).view().catalogue.entry("flight-delays")
    put(Metastore(Cluster(bootstrap_servers), degraded), entry.definition, entry.partitions)
    produce(bootstrap_servers, topic_name(degraded), [(b"application/x", b"no command")])
    monkeypatch.setenv("STATESTORE_SERVICE_ID", degraded)
    states = runner.run("process")
    assert (states["plan"], states["spark"]) == ("failed", "upstream_failed")
    assert runner.calls == []


def test_a_job_that_left_no_report_is_red(runner):
    # An executable job that ends well but writes nothing.
    (Path(os.environ["STATESTORE_JOBS_DIR"]) / "verify.py").write_text("print('nothing')")
    states = runner.run("verify")
    assert states["spark"] == [("flight-delays", "success")]
    assert states["check"] == [("flight-delays", "failed")]
    assert states["trigger_restore"] == "skipped"


@pytest.mark.long
def test_a_report_of_an_earlier_attempt_is_not_taken_for_that_of_a_job_that_fails_again(runner):
    row = store_row(VerifyRow, "0_0", status=Status.CORRUPT, action=Action.FULL)
    job = Path(os.environ["STATESTORE_JOBS_DIR"]) / "verify.py"
    # The first attempt leaves a report and then fails, the second fails at once.
    job.write_text(job.read_text() + "(here / 'exit').write_text('1')\nsys.exit(1)\n")
    states = runner.run("verify", report=VerifyReport(**HEAD, rows=(row,)))
    assert len(runner.calls) == 2
    assert states["check"] == [("flight-delays", "failed")]
    assert runner.triggered("restore") == []


@pytest.mark.long
def test_a_job_of_an_earlier_attempt_that_goes_on_does_not_leave_the_report_of_a_later_one(runner):
    row = store_row(VerifyRow, "0_0", status=Status.CORRUPT, action=Action.FULL)
    job = Path(os.environ["STATESTORE_JOBS_DIR"]) / "verify.py"
    # The first attempt fails and leaves a process behind, which writes its report when the second has begun and failed.
    job.write_text(
        "import os, shutil, sys, json\nfrom pathlib import Path\nhere = Path(os.environ['STAND_IN_DIR'])\n"
        "written = Path(sys.argv[sys.argv.index('--report') + 1])\nfirst = here / 'first'\n"
        "if first.exists():\n"
        "    target = Path(first.read_text())\n"
        "    target.parent.mkdir(parents=True, exist_ok=True)\n"
        "    shutil.copy(here / 'report.json', target)\n"
        "else:\n    first.write_text(str(written))\n"
        "sys.exit(1)\n"
    )
    states = runner.run("verify", report=VerifyReport(**HEAD, rows=(row,)))
    assert (runner.directory / "first").exists()
    assert states["check"] == [("flight-delays", "failed")]
    assert runner.triggered("restore") == []


def test_a_report_of_an_earlier_attempt_goes_before_anything_else_can_fail(airflow_home, tmp_path, monkeypatch):
    from statestore_dags.spark import SparkJobOperator

    report = tmp_path / "report.json"
    report.touch()
    monkeypatch.setattr(SparkJobOperator, "seen_by_executors", lambda _: 1 / 0)
    job = SparkJobOperator(task_id="spark", conn_id="spark_default", application="verify.py", report=str(report))
    with pytest.raises(ZeroDivisionError):
        job.execute({})
    assert not report.exists()


def test_a_square_whose_report_was_written_anew_shows_no_row_of_it(tmp_path):
    from airflow.sdk.exceptions import AirflowFailException
    from statestore_dags.mapped_tasks import check, squares

    first = VerifyReport(**HEAD, rows=(store_row(VerifyRow, "0_0", status=Status.CORRUPT, action=Action.FULL),))
    later = first.model_copy(
        update={
            "finished_ms": first.finished_ms + 1,
            "rows": (store_row(VerifyRow, "0_1", status=Status.OK, action=Action.NONE),),
        }
    )
    path = tmp_path / "report.json"
    (square,) = squares(path, first)
    write_report(path, later)
    with pytest.raises(AirflowFailException, match="was rewritten since this mapped task was created"):
        check.function(square)


@pytest.mark.long
def test_very_many_store_partitions_are_shown_in_groups_and_a_red_one_names_what_is_red(runner, monkeypatch):
    # As above 256, of which each would be an Airflow task here.
    monkeypatch.setattr("statestore_dags.mapped_tasks.MOST_SQUARES", 2)
    rows = [
        store_row(VerifyRow, "0_0", status=Status.OK, action=Action.NONE),
        store_row(VerifyRow, "0_1", status=Status.LOCKED, action=Action.LATER),
        store_row(VerifyRow, "0_2", status=Status.CORRUPT, action=Action.FULL),
        store_row(VerifyRow, "0_3", status=Status.MISSING, action=Action.FULL),
    ]
    states = runner.run("verify", report=VerifyReport(**HEAD, rows=tuple(rows)))
    assert states["check"] == [
        ("flight-delays/aircraft/0_0 … flight-delays/aircraft/0_1 (2)", "success"),
        ("flight-delays/aircraft/0_2 … flight-delays/aircraft/0_3 (2)", "failed"),
    ]


@pytest.mark.parametrize(("rows", "count", "sizes"), [(256, 256, {1}), (257, 129, {1, 2}), (10_000, 250, {40})])
def test_there_are_never_more_than_256_squares_and_each_row_has_one(rows, count, sizes):
    from statestore_dags.mapped_tasks import squares

    shown = [SimpleNamespace(label=str(row)) for row in range(rows)]
    found = squares(Path("r.json"), SimpleNamespace(rows=shown, started_ms=1, finished_ms=2))
    assert len(found) == count
    shown = [range(square["start"], min(square["start"] + square["count"], rows)) for square in found]
    assert [row for part in shown for row in part] == list(range(rows))
    assert {len(part) for part in shown} == sizes


@pytest.mark.long
def test_each_application_has_one_square_where_a_setting_wants_it(runner, monkeypatch):
    monkeypatch.setenv("STATESTORE_CHECK_BY", "application")
    rows = (
        store_row(VerifyRow, "0_0", status=Status.OK, action=Action.NONE),
        store_row(VerifyRow, "0_1", status=Status.CORRUPT, action=Action.FULL, detail="checksum mismatch"),
        VerifyRow(application="shop", store="totals", task="0_0", status=Status.OK, action=Action.NONE),
    )
    states = runner.run("verify", report=VerifyReport(**HEAD, rows=rows))
    assert states["check"] == [
        ("flight-delays/aircraft/0_0 … flight-delays/aircraft/0_1 (2)", "failed"),
        ("shop/totals/0_0", "success"),
    ]
    assert states["trigger_restore"] == "success"


def test_rows_without_an_application_have_one_square_together():
    from statestore_dags.mapped_tasks import squares

    places = tuple(MaintenanceRow(place=place) for place in ("flight-delays/0_0", "reports/verify", "archive"))
    report = MaintenanceReport(**HEAD, rows=places)
    (square,) = squares(Path("r.json"), report, applications=True)
    assert (square["start"], square["count"]) == (0, 3)
    assert squares(Path("r.json"), report.model_copy(update={"rows": ()}), applications=True) == []


def test_a_square_names_all_that_is_red_and_is_skipped_if_all_of_it_is_in_use():
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
    from statestore_dags.mapped_tasks import show

    good, bad, later = (
        {"label": health, "headline": "so", "health": health} for health in ("healthy", "failed", "later")
    )
    show([good, later])
    with pytest.raises(AirflowFailException, match=r"^a: so\nb: so$"):
        show([good, bad | {"label": "a"}, later, bad | {"label": "b"}])
    with pytest.raises(AirflowSkipException):
        show([later, later])


@pytest.mark.long
def test_what_a_restore_would_do_is_shown_and_nothing_is_validated(runner):
    plan = store_row(RestorePlanRow, "0_0", status=Status.LAGGING, mode="tail", start=5, end=9)
    refused = store_row(RestorePlanRow, "0_1", failure=Failure(kind="DiskSpaceError", message="full"))
    report = RestorePlanReport(**HEAD, rows=(plan, refused), records_per_s=1_000)
    states = runner.run("restore", {"application": "flight-delays", "dry_run": True, "deep_check": True}, report)
    assert runner.chosen == [["--application", "flight-delays", "--dry-run", "--check", "deep"]]
    assert [state for _, state in states["check"]] == ["success", "failed"]
    assert states["trigger_validate"] == "skipped"


@pytest.mark.long
def test_a_store_as_of_a_point_is_built_in_a_directory_of_its_own(runner):
    row = store_row(RestoreRow, "0_0", outcome="restored", mode="as-of", directory="/elsewhere")
    form = {"application": "flight-delays", "mode": "as-of", "as_of": "12", "best_effort": True}
    runner.run("restore", form, RestoreReport(**HEAD, rows=(row,)))
    (chosen,) = runner.chosen
    target = Path(chosen[chosen.index("--target") + 1])
    assert target.parent == runner.directory / "state-as-of"
    assert chosen[4:6] == ["--as-of-offset", "12"]
    assert "--best-effort" in chosen
    assert runner.asset_events() == {}


def test_maintenance_shows_each_place_and_passes_over_what_is_in_use(runner, monkeypatch):
    rows = (
        MaintenanceRow(place="flight-delays/0_0", removed=("/q",), removed_count=1, removed_bytes=9),
        MaintenanceRow(place="flight-delays/0_1", failure=Failure(kind="LockedError", message="in use")),
        MaintenanceRow(place="reports/verify", failure=Failure(kind="StoreAccessError", message="read-only")),
    )
    monkeypatch.setenv("STATESTORE_REPORTS_DAYS", "12")
    states = runner.run("maintenance", {"dry_run": True}, MaintenanceReport(**HEAD, rows=rows))
    as_of = str(runner.directory / "state-as-of")
    assert runner.chosen == [["--reports-days", "12.0", "--as-of-dir", as_of, "--dry-run"]]
    assert [state for _, state in states["check"]] == ["success", "skipped", "failed"]


@pytest.mark.long
def test_each_broken_objective_of_a_drill_has_a_mapped_task_that_fails(runner):
    standings = ("proven", "never proven", "proven too long ago", "too slow", "too old", "unproven", "failed")
    rows = tuple(
        store_row(DrillRow, f"0_{task}", standing=standing, verdict="proven", drilled=True, detail="why")
        for task, standing in enumerate(standings)
    )
    form = {"application": "flight-delays", "stores": ["aircraft"], "limit": 7, "mode": "snapshot"}
    states = runner.run("drill", form, DrillReport(**HEAD, rows=rows))
    assert [state for _, state in states["check"]] == ["success", *["failed"] * 6]
    assert [headline(row).partition(":")[0] for row in rows] == list(standings)
    (chosen,) = runner.chosen
    assert chosen[:4] == ["--application", "flight-delays", "--store", "aircraft"]
    assert {"--limit", "7", "--mode", "snapshot"} <= set(chosen)


def test_each_store_partition_has_a_square_with_its_snapshot(runner, monkeypatch):
    monkeypatch.setenv("STATESTORE_ARCHIVE", "file:///archive")
    rows = (
        store_row(ArchivedRow, "0_0", snapshot="0-1-a", grown_from="0-0-b", files=2, bytes=9),
        store_row(ArchivedRow, "0_1", failure=Failure(kind="StoreBehindLogStartError", message="offset 7 is gone")),
    )
    form = {"application": "flight-delays", "stores": ["aircraft"], "partitions": [0, 1]}
    states = runner.run("snapshot", form, SnapshotReport(**HEAD, archive="file:///archive", rows=rows))
    assert [state for _, state in states["check"]] == ["success", "failed"]
    assert runner.chosen == [
        [*("--application", "flight-delays", "--store", "aircraft"), *("--partition", "0", "--partition", "1")]
    ]
    assert headline(rows[0]).startswith("published 2 files, 9 bytes, from 0-0-b: 0 records")
