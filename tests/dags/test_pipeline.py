"""The whole path on real parts: flights from Kafka, a definition, stores, damage, and all DAGs with real Spark jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo.damage import delete_directory, flip_bit, leave_open
from demo.flights import PARTITIONS, produce_flights
from demo.recompute import differences, expected
from demo.registering import DEFINITION
from statestore.metastore.definition_files import load_definitions
from statestore.model import TaskId
from statestore.statedir.paths import TaskPaths
from tests.dags.runner import Runner
from tests.integration.broker import unique

FLIGHTS = 4_000


@pytest.fixture
def pipeline(airflow_home, installation, load_dags, monkeypatch, bootstrap_servers):
    monkeypatch.setenv("STATESTORE_SERVICE_ID", unique("pipeline"))
    monkeypatch.delenv("STATESTORE_JOBS_DIR", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return Runner(installation, load_dags)


def report_of(runner: Runner, dag_id: str) -> list[dict]:
    """Rows of the newest report of a job."""
    newest = max((runner.directory / "reports" / dag_id).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return json.loads(newest.read_text())["rows"]


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_damaged_stores_are_found_rebuilt_and_validated_and_equal_a_recomputation(pipeline, bootstrap_servers):
    directory: Path = pipeline.directory
    produced = produce_flights(bootstrap_servers, directory / "flights.json", limit=FLIGHTS)
    application = load_definitions(DEFINITION)["flight-delays"]
    tasks = [TaskPaths(directory / "state", "flight-delays", TaskId(0, p)) for p in range(PARTITIONS)]
    expectation = expected(produced)

    states = pipeline.run("metastore", {"definitions": DEFINITION.read_text(encoding="utf-8")})
    assert (pipeline.dag_run.state, states["check"]) == ("success", [("flight-delays", "success")])

    pipeline.run("process", {"application": "flight-delays"})
    assert pipeline.dag_run.state == "success"
    event = pipeline.asset_events()["x-statestore://flight-delays/aircraft"]
    assert [offset is not None for offset in event["offsets"].values()] == [True] * PARTITIONS
    rows = report_of(pipeline, "process")
    assert sum(row["records_in"] for row in rows if row["task"].startswith("0_")) == FLIGHTS
    departures = sum(count for count, _ in expectation["departures"].values())
    assert sum(row["records_in"] for row in rows if row["task"].startswith("1_")) == departures
    assert {row["late_records"] for row in rows} == {0}
    assert differences(directory / "state", application, PARTITIONS, expectation) == []

    pipeline.run("verify")
    assert pipeline.dag_run.state == "success"
    assert {row["status"] for row in report_of(pipeline, "verify")} <= {"OK", "EMPTY"}

    delete_directory(tasks[0].store("aircraft"))
    flip_bit(tasks[1].store("aircraft"))
    leave_open(tasks[2].store("aircraft"))
    untouched = sorted((tasks[3].store("aircraft")).glob("*.sst"))

    states = pipeline.run("verify")
    # Four partitions of the store `aircraft`, then four of each of the others.
    assert [state for _, state in states["check"]] == ["failed"] * 3 + ["success"] * 9
    assert [row["status"] for row in report_of(pipeline, "verify")][:4] == ["MISSING", "CORRUPT", "UNCLEAN", "OK"]
    (triggered,) = pipeline.triggered("restore")

    pipeline.run("restore", triggered.conf)
    assert pipeline.dag_run.state == "success"
    restored = report_of(pipeline, "restore")
    assert [(row["task"], row["outcome"]) for row in restored] == [(f"0_{p}", "restored") for p in range(3)]
    corrupt, unclean = (Path(row["quarantine"]) for row in restored if row["quarantine"])
    assert (corrupt.is_dir(), unclean.is_dir()) == (True, True)
    (triggered,) = pipeline.triggered("validate")

    pipeline.run("validate", triggered.conf)
    assert pipeline.dag_run.state == "success"
    assert {row["verdict"] for row in report_of(pipeline, "validate")} == {"passed"}
    assert (corrupt.exists(), unclean.exists()) == (False, False), "their changelogs can give them again"
    assert (directory / "data-docs" / "index.html").is_file()

    assert differences(directory / "state", application, PARTITIONS, expectation) == []
    assert sorted((tasks[3].store("aircraft")).glob("*.sst")) == untouched

    states = pipeline.run("restore", {"application": "flight-delays"})
    assert pipeline.dag_run.state == "success"
    assert {row["outcome"] for row in report_of(pipeline, "restore")} == {"skipped"}
    assert states["trigger_validate"] == "skipped"

    states = pipeline.run("maintenance")
    assert pipeline.dag_run.state == "success"
    assert {f"flight-delays/0_{p}" for p in range(PARTITIONS)} <= {label for label, _ in states["check"]}
    assert {row["removed_count"] for row in report_of(pipeline, "maintenance")} == {0}
    assert differences(directory / "state", application, PARTITIONS, expectation) == []
