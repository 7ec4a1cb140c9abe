"""An Airflow of its own for the DAG tests: SQLite in a temporary directory, our dags/ and plugins/, no examples.

Airflow reads its configuration when it is first imported, so the environment is set here, before any test module is.
"""

from __future__ import annotations

import atexit
import base64
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from statestore.kafka.cluster import Cluster
from statestore.metastore.definition_files import parse_definitions
from statestore.metastore.metastore import Metastore
from tests.dags.api_server import ApiServer, api_server
from tests.dags.database import migrated_database
from tests.dags.runner import Runner
from tests.integration.broker import unique
from tests.integration.support import put

if TYPE_CHECKING:
    from airflow.sdk import DAG

REPOSITORY = Path(__file__).resolve().parents[2]
_LONGEST_S = 600
_HOME = Path(tempfile.mkdtemp(prefix="statestore-airflow-"))
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

os.environ.update(
    {
        "AIRFLOW_HOME": str(_HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        # Without one, connections would lie in the database as they are.
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
        # spark-submit and the Python of the workers are those of this environment.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
    }
)
# As Airflow does it, for the tests of what the DAG files import.
sys.path.append(str(REPOSITORY / "dags"))

DEFINITIONS = """\
name: flight-delays
input_topic: flights
processor: demo.flight_delays:FlightDelays
stores:
  - name: aircraft
  - name: airports
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound tests by a thread: Airflow takes the process's one alarm for itself whenever it parses a DAG file."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            own = item.get_closest_marker("timeout")
            longest_s = own.args[0] if own else _LONGEST_S
            item.add_marker(pytest.mark.timeout(longest_s, method="thread"), append=False)


@pytest.fixture(scope="session", autouse=True)
def _process_group_of_its_own() -> None:
    """Lead a process group, as an Airflow worker does.

    A job's driver ends when the leader of its group has ended. The leader of this process's group is a shell that may
    be gone, if the run was started in the background.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:  # else Ctrl-C would not reach this process
        os.setpgid(0, 0)


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    """AIRFLOW_HOME with a migrated database."""
    migrated_database(_HOME / "airflow.db")
    return _HOME


@pytest.fixture(scope="session")
def airflow_api(airflow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Airflow's API, with somebody who has logged in."""
    with api_server(tmp_path_factory.mktemp("api-server")) as server:
        yield server


@pytest.fixture(scope="session")
def service_id(bootstrap_servers: str) -> str:
    """A service whose catalogue has the definitions above; its jobs are stand-ins, so no topic is there."""
    service_id = unique("dags")
    for definition in parse_definitions(DEFINITIONS, "conftest.py").values():
        put(Metastore(Cluster(bootstrap_servers), service_id), definition, {definition.input_topic: 4})
    return service_id


@pytest.fixture
def installation(bootstrap_servers: str, service_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory with empty state, reports and Data Docs, set in the environment with the service above."""
    settings = {
        "BOOTSTRAP_SERVERS": bootstrap_servers,
        "SERVICE_ID": service_id,
        "STATE_DIR": tmp_path / "state",
        "REPORTS_DIR": tmp_path / "reports",
        "DATA_DOCS_DIR": tmp_path / "data-docs",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"STATESTORE_{name}", str(value))
    return tmp_path


#: Started in place of spark-submit, where a job is a stand-in: it needs no Spark, whose JVM takes seconds to start. The
#: pipeline and the exit codes are tested with the real one.
SUBMIT = """\
#!{python} -IS
import runpy, sys
application = next(at for at, argument in enumerate(sys.argv) if argument.endswith(".py"))
sys.argv[:] = sys.argv[application:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: Notes its arguments, then leaves the prepared report or ends with the prepared exit code, of its application if there
#: is one of its own.
STAND_IN = """\
import json, os, shutil, sys
from pathlib import Path
here = Path(os.environ["STAND_IN_DIR"])
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + chr(10))
settings = {name: value for name, value in os.environ.items() if name.startswith("STATESTORE_")}
(here / "settings.json").write_text(json.dumps(settings))
named = sys.argv[sys.argv.index("--application") + 1] if "--application" in sys.argv else ""
def prepared(name):
    return next((path for path in (here / f"{name}-{named}", here / name) if path.exists()), None)
if prepared("exit"):
    sys.exit(int(prepared("exit").read_text()))
target = Path(sys.argv[sys.argv.index("--report") + 1])
target.parent.mkdir(parents=True, exist_ok=True)
shutil.copy(prepared("report.json"), target)
"""


@pytest.fixture
def runner(airflow_home, installation, load_dags, monkeypatch) -> Runner:
    """Runs DAGs whose jobs are stand-ins: they leave the reports that a test has prepared."""
    jobs, binaries = installation / "jobs", installation / "bin"
    jobs.mkdir()
    binaries.mkdir()
    for job in ("process", "verify", "restore", "validate", "snapshot", "drill", "maintenance"):
        (jobs / f"{job}.py").write_text(STAND_IN)
    (binaries / "spark-submit").write_text(SUBMIT.format(python=sys.executable))
    (binaries / "spark-submit").chmod(0o755)
    monkeypatch.setenv("STATESTORE_JOBS_DIR", str(jobs))
    monkeypatch.setenv("STAND_IN_DIR", str(installation))
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    return Runner(installation, load_dags)


@pytest.fixture
def load_dags(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Mapping[str, DAG]]:
    """Load the DAG files, or the one of a DAG alone, as the DAG processor does, with the given environment."""

    def load(only: str = "", **environment: str) -> Mapping[str, DAG]:
        from airflow.dag_processing.dagbag import BundleDagBag

        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        folder = REPOSITORY / "dags"
        bag = BundleDagBag(folder / f"{only}.py" if only else folder, bundle_path=folder)
        assert bag.import_errors == {}
        return bag.dags

    return load
