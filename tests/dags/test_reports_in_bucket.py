"""DAGs whose reports and Data Docs lie in object storage: no directory is shared by their tasks, jobs and the page."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from statestore_dags import steps
from statestore_dags.alerts import what_is_wrong
from statestore_dags.archive_connection import LastingAccess

from statestore.model import TaskId
from statestore.objects.path import ObjectPath, listing
from statestore.reports import (
    Action,
    RestoreReport,
    Status,
    ValidateReport,
    VerifyReport,
    VerifyRow,
    read_report,
)
from statestore.statedir.paths import TaskPaths
from statestore.verification.history import read_history
from tests.archive.counted import CountedStore
from tests.archive.faulty import status
from tests.archive.s3 import BUCKET, environment, running_s3
from tests.dags.api_server import ApiServer
from tests.dags.runner import Runner
from tests.dags.test_archive_connection import save_connection
from tests.dags.test_connections import DEFINITION, Watch, files_with, small_application
from tests.dags.test_dag_runs import HEAD
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


#: Leaves the prepared report where it is told to, in object storage, without any of our code.
STAND_IN = """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace
from urllib.request import Request, urlopen
here = Path(os.environ["STAND_IN_DIR"])
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + chr(10))
target = sys.argv[sys.argv.index("--report") + 1].removeprefix("s3:/")
url, content = os.environ["AWS_ENDPOINT_URL"] + target, (here / "report.json").read_bytes()
urlopen(Request(url, content, {"Content-Type": "application/json"}, method="PUT")).close()
"""


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedStore]:
    """Object storage, which the environment lets into."""
    made = CountedStore(endpoint)
    with made.running() as address:
        for name, value in environment(address).items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def in_bucket(
    runner: Runner, store: CountedStore, service_id: str, place: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> Runner:
    """Runs DAGs whose jobs are stand-ins that leave reports in the bucket."""
    monkeypatch.setenv("STATESTORE_SERVICE_ID", service_id)
    for job in (runner.directory / "jobs").iterdir():
        job.write_text(STAND_IN)
    return runner


def verified(*rows: VerifyRow) -> VerifyReport:
    return VerifyReport(run_id="r", applications=("flight-delays",), started_ms=0, finished_ms=1, rows=rows)


def row(task: str, status: Status, action: Action) -> VerifyRow:
    return VerifyRow(application="flight-delays", store="aircraft", task=task, status=status, action=action)


DAMAGED = verified(row("0_0", Status.OK, Action.NONE), row("0_1", Status.CORRUPT, Action.FULL))


def test_a_report_in_a_bucket_decides_colours_assets_and_the_restore(in_bucket: Runner, place: ObjectPath) -> None:
    states = in_bucket.run("verify", report=DAMAGED)
    assert states["check"] == [("flight-delays/aircraft/0_0", "success"), ("flight-delays/aircraft/0_1", "failed")]
    report = newest(place, "verify")
    (restore,) = in_bucket.triggered("restore")
    assert restore.conf == {"verify_report": str(report)}
    assert in_bucket.asset_events()["x-statestore://flight-delays/aircraft"]["report"] == str(report)
    assert read_report(report, VerifyReport).rows == DAMAGED.rows
    assert listing(place / "reports", "verify/.attempt-*/*") == []
    names = json.loads((place / "reports" / "metastore" / "names.json").read_bytes())
    assert names == {"flight-delays": ["aircraft", "airports"]}
    assert not (in_bucket.directory / "reports").exists()
    dag, run = SimpleNamespace(dag_id="verify"), in_bucket.dag_run.run_id
    assert "flight-delays/aircraft/0_1: CORRUPT" in what_is_wrong({"dag": dag, "run_id": run})

    arguments = json.loads((in_bucket.directory / "calls.jsonl").read_text().splitlines()[0])
    assert arguments[1].startswith(str(place / "reports" / "verify" / ".attempt-"))
    in_bucket.run("restore", restore.conf, RestoreReport(**HEAD, rows=()))
    assert in_bucket.dag_run.state == "success"
    arguments = json.loads((in_bucket.directory / "calls.jsonl").read_text().splitlines()[-1])
    assert arguments[arguments.index("--verify-report") + 1] == str(report)


@pytest.mark.long
def test_steps_are_tried_again_while_object_storage_does_not_answer(
    in_bucket: Runner, store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATESTORE_ARCHIVE_TIMEOUT_S", "2")
    gather = steps.gather
    failing = [1]

    def without_answer(*arguments):
        if failing:
            store.fail("GET", "reports/verify/", status(503))
            failing.pop()
        else:
            store.heal()
        return gather(*arguments)

    monkeypatch.setattr(steps, "gather", without_answer)
    states = in_bucket.run("verify", report=verified(row("0_0", Status.OK, Action.NONE)))
    assert (states["rows"], states["check"]) == ("success", [("flight-delays/aircraft/0_0", "success")])
    assert failing == []


@pytest.mark.short_for("{reports}/../secret.json-expected a name")
@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("{reports}/../secret.json", "expected a name below a URL of object storage"),
        ("s3://another/reports/verify/a.json", "expected a report below"),
        ("/etc/passwd", "expected a report below"),
        ("{reports}/verify/none.json", "no report at"),
    ],
)
def test_a_form_that_names_another_place_is_refused(
    in_bucket: Runner, place: ObjectPath, caplog: pytest.LogCaptureFixture, capfd, report: str, expected: str
) -> None:
    states = in_bucket.run("restore", {"verify_report": report.format(reports=place / "reports")})
    assert (states["plan"], in_bucket.dag_run.state) == ("failed", "failed")
    assert expected in "".join(capfd.readouterr()) + caplog.text
    assert not (in_bucket.directory / "calls.jsonl").exists()


@pytest.mark.long
@pytest.mark.parametrize("gone", ["s3://nobody/reports", None])
def test_a_bucket_that_is_gone_or_denied_ends_the_plan_before_any_job(
    in_bucket: Runner, store: CountedStore, monkeypatch: pytest.MonkeyPatch, gone: str | None
) -> None:
    if gone is None:
        store.fail("GET", "", status(403))
        store.fail("HEAD", "", status(403))
    else:
        monkeypatch.setenv("STATESTORE_REPORTS_DIR", gone)
    states = in_bucket.run("verify", report=DAMAGED)
    assert (states["plan"], in_bucket.dag_run.state) == ("failed", "failed")
    assert not (in_bucket.directory / "calls.jsonl").exists()


def test_only_where_reports_lie_in_object_storage_their_readers_are_retried(load_dags) -> None:
    retried = {task.task_id for task in load_dags("verify")["verify"].tasks if task.retries}
    assert retried == {"plan", "spark"}
    dag = load_dags("verify", STATESTORE_REPORTS_DIR="s3://bucket/reports")["verify"]
    assert {task.task_id: task.retries for task in dag.tasks if task.retries} == dict.fromkeys(
        ("plan", "spark", "rows", "check", "needs_restore"), 3
    )


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

    from statestore_ui import app

    # Only the connection has named endpoint and keys before.
    for variable, value in environment(endpoint).items():
        monkeypatch.setenv(variable, value)
    assert [row.status for row in read_report(newest(place, "verify"), VerifyReport).rows] == [Status.MISSING]
    assert [row.outcome for row in read_report(newest(place, "restore"), RestoreReport).rows] == ["restored"]
    validated = read_report(newest(place, "validate"), ValidateReport)
    assert [row.verdict for row in validated.rows] == ["passed"]
    assert read_history(place / "reports").num_rows == 1
    assert [path.suffix for path in listing(place / "reports", "metastore/*")] == [".backup", ".json"]
    assert listing(place / "reports", "*/.progress-*/*") == listing(place / "reports", "*/.attempt-*/*") == []
    assert not (installation / "reports").exists()
    assert not (installation / "data-docs").exists()

    assert "Spark-Submit cmd" in said
    assert (secret in said, watched.seen, watched.modes) == (False, set(), {0o600})
    assert files_with(secret, airflow_home, installation) == []
    assert sorted(os.listdir(temporary)) == []

    # The page has nothing but the bucket and the connection, either.
    for variable in environment(endpoint):
        monkeypatch.delenv(variable)
    monkeypatch.setattr(app, "access", LastingAccess())
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as `airflow api-server` has it

    def get(path: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {airflow_api.token}"}
        return requests.get(f"{airflow_api.url}/statestore/{path}", headers=headers, timeout=120)

    (row,) = get("api/partitions").json()["rows"]
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
    (credentials,) = temporary.iterdir()
    assert (credentials.stat().st_mode & 0o777, os.environ["STATESTORE_ARCHIVE_CONFIG"]) == (0o600, str(credentials))
    app.access.close()
    assert sorted(os.listdir(temporary)) == []
