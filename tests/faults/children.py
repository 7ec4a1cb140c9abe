"""Tasks, restores and work on the archive in processes of their own, which a kill switch or a test ends.

The processes are forked from a server that has no thread of librdkafka or RocksDB in it. Before a process runs its
tasks it arms its kill switch, and applies hooks: functions that change the library in this process alone.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from statestore_jobs.nodes import run_here

from statestore import kill_switch
from statestore.archive.archive import ArchiveSpec
from statestore.archive.cleanup import Retention
from statestore.kafka.cluster import Cluster
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.archive_cleanup import clean_archive
from statestore.recovery.restore import RestoreSpec, restore
from statestore.recovery.snapshot_building import SnapshotSpec, snapshot_from_log
from statestore.reports import ProcessRow, RestoreRow
from statestore.tasks.spec import TaskSpec
from tests.integration.broker import WAIT_S, wait_for
from tests.integration.dying import start_process

RUN_S = 300.0
#: Bytes of a sorted run of a snapshot that is made from the log: some reach the disk.
FROM_LOG_RUN = 16_384
Hook = Callable[[Sequence[Any], Path], None]


class Kill(NamedTuple):
    """Where a process is killed or stopped: at a point, when it is reached for the n-th time, in any task or in one.

    Attributes
    ----------
    delay_ms
        How long after a point that is the begin of something under way.
    """

    point: str
    number: int = 1
    task: str = ""
    delay_ms: float = 1.0

    def __str__(self) -> str:
        return f"{self.point}:{self.number}{'@' + self.task if self.task else ''}"


class FromLog(NamedTuple):
    """A snapshot that is made from the log."""

    store: StorePartitionSpec
    label: str
    scratch: Path


class CleanUp(NamedTuple):
    """A clean-up of the archive."""

    archive: ArchiveSpec
    servers: str
    retention: Retention


Work = TaskSpec | RestoreSpec | FromLog | CleanUp


class Child:
    """A process that runs tasks or restores one after the other, as a worker of Spark does.

    Parameters
    ----------
    directory
        Where the process leaves its rows, and its kill switch a mark.
    kill, pause
        Where the process is killed, or stopped; at one of them.

    Attributes
    ----------
    seconds
        How long it worked, where `was_killed` has waited for its end.
    """

    def __init__(
        self,
        specs: Sequence[Work],
        directory: Path,
        *,
        kill: Kill | None = None,
        pause: Kill | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._rows = directory / "rows.json"
        self._mark = directory / "mark"
        for left in (self._rows, self._mark):
            left.unlink(missing_ok=True)
        self._at = kill or pause
        environment: dict[str, str] = {}
        if self._at is not None:
            name = "STATESTORE_KILL_AT" if kill else "STATESTORE_PAUSE_AT"
            environment = {
                name: str(self._at),
                "STATESTORE_KILL_MARK": str(self._mark),
                "STATESTORE_KILL_DELAY_MS": str(self._at.delay_ms),
            }
        self._began_s = time.monotonic()
        self.seconds = 0.0
        self._process = start_process(_run, tuple(specs), self._rows, environment, tuple(hooks))

    def rows(self) -> list[ProcessRow]:
        """Wait for the end of the tasks and return their rows."""
        return [ProcessRow.model_validate(row) for row in self.ended()]

    def restored(self) -> list[RestoreRow]:
        """Wait for the end of the restores and return their rows."""
        return [RestoreRow.model_validate(row) for row in self.ended()]

    def ended(self) -> list[Any]:
        """Wait for the end of the work and return what it says."""
        self._process.join(RUN_S)
        assert self._process.exitcode == 0, f"exit code {self._process.exitcode} instead of 0"
        rows: list[Any] = json.loads(self._rows.read_text())
        return rows

    def killed(self) -> None:
        """Wait for the kill; O8: it came, where it was to come, and not before by an error."""
        self._process.join(RUN_S)
        assert self._process.exitcode == -signal.SIGKILL, (
            f"O8: exit code {self._process.exitcode} instead of a kill at {self._at}"
            + (f"; rows {self._rows.read_text()}" if self._rows.exists() else "")
        )
        self._assert_marked()

    def was_killed(self) -> bool:
        """Wait for the kill, or the end of the work if that comes first; tell which it was."""
        self._process.join(RUN_S)
        self.seconds = time.monotonic() - self._began_s
        if self._process.exitcode == 0:
            return False
        assert self._process.exitcode == -signal.SIGKILL, f"exit code {self._process.exitcode} instead of a kill or 0"
        return True

    def paused(self) -> None:
        """Wait until the process has stopped itself."""

        def stopped() -> bool:
            assert self._process.is_alive(), f"O8: the process ended before {self._at}"
            return self._mark.exists() and psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

        wait_for(stopped, f"the process to stop at {self._at}", RUN_S)
        self._assert_marked()

    def paused_or_ended(self) -> bool:
        """Wait until the process has stopped itself, or has ended without; tell whether it has stopped."""

        def found() -> bool:
            stopped = self._mark.exists() and psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED
            return stopped or not self._process.is_alive()

        wait_for(found, f"the process to stop at {self._at}, or to end", RUN_S)
        return self._process.is_alive()

    def wake(self) -> None:
        """Let a stopped process go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill the process, wherever it is."""
        self._process.kill()
        self._process.join(RUN_S)

    def _assert_marked(self) -> None:
        point, pid = self._mark.read_text().split("\n")[:2]
        assert (point, int(pid)) == (self._at.point, self._process.pid), f"O8: {point!r} instead of {self._at}"


def _run(specs: Sequence[Any], rows: Path, environment: Mapping[str, str], hooks: Sequence[Hook]) -> None:
    if environment:
        os.environ.update(environment)
        importlib.reload(kill_switch)
    for hook in hooks:
        hook(specs, rows.parent)
    found = [_worked(spec) for spec in specs]
    partial = rows.with_suffix(".partial")
    partial.write_text(json.dumps(found))
    partial.replace(rows)


def _worked(work: Work) -> Any:
    match work:
        case FromLog():
            row = snapshot_from_log(SnapshotSpec(work.store, work.label, FROM_LOG_RUN, work.scratch))
        case CleanUp():
            return clean_archive(work.archive, Cluster(work.servers, WAIT_S), work.retention, dry_run=False)
        case TaskSpec():
            return run_here(work, "process", FROM_LOG_RUN).model_dump(mode="json")
        case _:
            row = restore(work)
    return row.model_dump(mode="json")
