"""The job `verify` in Spark: stores that are in use."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import verify as job

from statestore.cli.verification import Piece
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
    settings = settings_of(application, tmp_path)
    real, looked_at = job.in_spark_tasks, []

    def in_use_at_first(session: SparkSession, pieces: list[Piece]) -> Any:
        looked_at.append(sorted(str(spec.task) for piece in pieces for spec in piece.specs))
        if len(looked_at) > 1:
            return real(session, pieces)
        with locked(application.store_spec().paths):
            impatient = [[spec.model_copy(update={"lock_wait_s": 0.0}) for spec in piece.specs] for piece in pieces]
            return real(session, [piece._replace(specs=specs) for piece, specs in zip(pieces, impatient, strict=True)])

    monkeypatch.setattr(job, "in_spark_tasks", in_use_at_first)
    request = VerifyRequest(applications=(application.name,), depth="offsets")
    report = job.run(request, settings, catalogue_of(application.definition, partitions=2), "run")
    assert looked_at == [["0_0", "0_1"], ["0_0"]]
    assert [(row.task, row.status) for row in report.rows] == [("0_0", Status.OK), ("0_1", Status.EMPTY)]


def test_a_directory_of_a_partition_that_no_topic_has_is_a_row(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1")])
    task = application.store_spec().paths.task_dir
    shutil.copytree(task, task.with_name("0_7"))
    request = VerifyRequest(applications=(application.name,), depth="offsets")
    report = job.run(request, settings_of(application, tmp_path), catalogue_of(application.definition), "run")
    assert [(row.task, row.status) for row in report.rows] == [("0_0", Status.OK), ("0_7", Status.REPARTITIONED)]


def settings_of(application: Application, directory: Path) -> Settings:
    """Return the settings of an installation with the state directory of an application."""
    return Settings(
        bootstrap_servers=application.servers,
        state_dir=application.state_dir,
        reports_dir=directory / "reports",
        data_docs_dir=directory / "docs",
        kafka_timeout_s=60,
    )
