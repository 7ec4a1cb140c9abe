"""A Spark cluster on this machine; its workers may have mount namespaces, and then do not see each other's disks."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark

from tests.integration.broker import wait_for
from tests.spark.test_jobs import Installation

_SPARK = Path(pyspark.__file__).parent
#: Workers and executors, besides the drivers of other tests, have little memory.
_SMALL = {"SPARK_DAEMON_MEMORY": "256m"}
#: A copy of each Spark task that takes longer than a second.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
}
#: Each takes ports that are free.
_MASTER_AT = ("--host", "127.0.0.1", "--webui-port", "0", "--port", "0")
_START_S = 300


class SparkCluster:
    """A standalone master, and workers by number.

    A worker's host is its address on loopback. With disks of their own, workers have that for their own name, too.

    Parameters
    ----------
    state_dir
        Where each worker has its own disk; None: they share all.

    Attributes
    ----------
    url
        The master's.
    """

    def __init__(self, directory: Path, state_dir: Path | None, environment: dict[str, str]) -> None:
        self._directory = directory
        self._state_dir = state_dir
        self._environment = {**Installation.base_environment(), **_SMALL, **environment}
        self._log = directory / "cluster.log"
        self._started: list[subprocess.Popen[bytes]] = []
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self.url = ""

    def begin(self) -> None:
        """Start the master."""
        self._start([*_class("master.Master"), *_MASTER_AT])
        (self.url,) = wait_for(lambda: self._logged(r"Starting Spark master at (spark://\S+)"), "the master", _START_S)

    def disk(self, number: int) -> Path:
        """Return what a worker sees at the state directory."""
        return self._directory / f"disk-{number}"

    def start_worker(self, number: int, **environment: str) -> None:
        """Start a worker with one core, and wait until the master knows it.

        Parameters
        ----------
        environment
            What its executors have besides the cluster's.
        """
        host = f"127.0.0.{number + 1}"
        work = self._directory / f"work-{number}"
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
        worker = [*_class("worker.Worker"), "--host", host, "--webui-port", "0", *size, self.url]
        if self._state_dir is not None:
            worker = self._on_own_disk(number, self._state_dir, host, worker)
        known = len(self._logged("Successfully registered with master"))
        self._workers[number] = self._start(worker, environment)
        wait_for(lambda: len(self._logged("Successfully registered with master")) > known, "a worker", _START_S)

    def _on_own_disk(self, number: int, state_dir: Path, host: str, worker: list[str]) -> list[str]:
        for directory in (self.disk(number), state_dir):
            directory.mkdir(parents=True, exist_ok=True)
        mounted = f"mount --bind {shlex.quote(str(self.disk(number)))} {shlex.quote(str(state_dir))}"
        program = f"{mounted} && hostname {host} && exec {shlex.join(worker)}"
        return ["unshare", "--mount", "--uts", "sh", "-c", program]

    def kill_worker(self, number: int) -> None:
        """Kill a worker with all of its executors and their Python workers."""
        _end(self._workers.pop(number))

    def end(self) -> None:
        """Kill all."""
        for process in self._started:
            _end(process)

    def stop_worker(self, number: int) -> None:
        """Stop a worker's machine: the worker with all that it has started does nothing until it is woken."""
        for process in _family(self._workers[number]):
            process.suspend()

    def wake_worker(self, number: int) -> None:
        """Have a worker's machine go on, the tasks before those who would end them."""
        for process in reversed(_family(self._workers[number])):
            process.resume()

    def is_idle(self, number: int) -> bool:
        """Tell whether a worker has no executor."""
        return len(_family(self._workers[number])) == 1

    def _start(self, command: list[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            started = {**self._environment, **(environment or {})}
            process = subprocess.Popen(command, stdout=output, stderr=output, env=started)
        self._started.append(process)
        return process

    def _logged(self, pattern: str) -> list[str]:
        return re.findall(pattern, self._log.read_text(errors="replace"))


@contextmanager
def spark_cluster(
    directory: Path, state_dir: Path | None = None, environment: dict[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Have a cluster without a worker while the context lasts."""
    cluster = SparkCluster(directory, state_dir, environment or {})
    try:
        cluster.begin()
        yield cluster
    finally:
        cluster.end()


def may_unshare() -> bool:
    """Tell whether this user may make mount namespaces."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "--uts", "true"], check=False).returncode == 0


def _class(name: str) -> list[str]:
    return [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return a process and all that it has started, the youngest last; nothing if it has ended."""
    try:
        first = psutil.Process(process.pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _end(process: subprocess.Popen[bytes]) -> None:
    for member in _family(process):
        with suppress(psutil.NoSuchProcess):  # it has ended with those before it
            member.kill()
    process.wait(60)
