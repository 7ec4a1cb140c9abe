"""Kafka from an Airflow connection: what tasks and jobs get of it, and that nobody else gets to see its password."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from statestore_dags.spark import SparkJobOperator

from demo.processes import Processes
from statestore.errors import InputError
from statestore.model import TaskId
from statestore.reports import ProcessReport, RestoreReport, read_report
from statestore.statedir.paths import TaskPaths
from tests.dags.runner import Runner
from tests.integration.broker import create_topic, produce, unique, wait_for
from tests.integration.secured_broker import SecuredBroker

EXTRA = {
    "bootstrap.servers": "kafka.example:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "user",
    "sasl.password": "canary-7d20",
}
_NAMES = ("STATESTORE_KAFKA_CONFIG", "STATESTORE_KAFKA_CONN_ID", "STATESTORE_BOOTSTRAP_SERVERS")


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
    """Make the connection `kafka` with this extra, and return what reaches Kafka by it."""
    from statestore_dags.connections import kafka_connection

    def make(extra: object = EXTRA, directory: Path | None = None, **environment: str):
        for name in _NAMES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA", json.dumps({"conn_type": "kafka", "extra": extra}))
        for name, value in {"STATESTORE_KAFKA_CONN_ID": "kafka", **environment}.items():
            monkeypatch.setenv(name, value)
        return kafka_connection(directory)

    return make


def environment() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in _NAMES}


def test_the_connection_is_a_private_file_for_as_long_as_it_is_needed(connect, temporary: Path) -> None:
    connection = connect(STATESTORE_BOOTSTRAP_SERVERS="elsewhere:1")
    before = environment()
    with connection:
        path = Path(os.environ["STATESTORE_KAFKA_CONFIG"])
        assert json.loads(path.read_text()) == EXTRA
        assert path.stat().st_mode & 0o777 == 0o600
        assert os.environ["STATESTORE_BOOTSTRAP_SERVERS"] == "kafka.example:9093"
    assert list(temporary.iterdir()) == []
    assert environment() == before


@pytest.mark.parametrize(
    ("master", "shared"),
    [
        ({"host": "local[2]"}, False),
        ({"host": "local-cluster[2,1,1024]"}, False),
        ({"host": "spark://master", "port": 7077}, True),
        ({"host": "k8s://https://kubernetes.default.svc", "port": 443}, True),
        ({"host": "yarn"}, True),
    ],
)
def test_executors_on_other_machines_find_the_file_in_the_state_directory_that_they_share(
    connect, load_dags, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master, shared: bool
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **master}))
    for name in ("STATE", "REPORTS", "DATA_DOCS"):
        monkeypatch.setenv(f"STATESTORE_{name}_DIR", str(tmp_path / "state"))
    directory = SparkJobOperator(task_id="spark", conn_id="spark_default").seen_by_executors()
    with connect(directory=directory):
        path = Path(os.environ["STATESTORE_KAFKA_CONFIG"])
        assert path.parent == (tmp_path / "state" / ".statestore-kafka" if shared else temporary)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o077 == 0 or not shared
    assert list(path.parent.iterdir()) == []


def test_a_task_that_fails_leaves_nothing(connect, temporary: Path) -> None:
    connection = connect()
    before = environment()
    with pytest.raises(ZeroDivisionError), connection:
        raise ZeroDivisionError
    assert list(temporary.iterdir()) == []
    assert environment() == before


def test_without_a_connection_the_environment_alone_says_how_kafka_is_reached(connect, temporary: Path) -> None:
    connection = connect(STATESTORE_KAFKA_CONN_ID="", STATESTORE_BOOTSTRAP_SERVERS="elsewhere:1")
    before = environment()
    with connection:
        assert environment() == before
        assert list(temporary.iterdir()) == []


def test_brokers_that_the_connection_does_not_name_are_those_of_the_environment(connect) -> None:
    extra = {name: value for name, value in EXTRA.items() if name != "bootstrap.servers"}
    with connect(extra, STATESTORE_BOOTSTRAP_SERVERS="elsewhere:1"):
        assert os.environ["STATESTORE_BOOTSTRAP_SERVERS"] == "elsewhere:1"
    with pytest.raises(InputError, match=r"connection 'kafka': its extra has no bootstrap\.servers"), connect(extra):
        pass


@pytest.mark.parametrize(
    ("extra", "environment", "expected"),
    [
        ({**EXTRA, "group.id": "x"}, {}, "extra of connection 'kafka': group.id cannot be set"),
        ({**EXTRA, "sasl.passwrod": "x"}, {}, "extra of connection 'kafka': sasl.passwrod is not an accepted property"),
        ("canary-7d20", {}, "extra of connection 'kafka': expected a JSON object.*, found no JSON"),
        ('["canary-7d20"]', {}, "extra of connection 'kafka': expected a JSON object.*, found list"),
        (EXTRA, {"STATESTORE_KAFKA_CONN_ID": "gone"}, "STATESTORE_KAFKA_CONN_ID: Airflow has no connection 'gone'"),
        (EXTRA, {"STATESTORE_KAFKA_CONFIG": "/a"}, "STATESTORE_KAFKA_CONN_ID and STATESTORE_KAFKA_CONFIG both"),
    ],
)
def test_what_is_wrong_with_a_connection_is_said_without_what_is_in_it(
    connect, temporary: Path, extra, environment, expected: str
) -> None:
    with pytest.raises(InputError, match=expected) as caught, connect(extra, **environment):
        pass
    assert "canary" not in str(caught.value)
    assert list(temporary.iterdir()) == []


_HOLD = """
import signal, sys
sys.path[:0] = sys.argv[1:]
from statestore_dags.connections import kafka_connection
with kafka_connection():
    print("held", flush=True)
    signal.pause()
"""


@pytest.mark.long
def test_a_worker_that_was_killed_leaves_a_file_that_the_next_task_removes(connect, temporary: Path) -> None:
    connection = connect()
    command = [sys.executable, "-c", _HOLD, str(Path(__file__).parents[2] / "dags")]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        wait_for(lambda: "held" in holder.stdout.readline(), "the connection to be in use", 120)
        (held,) = temporary.iterdir()
        with connection:
            assert len(list(temporary.iterdir())) == 2, "what another task uses is left alone"
        assert list(temporary.iterdir()) == [held]
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    assert held.exists()
    with connect():
        assert not held.exists()


# -- a whole run --------------------------------------------------------------------------------------------------


class Watch:
    """Looks at the command line and the environment of processes, and at private files, while something runs.

    Of this process, and of each that has been started since.

    Attributes
    ----------
    seen
        Where the secret was.
    modes
        Of the files that client configurations were passed in.
    """

    def __init__(self, secret: str, temporary: Path, pattern: str = "statestore-kafka-*") -> None:
        self.seen: set[str] = set()
        self.modes: set[int] = set()
        self.spark_submits = 0
        self._secret = secret.encode()
        self._temporary, self._pattern = temporary, pattern
        self._end = threading.Event()
        self._before = _processes() - {str(os.getpid())}
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.2):  # as often as is cheap: a process announces itself to nobody
            there = _processes()
            self._before &= there  # the number of a process that has ended may be another's by now
            for process in there - self._before:
                for what in ("cmdline", "environ"):
                    self._look(Path("/proc", process, what))
            for path in self._temporary.glob(self._pattern):
                try:
                    self.modes.add(path.stat().st_mode & 0o777)
                except FileNotFoundError:
                    continue

    def _look(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError:  # it has ended
            return
        self.spark_submits += b"SparkSubmit" in content
        if self._secret in content:
            self.seen.add(f"{path}: {content[:200]!r}")


def _processes() -> set[str]:
    return {name for name in os.listdir("/proc") if name.isdigit()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    directory = tmp_path_factory.mktemp("secured")
    with Processes(directory) as processes:
        yield SecuredBroker(processes, directory)


@pytest.fixture
def runner(airflow_home: Path, temporary: Path, tmp_path: Path, load_dags, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Run DAGs whose environment knows of Kafka nothing but the connection's id, with Spark's event log on."""
    events = tmp_path / "events"
    events.mkdir()
    settings = {"enabled": "true", "dir": events.as_uri(), "compress": "false", "rolling.enabled": "false"}
    lines = [f"spark.eventLog.{name} {value}\n" for name, value in settings.items()]
    (tmp_path / "spark-defaults.conf").write_text("".join(lines))
    for name in ("STATESTORE_JOBS_DIR", *_NAMES):
        monkeypatch.delenv(name, raising=False)
    variables = {
        "STATESTORE_KAFKA_CONN_ID": "secured",
        "STATESTORE_SERVICE_ID": unique("secured"),
        "STATESTORE_STATE_DIR": tmp_path / "state",
        "STATESTORE_REPORTS_DIR": tmp_path / "reports",
        "STATESTORE_DATA_DOCS_DIR": tmp_path / "data-docs",
        "SPARK_CONF_DIR": tmp_path,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    return Runner(tmp_path, load_dags)


DEFINITION = """\
name: {name}
input_topic: {name}-in
output_topics: [{name}-out]
processor: demo.flight_delays:process
stores: [{{name: aircraft}}]
"""


def small_application(servers: str) -> str:
    """Return the name of an application, not defined yet, whose topics are there, with input."""
    name = unique("app")
    for topic in (f"{name}-in", f"{name}-out"):
        create_topic(servers, topic)
    produce(servers, f"{name}-in", [(b"N1", b'{"dep_time": null}')])
    return name


def save_connection(extra: dict[str, str]) -> None:
    """Put the connection into Airflow's database, as its UI does."""
    from airflow.models import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.query(Connection).filter(Connection.conn_id == "secured").delete()
        session.add(Connection(conn_id="secured", conn_type="kafka", extra=json.dumps(extra)))


def files_with(secret: str, *directories: Path) -> list[Path]:
    """Return the files below the directories that hold the secret."""
    files = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if secret.encode() in path.read_bytes()]


# The jobs reach Kafka alike; what each does there with a password is tested without Airflow, too.
@pytest.mark.long
@pytest.mark.parametrize("job", ["process", "restore"])
def test_a_password_in_the_connection_is_nowhere_else(
    job: str,
    secured: SecuredBroker,
    runner: Runner,
    airflow_home: Path,
    temporary: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = small_application(secured.plain_servers)
    save_connection(secured.configuration("SASL_SSL", "SCRAM-SHA-512"))
    with Watch(secured.password, temporary) as watched:
        runner.run("metastore", {"definitions": DEFINITION.format(name=name)})
        assert runner.dag_run.state == "success"
        runner.run("process", {"application": name})
        assert runner.dag_run.state == "success"
        if job == "restore":
            shutil.rmtree(TaskPaths(runner.directory / "state", name, TaskId(0, 0)).store("aircraft"))
            runner.run("restore", {"application": name})
            assert runner.dag_run.state == "success"
    (report,) = (runner.directory / "reports" / job).glob("*.json")
    if job == "restore":
        assert [row.outcome for row in read_report(report, RestoreReport).rows] == ["restored"]
    else:
        assert [row.records_in for row in read_report(report, ProcessReport).rows] == [1]
    said = "".join(capfd.readouterr())
    events = "".join(path.read_text() for path in (runner.directory / "events").iterdir())
    # Else the search below would find nothing because there is nothing.
    assert "Spark-Submit cmd" in said
    assert "spark.executorEnv.STATESTORE_KAFKA_CONFIG" in events
    assert watched.spark_submits
    assert watched.modes == {0o600}
    assert [path for path in files_with("secured", airflow_home) if path.name.startswith("airflow.db")]
    assert secured.password not in said
    assert watched.seen == set()
    assert files_with(secured.password, airflow_home, runner.directory) == []


@pytest.mark.long
def test_a_wrong_password_fails_the_run_with_the_reason_and_is_shown_nowhere(
    secured: SecuredBroker, runner: Runner, airflow_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = unique("wrongcanary")
    save_connection({**secured.configuration(), "sasl.password": wrong})
    states = runner.run("verify")
    assert (states["plan"], states["spark"]) == ("failed", "upstream_failed")
    said = "".join(capfd.readouterr())
    assert "Authentication failed" in said
    assert wrong not in said
    assert files_with(wrong, airflow_home, runner.directory) == []
