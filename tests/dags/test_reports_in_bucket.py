"""DAGs whose reports and Data Docs lie in object storage: no directory is shared by their tasks, jobs and the page."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from statestore.model import TaskId
from statestore.objects.path import ObjectPath, found
from statestore.reports import RestoreReport, Status, ValidateReport, VerifyReport, read_report
from statestore.statedir.paths import TaskPaths
from statestore.verification.history import read_history
from tests.archive.s3 import BUCKET, environment, running_s3
from tests.dags.api_server import ApiServer
from tests.dags.runner import Runner
from tests.dags.test_archive_connection import save_connection
from tests.dags.test_connections import DEFINITION, Watch, files_with, small_application
from tests.integration.broker import unique


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with running_s3() as url:
        yield url


@pytest.fixture
def place(endpoint: str, installation: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """Where reports and Data Docs are to lie, with nothing in it."""
    place = ObjectPath(f"s3://{BUCKET}/{unique('place')}")
    monkeypatch.setenv("STATESTORE_REPORTS_DIR", str(place / "reports"))
    monkeypatch.setenv("STATESTORE_DATA_DOCS_DIR", str(place / "data docs"))
    monkeypatch.setenv("STATESTORE_SERVICE_ID", unique("bucket"))
    return place


def newest(place: ObjectPath, job: str) -> ObjectPath:
    """The report of a job's last run."""
    return max((place / "reports" / job).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_damaged_store_is_found_restored_and_validated_by_tasks_that_share_no_directory(
    endpoint: str,
    place: ObjectPath,
    airflow_home: Path,
    airflow_api: ApiServer,
    installation: Path,
    load_dags,
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    for name in ("STATESTORE_JOBS_DIR", "STATESTORE_ARCHIVE_CONFIG", *environment(endpoint)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STATESTORE_ARCHIVE_CONNECTION", "archive_of_stores")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    runner, name, secret = Runner(installation, load_dags), small_application(bootstrap_servers), unique("canary")
    save_connection(endpoint, secret)
    with Watch(secret, temporary, "statestore-archive-*") as watched:
        runner.run("metastore", {"definitions": DEFINITION.format(name=name)})
        assert runner.dag_run.state == "success"
        runner.run("process")
        assert runner.dag_run.state == "success"
        shutil.rmtree(TaskPaths(installation / "state", name, TaskId(0, 0)).store("aircraft"))
        states = runner.run("verify")
        assert states["check"] == [(f"{name}/aircraft/0_0", "failed")]
        (restore,) = runner.triggered("restore")
        assert restore.conf["verify_report"].startswith(str(place / "reports" / "verify"))
        runner.run("restore", restore.conf)
        assert runner.dag_run.state == "success"
        (validate,) = runner.triggered("validate")
        runner.run("validate", validate.conf)
        assert runner.dag_run.state == "success"
        runner.run("maintenance")
        assert runner.dag_run.state == "success"
    said = "".join(capfd.readouterr())

    # Only the connection has named endpoint and keys before.
    for variable, value in environment(endpoint).items():
        monkeypatch.setenv(variable, value)
    assert [row.status for row in read_report(newest(place, "verify"), VerifyReport).rows] == [Status.MISSING]
    assert [row.outcome for row in read_report(newest(place, "restore"), RestoreReport).rows] == ["restored"]
    validated = read_report(newest(place, "validate"), ValidateReport)
    assert [row.verdict for row in validated.rows] == ["passed"]
    assert read_history(place / "reports").num_rows == 1
    assert [path.suffix for path in found(place / "reports", "metastore/*")] == [".backup", ".json"]
    assert found(place / "reports", "*/.progress-*/*") == found(place / "reports", "*/.attempt-*/*") == []
    assert not (installation / "reports").exists()
    assert not (installation / "data-docs").exists()

    assert "Spark-Submit cmd" in said
    assert (secret in said, watched.seen, watched.modes) == (False, set(), {0o600})
    assert files_with(secret, airflow_home, installation) == []
    assert sorted(os.listdir(temporary)) == []

    # The page has nothing but the bucket, either.
    def get(path: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {airflow_api.token}"}
        return requests.get(f"{airflow_api.url}/statestore/{path}", headers=headers, timeout=120)

    (row,) = get("api/overview").json()["rows"]
    assert (row["status"], row["validate"]["verdict"]) == ("RESTORED", "passed")
    page = get(row["validate"]["data_docs"].removeprefix("statestore/"))
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f"{name}.aircraft" in page.text
    index = get("docs/").text
    assert f"{name}/aircraft" in index
    for link in (part.split("'")[0] for part in index.split("href='")[1:]):
        assert get(f"docs/{link}").status_code == 200, link
    assert json.loads(get("reports").text).keys() == {"process", "verify", "restore", "validate"}
    assert len(get(f"api/history?application={name}").json()["points"]) == 1
