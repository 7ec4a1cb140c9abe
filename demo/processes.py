"""Supervision of the processes that the embedded default starts, and of nothing else.

Every process is started in a session of its own and inherits a marker that is unique to the run, in the environment
variable `STATESTORE_RUN`. `stop` ends the process groups and then whatever still carries the marker, so that daemons,
Spark drivers and JVMs that left their group end too. A process without the marker is never signalled.
If the owner dies without stopping (kill -9, a closed terminal), a small reaper process does it in its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import uuid4

import psutil

from statestore.durable import write_atomically
from statestore.errors import StateStoreError

MARKER = "STATESTORE_RUN"
_STATE = "processes.json"
_POLL_S = 0.1
T = TypeVar("T")


class ServiceError(StateStoreError):
    """A process that we started ended too early, or was not ready within its deadline."""


class ServiceProcess(subprocess.Popen[bytes]):
    """A started process, with its name and the log that has its output."""

    name: str
    log_path: Path


class Processes:
    """The processes of one run; a context manager that stops them all at the end.

    Parameters
    ----------
    run_dir
        Where `processes.json` (marker and pids) is kept, so that another process can find and stop the run.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.marker = uuid4().hex
        self._services: list[ServiceProcess] = []
        self._reaper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._write_state()
        self._reaper = subprocess.Popen(
            [sys.executable, "-m", "demo.processes", str(os.getpid()), self.marker],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parent.parent,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reaper is not None:
            self.stop()

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str], log_path: Path) -> ServiceProcess:
        """Start `argv` with the complete environment `env`; its output is appended to `log_path`."""
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            service = ServiceProcess(
                argv, env=self._marked(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        service.name, service.log_path = name, log_path
        self._services.append(service)
        self._write_state()
        return service

    def stop_service(self, service: ServiceProcess, deadline_s: float = 20) -> None:
        """End one process and its group."""
        _end_groups([service], deadline_s)
        self._services.remove(service)
        self._write_state()

    def stop(self, deadline_s: float = 20) -> None:
        """End everything that was started, and everything that came of it; then the reaper."""
        try:
            _end_groups(self._services[::-1], deadline_s)
        finally:
            stop_marked(self.marker)
            self._services.clear()
            (self.run_dir / _STATE).unlink(missing_ok=True)
            self._end_reaper()

    def kill(self) -> None:
        """End everything that was started, and everything that came of it, at once: nothing is told (SIGKILL)."""
        stop_marked(self.marker, term_s=None)

    def leave_running(self) -> None:
        """Let everything run on after this process; `stop_run` ends it later."""
        self._end_reaper()

    def _end_reaper(self) -> None:
        if self._reaper is not None:
            self._reaper.kill()
            self._reaper.wait()
            self._reaper = None

    def _marked(self, env: Mapping[str, str]) -> dict[str, str]:
        # A run inside a run carries both markers, so that either can end it.
        markers = [*filter(None, [os.environ.get(MARKER)]), self.marker]
        # setproctitle, which Airflow uses, would otherwise write the title over what /proc shows as the environment.
        return {**env, MARKER: ",".join(markers), "SPT_NOENV": "1"}

    def _write_state(self) -> None:
        state = {"marker": self.marker, "pids": {service.name: service.pid for service in self._services}}
        write_atomically(self.run_dir / _STATE, json.dumps(state, indent=1))


def wait_until(
    condition: Callable[[], T],
    deadline_s: float,
    what: str,
    process: ServiceProcess | None = None,
    poll_s: float = _POLL_S,
) -> T:
    """Poll `condition` until it returns something true, and return that.

    Parameters
    ----------
    what
        What is waited for, for the message: "the broker to answer".
    process
        The process that should bring it about; the wait ends as soon as it died.

    Raises
    ------
    ServiceError
        If the process died or the deadline passed; the message ends with the last lines of the process's log.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        # Asked before the condition: what the process did just before it ended still counts.
        code = None if process is None else process.poll()
        if result := condition():
            return result
        if process is not None and code is not None:
            raise ServiceError(
                f"waited for {what}, but {process.name} ended with exit code {code}.{_log_tail(process)}"
            )
        if time.monotonic() > deadline:
            raise ServiceError(f"waited {deadline_s:.0f} s for {what}, without success.{_log_tail(process)}")
        time.sleep(poll_s)


def running(run_dir: Path) -> dict[str, bool]:
    """Return the processes of the run that `run_dir` remembers, and whether each is alive; empty if there is none."""
    state = _read_state(run_dir)
    if state is None:
        return {}
    alive = {process.pid for process in _carriers(state["marker"])}
    return {name: pid in alive for name, pid in state["pids"].items()}


def stop_run(run_dir: Path) -> bool:
    """End whatever remains of the run that `run_dir` remembers; False if it remembers none."""
    state = _read_state(run_dir)
    if state is None:
        return False
    stop_marked(state["marker"], term_s=20)
    (run_dir / _STATE).unlink(missing_ok=True)
    return True


def stop_marked(marker: str, term_s: float | None = 5, kill_s: float = 20) -> None:
    """End every process that carries the marker: SIGTERM, and SIGKILL for what is left after `term_s`.

    Parameters
    ----------
    term_s
        None: no SIGTERM.
    kill_s
        How long the end may take after the first SIGKILL.

    Raises
    ------
    ServiceError
        If some are still there `kill_s` after their first SIGKILL.
    """
    if term_s is not None:
        psutil.wait_procs(_signal(_carriers(marker), signal.SIGTERM), timeout=term_s)
    deadline = time.monotonic() + kill_s
    # Again until a look finds none: a process may have forked between the look and the signal.
    while remaining := list(_carriers(marker)):
        psutil.wait_procs(_signal(remaining, signal.SIGKILL), timeout=1)
        if time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in remaining)
            raise ServiceError(f"processes {pids} did not end within {kill_s:.0f} s of SIGKILL; end them manually")


def _carriers(marker: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        # Other users' processes, and those that end while we look, cannot be ours to end.
        with contextlib.suppress(psutil.Error, OSError):
            if (
                process.pid != os.getpid()
                and marker in process.environ().get(MARKER, "").split(",")
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                yield process


def _signal(processes: Iterator[psutil.Process] | list[psutil.Process], number: int) -> list[psutil.Process]:
    signalled = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)  # psutil compares the start time first, so a reused pid is safe
            signalled.append(process)
    return signalled


def _end_groups(services: list[ServiceProcess], deadline_s: float) -> None:
    _signal_groups(services, signal.SIGTERM)
    deadline = time.monotonic() + deadline_s
    for service in services:
        with contextlib.suppress(subprocess.TimeoutExpired):
            service.wait(max(0.0, deadline - time.monotonic()))
    _signal_groups(services, signal.SIGKILL)
    for service in services:
        with contextlib.suppress(subprocess.TimeoutExpired):
            service.wait(5)


def _signal_groups(services: list[ServiceProcess], number: int) -> None:
    for service in services:
        # The number of a group is safe only while its leader has not been waited for.
        if service.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(service.pid, number)


def _read_state(run_dir: Path) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads((run_dir / _STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return state


def _log_tail(process: ServiceProcess | None, lines: int = 15) -> str:
    if process is None:
        return ""
    with process.log_path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - 16_384))
        tail = log.read().decode("utf-8", "replace").splitlines()[-lines:]
    return f" The end of {process.log_path}:\n" + "\n".join(f"  {line}" for line in tail)


def _reap(owner_pid: int, marker: str) -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # only the owner ends the reaper, by SIGKILL
    # A dead owner, even one that nobody has waited for, is no longer our parent; a reused pid never is.
    while os.getppid() == owner_pid:
        time.sleep(_POLL_S)
    stop_marked(marker)
    # The owner may have died between fork and exec of a child, which had no marker yet at the first look.
    time.sleep(1)
    stop_marked(marker)


if __name__ == "__main__":
    _reap(int(sys.argv[1]), sys.argv[2])
