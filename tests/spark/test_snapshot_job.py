"""The job `snapshot` in Spark: what is published from the logs, and what is refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import snapshot as job
from statestore_jobs.entry import all_failed_for_now

from statestore.config import Settings
from statestore.errors import InputError
from statestore.recovery import snapshot_run
from statestore.reports import Failure, SnapshotReport
from statestore.requests.snapshot import SnapshotRequest
from tests.integration.broker import transaction
from tests.integration.support import Application, catalogue_of
from tests.spark.parcels import publish_or_die

Run = Callable[..., SnapshotReport]


@pytest.fixture
def application(bootstrap_servers: str, tmp_path: Path) -> Application:
    """Two store partitions of an application that processes at least once."""
    made = Application(bootstrap_servers, tmp_path, partitions=2, processing_guarantee="at_least_once")
    for partition, keys in ((0, 40), (1, 3)):
        rows = [(b"key-%02d" % number, b"%d" % number) for number in range(keys)]
        transaction(bootstrap_servers, made.changelog, rows, partition=partition)
    return made


@pytest.fixture
def run(spark: SparkSession, application: Application, tmp_path: Path) -> Run:
    """Run the job on a catalogue that has another application, too, which `process` publishes."""

    def call(request: SnapshotRequest | None = None, **changes: Any) -> SnapshotReport:
        settings = Settings(
            bootstrap_servers=application.servers,
            state_dir=application.state_dir,
            reports_dir=tmp_path / "reports",
            data_docs_dir=tmp_path / "docs",
            kafka_timeout_s=60,
            **{"archive": f"file://{tmp_path}/archive", **changes},
        )
        other = application.definition.model_copy(
            update={"name": "other", "processing_guarantee": "exactly_once_v2", "input_topic": "nowhere"}
        )
        catalogue = catalogue_of(application.definition, other, partitions=2)
        return job.run(request or SnapshotRequest(), settings, catalogue, "run")

    return call


def test_snapshots_grow_from_those_before_in_scratch_space_and_stores_are_not_touched(
    application: Application, run: Run, tmp_path: Path
) -> None:
    first = run()
    assert SnapshotReport.model_validate_json(first.model_dump_json()) == first
    assert [(row.task, row.grown_from, row.records, row.failure) for row in first.rows] == [
        ("0_0", None, 40, None),
        ("0_1", None, 3, None),
    ]
    assert all(row.snapshot and row.files and row.bytes for row in first.rows)
    assert first.applications == (application.name,)
    transaction(application.servers, application.changelog, [(b"new", b"1")], partition=1)
    request = SnapshotRequest(applications=(application.name,), partitions=(1,))
    (row,) = run(request, scratch_dir=tmp_path / "scratch").rows
    assert (row.task, row.grown_from, row.records) == ("0_1", first.rows[1].snapshot, 1)
    assert row.snapshot not in (None, first.rows[1].snapshot)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not (application.state_dir / application.name).exists()
    assert not list((tmp_path / "reports" / "snapshot").iterdir())


def test_without_an_archive_nothing_runs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "spark_session", lambda name: pytest.fail("a session was made"))
    with pytest.raises(InputError, match="Set STATESTORE_ARCHIVE"):
        run(archive=None)


@pytest.mark.long
def test_a_worker_that_dies_costs_its_own_row_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_run, "make_snapshot", publish_or_die)
    report = run()
    assert [(row.task, row.failure and row.failure.kind) for row in report.rows] == [
        ("0_0", None),
        ("0_1", "WorkerLostError"),
    ]
    assert all_failed_for_now(report) is None
    away = Failure(kind="ArchiveUnavailableError", message="no answer", retriable=True)
    rows = tuple(row.model_copy(update={"failure": away}) for row in report.rows)
    assert all_failed_for_now(report.model_copy(update={"rows": rows})) == f"{rows[0].label}: no answer"
