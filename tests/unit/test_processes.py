"""Supervision of processes, on real ones: what we started ends, whatever happens, and nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from demo.processes import Processes, ServiceError, running, stop_run, wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]

# Ignores SIGTERM, leaves its parent's session and group, writes its pid, and outlives its parent.
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(sys.argv[1] + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".part", sys.argv[1])
    time.sleep(300)
else:
    os.wait() if sys.argv[2] == "stay" else None
"""

OWNER = """
import os, sys, time
from pathlib import Path
from demo.processes import Processes
with Processes(Path(sys.argv[1])) as processes:
    processes.start("daemon", [sys.executable, "-c", sys.argv[2], sys.argv[3], "stay"], dict(os.environ), Path(sys.argv[1]) / "log")
    time.sleep(300)
"""  # noqa: E501


@pytest.fixture
def unrelated() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours: it looks the same and carries another marker."""
    process = subprocess.Popen(SLEEP, env={**os.environ, "STATESTORE_RUN": "another"}, start_new_session=True)
    yield process
    process.kill()
    process.wait()


def _gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _pid_in(path: Path) -> Callable[[], int]:
    return lambda: int(path.read_text()) if path.exists() else 0


@pytest.mark.short_for("stay")
@pytest.mark.parametrize("parent", ["stay", "leave"])
def test_stop_ends_a_descendant_that_left_the_session_and_ignores_sigterm(
    tmp_path: Path, parent: str, unrelated: subprocess.Popen[bytes]
) -> None:
    with Processes(tmp_path) as processes:
        argv = [sys.executable, "-c", DAEMON, str(tmp_path / "pid"), parent]
        processes.start("daemon", argv, dict(os.environ), tmp_path / "log")
        daemon = wait_until(_pid_in(tmp_path / "pid"), 120, "the daemon's pid")
        assert not _gone(daemon)
        began = time.monotonic()
        processes.stop()
        assert _gone(daemon)
        assert time.monotonic() - began < 60
    assert unrelated.poll() is None


def test_a_kill_tells_nobody_and_leaves_nothing(tmp_path: Path, unrelated: subprocess.Popen[bytes]) -> None:
    tells = "import signal, sys, time; signal.signal(15, lambda *_: print('told', flush=True)); print('armed', flush=True); time.sleep(300)"  # noqa: E501
    log = tmp_path / "log"
    with Processes(tmp_path) as processes:
        service = processes.start("service", [sys.executable, "-c", tells], dict(os.environ), log)
        wait_until(lambda: "armed" in log.read_text(), 120, "the service to catch SIGTERM", service)
        processes.kill()
        assert _gone(service.pid)
    assert log.read_text() == "armed\n"
    assert unrelated.poll() is None


def test_everything_ends_when_the_owner_is_killed(tmp_path: Path, unrelated: subprocess.Popen[bytes]) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path), DAEMON, str(tmp_path / "pid")])
    daemon = wait_until(_pid_in(tmp_path / "pid"), 120, "the daemon's pid")
    started = psutil.Process(daemon).parent().pid
    owner.send_signal(signal.SIGKILL)
    wait_until(lambda: _gone(daemon) and _gone(started), 120, "the reaper to end all")
    owner.wait()
    assert unrelated.poll() is None


def test_what_is_left_running_outlives_the_owner_and_is_stopped_by_its_state(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    with processes:
        service = processes.start("sleeper", SLEEP, dict(os.environ), tmp_path / "log")
        processes.leave_running()
    assert running(tmp_path) == {"sleeper": True}
    assert service.poll() is None
    assert stop_run(tmp_path)
    service.wait(10)
    assert running(tmp_path) == {}
    assert not stop_run(tmp_path)


@pytest.mark.long
def test_a_run_inside_a_run_ends_with_the_outer_one(tmp_path: Path) -> None:
    with Processes(tmp_path / "outer") as outer:
        argv = [sys.executable, "-c", OWNER, str(tmp_path / "inner"), DAEMON, str(tmp_path / "pid")]
        outer.start("owner", argv, dict(os.environ), tmp_path / "log")
        daemon = wait_until(_pid_in(tmp_path / "pid"), 120, "the daemon's pid")
        outer.stop()
        assert _gone(daemon)


def test_a_wait_ends_with_the_log_when_the_process_dies(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        argv = [sys.executable, "-c", "import sys; print('no port left'); sys.exit(7)"]
        service = processes.start("broker", argv, dict(os.environ), tmp_path / "log")
        with pytest.raises(ServiceError, match=r"(?s)the broker to answer.*exit code 7.*no port left"):
            wait_until(lambda: False, 120, "the broker to answer", service)


def test_a_wait_ends_at_its_deadline(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        service = processes.start("sleeper", SLEEP, dict(os.environ), tmp_path / "log")
        with pytest.raises(ServiceError, match=r"waited 0 s for a sign, without success"):
            wait_until(lambda: False, 0.2, "a sign", service)
