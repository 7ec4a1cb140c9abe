"""The process job through spark-submit, killed in its workers, its driver and in spark-submit alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults import oracle
from tests.faults.children import Kill
from tests.faults.made import aggregation_subject, processor_subject
from tests.faults.subject import Subject
from tests.integration.broker import wait_for

ROOT = Path(__file__).parents[3]
SUBMIT = Path(sys.executable).parent / "spark-submit"
_OPTIONS = ("--conf", "spark.ui.enabled=false")
_JOB_S = 180.0
KINDS: dict[str, Callable[..., Subject]] = {"processor": processor_subject, "aggregations": aggregation_subject}


class Job:
    """One process job through spark-submit, with a kill switch in its Python processes."""

    def __init__(self, subject: Subject, master: str, environment: dict[str, str]) -> None:
        directory = subject.directory
        self._mark = directory / "mark"
        self.report = directory / "reports" / "process" / "run-1.json"
        self._log = directory / "job.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [SUBMIT, "--master", master, *_OPTIONS, ROOT / "jobs" / "process.py", "--report", self.report],
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "STATESTORE_BOOTSTRAP_SERVERS": subject.servers,
                    "STATESTORE_STATE_DIR": str(subject.state_dir),
                    "STATESTORE_REPORTS_DIR": str(directory / "reports"),
                    "STATESTORE_SERVICE_ID": subject.service_id,
                    "STATESTORE_DATA_DOCS_DIR": str(directory / "docs"),
                    "STATESTORE_KAFKA_TIMEOUT_S": "60",
                    "STATESTORE_KILL_MARK": str(self._mark),
                    **environment,
                },
                cwd=directory,
                stdout=log,
                stderr=log,
            )
        self._family: dict[int, psutil.Process] = {}

    def exit_code(self) -> int:
        """Wait for the end of spark-submit."""
        return self.process.wait(_JOB_S)

    @property
    def log(self) -> str:
        """What it has printed, the last of it."""
        return self._log.read_text(errors="replace")[-4_000:]

    def fired(self, point: str) -> int:
        """O8: the kill switch acted at the point; return in which process."""
        found, pid = self._mark.read_text().split("\n")[:2]
        assert found == point, f"O8: {found!r} instead of {point!r}"
        return int(pid)

    def wait_until_paused(self, point: str) -> psutil.Process:
        """Wait until a worker has stopped itself; return it."""

        def stopped() -> bool:
            assert self.process.poll() is None, self.log
            return self._mark.exists() and psutil.Process(self.fired(point)).status() == psutil.STATUS_STOPPED

        wait_for(stopped, f"a worker to stop at {point}", _JOB_S)
        self.remember()
        return psutil.Process(self.fired(point))

    def remember(self) -> None:
        """Take down all processes of the job, so that none is overlooked later."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # ended since it was listed
                if process.status() != psutil.STATUS_ZOMBIE:
                    self._family[process.pid] = process

    @property
    def driver(self) -> psutil.Process:
        """The Python driver."""
        for process in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # what spark-submit's scripts run has ended, or is not waited for
                if any(argument.endswith("process.py") for argument in process.cmdline()):
                    return process
        raise AssertionError(f"no driver: {self.log}")

    def wait_until_gone(self) -> None:
        """Wait until no process of the job is left."""
        _, alive = psutil.wait_procs(list(self._family.values()), timeout=60)
        assert alive == []

    def end(self) -> None:
        """Kill what is left of the job."""
        if self.process.poll() is None:
            self.remember()
            self.process.kill()
            self.process.wait()
        for process in self._family.values():
            if process.is_running():  # psutil compares start times: a pid that was given anew is not ours
                process.kill()


def _subject(servers: str, directory: Path, kind: str) -> Subject:
    subject = KINDS[kind](servers, directory, partitions=2)
    subject.produce(20)
    subject.run()
    subject.produce(20)
    return subject


def _assert_completed(subject: Subject, master: str, kill: Kill) -> None:
    job = Job(subject, master, {"STATESTORE_KILL_AT": str(kill)})
    try:
        assert job.exit_code() == 0, job.log
        job.fired(kill.point)
    finally:
        job.end()
    rows = json.loads(job.report.read_text())["rows"]
    assert [row["failure"] for row in rows] == [None] * len(subject.tasks)
    oracle.check(subject)


@pytest.mark.share_for("aggregations-task begun:1@1_0", why="between the stages")
@pytest.mark.parametrize(
    ("kind", "kill"),
    [
        ("processor", Kill("during produce", 9)),
        ("processor", Kill("flushed, not committed", task="0_1")),
        ("processor", Kill("Kafka committed, stores not")),
        ("processor", Kill("store committed", 2)),
        ("processor", Kill("before close")),
        ("aggregations", Kill("commit sent, answer unseen", task="0_0")),
        ("aggregations", Kill("task begun", task="1_0")),  # as between the stages
        ("aggregations", Kill("Kafka committed, stores not", task="1_1")),
    ],
    ids=str,
)
def test_what_a_killed_worker_had_begun_is_completed_in_the_same_run(
    bootstrap_servers: str, tmp_path: Path, kind: str, kill: Kill
) -> None:
    _assert_completed(_subject(bootstrap_servers, tmp_path, kind), "local[2]", kill)


@pytest.mark.share_for("processor-store committed:2", why="one point")
@pytest.mark.parametrize(
    ("kind", "kill"),
    [
        ("processor", Kill("during produce", 9)),
        ("processor", Kill("store committed", 2)),
        ("aggregations", Kill("flushed, not committed", task="0_1")),
        ("aggregations", Kill("Kafka committed, stores not", task="1_0")),
    ],
    ids=str,
)
def test_a_spark_task_is_retried_when_its_worker_was_killed(
    bootstrap_servers: str, tmp_path: Path, kind: str, kill: Kill
) -> None:
    _assert_completed(_subject(bootstrap_servers, tmp_path, kind), "local[2,2]", kill)


# Each point once, and each kind of application with each victim.
@pytest.mark.parametrize(
    ("victim", "kind", "kill"),
    [
        ("driver", "processor", Kill("during produce", 9)),
        ("spark-submit", "processor", Kill("flushed, not committed", task="0_1")),
        ("driver", "aggregations", Kill("Kafka committed, stores not", task="0_0")),
        ("spark-submit", "aggregations", Kill("store committed", task="1_1")),
    ],
    ids=str,
)
def test_a_job_ends_with_its_driver_and_with_spark_submit(
    bootstrap_servers: str, tmp_path: Path, kind: str, kill: Kill, victim: str
) -> None:
    subject = _subject(bootstrap_servers, tmp_path, kind)
    job = Job(subject, "local[2]", {"STATESTORE_PAUSE_AT": str(kill)})
    try:
        worker = job.wait_until_paused(kill.point)
        driver = job.driver
        assert driver.is_running()
        if victim == "driver":
            driver.kill()
        else:
            job.process.kill()
        assert job.exit_code() != 0
        with suppress(psutil.NoSuchProcess):  # it may go on, and commit, before it finds itself alone
            worker.send_signal(signal.SIGCONT)
        job.wait_until_gone()
    finally:
        job.end()
    assert not job.report.exists()
    subject.run()
    oracle.check(subject)
