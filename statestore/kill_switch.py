"""A switch that kills or suspends this process at a named point, to test what it leaves behind.

Code says `kill_switch.reached("<point>")`. The environment says where that has an effect:

    STATESTORE_KILL_AT=<point>[:<n>][@<task>]     kill -9 when the point is reached for the n-th time
    STATESTORE_PAUSE_AT=<point>[:<n>][@<task>]    stop (SIGSTOP) there, until somebody sends SIGCONT
    STATESTORE_KILL_MARK=<file>                   written just before, with point and pid; once it is there, nothing
                                                  happens any more, in whatever process
    STATESTORE_KILL_DELAY_MS=<ms>                 how long after `soon` (1 if not said)

The environment is read at import, unlike all settings: where it arms nothing, `reached` is a function without a body,
and calls of it cost too little to be measured.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

_task = ""
P = ParamSpec("P")
R = TypeVar("R")


def _nowhere(point: str) -> None:
    """Say that a point was reached."""


class _Switch:
    def __init__(self, where: str, number: signal.Signals, mark: str | None, delay_s: float) -> None:
        where, _, self._task = where.partition("@")
        self._point, _, times = where.partition(":")
        self._left = int(times or 1)
        self._signal = number
        self._mark = mark
        self._delay_s = delay_s

    def reached(self, point: str) -> None:
        if self._is_here(point):
            self._fire()

    def soon(self, point: str) -> None:
        if self._is_here(point):
            threading.Timer(self._delay_s, self._fire).start()

    def _is_here(self, point: str) -> bool:
        if point != self._point or self._task not in ("", _task):
            return False
        self._left -= 1
        return self._left == 0

    def _fire(self) -> None:
        if self._mark is not None:
            whole = f"{self._mark}.{os.getpid()}"
            with open(whole, "x") as mark:
                mark.write(f"{self._point}\n{os.getpid()}\n")
                mark.flush()
                os.fsync(mark.fileno())
            try:
                os.link(whole, self._mark)
            except FileExistsError:
                return
            finally:
                os.unlink(whole)
        os.kill(os.getpid(), self._signal)


def _switch(environment: Mapping[str, str]) -> _Switch | None:
    mark = environment.get("STATESTORE_KILL_MARK")
    delay_s = float(environment.get("STATESTORE_KILL_DELAY_MS", "1")) / 1000
    for name, number in (("STATESTORE_KILL_AT", signal.SIGKILL), ("STATESTORE_PAUSE_AT", signal.SIGSTOP)):
        if where := environment.get(name):
            return _Switch(where, number, mark, delay_s)
    return None


_armed = _switch(os.environ)
#: Say that a point was reached.
reached: Callable[[str], None] = _nowhere if _armed is None else _armed.reached
#: Say that the next call is the point: it is under way when the switch acts.
soon: Callable[[str], None] = _nowhere if _armed is None else _armed.soon


def around(call: Callable[P, R], before: str, after: str) -> Callable[P, R]:
    """Return a call that says two points, before and after it; where nothing is armed, the call as it is."""
    if reached is _nowhere:
        return call

    def said(*args: P.args, **options: P.kwargs) -> R:
        reached(before)
        result = call(*args, **options)
        reached(after)
        return result

    return said


def enter(task: str) -> None:
    """Say which task this process works on from here on; a process works on one at a time."""
    global _task
    _task = task
