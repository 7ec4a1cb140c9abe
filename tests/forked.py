"""Processes that tests start and kill: real crashes, real locks.

They come from a fork server, which has the library imported and no database open, so each takes milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

from tests.preloaded import PRELOADED

_CONTEXT = multiprocessing.get_context("forkserver")
WAIT_S = 120


def _start_fork_server() -> None:
    """Start it with what the children import; it takes the import path from the environment only."""
    _CONTEXT.set_forkserver_preload(PRELOADED)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextmanager
def child(target: Callable[..., None], *args: Any) -> Iterator[tuple[Any, Connection]]:
    """A process running `target(connection, *args)`, and our end of the connection; it is killed at the end."""
    _start_fork_server()
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=target, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join(WAIT_S)
        ours.close()


def received(connection: Connection) -> Any:
    """Next message of the child, within a deadline."""
    assert connection.poll(WAIT_S), "the child process said nothing"
    return connection.recv()


def exit_code(target: Callable[..., None], *args: Any) -> int:
    """Run the target to its end, or until it kills itself; negative is the signal."""
    with child(target, *args) as (process, _):
        process.join(WAIT_S)
        code = process.exitcode
    assert code is not None, "the child process did not end"
    return code


def die_before(names: Iterable[str], number: int, last: Callable[[], None] = lambda: None) -> None:
    """Have this process killed right before its `number`-th call of a C function of one of these names.

    `last` is called before.
    """
    calls = 0
    names = frozenset(names)

    def hook(_: Any, event: str, called: Any) -> None:
        nonlocal calls
        if event == "c_call" and called.__name__ in names:
            calls += 1
            if calls == number:
                last()
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(hook)
