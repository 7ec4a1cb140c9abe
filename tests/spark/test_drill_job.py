"""The job `drill` in Spark: drills in tasks, evidence on the driver, and stores that are not touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import drill as job

from statestore.config import Settings
from statestore.definitions.objectives import DrillBudget, RestoreObjectives
from statestore.drills.chain import Chain
from statestore.drills.evidence import Head
from statestore.drills.history import read_drill_history
from statestore.drills.keys import KEY_FILE, public_key, write_key_pair
from statestore.reports import DrillReport
from statestore.requests.drill import DrillRequest
from tests.integration.broker import transaction
from tests.integration.support import Application, catalogue_of


@pytest.mark.long
def test_drills_run_in_spark_tasks_and_leave_evidence(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objectives = RestoreObjectives(restorable_within=900_000, budget=DrillBudget(parallelism=2))
    application = Application(bootstrap_servers, tmp_path, partitions=2, objectives=objectives)
    for partition in range(2):
        rows = [(b"key-%02d" % number, b"%d" % number) for number in range(20)]
        transaction(bootstrap_servers, application.changelog, rows, partition=partition)
    write_key_pair(tmp_path / "key.pem", tmp_path / "key.pub")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key.pem"))
    settings = Settings(
        bootstrap_servers=application.servers,
        service_id=application.name,
        state_dir=application.state_dir,
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path / "docs",
        kafka_timeout_s=60,
        drill_dir=tmp_path / "drills",
        drill_reserve_bytes=0,
    )
    report = job.run(DrillRequest(), settings, catalogue_of(application.definition, partitions=2), "run")
    assert DrillReport.model_validate_json(report.model_dump_json()) == report
    assert [(row.task, row.standing, row.evidence) for row in report.rows] == [
        ("0_0", "proven", 1),
        ("0_1", "proven", 2),
    ]
    (head,) = report.evidence
    assert (head.length, head.recorded, head.problem) == (2, False, "")  # this service has no command topic
    chain = Chain(tmp_path / "reports" / "evidence", application.name)
    assert not chain.verify([public_key(tmp_path / "key.pub")], Head(head.length, head.sha256)).problems
    assert read_drill_history(tmp_path / "reports").num_rows == 2
    assert not application.state_dir.exists()
    assert not [*(tmp_path / "drills").iterdir()]
