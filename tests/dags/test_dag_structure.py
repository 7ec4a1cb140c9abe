"""The DAG files load, and say what the scheduler and the form need to know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
JOBS = ("process", "restore", "validate", "verify")
IDS = ("metastore", *JOBS)
FORBIDDEN = ("confluent_kafka", "rocksdict", "pyspark", "pandas", "pyarrow", "great_expectations")


@pytest.fixture
def dags(load_dags):
    return load_dags()


def test_each_dag_file_holds_the_dag_of_its_name(dags):
    files = sorted(path.stem for path in (REPOSITORY / "dags").glob("*.py"))
    assert tuple(files) == IDS == tuple(sorted(dags))
    assert all(dag.fileloc.endswith(f"dags/{dag_id}.py") for dag_id, dag in dags.items())


def test_parsing_the_dag_files_imports_neither_kafka_nor_rocksdb_nor_spark():
    # The Spark provider belongs to it: 6.3.4 imports pyspark in neither its operator nor its hook.
    code = (
        "import runpy, sys; sys.path.append('dags')\n"
        f"for dag_id in {IDS}: runpy.run_path(f'dags/{{dag_id}}.py')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True
    )
    loaded = set(done.stdout.split())
    assert "airflow.providers.apache.spark.hooks.spark_submit" in loaded
    assert loaded.isdisjoint(FORBIDDEN)


@pytest.mark.parametrize("dag_id", JOBS)
def test_each_dag_of_a_job_is_one_spark_job_between_a_plan_and_its_rows(dags, dag_id):
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    dag = dags[dag_id]
    spark = [task for task in dag.tasks if isinstance(task, SparkSubmitOperator)]
    assert [task.task_id for task in spark] == ["spark"]
    assert spark[0].application == str(REPOSITORY / "jobs" / f"{dag_id}.py")
    assert spark[0].upstream_task_ids == {"plan"}
    assert dag.task_dict["check"].upstream_task_ids == {"rows"}
    assert dag.task_dict["check"].is_mapped


@pytest.mark.parametrize("dag_id", IDS)
def test_only_steps_that_ask_kafka_are_retried(dags, dag_id):
    retried = {task.task_id: task.retries for task in dags[dag_id].tasks if task.retries}
    assert retried == {"plan": 1, "apply" if dag_id == "metastore" else "spark": 1}


def test_definitions_are_planned_then_applied_then_shown(dags):
    tasks = dags["metastore"].task_dict
    assert {name: task.upstream_task_ids for name, task in tasks.items()} == {
        "plan": set(),
        "apply": {"plan"},
        "check": {"apply"},
    }
    assert tasks["check"].is_mapped


@pytest.mark.parametrize("dag_id", IDS)
def test_each_dag_explains_itself(dags, dag_id):
    dag = dags[dag_id]
    assert all(heading in dag.doc_md for heading in ("What it does", "What red means", "What to do"))
    assert dag.tags
    assert dag.max_active_runs == 1
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
    assert timetable.timetable.expression == "17 * * * *"


def test_metastore_restore_and_validate_run_only_when_asked(dags):
    for dag_id in ("metastore", "restore", "validate"):
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


def test_the_jobs_location_comes_from_the_environment(load_dags, tmp_path):
    dags = load_dags(STATESTORE_JOBS_DIR=str(tmp_path))
    assert dags["verify"].task_dict["spark"].application == str(tmp_path / "verify.py")


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
        {"application": 3},
    ],
)
def test_the_form_of_restore_refuses_what_its_schema_excludes(dags, conf):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError, match=next(iter(conf))):
        dags["restore"].params.update(conf)


@pytest.mark.parametrize("conf", [{"depth": "deeper"}, {"depth": None}, {"sample": 0}, {"sample": 2}, {"sample": "x"}])
def test_the_form_of_verify_refuses_what_its_schema_excludes(dags, conf):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError, match=next(iter(conf))):
        dags["verify"].params.update(conf)


@pytest.mark.parametrize("conf", [{"definitions": ""}, {"definitions": None}, {"definitions": 3}, {"dry_run": "yes"}])
def test_the_form_of_metastore_refuses_what_its_schema_excludes(dags, conf):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError, match=next(iter(conf))):
        dags["metastore"].params.update(conf)


def test_the_form_of_metastore_has_no_definitions_of_its_own(dags):
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError, match="definitions"):
        dags["metastore"].params.validate()


def test_verify_by_time_scans_everything(dags):
    assert dags["verify"].params.dump() == {"application": None, "depth": "scan", "sample": None}


def test_triggers_hang_on_the_rows_and_not_on_the_checks_that_fail(dags):
    for dag_id, triggered in (("verify", "restore"), ("restore", "validate")):
        assert dags[dag_id].task_dict[f"needs_{triggered}"].upstream_task_ids == {"rows"}
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
