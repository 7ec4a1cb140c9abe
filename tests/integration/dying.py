"""Child processes that kill themselves with SIGKILL at a named point of the kill switch.

They are forked from a server that has only imported this module: no thread of librdkafka or RocksDB is in it, and a
child costs no start of Python.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statestore import kill_switch
from statestore.cli import app
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.recovery.restore import RestoreSpec, restore
from statestore.statedir.lock import locked
from statestore.tasks.spec import TaskSpec
from statestore.tasks.stream_task import run_task
from tests.integration.broker import WAIT_S, settle
from tests.integration.distributed import DistributedRestore, run_distributed
from tests.integration.overwriting import Overwriting, Upserting, run_write
from tests.integration.putting_back import PuttingBack, run_restore_to_point
from tests.integration.transforming import Transforming, run_transform
from tests.integration.undoing import Undoing, run_undo
from tests.preloaded import PRELOADED

#: Points of a task at which Kafka has committed all that was sent.
AFTER_COMMIT = [
    "Kafka committed, stores not",
    "segment committed",
    "store committed",
    "stores committed",
    "before close",
    "expired segment closed",
    "expired segment moved",
    "expired segment gone",
    "stores closed, nothing recorded",
    "store recorded, not sealed",
    "store sealed, mode not forgotten",
]


class CommandLine(NamedTuple):
    """The command `statestore` with its arguments, and the settings in its environment."""

    arguments: Sequence[str]
    settings: Mapping[str, str]


def run_command(line: CommandLine) -> None:
    """Run the command, which ends the process."""
    os.environ.update({f"STATESTORE_{name}": value for name, value in line.settings.items()})
    sys.argv = ["statestore", *line.arguments]
    app.main()


Work = (
    TaskSpec
    | RestoreSpec
    | RollbackSpec
    | DistributedRestore
    | CommandLine
    | Overwriting
    | Upserting
    | Transforming
    | PuttingBack
    | Undoing
)
_WORK: dict[type[Any], Any] = {
    CommandLine: run_command,
    TaskSpec: run_task,
    RestoreSpec: restore,
    RollbackSpec: roll_back,
    DistributedRestore: run_distributed,
    Overwriting: run_write,
    Upserting: run_write,
    Transforming: run_transform,
    PuttingBack: run_restore_to_point,
    Undoing: run_undo,
}
#: Changes the library in the child alone.
Hook = Callable[[], None]

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(PRELOADED)


def start_process(work: Callable[..., None], *arguments: Any) -> Any:
    """Start a process of its own that does the work."""
    process = _PROCESSES.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def exit_code(spec: Any, point: str, said: Path | None = None, hooks: Sequence[Hook] = ()) -> int:
    """Work as a specification says, in a process that is killed at `point`, or the n-th time at `point:n`.

    Parameters
    ----------
    said
        File for the row that the work ends with, if it was not killed; the row is printed if there is none.
    """
    process = start_process(_work, spec, point, said, tuple(hooks))
    process.join(WAIT_S)
    code: int = process.exitcode
    return code


def die_in(spec: Work, point: str, *hooks: Hook) -> None:
    """Work as a specification says, in a process that is killed at `point`."""
    code = exit_code(spec, point, hooks=hooks)
    # O8: it died where it was to die, and not before by an error.
    assert code == -signal.SIGKILL, f"exit code {code} instead of a kill {point!r}"
    if isinstance(spec, TaskSpec) and point.partition(":")[0] in AFTER_COMMIT:
        settle(spec.cluster.servers, *(changelog.topic for changelog in spec.changelogs.values() if changelog))


def _work(spec: Any, point: str, said: Path | None, hooks: Sequence[Hook]) -> None:
    # As STATESTORE_KILL_AT would have it; this process has imported the library long before.
    switch = kill_switch._Switch(point, signal.SIGKILL, None, 0.001)
    kill_switch.reached, kill_switch.soon = switch.reached, switch.soon
    for hook in hooks:
        hook()
    row = _WORK[type(spec)](spec) if type(spec) in _WORK else spec.carry_out()
    print(row) if said is None else said.write_text(row.model_dump_json())


def give_up_capabilities() -> None:
    """Let permissions count for this thread and those that it starts, also where the tests are run by root."""
    # Linux' capset, version 3.
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, nothing) == 0


def hold_lock(spec: TaskSpec, held: Any, let_go: Any) -> None:
    """Hold the task's lock from the event `held` to the event `let_go`."""
    with locked(spec.paths, 5):
        held.set()
        let_go.wait(WAIT_S)


def new_event() -> Any:
    """Return an event that processes share."""
    return _PROCESSES.Event()
