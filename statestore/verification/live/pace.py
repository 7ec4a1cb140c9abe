"""Limits how much disk and CPU a verification takes from the application on the same machine."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

#: System call `ioprio_set` by machine, and its arguments: this process, class idle, the default class.
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_THIS_PROCESS = 1
_IDLE = 3 << 13
_DEFAULT = 0
_LOWEST_NICE = 19
#: Time (s) of reading less than allowed that may be made up for.
_MOST_CREDIT_S = 1.0


@dataclass
class Pace:
    """Waits so that at most so many bytes are read in a second.

    Parameters
    ----------
    bytes_per_s
        Bytes of rows and records, without their keys' and values' compression.
    """

    bytes_per_s: float
    _began: float | None = field(default=None, init=False)
    _read: int = field(default=0, init=False)

    def __call__(self, size: int) -> None:
        """Wait after a batch of so many bytes, as long as it may take."""
        if self._began is None:
            self._began = time.monotonic()
        self._read += size
        ahead_s = self._read / self.bytes_per_s - (time.monotonic() - self._began)
        if ahead_s > 0:
            time.sleep(ahead_s)
        elif ahead_s < -_MOST_CREDIT_S:  # a pause is no credit
            self._began, self._read = time.monotonic(), 0


def use_lowest_priority() -> None:
    """Give this thread, and those that it starts, the lowest CPU and I/O priority that the system allows."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _LOWEST_NICE)
    # By `nice` alone, an application that wakes up still waits for the end of a slice of some milliseconds.
    _set_policy("SCHED_IDLE")
    _set_io_class(_IDLE)


@contextmanager
def lowest_priority() -> Iterator[None]:
    """Use the lowest priority for the block. Without the right to raise it again, it stays for this process."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    use_lowest_priority()
    try:
        yield
    finally:
        if before != _LOWEST_NICE:  # else the whole process has it
            _set_policy("SCHED_OTHER")
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, before)
                _set_io_class(_DEFAULT)


def _set_policy(name: str) -> None:
    with suppress(OSError, AttributeError):  # other systems lack them
        os.sched_setscheduler(0, getattr(os, name), os.sched_param(0))


def _set_io_class(value: int) -> None:
    number = _IOPRIO_SET.get(platform.machine())
    if platform.system() == "Linux" and number is not None:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).syscall(number, _THIS_PROCESS, 0, value)
