"""A job's driver ends with those who started it, in the tree of processes that Airflow and spark-submit make."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from demo.processes import wait_until

_WAIT_S = 60
#: It says each time that it has looked and found nothing to end for.
_DRIVER = """
import time
from statestore_jobs import entry
pause = time.sleep
def looked(_):
    print("looked", flush=True)
    pause(0.05)
time.sleep = looked
entry.exit_with_parent()
while True:
    pause(60)
"""
#: As under Airflow, the task leads a process group of its own. A shell stands for the JVM of spark-submit: here it only
#: matters that it is between the task and the driver. It starts the driver when the gate is opened.
_WORKER = """
import os, subprocess, sys
gate, driver = sys.argv[1:]
if (task := os.fork()) == 0:
    os.setpgid(0, 0)
    subprocess.call(["sh", "-c", 'read _ < "$0"; "$@"; true', gate, sys.executable, "-c", driver])
    os._exit(0)
os.waitpid(task, 0)
"""


class Tree:
    """The worker of an executor, its task, the task's JVM and the JVM's driver."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.gate, self._looks = directory / "gate", directory / "looks"
        os.mkfifo(self.gate)
        command = [sys.executable, "-c", _WORKER, str(self.gate), _DRIVER]
        with self._looks.open("w") as looks:
            self.worker = psutil.Popen(command, env=environment, stdout=looks)
        self._family: list[psutil.Process] = [self.worker]
        self.task, self.jvm = self._child("the task"), self._child("the JVM")

    def _child(self, what: str) -> psutil.Process:
        (found,) = wait_until(self._family[-1].children, _WAIT_S, what)
        self._family.append(found)
        return found

    def drive(self) -> psutil.Process:
        """Let the driver begin, and return it when it watches."""
        self.gate.write_text("\n")
        driver = self._child("the driver")
        self.wait_for_looks(1)
        return driver

    def looks(self) -> int:
        """How often the driver has looked and gone on."""
        return len(self._looks.read_text().splitlines())

    def wait_for_looks(self, number: int) -> None:
        """Wait until it has looked so often."""
        wait_until(lambda: self.looks() >= number, _WAIT_S, f"the driver to look {number} times")

    def kill(self, *names: str) -> None:
        """Kill -9 processes, and wait for their end."""
        killed = [getattr(self, name) for name in names]
        for process in killed:
            process.kill()
        psutil.wait_procs(killed, _WAIT_S)

    def end(self) -> None:
        """End what is left."""
        for process in self._family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.worker.wait(_WAIT_S)


@pytest.fixture
def tree(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tree]:
    """Processes whose driver has not begun; a parameter is what Airflow would have added to their environment."""
    rest = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_CTX_")}
    made = Tree(tmp_path, {**rest, **getattr(request, "param", {"AIRFLOW_CTX_TASK_ID": "spark"})})
    yield made
    made.end()


@pytest.mark.short_for("task")
@pytest.mark.parametrize("killed", ["worker", "task", "jvm"])
def test_a_driver_of_airflow_ends_with_each_of_those_who_started_it(tree: Tree, killed: str) -> None:
    driver = tree.drive()
    tree.kill(killed)
    driver.wait(_WAIT_S)


@pytest.mark.long
def test_a_driver_whose_task_ended_before_it_began_ends_at_once(tree: Tree) -> None:
    tree.kill("task")
    tree.gate.write_text("\n")
    tree.jvm.wait(_WAIT_S)  # it waits for the driver
    assert tree.looks() == 0


@pytest.mark.long
@pytest.mark.parametrize("tree", [{}], indirect=True)
def test_a_driver_that_was_submitted_by_hand_ends_only_with_its_jvm(tree: Tree) -> None:
    driver = tree.drive()
    tree.kill("task", "worker")
    tree.wait_for_looks(tree.looks() + 2)  # of which the first may be older than the kill
    tree.kill("jvm")
    driver.wait(_WAIT_S)
