"""`make demo`: process real flights, lose stores in several ways, have them restored and validated, and proven right.

First three stores are damaged. Then, in the middle of processing, the machine is lost with all of its stores: they come
back from snapshots and the rest of their changelogs. At the end all stores are compared with a recomputation.
Kafka and Airflow are real and run on loopback; the DAGs are driven through Airflow's REST API, as a user would. All
that is started is stopped again, whatever happens. Exit code 0 means that everything held.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from rich.progress import Progress

from demo.airflow import Airflow
from demo.airflow_client import AirflowClient, DagRun, TaskInstance
from demo.console import console, run
from demo.damage import delete_directory, delete_snapshots, flip_bit, leave_open
from demo.flights import FIRST_HALF, PARTITIONS, FlightsInput, produce_flights
from demo.installation import REPOSITORY, Installation
from demo.kafka import Kafka
from demo.machine import Machine
from demo.processes import Processes, ServiceError, wait_until
from demo.recompute import Rows, differences, expected
from demo.registering import DEFINITION, register
from demo.summary import Summary, drill_table, process_table, restore_table, summary_table, validate_table, verify_table
from statestore.metastore.definition_files import load_definitions
from statestore.model import StorePartition, TaskId
from statestore.reports import (
    ProcessReport,
    RestoreReport,
    Status,
    ValidateReport,
    VerifyReport,
    read_report,
)
from statestore.statedir.lock import locked
from statestore.statedir.paths import TaskPaths

ROOT = REPOSITORY / "build" / "demo"
APPLICATION = "flight-delays"
STORE = "aircraft"
DAGS = ["metastore", "process", "verify", "restore", "validate"]
_PARSED_S = 120
# A bound for a run that hangs. On a machine with other work, Spark takes minutes to start.
_RUN_S = 900
_SHOWN = 5

R = TypeVar("R", ProcessReport, VerifyReport, RestoreReport, ValidateReport)


def main() -> int:
    """Run the demo; return its exit code."""
    installation, summary = Installation(ROOT, archived=True), Summary()
    with installation.exclusive():
        installation.clear()
        installation.create()
        with Processes(installation.root) as processes:
            with summary.step("start Kafka", console):
                kafka = Kafka(processes, installation.kafka_dir)
                servers = kafka.start()
            airflow = Airflow(processes, installation, servers, schedules=False)
            airflow.begin()
            with summary.step("produce flights until June", console):
                produced = _produce(servers, installation, limit=FIRST_HALF)
            with summary.step("apply the definition", console):
                console.print(register(processes, installation, servers), markup=False)
            with summary.step("start Airflow", console):
                client = airflow.start()
                client.wait_for_dags(DAGS, _PARSED_S)
                summary.airflow = airflow.url
                console.print(
                    f"Airflow is at {airflow.url} while the demo runs (user admin, password {airflow.password})"
                )
            for dag_id in DAGS:
                client.unpause(dag_id)
            demo = Demo(installation, client, summary)
            _damage_stores(demo)
            with summary.step("produce flights until December", console):
                produced = _produce(servers, installation, after=produced)
            _lose_machine(demo, Machine(installation, servers, demo.application))
            _compare(demo, produced)
    summary.write(ROOT / "summary.json")
    console.print(summary_table(summary, ROOT))
    if summary.held(produced.records):
        console.print("[green]Everything held.[/] `make up` starts the same Kafka and Airflow and leaves them running.")
        return 0
    console.print(f"[red]Not everything held[/]: see {ROOT / 'summary.json'}")
    return 1


def _produce(
    servers: str, installation: Installation, limit: int | None = None, after: FlightsInput | None = None
) -> FlightsInput:
    with Progress(console=console) as progress:
        bar = progress.add_task("flights", total=None)
        return produce_flights(
            servers,
            installation.root / "flights.json",
            limit,
            after,
            on_progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )


def _damage_stores(demo: Demo) -> None:
    """Process, damage three stores, and have the DAGs find, restore and validate them."""
    summary = demo.summary
    with summary.step("process", console):
        report = demo.report(demo.start("process", "demo-process"), ProcessReport, must_be="success")
        console.print(process_table(report))
    with summary.step("verify", console):  # the process DAG's asset starts it
        found = demo.report(demo.follow("verify", demo.first_run("verify")), VerifyReport, must_be="success")
        console.print(verify_table(found))
        summary.stores = len(found.rows)
        summary.healthy_before = all(row.healthy for row in found.rows)
        summary.filled = sum(row.status != Status.EMPTY for row in found.rows)
    with summary.step("damage three stores", console):
        damaged = demo.damage(found)
        summary.damaged = len(damaged)
    with summary.step("verify the damaged stores", console):
        found = demo.report(demo.start("verify", "demo-verify"), VerifyReport, must_be="failed")
        console.print(verify_table(found))
        summary.found = sum(damaged.get(row.label, Status.OK) == row.status for row in found.rows if not row.healthy)
    with summary.step("restore", console):  # the verify DAG starts it
        restored = demo.report(demo.follow("restore", "verify__demo-verify"), RestoreReport, must_be="success")
        console.print(restore_table(restored))
        summary.restored = sum(row.outcome == "restored" and row.snapshot is None for row in restored.rows)
    with summary.step("validate", console):  # the restore DAG starts it
        run_id = "restore__verify__demo-verify"
        validated = demo.report(demo.follow("validate", run_id), ValidateReport, must_be="success")
        console.print(validate_table(validated))
        summary.validated = bool(validated.rows) and all(row.healthy for row in validated.rows)
        summary.data_docs = validated.data_docs or ""


def _lose_machine(demo: Demo, machine: Machine) -> None:
    """Lose all stores in the middle of the work, have them restored from snapshots, and go on."""
    summary = demo.summary
    with summary.step("continue processing, and lose the machine", console):
        lost = machine.die_processing()
        console.print("  killed all processes of `statestore process`, which had begun to commit")
        console.print(f"  deleted {lost}")
    with summary.step("restore from snapshots", console):  # as by the form of the DAG
        run_id = "demo-lost-machine"
        ended = demo.start("restore", run_id, mode="snapshot")
        restored = demo.report(ended, RestoreReport, must_be="success")
        console.print(restore_table(restored))
        lost_rows = [row for row in restored.rows if row.before == Status.MISSING]
        summary.lost = len(lost_rows)
        summary.from_snapshots = sum(row.snapshot is not None and row.outcome == "restored" for row in lost_rows)
        summary.replayed = sum(row.records for row in lost_rows)
    with summary.step("validate all", console):  # the restore DAG starts it
        ended = demo.follow("validate", f"restore__{run_id}")
        validated = demo.report(ended, ValidateReport, must_be="success")
        console.print(validate_table(validated))
        summary.all_validated = bool(validated.rows) and all(row.healthy for row in validated.rows)
    with summary.step("process the rest", console):
        console.print(process_table(machine.process()))
        summary.records_in = machine.records_read()
    with summary.step("drill a restore", console):
        report = machine.drill(f"{APPLICATION}/{STORE}/0_0")
        console.print(drill_table(report))
        summary.proven = all(row.healthy and row.evidence for row in report.rows)
        summary.restorable_s = max(row.seconds for row in report.rows)


def _compare(demo: Demo, produced: FlightsInput) -> None:
    """Compare all stores with what they should have."""
    summary = demo.summary
    with summary.step("recompute from the CSV and compare", console):
        expectation = expected(produced)
        summary.aircraft = len(expectation["aircraft"])
        summary.sessions = len(expectation["sessions"])
        summary.departure_hours = len(expectation["departures"])
        different = demo.compare(expectation)
        summary.equal_to_recomputation = not different
        for line in different[:_SHOWN]:
            console.print(line, markup=False)


class Demo:
    """The installation being shown, and its DAG runs."""

    def __init__(self, installation: Installation, client: AirflowClient, summary: Summary) -> None:
        self.summary = summary
        self._client = client
        self._state_dir = installation.state_dir
        assert installation.archive_dir is not None, "the demo keeps snapshots"
        self._archive = installation.archive_dir
        self.application = load_definitions(DEFINITION)[APPLICATION]

    # -- DAG runs -------------------------------------------------------------------------------------------------

    def start(self, dag_id: str, run_id: str, **form: str) -> DagRun:
        """Start a DAG run for the demo's application, and follow it to its end."""
        self._client.trigger(dag_id, {"application": APPLICATION, **form}, run_id)
        return self.follow(dag_id, run_id)

    def first_run(self, dag_id: str) -> str:
        """Wait for the DAG's first run, which something else starts; return its run id."""
        runs = wait_until(lambda: self._client.runs(dag_id), _RUN_S, f"a run of DAG {dag_id} to begin", poll_s=1)
        return runs[0].run_id

    def follow(self, dag_id: str, run_id: str) -> DagRun:
        """Follow a DAG run to its end, showing its tasks as they end."""
        shown: set[tuple[str, int]] = set()

        def show(tasks: list[TaskInstance]) -> None:
            for task in tasks:
                ended = task.state in ("success", "failed", "skipped", "upstream_failed")
                if ended and (task.task_id, task.map_index) not in shown:
                    shown.add((task.task_id, task.map_index))
                    color = {"success": "green", "failed": "red"}.get(str(task.state), "yellow")
                    console.print(f"  {dag_id}.{task.task_id} {task.label or ''} [{color}]{task.state}[/]")

        return self._client.wait_for_run(dag_id, run_id, _RUN_S, show)

    def report(self, ended: DagRun, kind: type[R], *, must_be: str) -> R:
        """Read the report of an ended run, which must have ended so.

        Raises
        ------
        ServiceError
            If it ended otherwise, with the end of the failed task's log.
        """
        if ended.state != must_be:
            raise ServiceError(
                f"run {ended.run_id} of DAG {ended.dag_id} ended as {ended.state}, expected {must_be}. "
                f"{self._client.explain(ended)}"
            )
        return read_report(Path(self._client.xcom(ended.dag_id, ended.run_id, "plan", "report")), kind)

    # -- stores ---------------------------------------------------------------------------------------------------

    def damage(self, found: VerifyReport) -> dict[str, Status]:
        """Damage the first three store partitions, and delete their snapshots; return what verification is to find."""
        first, second, third = (self._paths(partition) for partition in range(3))
        with locked(first):
            delete_directory(first.store(STORE))
            console.print(f"  deleted {first.store(STORE)}")
        with locked(second):
            console.print(f"  flipped one bit in {flip_bit(second.store(STORE))}")
        with locked(third):
            leave_open(third.store(STORE))
            console.print(f"  left {third.store(STORE)} open, with a row that was never committed")
        for paths in (first, second, third):
            deleted = delete_snapshots(self._archive, StorePartition(APPLICATION, STORE, paths.task))
            console.print(f"  deleted the snapshots in {deleted}")
        damage = zip((first, second, third), (Status.MISSING, Status.CORRUPT, Status.UNCLEAN), strict=True)
        return {str(StorePartition(APPLICATION, STORE, paths.task)): status for paths, status in damage}

    def compare(self, expectation: dict[str, Rows]) -> list[str]:
        """Compare all store partitions with what is expected; return what differs."""
        return differences(self._state_dir, self.application, PARTITIONS, expectation)

    def _paths(self, partition: int) -> TaskPaths:
        return TaskPaths(self._state_dir, APPLICATION, TaskId(0, partition))


if __name__ == "__main__":
    run(main)
