"""Pods of one Kafka Streams application: each is an optional init container, `statestore warm`, then an instance.

The pods start together, each on a directory of its own. Kafka Streams decides which of them gets which task.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from pydantic import BaseModel

from benchmarks.peers.kafka_streams_restore import TUNED
from benchmarks.restore_log import STORE, Log, rows_digest
from benchmarks.restore_ours import order_of, rows_of
from benchmarks.restore_run import RestoringRun
from demo.processes import Processes, ServiceError, ServiceProcess, wait_until

PODS = 2
#: Of an instance: as many in all pods as there are cores.
THREADS = 1
_RUN_S, _CLOSE_S = 900, 120
_POLL_S = 0.02


class Status(BaseModel):
    """What an instance says of itself (`StartPod.java`).

    Attributes
    ----------
    running, tasks, restored
        Whether it is RUNNING, the partitions of its active tasks, and the records that it has restored.
    began
        Start of its JVM, in seconds since the epoch.
    since
        When all this became so.
    """

    running: bool
    tasks: tuple[int, ...]
    restored: int
    began: float
    since: float


@dataclass(frozen=True)
class Pod:
    """One pod.

    Attributes
    ----------
    directory
        State, reports and logs of this pod alone.
    """

    directory: Path

    @property
    def state_dir(self) -> Path:
        """`state.dir` of the instance."""
        return self.directory / "state"

    @property
    def warmed(self) -> Path:
        """Where `warm` writes what became of each store."""
        return self.directory / "warmed.json"

    @property
    def _status(self) -> Path:
        return self.directory / "status.json"

    def status(self) -> Status | None:
        """Return what the instance has said last; None before it says anything."""
        try:
            return Status.model_validate_json(self._status.read_bytes())
        except FileNotFoundError:
            return None

    def instance(self, java: str, classpath: str, log: Log) -> list[str]:
        """Return the program of the instance: tuned for restoring, exactly once."""
        config = {
            "application.id": log.application,
            "bootstrap.servers": log.servers,
            "state.dir": str(self.state_dir),
            "num.stream.threads": str(THREADS),
            "processing.guarantee": "exactly_once_v2",
            "main.consumer.auto.offset.reset": "earliest",
            **TUNED,
        }
        # RocksDB unpacks its library into the temporary directory.
        options = ["-Xmx2g", f"-Djava.io.tmpdir={self.directory}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        settings = [f"{name}={value}" for name, value in config.items()]
        return [java, *options, "-cp", classpath, "StartPod", log.input, STORE, str(self._status), *settings]


class Outcome(BaseModel):
    """What a start of all pods took, in seconds from the start of the first one.

    Attributes
    ----------
    began
        Until the last JVM was started: what was warmed before that.
    running
        Until all instances were RUNNING with all tasks.
    restored
        Records that the instances have restored.
    tasks
        Partitions of the tasks that each pod got.
    """

    began: float
    running: float
    restored: int
    tasks: tuple[tuple[int, ...], ...]


def start_pods(
    processes: Processes, pods: Sequence[Pod], log: Log, program: Callable[[Pod], Sequence[Sequence[str]]]
) -> Outcome:
    """Start all pods, wait until each is RUNNING and they have all tasks, and end them.

    Parameters
    ----------
    program
        Commands of a pod, one after the other; the last one is its instance.

    Raises
    ------
    ServiceError
        If one of them fails, or it takes too long.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for pod in pods:
        pod.directory.mkdir(parents=True, exist_ok=True)
    os.sync()  # what was written before is not theirs to wait for
    started, services = time.time(), []
    try:
        for number, pod in enumerate(pods):
            *before, last = map(shlex.join, program(pod))
            script = " && ".join([*before, f"exec {last}"])
            name = f"pod-{number}"
            services.append(processes.start(name, ["sh", "-c", script], environment, pod.directory / "log"))
        found = wait_until(lambda: _all_running(pods, services, log), _RUN_S, "all tasks to run", poll_s=_POLL_S)
    finally:
        for service in services:  # all at once: one that stayed would begin to restore the tasks of the others
            service.terminate()
        for service in services:
            processes.stop_service(service, _CLOSE_S)
    return Outcome(
        began=max(status.began for status in found) - started,
        running=max(status.since for status in found) - started,
        restored=sum(status.restored for status in found),
        tasks=tuple(status.tasks for status in found),
    )


def _all_running(pods: Sequence[Pod], services: Sequence[ServiceProcess], log: Log) -> list[Status]:
    for service in services:
        if service.poll() is not None:
            wait_until(lambda: False, 0, "all tasks to run", service)  # says how it ended
    found = [status for pod in pods if (status := pod.status()) is not None and status.running]
    tasks = sorted(task for status in found for task in status.tasks)
    return found if len(found) == len(pods) and tasks == list(range(log.shape.partitions)) else []


def check_warmed(pods: Sequence[Pod], log: Log) -> None:
    """Make sure that each pod has warmed every store, with all its rows.

    Raises
    ------
    ServiceError
        If one was not warmed.
    """
    for pod in pods:
        rows = json.loads(pod.warmed.read_text(encoding="utf-8"))["rows"]
        if left := [row for row in rows if row["outcome"] != "warmed"]:
            raise ServiceError(
                f"task {left[0]['task']} was to be warmed, found {left[0]['outcome']}: {left[0]['detail']}"
            )
        if (keys := sum(row["keys"] for row in rows)) != log.rows:
            raise ServiceError(f"{log.topic} has {log.rows:,} keys, {keys:,} rows were warmed")


def check_rows(pods: Sequence[Pod], log: Log, outcome: Outcome) -> None:
    """Compare the rows that the instances have left, each of its own tasks, with what was logged.

    Raises
    ------
    ServiceError
        If they differ.
    """
    parts = [(pod, task) for pod, tasks in zip(pods, outcome.tasks, strict=True) for task in tasks]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        digests = [pool.submit(_digest_of, pod, log, task) for pod, task in parts]
        found = sum(digest.result() for digest in digests) % (1 << 64)
    if found != log.digest:
        raise ServiceError(f"the stores of {log.application} have the digest {found}, expected {log.digest}")


def _digest_of(pod: Pod, log: Log, partition: int) -> int:
    order = order_of("scan", RestoringRun(log, 1, pod.directory))
    return rows_digest(rows_of(order, partition))
