"""A real Airflow whose parts a test kills and starts again, and Spark jobs that stop where the test wants them to.

Every Spark job inherits an armed kill switch, which does nothing while its mark is there: `arm` takes the mark away,
and the next worker that reaches the point stops itself and writes another one.
"""

from __future__ import annotations

import os
import signal

import psutil

from demo.airflow import _COMPONENTS, Airflow
from demo.airflow_client import AirflowClient, TaskInstance
from demo.installation import Installation
from demo.processes import Processes, wait_until

#: The new store is whole, and the live one still there.
POINT = "restore, built, not swapped"
_DEADLINE_S = 240
#: Airflow finds out in seconds what takes it minutes otherwise.
_IMPATIENT = {
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "3",
    "WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    "WORKERS__MAX_FAILED_HEARTBEATS": "20",
}


class AirflowParts(Airflow):
    """An Airflow of components that can be killed one by one."""

    def __init__(self, processes: Processes, installation: Installation, bootstrap_servers: str) -> None:
        super().__init__(processes, installation, bootstrap_servers, schedules=False)
        self._mark = installation.root / "mark"
        self._mark.touch()
        self._environment: dict[str, str] = {}

    def environment(self, port: int, keys: dict[str, str]) -> dict[str, str]:
        """Add what makes Airflow impatient, and the kill switch."""
        self._environment = {
            **super().environment(port, keys),
            **{f"AIRFLOW__{name}": value for name, value in _IMPATIENT.items()},
            "STATESTORE_PAUSE_AT": POINT,
            "STATESTORE_KILL_MARK": str(self._mark),
        }
        return self._environment

    def kill(self, name: str) -> None:
        """Kill -9 one component; what it has started lives on."""
        (service,) = [service for service in self._services if service.name == name]
        os.kill(service.pid, signal.SIGKILL)
        service.wait()
        self._services.remove(service)

    def start_again(self, name: str) -> None:
        """Start a component that was killed."""
        self._services.append(self._run(name, _COMPONENTS[name], self._environment))

    def arm(self) -> None:
        """Have the next worker stop itself that reaches the point."""
        self._mark.unlink()

    def paused(self) -> StoppedJob:
        """Wait until a worker has stopped itself."""

        def stopped() -> psutil.Process | None:
            self.check()
            if not self._mark.exists():
                return None
            worker = psutil.Process(int(self._mark.read_text().splitlines()[1]))
            return worker if worker.status() == psutil.STATUS_STOPPED else None

        worker = wait_until(stopped, _DEADLINE_S, f"a worker to stop at {POINT!r}")
        assert worker is not None
        return StoppedJob(worker)


class StoppedJob:
    """A Spark job one of whose workers has stopped itself."""

    def __init__(self, worker: psutil.Process) -> None:
        self._worker = worker
        above = worker.parents()
        (at,) = [number for number, process in enumerate(above) if process.name() == "java"]
        self._jvm = above[at]
        self._family = [worker, self._jvm, *self._jvm.children(recursive=True)]
        # From the task itself up to what the executor has started for it; the scheduler is the first with our marker.
        self._airflow_task = [process for process in above[at + 1 :] if "airflow worker" in " ".join(process.cmdline())]

    def wake(self) -> None:
        """Let the worker go on, if it is still there."""
        if self._worker.is_running():
            self._worker.send_signal(signal.SIGCONT)

    def kill_jvm(self) -> None:
        """Kill -9 the JVM of spark-submit."""
        self._jvm.kill()

    def kill_airflow_task(self) -> None:
        """Kill -9 the process of the Airflow task, and the one that watches over it."""
        assert self._airflow_task
        for process in self._airflow_task[::-1]:
            process.kill()

    def wait_until_gone(self) -> None:
        """Wait until no process of the job is left."""
        wait_until(
            lambda: not any(map(_lives, self._family)), _DEADLINE_S, "all processes of the interrupted Spark job to end"
        )


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def spark_task(client: AirflowClient, dag_id: str, run_id: str) -> TaskInstance:
    """Return the Airflow task of the run's Spark job."""
    (task,) = [task for task in client.task_instances(dag_id, run_id) if task.task_id == "spark"]
    return task


def tries(client: AirflowClient, dag_id: str, run_id: str) -> list[str | None]:
    """Return the states in which the attempts at the Spark job ended, the first one first."""
    task = spark_task(client, dag_id, run_id)
    index = "" if task.map_index < 0 else f"/{task.map_index}"
    path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task.task_id}{index}/tries"
    found = client._call("GET", path)["task_instances"]
    return [each["state"] for each in sorted(found, key=lambda each: each["try_number"])]


def pause(client: AirflowClient, dag_id: str) -> None:
    """Let no run of the DAG begin."""
    client._call("PATCH", f"dags/{dag_id}", params={"update_mask": "is_paused"}, json={"is_paused": True})
