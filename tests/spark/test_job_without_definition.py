"""The jobs `verify`, `restore`, and `drill` on an application without a definition, which the environment lists."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from statestore_jobs import without_definition as job
from statestore_jobs.drill import how_to_drill

from statestore.config import Settings
from statestore.environments import KafkaStreamsApplication
from statestore.errors import InputError, LockedError
from statestore.reports import Action, DrillReport, RestoreReport, Status
from statestore.requests.drill import DrillRequest
from statestore.requests.restore import RestoreRequest
from statestore.requests.verify import VerifyRequest
from statestore.statedir.lock import locked
from tests.integration.support import STORE, Application


def settings_of(servers: str, directory: Path) -> Settings:
    """Return the settings of an installation whose own state directory is another one."""
    return Settings(
        bootstrap_servers=servers,
        state_dir=directory / "own",
        reports_dir=directory / "reports",
        data_docs_dir=directory / "docs",
        kafka_timeout_s=60,
    )


@pytest.mark.parametrize("state_dir", ["nowhere", "empty"])
def test_a_directory_that_is_not_visible_or_empty_is_never_ok(tmp_path: Path, state_dir: str) -> None:
    (tmp_path / "empty" / "billing").mkdir(parents=True)
    listed = KafkaStreamsApplication(state_dir=tmp_path / state_dir)
    request = VerifyRequest(applications=("billing",))
    (row,) = job.verify(request, settings_of("127.0.0.1:1", tmp_path), listed, "run").rows
    assert (row.label, row.status, row.action) == ("billing/-/-", Status.UNDETERMINED, Action.BY_HAND)
    assert f"{tmp_path / state_dir / 'billing'} on " in row.detail


def test_without_a_state_directory_no_job_works(tmp_path: Path) -> None:
    request = RestoreRequest(applications=("billing",))
    with pytest.raises(InputError, match="has no state_dir for it"):
        job.restore(request, settings_of("127.0.0.1:1", tmp_path), KafkaStreamsApplication(), "run")


@pytest.mark.long
def test_a_running_application_is_verified_and_only_a_stopped_one_is_restored(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"k%d" % at, b"v") for at in range(50)])
    spec = application.store_spec()
    listed, settings = (
        KafkaStreamsApplication(state_dir=spec.state_dir, version="4.3.1"),
        settings_of(bootstrap_servers, tmp_path),
    )
    names = (application.name,)

    def verified(**how: object) -> tuple[Status, bool]:
        report = job.verify(VerifyRequest(applications=names, depth="deep", **how), settings, listed, "run")
        (row,) = [row for row in report.rows if row.store == STORE]
        return row.status, row.live

    def restored() -> RestoreReport:
        report = job.restore(RestoreRequest(applications=names, stores=(STORE,)), settings, listed, "run")
        assert isinstance(report, RestoreReport)
        return report

    with locked(spec.paths, 1):
        assert verified() == (Status.PROVEN, True)
        with pytest.raises(LockedError, match="is locked by another process"):
            restored()
    assert verified() == (Status.OK, False)
    assert verified(live=True) == (Status.PROVEN, True)
    shutil.rmtree(spec.live)
    assert verified() == (Status.MISSING, False)
    (row,) = restored().rows
    assert (row.outcome, row.failure) == ("restored", None)
    assert verified() == (Status.OK, False)


@pytest.mark.long
def test_a_running_application_is_drilled_by_its_recorded_description(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"k%d" % at, b"v") for at in range(50)])
    spec, names = application.store_spec(), (application.name,)
    listed = KafkaStreamsApplication(state_dir=spec.state_dir, here_only=True)
    objectives = tmp_path / "objectives.yaml"
    objectives.write_text(f"{application.name}: {{restorable_within: 15m, proven_every: 7d}}")
    own = {"drill_dir": tmp_path / "drills", "drill_reserve_bytes": 0, "objectives": objectives}
    settings = settings_of(bootstrap_servers, tmp_path).model_copy(update=own)

    def drilled() -> DrillReport:
        request = DrillRequest(applications=names)
        return job.drill(request, settings, listed, how_to_drill(request, settings, "run", {}))

    with pytest.raises(InputError):  # nothing describes its stores
        drilled()
    job.verify(VerifyRequest(applications=names), settings, listed, "run")
    with locked(spec.paths, 1):
        report = drilled()
    (row,) = report.rows
    assert (row.store, row.standing, row.within_seconds, report.applications) == (STORE, "proven", 900.0, names)
    assert not [*(tmp_path / "drills").iterdir()]
