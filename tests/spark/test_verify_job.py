"""The job `verify` in Spark: stores that are in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import verify as job

from statestore.config import Settings
from statestore.reports import Status
from statestore.requests.verify import VerifyRequest
from statestore.statedir.lock import locked
from tests.integration.support import Application, catalogue_of


def test_a_store_in_use_is_looked_at_again_when_the_others_are_done(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    application.process([(b"a", b"1")])
    settings = Settings(
        bootstrap_servers=bootstrap_servers,
        state_dir=application.state_dir,
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path / "docs",
        kafka_timeout_s=60,
    )
    real, looked_at = job.run_each, []

    def in_use_at_first(session: SparkSession, parts: list[Any], *how: Any) -> Any:
        looked_at.append(sorted(str(spec.task) for part in parts for spec in part))
        if len(looked_at) > 1:
            return real(session, parts, *how)
        with locked(application.store_spec().paths):
            impatient = [[spec.model_copy(update={"lock_wait_s": 0.0}) for spec in part] for part in parts]
            return real(session, impatient, *how)

    monkeypatch.setattr(job, "run_each", in_use_at_first)
    request = VerifyRequest(applications=(application.name,), depth="offsets")
    report = job.run(request, settings, catalogue_of(application.definition, partitions=2), "run")
    assert looked_at == [["0_0", "0_1"], ["0_0"]]
    assert [(row.task, row.status) for row in report.rows] == [("0_0", Status.OK), ("0_1", Status.EMPTY)]
