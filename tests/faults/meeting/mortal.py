"""Work on a task in a process of its own, which may be killed at a point; it says what came of it if it was not."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from statestore import kill_switch
from statestore.recovery.restore import RestoreSpec, restore
from statestore.recovery.rollback import RollbackSpec, roll_back
from statestore.tasks.spec import TaskSpec
from statestore.tasks.stream_task import run_task
from tests.faults.hooks import to_disk
from tests.integration.broker import WAIT_S
from tests.integration.dying import start_process

Row = TypeVar("Row", bound=BaseModel)
_WORK: dict[type[Any], Any] = {TaskSpec: run_task, RestoreSpec: restore, RollbackSpec: roll_back}


def killed_or(
    kind: type[Row], spec: Any, point: str, said: Path, *, ahead_s: float = 0, on_disk: bool = False
) -> Row | None:
    """Work as a specification says, in a process that is killed at `point`, or the n-th time at `point:n`.

    Parameters
    ----------
    kind
        Of the row that the work ends with.
    said
        File for it.
    ahead_s
        How far the process' clock is ahead.
    on_disk
        Whether stores reach the disk before each commit.

    Returns
    -------
    Row or None
        None: it was killed. A point need not be met.
    """
    said.unlink(missing_ok=True)
    process = start_process(_work, spec, point, said, ahead_s, on_disk)
    process.join(WAIT_S)
    if process.exitcode == -signal.SIGKILL:
        return None
    assert process.exitcode == 0, f"exit code {process.exitcode} instead of a kill at {point!r} or an end"
    return kind.model_validate_json(said.read_text())


def _work(spec: Any, point: str, said: Path, ahead_s: float, on_disk: bool) -> None:
    kill_switch.reached = kill_switch._Switch(point, signal.SIGKILL, None, 0).reached
    shift_clock(ahead_s)
    if on_disk:
        to_disk([], said.parent)
    row = _WORK[type(spec)](spec)
    said.write_text(row.model_dump_json())


def shift_clock(ahead_s: float) -> None:
    """Put this process' clock ahead, as Python code reads it."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + ahead_s
    time.time_ns = lambda: now_ns() + int(ahead_s * 1e9)
