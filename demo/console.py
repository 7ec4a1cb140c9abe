"""How the demo's commands talk to a person, and how they end: one message and an exit code, never a traceback."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console

from statestore.errors import StateStoreError

# A file or a pipe has no width of its own; rich would cut the tables at 80 columns.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
_errors = Console(stderr=True, highlight=False)


def run(command: Callable[[], int]) -> NoReturn:
    """Run a command and exit with its code; errors that we raise on purpose, and signals, end it with one message."""
    # SIGTERM unwinds like Ctrl-C, so that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        code = command()
    except StateStoreError as error:
        _errors.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        code = error.exit_code
    except KeyboardInterrupt:
        _errors.print("interrupted: everything that was started has been stopped", style="red")
        code = 128 + signal.SIGINT
    sys.exit(code)
