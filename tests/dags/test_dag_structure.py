"""The DAG files load, and say what the scheduler and the form need to know."""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import BundleDagBag
from statestore_dags.restores import MOST_RUNS
from statestore_dags.suggestions import remember

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "dags"
JOBS = ("drill", "maintenance", "process", "restore", "snapshot", "validate", "verify")
IDS = ("drill", "maintenance", "metastore", *JOBS[2:4], "rewrite", "snapshot", "survey", "validate", "verify")


@pytest.fixture(scope="module")
def dags():
    """The DAGs of an environment without settings; nobody changes them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("STATESTORE_")]:
            patch.delenv(name)
        return BundleDagBag(FOLDER, bundle_path=FOLDER).dags


def test_each_dag_file_holds_the_dag_of_its_name(dags):
    files = sorted(path.stem for path in FOLDER.glob("*.py"))
    assert tuple(files) == IDS
    assert sorted(dags) == sorted((*IDS, "verify.deep"))
    assert all(dag.fileloc.endswith(f"dags/{dag_id.split('.')[0]}.py") for dag_id, dag in dags.items())


@pytest.mark.parametrize("dag_id", JOBS)
def test_each_dag_of_a_job_is_a_spark_job_for_each_application_between_a_plan_and_its_rows(dags, dag_id):
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    tasks = dags[dag_id].task_dict
    spark = tasks["spark"]
    assert issubclass(spark.operator_class, SparkSubmitOperator)
    assert spark.partial_kwargs["application"] == str(REPOSITORY / "jobs" / f"{dag_id}.py")
    assert spark.upstream_task_ids == {"plan", "approve"} & set(tasks)
    assert tasks["rows"].upstream_task_ids == {"plan", "spark"}
    assert tasks["check"].upstream_task_ids == {"rows"}
    assert all(tasks[name].is_mapped for name in ("spark", "check"))


@pytest.mark.parametrize("dag_id", JOBS)
def test_the_jvms_of_each_dag_are_bounded_and_a_pool_bounds_those_of_all(load_dags, dag_id):
    spark = load_dags(dag_id)[dag_id].task_dict["spark"]
    assert (spark.pool, spark.max_active_tis_per_dag) == ("default_pool", 2)  # on any new installation
    pools = {"STATESTORE_SPARK_POOL": "spark", "STATESTORE_RESTORE_POOL": "restores"}
    spark = load_dags(dag_id, **pools, STATESTORE_SPARK_JOBS="5")[dag_id].task_dict["spark"]
    # A long restore takes no slot of short jobs.
    assert (spark.pool, spark.max_active_tis_per_dag) == ("restores" if dag_id in ("drill", "restore") else "spark", 5)


@pytest.mark.parametrize("dag_id", IDS)
def test_only_steps_that_ask_kafka_are_retried(dags, dag_id):
    retried = {task.task_id: task.retries for task in dags[dag_id].tasks if task.retries}
    # A rewrite that failed is for a person to look at.
    others = {"metastore": {"plan": 3, "apply": 3}, "rewrite": {"plan": 3}, "survey": {"survey": 3}}
    assert retried == others.get(dag_id, {"plan": 3, "spark": 3})


def test_definitions_are_planned_then_applied_then_shown(dags):
    tasks = dags["metastore"].task_dict
    assert {name: task.upstream_task_ids for name, task in tasks.items()} == {
        "plan": set(),
        "apply": {"plan"},
        "check": {"apply"},
    }
    assert tasks["check"].is_mapped


def test_a_survey_runs_manually_unless_it_has_a_schedule(dags, load_dags):
    assert dags["survey"].timetable.can_be_scheduled is False
    found = load_dags("survey", STATESTORE_SURVEY_SCHEDULE="7 5 * * *")["survey"]
    assert found.timetable.expression == "7 5 * * *"
    assert found.task_dict["check"].upstream_task_ids == {"survey"}
    assert found.task_dict["check"].is_mapped


def test_a_rewrite_is_planned_then_approved_then_carried_out_then_shown(dags):
    tasks = dags["rewrite"].task_dict
    assert {name: task.upstream_task_ids for name, task in tasks.items()} == {
        "plan": set(),
        "approve": {"plan"},
        "rewrite": {"plan", "approve"},
        "check": {"rewrite"},
    }
    assert tasks["check"].is_mapped


@pytest.mark.parametrize("dag_id", IDS)
def test_each_dag_explains_itself(dags, dag_id):
    dag = dags[dag_id]
    assert all(heading in dag.doc_md for heading in ("What it does", "What a failure means", "What to do"))
    assert dag.tags
    assert dag.max_active_runs == (MOST_RUNS if dag_id == "restore" else 1)
    assert not dag.catchup
    for name in dag.params:
        param = dag.params.get_param(name)
        assert param.schema["title"], name
        assert param.description or param.schema["description_md"], name


def test_process_runs_by_time_and_tells_verify(dags):
    assert dags["process"].timetable.expression == "*/10 * * * *"
    (asset,) = dags["process"].task_dict["processed"].outlets
    assert asset.name == "statestore/processed"
    timetable = dags["verify"].timetable
    assert list(timetable.asset_condition.objects) == [asset]
    assert timetable.timetable.expression == "17 */6 * * *"


def test_an_application_may_have_a_schedule_and_with_it_a_dag_of_its_own(load_dags):
    dags = load_dags("process", STATESTORE_PROCESS_SCHEDULES='{"shop": "*/2 * * * *", "slow": ""}')
    assert {dag_id for dag_id in dags if dag_id.startswith("process")} == {"process", "process.shop", "process.slow"}
    assert dags["process.shop"].timetable.expression == "*/2 * * * *"
    assert dags["process.slow"].timetable.can_be_scheduled is False
    assert dags["process.shop"].params.dump() == {"application": "shop"}
    assert dags["process"].task_dict["plan"].op_kwargs["without"] == ["shop", "slow"]
    assert dags["process.shop"].task_dict["processed"].outlets == dags["process"].task_dict["processed"].outlets


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("STATESTORE_PROCESS_SCHEDULES", "{", "expected a JSON object"),
        ("STATESTORE_PROCESS_SCHEDULES", '["shop"]', "expected a JSON object"),
        ("STATESTORE_PROCESS_SCHEDULES", '{"shop": 5}', "expected a JSON object"),
        ("STATESTORE_PROCESS_SCHEDULES", '{"a/b": "@daily"}', "is not a valid name"),
        ("STATESTORE_PROCESS_SCHEDULES", '{"shop": "often"}', "application shop: 'often' is no cron expression"),
        ("STATESTORE_SPARK_JOBS", "0", "STATESTORE_SPARK_JOBS: expected a number from 1, found '0'"),
        ("STATESTORE_CHECK_BY", "store", "STATESTORE_CHECK_BY: expected row or application, found 'store'"),
        ("STATESTORE_DEADLINE_MINUTES", "soon", "STATESTORE_DEADLINE_MINUTES: expected a number of minutes above 0"),
        ("STATESTORE_DEADLINE_MINUTES", "0.0", "expected a number of minutes above 0, found '0.0'"),
    ],
)
def test_a_setting_that_is_wrong_is_an_import_error_that_says_so(monkeypatch, name, value, message):
    monkeypatch.setenv(name, value)
    errors = BundleDagBag(FOLDER / "process.py", bundle_path=FOLDER).import_errors
    assert message in errors["process.py"]


@pytest.mark.parametrize("dag_id", IDS)
def test_deadlines_and_alerts_are_there_when_they_are_wanted(load_dags, dag_id):
    from statestore_dags.alerts import Alert

    dag = load_dags(dag_id)[dag_id]
    assert (dag.deadline, dag.on_failure_callback) == (None, None)
    dag = load_dags(dag_id, STATESTORE_DEADLINE_MINUTES="90", STATESTORE_ALERT_NOTIFIER="somewhere.Notifier")[dag_id]
    (deadline,) = dag.deadline
    assert deadline.interval.total_seconds() == 90 * 60
    assert deadline.callback.path == "statestore_dags.alerts.Alert"
    assert [type(callback).__name__ for callback in dag.on_failure_callback] == [Alert.__name__]


def test_forms_suggest_the_names_that_the_last_run_has_found(load_dags, tmp_path):
    def examples(dag_id, field):
        dags = load_dags(dag_id, STATESTORE_REPORTS_DIR=str(tmp_path))
        return dags[dag_id].params.get_param(field).schema.get("examples")

    assert examples("restore", "application") is None
    stores = {name: SimpleNamespace(stores=[SimpleNamespace(name="counts")]) for name in ("shop", "bank")}
    remember(tmp_path, stores)
    assert examples("restore", "application") == examples("verify", "application") == ["bank", "shop"]
    assert examples("validate", "stores") == ["counts"]
    (tmp_path / "metastore" / "names.json").write_text('{"shop": ')
    assert examples("restore", "application") is None


def test_metastore_and_restore_run_only_when_asked(dags):
    for dag_id in ("metastore", "restore"):
        assert dags[dag_id].timetable.can_be_scheduled is False
        assert dags[dag_id].allowed_run_types == {"manual", "operator_triggered"}
        assert dags[dag_id].is_paused_upon_creation is False


def test_schedules_come_from_the_environment_and_may_be_empty(load_dags):
    dags = load_dags(STATESTORE_PROCESS_SCHEDULE="5 4 * * *", STATESTORE_VERIFY_SCHEDULE="6 4 * * *")
    assert dags["process"].timetable.expression == "5 4 * * *"
    assert dags["verify"].timetable.timetable.expression == "6 4 * * *"
    dags = load_dags(STATESTORE_PROCESS_SCHEDULE="", STATESTORE_VERIFY_SCHEDULE=" ")
    assert dags["process"].timetable.can_be_scheduled is False
    assert not hasattr(dags["verify"].timetable, "timetable")
    assert dags["verify"].timetable.asset_condition


def test_depths_and_schedules_of_verification_and_validation_are_settings(load_dags):
    dags = load_dags()
    assert dags["verify.deep"].timetable.expression == "29 2 * * *"
    form = {"application": None, "depth": "deep", "sample": 0.1, "live": False, "alert_at": 0.8}
    assert dags["verify.deep"].params.dump() == form
    assert dags["validate"].timetable.expression == "13 4 * * *"
    assert dags["validate"].allowed_run_types == {"manual", "operator_triggered", "scheduled"}
    assert dags["validate"].is_paused_upon_creation is False
    dags = load_dags(
        STATESTORE_VERIFY_AFTER_PROCESS="",
        STATESTORE_VERIFY_SCHEDULE="6 4 * * *",
        STATESTORE_VERIFY_DEEP_SCHEDULE="",
        STATESTORE_VERIFY_DEEP_SAMPLE=".5",
        STATESTORE_VALIDATE_SCHEDULE="",
    )
    assert dags["verify"].timetable.expression == "6 4 * * *"
    assert not dags["verify"].timetable.asset_condition
    assert dags["verify.deep"].timetable.can_be_scheduled is False
    assert dags["verify.deep"].params.dump()["sample"] == 0.5
    assert dags["validate"].timetable.can_be_scheduled is False


def test_snapshots_are_made_by_time_only_where_there_is_an_archive(load_dags):
    dags = load_dags("snapshot", STATESTORE_ARCHIVE=" ", STATESTORE_SNAPSHOT_SCHEDULE="5 4 * * *")
    assert dags["snapshot"].timetable.can_be_scheduled is False
    dags = load_dags("snapshot", STATESTORE_ARCHIVE="s3://bucket")
    assert dags["snapshot"].timetable.expression == "5 4 * * *"
    dags = load_dags("snapshot", STATESTORE_SNAPSHOT_SCHEDULE="")
    assert dags["snapshot"].timetable.can_be_scheduled is False


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("STATESTORE_VERIFY_AFTER_PROCESS", "quick", "expected one of offsets, scan, deep or nothing, found 'quick'"),
        ("STATESTORE_VERIFY_DEEP_SAMPLE", "0", "expected a number above 0 and at most 1, found '0'"),
        ("STATESTORE_VERIFY_DEEP_SAMPLE", "some", "expected a number above 0 and at most 1, found 'some'"),
        ("STATESTORE_VERIFY_ALERT_AT", "2", "expected a number above 0 and at most 1, found '2'"),
    ],
)
def test_a_depth_or_sample_that_is_none_is_an_import_error_that_says_so(monkeypatch, name, value, message):
    monkeypatch.setenv(name, value)
    errors = BundleDagBag(FOLDER / "verify.py", bundle_path=FOLDER).import_errors
    assert f"{name}: {message}" in errors["verify.py"]


def test_the_jobs_location_comes_from_the_environment(load_dags, tmp_path):
    dags = load_dags("verify", STATESTORE_JOBS_DIR=str(tmp_path))
    assert dags["verify"].task_dict["spark"].partial_kwargs["application"] == str(tmp_path / "verify.py")


@pytest.mark.parametrize(
    "conf",
    [
        {"partitions": ["one"]},
        {"partitions": [-1]},
        {"partitions": [1.5]},
        {"mode": "fast"},
        {"mode": None},
        {"stores": "aircraft"},
        {"force": "yes"},
        {"as_of": 7},
        {"dry_run": "yes"},
        {"deep_check": None},
        {"best_effort": 1},
        {"approval": "no"},
        {"application": 3},
    ],
)
def test_the_form_of_restore_refuses_what_its_schema_excludes(dags, conf):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError, match=next(iter(conf))):
        deepcopy(dags["restore"].params).update(conf)


@pytest.mark.parametrize("conf", [{"depth": "deeper"}, {"depth": None}, {"sample": 0}, {"sample": 2}, {"sample": "x"}])
def test_the_form_of_verify_refuses_what_its_schema_excludes(dags, conf):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError, match=next(iter(conf))):
        deepcopy(dags["verify"].params).update(conf)


@pytest.mark.parametrize("conf", [{"definitions": ""}, {"definitions": None}, {"definitions": 3}, {"dry_run": "yes"}])
def test_the_form_of_metastore_refuses_what_its_schema_excludes(dags, conf):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError, match=next(iter(conf))):
        deepcopy(dags["metastore"].params).update(conf)


def test_the_form_of_metastore_has_no_definitions_of_its_own(dags):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError, match="definitions"):
        dags["metastore"].params.validate()


def test_verify_by_time_scans_everything(dags):
    form = {"application": None, "depth": "scan", "sample": None, "live": False, "alert_at": 0.8}
    assert dags["verify"].params.dump() == form


def test_triggers_hang_on_the_rows_and_not_on_the_checks_that_fail(dags):
    for dag_id, triggered in (("verify", "restore"), ("restore", "validate")):
        assert dags[dag_id].task_dict[f"needs_{triggered}"].upstream_task_ids == {"plan", "rows"}
        trigger = dags[dag_id].task_dict[f"trigger_{triggered}"]
        assert trigger.upstream_task_ids >= {f"needs_{triggered}"}
        assert "check" not in trigger.get_flat_relative_ids(upstream=True)
        assert trigger.skip_when_already_exists is True
        assert trigger.wait_for_completion is False


def test_the_master_of_docker_compose_reaches_spark_submit_whole(monkeypatch):
    import yaml
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))
    connection = compose["services"]["airflow-scheduler"]["environment"]["AIRFLOW_CONN_SPARK_DEFAULT"]
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    command = SparkSubmitHook(conn_id="spark_default")._build_spark_submit_command("job.py")
    assert command[command.index("--master") + 1] == "spark://spark-master:7077"
