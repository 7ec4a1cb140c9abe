"""Child processes that kill themselves with SIGKILL at a named point.

They are forked from a server that has only imported this module: no thread of librdkafka or RocksDB is in it, and a
child costs no start of Python.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from statestore import kill_switch
from statestore.recovery.restore import RestoreSpec, restore
from statestore.statedir.lock import locked
from statestore.tasks import task_stores as task_stores_module
from statestore.tasks.spec import TaskSpec
from statestore.tasks.stream_task import StreamTask
from tests.integration.broker import WAIT_S, settle
from tests.preloaded import PRELOADED


def _die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _then_die(call: Callable[..., Any], calls: int = 1) -> Callable[..., Any]:
    """Wrap a call so that the process dies when it has returned for the n-th time."""
    left = [calls]

    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        result = call(*arguments, **keywords)
        left[0] -= 1
        if not left[0]:
            _die()
        return result

    return wrapped


#: Points at which Kafka has committed all that was sent.
AFTER_COMMIT = (
    "Kafka committed, stores not",
    "second commit in Kafka, not in the stores",
    "between the stores",
    "one store on disk, the other not",
    "stores committed",
    "in close",
    "stores closed",
)


class DyingTask(StreamTask):
    """A task that kills its process with SIGKILL at a named point of its first commit or before."""

    point = ""

    def __init__(self, spec: TaskSpec) -> None:
        if self.point == "offsets taken over, file still there":
            task_stores_module.remove_durably = _die
        super().__init__(spec)
        writer: Any = self._writer
        first = next(iter(self._stores.by_name.values()))
        this: Any = self
        if self.point == "before produce":
            writer.produce = _die
        elif self.point == "during produce":
            writer.produce = _then_die(writer.produce, 3)
        elif self.point == "flushed, not committed":
            writer.commit = _die
        elif self.point == "offsets not sent":
            writer.send_offsets = _die
        elif self.point == "commit sent, answer unseen":
            commit = writer.commit
            writer.commit = lambda: (threading.Thread(target=commit).start(), time.sleep(0.002), _die())
        elif self.point == "Kafka committed, stores not":
            writer.commit = _then_die(writer.commit)
        elif self.point == "second commit in Kafka, not in the stores":
            writer.commit = _then_die(writer.commit, 2)
        elif self.point == "between the stores":
            first.commit = _then_die(first.commit)  # type: ignore[method-assign]
        elif self.point == "one store on disk, the other not":
            commit_store = first.commit

            def on_disk(*arguments: Any) -> None:
                commit_store(*arguments)
                first.sync()
                _die()

            first.commit = on_disk  # type: ignore[method-assign]
        elif self.point == "stores committed":
            this._stores.commit = _then_die(self._stores.commit)
        elif self.point == "in close":
            this._close = _die
        elif self.point == "stores closed":
            this._close = _then_die(self._close)
        else:
            raise ValueError(self.point)


_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(PRELOADED)


def start_process(work: Callable[..., None], *arguments: Any) -> Any:
    """Start a process of its own that does the work."""
    process = _PROCESSES.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def run_and_die(spec: TaskSpec, point: str) -> None:
    """Run the task in a process of its own that kills itself at `point`."""
    _die_in(_process_child, point, spec)
    if point in AFTER_COMMIT:
        settle(spec.bootstrap_servers, *(changelog.topic for changelog in spec.changelogs.values()))


def restore_and_die(spec: RestoreSpec, point: str) -> None:
    """Restore in a process of its own that kills itself at `point` of kill_switch; `point:n` the n-th time."""
    _die_in(_restore_child, point, spec)


def _die_in(work: Callable[..., None], point: str, spec: Any) -> None:
    process = start_process(work, point, spec)
    process.join(WAIT_S)
    # O8: it died where it was to die, and not before by an error.
    assert process.exitcode == -signal.SIGKILL, f"exit code {process.exitcode} instead of a kill {point!r}"


def hold_lock(spec: TaskSpec, held: Any, let_go: Any) -> None:
    """Hold the task's lock from the event `held` to the event `let_go`."""
    with locked(spec.paths, 5):
        held.set()
        let_go.wait(WAIT_S)


def new_event() -> Any:
    """Return an event that processes share."""
    return _PROCESSES.Event()


def _process_child(point: str, spec: TaskSpec) -> None:
    DyingTask.point = point
    with locked(spec.paths, spec.lock_wait_s), DyingTask(spec) as task:
        task.recover()
        task.process()


def _restore_child(point: str, spec: RestoreSpec) -> None:
    # As STATESTORE_KILL_AT would have it; this process has imported the library long before.
    kill_switch.reached = kill_switch._Switch(point, signal.SIGKILL, None, 0).reached
    print(restore(spec))  # still here: the assertion on the exit code follows
