"""One restore by any system: give it the log, have it go, and read what it says it did.

A system is a program of its own. It starts up, restores on its own clock, writes what it measured into a file as the
fields of `RestoreOutcome`, and ends. Starting and ending a program is no part of its time.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from benchmarks.counting import Command
from benchmarks.restore_log import Log
from demo.processes import Processes, ServiceError, wait_until

_RUN_S = 900


class RestoreOutcome(NamedTuple):
    """What one run of a system did.

    Attributes
    ----------
    records
        Records that it has read.
    seconds
        From the start of restoring to its end.
    peak_kib
        Largest resident memory of its processes, added up; where the system can tell.
    rows
        Rows in the restored store, where the system can tell.
    closed_seconds
        From the start of restoring until the store was closed, where that is later.
    start_seconds
        Time that the program took besides.
    """

    records: int
    seconds: float
    peak_kib: int | None = None
    rows: int | None = None
    closed_seconds: float | None = None
    start_seconds: float | None = None

    @property
    def rate(self) -> float:
        """Records/s."""
        return self.records / self.seconds

    @property
    def closed_rate(self) -> float | None:
        """Records/s until the store was closed."""
        return self.closed_seconds and self.records / self.closed_seconds

    @property
    def peak_mib(self) -> float | None:
        """Largest resident memory in MiB."""
        return self.peak_kib and self.peak_kib / 1024

    @classmethod
    def read(cls, result: Path) -> RestoreOutcome:
        """Read what a program has written."""
        return cls(**json.loads(result.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class RestoringRun:
    """One run of one system.

    Attributes
    ----------
    workers
        How many processes or threads restore; it has as many cores.
    directory
        For state, logs and whatever else it writes; deleted after the run.
    """

    log: Log
    workers: int
    directory: Path

    @property
    def state_dir(self) -> Path:
        """Where the store is restored."""
        return self.directory / "state"

    @property
    def result(self) -> Path:
        """File into which the program writes its outcome."""
        return self.directory / "result.json"


def written_by_program(run: RestoringRun, _: float) -> RestoreOutcome:
    """Return the outcome that the program wrote itself."""
    return RestoreOutcome.read(run.result)


@dataclass(frozen=True)
class RestoringSystem:
    """What can be asked to restore.

    Attributes
    ----------
    command
        Writes what the run needs into its directory and returns what to start.
    outcome
        The run's outcome, from the run and the seconds between the program's start and its end.
    check
        Looks at what was restored, once for each log; raises ServiceError if it is not what was logged.
    """

    command: Callable[[RestoringRun], Command]
    outcome: Callable[[RestoringRun, float], RestoreOutcome] = written_by_program
    check: Callable[[RestoringRun], None] | None = None


def measured(
    processes: Processes, system: RestoringSystem, log: Log, workers: int, scratch: Path, *, check: bool = False
) -> RestoreOutcome:
    """Have the system restore the log once.

    Raises
    ------
    ServiceError
        If it fails, does not come to an end, or has not restored what was logged.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        run = RestoringRun(log, workers, Path(directory))
        outcome = system.outcome(run, seconds_of(processes, system.command(run), run.directory, workers))
        if outcome.records != log.shape.records:
            raise ServiceError(f"{log.topic} has {log.shape.records:,} records, {outcome.records:,} were restored")
        if outcome.rows is not None and outcome.rows != log.rows:
            raise ServiceError(f"{log.topic} has {log.rows:,} keys, {outcome.rows:,} rows were restored")
        if check and system.check is not None:
            system.check(run)
    return outcome


def seconds_of(processes: Processes, command: Command, directory: Path, cores: int) -> float:
    """Run a program to its end, which must be a good one, and return the seconds it took."""
    environment = {**os.environ, **command.environment}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling modules anew in each run is nobody's work
    name = f"bench-{uuid4().hex[:8]}"
    os.sync()  # what the program before has written is not this one's to wait for
    started = time.monotonic()
    with _cores(cores):
        service = processes.start(name, command.argv, environment, directory / "log")
    try:
        wait_until(lambda: service.poll() == 0, _RUN_S, f"{name} to end well", service, poll_s=0.02)
        return time.monotonic() - started
    finally:
        processes.stop_service(service)


@contextmanager
def _cores(number: int) -> Iterator[None]:
    """Let processes that are started now use so many cores; the broker has all of them."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
