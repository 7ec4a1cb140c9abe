"""mutmut, with time limits that reach no process but its own.

mutmut ends a worker by its number when its time is up, also if it has ended since and the number is another process's.
Here a limit holds on to the process itself. mutmut has no option for that: the function is replaced before it is used.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from threading import Timer

from mutmut.workers import timeout


def end_after(pid: int, timeout_s: float) -> None:
    """End the process after so many seconds, unless it has ended."""
    with suppress(ProcessLookupError):
        timer = Timer(timeout_s, _end, [os.pidfd_open(pid)])
        timer.daemon = True
        timer.start()


def _end(process: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGXCPU)
    os.close(process)


if __name__ == "__main__":
    timeout.register_timeout = end_after
    from mutmut.__main__ import cli

    sys.exit(cli())
