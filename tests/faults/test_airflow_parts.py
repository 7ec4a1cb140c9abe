"""Parts of a real Airflow that are killed in the middle of a restore: no damage, no double work, a state that tells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from demo.airflow_client import AirflowClient, DagRun
from demo.damage import flip_bit
from demo.flights import PARTITIONS, produce_flights
from demo.installation import Installation
from demo.kafka import Kafka
from demo.processes import Processes, wait_until
from demo.recompute import Rows, differences, expected
from demo.registering import DEFINITION, register
from statestore.metastore.definition_files import load_definitions
from statestore.model import TaskId
from statestore.partition.quarantine import quarantined
from statestore.reports import RestoreReport, Status, VerifyReport, read_report
from statestore.statedir.lock import locked
from statestore.statedir.paths import TaskPaths
from tests.documents import to_run
from tests.faults.airflow_parts import AirflowParts, pause, spark_task, tries

pytestmark = pytest.mark.long
APPLICATION, STORE = "flight-delays", "aircraft"
FLIGHTS = 2_000
DAGS = ["metastore", "process", "verify", "restore", "validate", "snapshot", "rewrite", "maintenance"]
_RUN_S = 600


class System(NamedTuple):
    """A running installation, whose stores have all flights."""

    installation: Installation
    servers: str
    airflow: AirflowParts
    client: AirflowClient
    expectation: dict[str, Rows]

    def statestore(self, *arguments: str) -> None:
        """Run the command."""
        command = [sys.executable, "-m", "statestore.cli", *arguments]
        ran = subprocess.run(
            command, env=self.installation.environment(self.servers), capture_output=True, text=True, timeout=_RUN_S
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """An Airflow with its own Kafka, and an application that has processed its input."""
    installation = Installation(tmp_path_factory.mktemp("system"))
    installation.create()
    with Processes(installation.root) as processes:
        servers = Kafka(processes, installation.kafka_dir).start()
        produced = produce_flights(servers, installation.root / "flights.json", limit=FLIGHTS)
        register(processes, installation, servers)
        airflow = AirflowParts(processes, installation, servers)
        system = System(installation, servers, airflow, airflow.start(), expected(produced))
        system.statestore("process", "--application", APPLICATION)
        system.client.wait_for_dags(DAGS, _RUN_S)
        system.client.unpause("restore")
        # A store that passes lets go of its predecessor, by which these tests know how often it was replaced.
        pause(system.client, "validate")
        yield system


@pytest.fixture
def damaged(system: System, request: pytest.FixtureRequest) -> TaskPaths:
    """A task whose store has a flipped bit; each test has its own."""
    partition = CASES.index(request.node.originalname)
    paths = TaskPaths(system.installation.state_dir, APPLICATION, TaskId(0, partition))
    with locked(paths, _RUN_S):
        flip_bit(paths.store(STORE))
    return paths


def begin(system: System, damaged: TaskPaths, run_id: str) -> None:
    """Start a restore of the store."""
    form = {"application": APPLICATION, "stores": [STORE], "partitions": [damaged.task.partition]}
    system.airflow.arm()
    system.client.trigger("restore", form, run_id)


def end_well(system: System, damaged: TaskPaths, run_id: str) -> DagRun:
    """Wait for the restore's end; no damage is left, and nothing was done twice."""
    run = system.client.wait_for_run("restore", run_id, _RUN_S)
    assert len([each for each in system.client.runs("restore") if each.run_id.startswith(run_id)]) == 1
    assert len(quarantined(damaged, STORE)) == 1, "the store was not replaced once"
    report = system.installation.root / "verified.json"
    system.statestore("verify", "--application", APPLICATION, "--depth", "deep", "--json", str(report))
    assert {row.status for row in read_report(report, VerifyReport).rows} <= {Status.OK, Status.EMPTY}
    definition = load_definitions(DEFINITION)[APPLICATION]
    assert differences(system.installation.state_dir, definition, PARTITIONS, system.expectation) == []
    return run


def tells_of_another_try(system: System, run: DagRun) -> None:
    """The run has ended well, its first attempt has not, and the report is that of the last one."""
    assert run.state == "success", system.client.explain(run)
    *before, last = tries(system.client, "restore", run.run_id)
    assert before, "one attempt was enough"
    assert ("success" in before, last) == (False, "success")
    (row,) = restored(system, run.run_id).rows
    assert (row.outcome, row.before) == ("restored", Status.CORRUPT)


def restored(system: System, run_id: str) -> RestoreReport:
    """Return the run's report; nothing of an attempt lies beside it."""
    path = Path(system.client.xcom("restore", run_id, "plan", "report"))
    assert [file for file in path.parent.iterdir() if file.name.startswith(".")] == [], "something is left over"
    return read_report(path, RestoreReport)


@pytest.mark.timeout(900)
def test_a_scheduler_that_is_killed_leaves_the_restore_to_the_next_one(system: System, damaged: TaskPaths) -> None:
    run_id = "scheduler-killed"
    begin(system, damaged, run_id)
    job = system.airflow.paused()
    system.airflow.kill("scheduler")
    system.airflow.start_again("scheduler")
    # The next scheduler does not adopt what the other's executor has started: its worker is told to end the task.
    job.wait_until_gone()
    run = end_well(system, damaged, run_id)
    tells_of_another_try(system, run)


@pytest.mark.timeout(900)
def test_a_worker_that_is_killed_is_found_and_its_task_done_once(system: System, damaged: TaskPaths) -> None:
    run_id = "worker-killed"
    begin(system, damaged, run_id)
    job = system.airflow.paused()
    job.kill_airflow_task()
    # Nobody waits for the Spark job any more: it ends, before Airflow finds out and begins another one.
    job.wait_until_gone()
    run = end_well(system, damaged, run_id)
    tells_of_another_try(system, run)


@pytest.mark.timeout(900)
def test_a_spark_jvm_that_is_killed_is_started_again_and_goes_on(system: System, damaged: TaskPaths) -> None:
    run_id = "jvm-killed"
    begin(system, damaged, run_id)
    job = system.airflow.paused()
    job.kill_jvm()
    job.wait_until_gone()
    run = end_well(system, damaged, run_id)
    tells_of_another_try(system, run)


@pytest.mark.timeout(900)
def test_a_task_that_ends_while_the_api_server_is_away_is_done_once(system: System, damaged: TaskPaths) -> None:
    run_id = "api-server-away"
    begin(system, damaged, run_id)
    job = system.airflow.paused()
    system.airflow.kill("api-server")
    job.wake()
    job.wait_until_gone()
    system.airflow.start_again("api-server")
    system.client.wait_healthy(_RUN_S)
    # If nobody has heard of the task for too long, it is tried again, and finds what it has done.
    run = end_well(system, damaged, run_id)
    assert run.state == "success", system.client.explain(run)
    (row,) = restored(system, run_id).rows
    assert row.outcome == "restored"


#: Each works on a partition of its own.
CASES = [name for name in list(globals()) if name.startswith("test_")]


# -- the same Airflow, with a second application -------------------------------------------------------------------

OTHER = "other-delays"


@pytest.fixture
def other(system: System, tmp_path: Path) -> None:
    """Another application, which has processed the same input."""
    path = tmp_path / "other.yaml"
    path.write_text(DEFINITION.read_text().replace(f"name: {APPLICATION}", f"name: {OTHER}", 1))
    system.statestore("apply", str(path), "--yes")
    system.statestore("process", "--application", OTHER)


@pytest.mark.timeout(1_200)
@pytest.mark.usefixtures("other")
def test_a_long_restore_holds_up_only_its_own_application(system: System) -> None:
    client, state_dir = system.client, system.installation.state_dir
    ours, theirs = (TaskPaths(state_dir, name, TaskId(0, 0)) for name in (APPLICATION, OTHER))
    for paths in (ours, theirs):
        with locked(paths, _RUN_S):
            flip_bit(paths.store(STORE))
    before = len(quarantined(ours, STORE))
    forms = {name: {"application": name, "stores": [STORE], "partitions": [0]} for name in (APPLICATION, OTHER)}
    system.airflow.arm()
    client.trigger("restore", forms[APPLICATION], "long")
    job = system.airflow.paused()

    client.trigger("restore", forms[APPLICATION], "the-same")
    client.trigger("restore", forms[OTHER], "another")
    run = client.wait_for_run("restore", "another", _RUN_S)
    assert run.state == "success", client.explain(run)
    client.unpause("verify")
    client.trigger("verify", {"application": OTHER, "depth": "scan"}, "verified-meanwhile")
    run = client.wait_for_run("verify", "verified-meanwhile", _RUN_S)
    assert run.state == "success", client.explain(run)
    pause(client, "verify")
    assert spark_task(client, "restore", "long").state == "running"

    def state(task_id: str) -> str | None:
        return next(each.state for each in client.task_instances("restore", "the-same") if each.task_id == task_id)

    wait_until(lambda: state("plan") == "up_for_reschedule", _RUN_S, "the restore of the same application to wait")
    assert state("spark") is None, "it takes a slot while it waits"
    job.wake()
    for run_id in ("long", "the-same"):
        run = client.wait_for_run("restore", run_id, _RUN_S)
        assert run.state == "success", client.explain(run)
    (row,) = restored(system, "the-same").rows
    assert (row.outcome, len(quarantined(ours, STORE))) == ("skipped", before + 1)


# -- the same Airflow, as a program uses it ------------------------------------------------------------------------


def examples() -> str:
    """The commands that the document shows for the REST API, in one script that prints what each is answered."""
    return "\n".join(["set -euo pipefail", *to_run("docs/operations.md", "bash", heading="With the REST API")])


@pytest.mark.skipif(not all(map(shutil.which, ("bash", "curl", "jq"))), reason="the examples use curl and jq")
@pytest.mark.documents
def test_the_documents_examples_of_the_rest_api_are_answered(system: System, tmp_path: Path) -> None:
    if not any(run.ended for run in system.client.runs("restore")):
        system.client.trigger("restore", {"application": APPLICATION}, "an-earlier-run")
        system.client.wait_for_run("restore", "an-earlier-run", _RUN_S)
    for dag_id in DAGS:
        pause(system.client, dag_id)
    (tmp_path / DEFINITION.name).write_bytes(DEFINITION.read_bytes())
    before = {dag_id: len(system.client.runs(dag_id)) for dag_id in DAGS}
    run_id = next(run.run_id for run in system.client.runs("restore") if run.ended)
    environment = {
        **os.environ,
        "AIRFLOW": system.airflow.url,
        "PASSWORD": system.airflow.password,
        "RUN": run_id,
        "NO_PROXY": "*",
    }
    ran = subprocess.run(
        ["bash", "-c", examples()], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=_RUN_S
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout[-2_000:]
    started = {dag_id: len(system.client.runs(dag_id)) - before[dag_id] for dag_id in DAGS}
    assert started == {**dict.fromkeys(DAGS, 1), "restore": 2, "rewrite": 2}
    assert ran.stderr.count("is paused: the run is queued until you run: unpause") == sum(started.values())
    assert system.client.xcom("restore", run_id, "plan", "report") in ran.stdout
