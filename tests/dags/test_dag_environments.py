"""Many teams in one Airflow: DAGs of each environment, which run beside each other with their own settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statestore.config import load_settings
from statestore.metastore.metastore import Metastore
from statestore.reports import Action, Status
from tests.dags.test_several_applications import report_of
from tests.integration.broker import unique
from tests.integration.support import put

FILE = """
payments:
  applications: [shop]
  settings:
    STATESTORE_STATE_DIR: {state_dir}
    STATESTORE_SPARK_POOL: payments
    STATESTORE_SPARK_JOBS: 5
    STATESTORE_VERIFY_SCHEDULE: "5 * * * *"
    STATESTORE_VALIDATE_SCHEDULE: ""
"""


@pytest.fixture
def two(monkeypatch, tmp_path):
    """A file with one environment."""
    path = tmp_path / "environments.yaml"
    path.write_text(FILE.format(state_dir=tmp_path / "payments"))
    monkeypatch.setenv("STATESTORE_ENVIRONMENTS", str(path))
    return path


def test_each_environment_has_its_dags_with_its_pool_and_schedules(two, load_dags):
    dags = load_dags(STATESTORE_DAG_PREFIX="stores_")
    jobs = {
        "process",
        "verify",
        "verify.deep",
        "restore",
        "validate",
        "snapshot",
        "drill",
        "rewrite",
        "metastore",
        "survey",
        "maintenance",
    }
    assert dags.keys() == {f"stores_{environment}{job}" for environment in ("", "payments.") for job in jobs}
    ours, theirs = dags["stores_verify"], dags["stores_payments.verify"]
    assert [dag.task_dict["spark"].pool for dag in (ours, theirs)] == ["default_pool", "payments"]
    assert [dag.task_dict["spark"].max_active_tis_per_dag for dag in (ours, theirs)] == [2, 5]
    assert [type(dags[f"stores_{of}validate"].timetable).__name__ for of in ("", "payments.")] == [
        "CronTriggerTimetable",
        "NullTimetable",
    ]
    assert "payments" in theirs.tags
    triggers = {name: dags[name].task_dict["trigger_restore"].trigger_dag_id for name in dags if "verify" in name}
    assert triggers == {name: f"{name.split('verify')[0]}restore" for name in triggers}
    followed = {
        name: [asset.name for asset in dags[name].timetable.asset_condition.objects]
        for name in ("stores_verify", "stores_payments.verify")
    }
    assert followed == {
        "stores_verify": ["statestore/stores_processed"],
        "stores_payments.verify": ["statestore/stores_payments.processed"],
    }
    told = dags["stores_payments.process"].task_dict["processed"].outlets
    assert [asset.name for asset in told] == ["statestore/stores_payments.processed"]


@pytest.fixture
def service(monkeypatch, installation):
    """A catalogue with the applications `bank` and `shop`."""
    from statestore.definitions.application import ApplicationDefinition
    from statestore.definitions.store import StoreDefinition

    monkeypatch.setenv("STATESTORE_SERVICE_ID", unique("environments"))
    metastore = Metastore.of(load_settings())
    for name in ("bank", "shop"):
        definition = ApplicationDefinition(
            name=name, input_topic=f"{name}-in", processor="a:b", stores=(StoreDefinition(name="totals"),)
        )
        put(metastore, definition, {definition.input_topic: 1})


@pytest.mark.long
def test_a_run_works_on_the_applications_of_its_environment_with_its_settings(service, two, runner):
    damaged = report_of("shop", status=Status.MISSING, action=Action.FULL)
    states = runner.run("payments.verify", report=damaged)
    assert states["spark"] == [("shop", "success")]
    assert runner.settings["STATESTORE_STATE_DIR"].endswith("/payments")
    (restore,) = runner.triggered("payments.restore")
    assert Path(restore.conf["verify_report"]).parent.name == "verify"
    found = restore.conf["verify_report"]

    states = runner.run("verify", report=report_of("bank", status=Status.OK, action=Action.NONE))
    assert states["spark"] == [("bank", "success")]
    assert runner.settings["STATESTORE_STATE_DIR"].endswith("/state")

    names = runner.directory / "reports" / "metastore" / "names.json"
    assert json.loads(names.read_text()) == {"bank": ["totals"], "shop": ["totals"]}
    for conf in ({"application": "shop"}, {"verify_report": found}):
        assert runner.run("restore", conf)["plan"] == "failed", "it would look for the stores in another directory"


def test_runs_by_time_of_two_environments_have_reports_of_their_own(tmp_path):
    from statestore_dags.report_parts import report_path

    dag_ids = ("verify", "payments.verify", "weather.verify", "process", "process.payments", "payments.process")
    paths = {report_path(tmp_path, dag_id, "scheduled__2026") for dag_id in dag_ids}
    assert len(paths) == len(dag_ids)


def test_a_verification_of_all_is_known_in_each_environment(monkeypatch):
    from statestore_ui.overview import _verifies_all
    from statestore_ui.report_rows import Head

    monkeypatch.setenv("STATESTORE_DAG_PREFIX", "stores_")
    known = {
        dag_id: _verifies_all(Head.model_construct(dag_id=dag_id))
        for dag_id in ("stores_verify", "stores_payments.verify", "stores_verify.deep", "stores_process", None)
    }
    assert [dag_id for dag_id, whole in known.items() if whole] == ["stores_verify", "stores_payments.verify"]
