"""A state directory that executors do not share with the driver is told before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import restore, verify
from statestore_jobs.parallel import run_each
from statestore_jobs.shared_state import shared_state

from statestore.config import Settings
from statestore.errors import UnsharedStateError
from statestore.requests.restore import RestoreRequest
from statestore.requests.verify import VerifyRequest
from tests.integration.support import Application, catalogue_of
from tests.spark.parcels import Row, mark

#: Each process sees a directory of its own there: the driver that where it stands, Spark's workers that where the JVM
#: does, which never changes its own. So one machine is as two that have mounted different disks at one place.
UNSHARED = Path("/proc/self/cwd")
STARTED_IN = Path.cwd()


@pytest.fixture
def unshared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory that is another one for the driver than for the workers."""
    monkeypatch.chdir(tmp_path)
    return UNSHARED / f"state-{tmp_path.name}"


def test_work_runs_where_all_see_the_drivers_nonce_and_nothing_is_left(spark: SparkSession, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with shared_state(spark, state):
        [ran] = run_each(spark, [tmp_path], mark, Row)
    assert ran.number != os.getpid()
    assert (tmp_path / "ran").exists()
    assert [path for path in state.rglob("*") if path.is_file()] == []


def test_a_state_directory_that_is_not_shared_ends_a_job_before_any_task(
    spark: SparkSession, unshared: Path, tmp_path: Path, bootstrap_servers: str
) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=1)
    application.send([(b"a", b"1")])
    settings = Settings(
        bootstrap_servers=bootstrap_servers,
        state_dir=unshared,
        reports_dir=tmp_path / "reports",
        data_docs_dir=tmp_path / "docs",
        kafka_timeout_s=60,
    )
    applications = (application.name,)
    for job, request in (
        (verify, VerifyRequest(applications=applications)),
        (restore, RestoreRequest(applications=applications)),
    ):
        with pytest.raises(UnsharedStateError, match=rf"{unshared}.* the driver on .* left there"):
            job.run(request, settings, catalogue_of(application.definition, partitions=1), "run")
    assert [path for path in unshared.rglob("*") if path.is_file()] == []
    assert not (STARTED_IN / unshared.name).exists(), "a worker has begun with a directory of its own"


def test_an_executor_that_comes_later_does_not_work_beside_the_drivers_directory(
    spark: SparkSession, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with shared_state(spark, tmp_path / "state"):
        [nonce] = (tmp_path / "state").rglob("shared-*")
        nonce.unlink()  # as an executor sees it that has mounted something else
        with pytest.raises(UnsharedStateError, match="does not find"):
            run_each(spark, [work], mark, Row)
    assert not list(work.iterdir())
