"""The archive's credentials from an Airflow connection: what jobs get of them, and that nobody else sees them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from statestore_dags.archive_connection import archive_connection

from statestore.archive.archive import open_archive
from statestore.errors import InputError
from statestore.objects.credentials import archive_credentials
from statestore.reports import MaintenanceReport, ProcessReport, SnapshotReport, read_report
from tests.archive.s3 import BUCKET, running_s3
from tests.dags.runner import Runner
from tests.dags.test_connections import DEFINITION, Watch, files_with, small_application
from tests.integration.broker import unique

_NAMES = ("STATESTORE_ARCHIVE_CONFIG", "STATESTORE_ARCHIVE_CONNECTION", "AWS_SESSION_TOKEN")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of this test in which temporary files are made."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@pytest.fixture
def connect(airflow_home: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch):
    """Make the connection `archive`, and return what lets into the archive by it."""

    def make(connection: dict[str, object], directory: Path | None = None, **variables: str):
        for name in _NAMES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AIRFLOW_CONN_ARCHIVE", json.dumps(connection))
        for name, value in {"STATESTORE_ARCHIVE_CONNECTION": "archive", **variables}.items():
            monkeypatch.setenv(name, value)
        return archive_connection(directory)

    return make


AWS = {"conn_type": "aws", "login": "id", "password": "canary", "extra": {"region_name": "here", "endpoint_url": ""}}
KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "canary", "AWS_REGION": "here"}


def test_the_connection_is_a_private_file_for_as_long_as_it_is_needed(connect, temporary: Path, tmp_path) -> None:
    for directory in (None, tmp_path / "shared"):
        with connect(AWS, directory):
            path = Path(os.environ["STATESTORE_ARCHIVE_CONFIG"])
            assert path.parent == (directory or temporary)
            assert path.stat().st_mode & 0o777 == 0o600
            assert archive_credentials("s3") == KEYS
            assert not any("canary" in value for name, value in os.environ.items() if "AIRFLOW_CONN" not in name)
        assert list(path.parent.iterdir()) == []
        assert "STATESTORE_ARCHIVE_CONFIG" not in os.environ
    with connect(AWS, STATESTORE_ARCHIVE_CONNECTION=""):
        assert "STATESTORE_ARCHIVE_CONFIG" not in os.environ


@pytest.mark.parametrize(
    ("connection", "variables"),
    [
        ({"conn_type": "aws", "extra": {"region_name": "here"}}, {"AWS_REGION": "here"}),
        (
            {"conn_type": "aws", "login": "id", "password": "key", "extra": {"aws_session_token": "token"}},
            {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "token"},
        ),
        ({"conn_type": "wasb", "login": "account", "password": "key"}, {"AZURE_STORAGE_ACCOUNT_KEY": "key"}),
        ({"conn_type": "wasb", "extra": {"sas_token": "sv=1"}}, {"AZURE_STORAGE_SAS_TOKEN": "sv=1"}),
        (
            {"conn_type": "wasb", "login": "id", "password": "secret", "extra": {"tenant_id": "tenant"}},
            {"AZURE_CLIENT_ID": "id", "AZURE_CLIENT_SECRET": "secret", "AZURE_TENANT_ID": "tenant"},
        ),
        ({"conn_type": "generic", "extra": KEYS}, KEYS),
    ],
)
def test_each_type_of_connection_is_read_as_its_provider_reads_it(connect, connection, variables) -> None:
    with connect(connection):
        assert json.loads(Path(os.environ["STATESTORE_ARCHIVE_CONFIG"]).read_text()) == variables


@pytest.mark.parametrize(
    ("connection", "settings", "expected"),
    [
        ({**AWS, "extra": {"role_arn": "canary"}}, {}, "extra of connection 'archive': role_arn cannot be used"),
        ({"conn_type": "wasb", "extra": {"connection_string": "canary"}}, {}, "connection_string cannot be used"),
        ({"conn_type": "generic", "extra": {"AWS_SECRET": "canary"}}, {}, "AWS_SECRET is not one of AWS_ACCESS_KEY_ID"),
        ({"conn_type": "generic", "extra": "canary"}, {}, "expected a JSON object, found no JSON"),
        ({"conn_type": "generic", "extra": '["canary"]'}, {}, "expected a JSON object, found list"),
        (AWS, {"STATESTORE_ARCHIVE_CONNECTION": "gone"}, "Airflow has no connection 'gone'"),
        (AWS, {"STATESTORE_ARCHIVE_CONFIG": "/a"}, "STATESTORE_ARCHIVE_CONNECTION and STATESTORE_ARCHIVE_CONFIG both"),
    ],
)
def test_what_is_wrong_with_a_connection_is_said_without_what_is_in_it(
    connect, temporary: Path, connection, settings, expected: str
) -> None:
    with pytest.raises(InputError, match=expected) as caught, connect(connection, **settings):
        pass
    assert "canary" not in str(caught.value)
    assert list(temporary.iterdir()) == []


# -- whole runs -------------------------------------------------------------------------------------------------------


@pytest.fixture
def endpoint() -> Iterator[str]:
    with running_s3() as url:
        yield url


@pytest.fixture
def runner(
    installation: Path, airflow_home: Path, temporary: Path, load_dags, monkeypatch: pytest.MonkeyPatch
) -> Runner:
    """Run DAGs whose environment knows of the archive its URL and the connection, with Spark's event log on."""
    events = installation / "events"
    events.mkdir()
    settings = {"enabled": "true", "dir": events.as_uri(), "compress": "false", "rolling.enabled": "false"}
    lines = [f"spark.eventLog.{name} {value}\n" for name, value in settings.items()]
    (installation / "spark-defaults.conf").write_text("".join(lines))
    for name in ("STATESTORE_JOBS_DIR", *_NAMES):
        monkeypatch.delenv(name, raising=False)
    variables = {
        "STATESTORE_ARCHIVE": f"s3://{BUCKET}/stores",
        "STATESTORE_ARCHIVE_CONNECTION": "archive_of_stores",
        "STATESTORE_SERVICE_ID": unique("archived"),
        "SPARK_CONF_DIR": str(installation),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Runner(installation, load_dags)


def save_connection(endpoint: str, secret: str) -> None:
    """Put the connection into Airflow's database, as its UI does."""
    from airflow.models import Connection
    from airflow.utils.session import create_session

    extra = json.dumps({"region_name": "us-east-1", "endpoint_url": endpoint})
    with create_session() as session:
        session.query(Connection).filter(Connection.conn_id == "archive_of_stores").delete()
        session.add(
            Connection(conn_id="archive_of_stores", conn_type="aws", login="user", password=secret, extra=extra)
        )


@pytest.mark.long
def test_credentials_in_the_connection_reach_the_archive_and_are_nowhere_else(
    endpoint: str,
    runner: Runner,
    bootstrap_servers: str,
    airflow_home: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secret, name = unique("archivecanary"), small_application(bootstrap_servers)
    save_connection(endpoint, secret)
    reports = runner.directory / "reports"
    with Watch(secret, temporary, "statestore-archive-*") as watched:
        runner.run("metastore", {"definitions": DEFINITION.format(name=name)})
        for job in ("process", "snapshot", "maintenance"):
            runner.run(job, {} if job == "maintenance" else {"application": name})
            assert runner.dag_run.state == "success", job
    (path,) = (reports / "process").glob("*.json")
    (processed,) = (row.snapshots for row in read_report(path, ProcessReport).rows)
    (path,) = (reports / "snapshot").glob("*.json")
    (made,) = read_report(path, SnapshotReport).rows
    assert (made.failure, made.grown_from) == (None, processed[0].snapshot)
    (path,) = (reports / "maintenance").glob("*.json")
    places = {row.place: row.failure for row in read_report(path, MaintenanceReport).rows}
    assert (places["archive/marked"], places["archive/files"]) == (None, None)
    for variable, value in {
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)  # only the connection has named it before
    assert list(open_archive(f"s3://{BUCKET}/stores", create=False).entries("stores"))
    said = "".join(capfd.readouterr())
    events = "".join(path.read_text() for path in (runner.directory / "events").iterdir())
    # Else the search below would find nothing because there is nothing.
    assert "Spark-Submit cmd" in said
    assert "spark.executorEnv.STATESTORE_ARCHIVE_CONFIG" in events
    assert watched.spark_submits
    assert watched.modes == {0o600}
    assert secret not in said
    assert watched.seen == set()
    assert files_with(secret, airflow_home, runner.directory) == []
