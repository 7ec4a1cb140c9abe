"""Starts the jobs of `jobs/` as separate programs, because the library does not depend on Spark.

A job ends when the command that started it has ended, however that comes about (`jobs/statestore_jobs/entry.py`).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence

import typer

from statestore.cli import exit_codes as ending
from statestore.errors import RebuildError, RetryError

_LINES_SHOWN = 20


def run_program(module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a program to its end; the lines that it begins with its name are said here, too, on standard error.

    Raises
    ------
    typer.Exit
        If it failed, with the exit code of a command, when its error was said.
    """
    name = module.rpartition(".")[2]
    failure: re.Match[str] | None = None
    lines: deque[str] = deque(maxlen=_LINES_SHOWN)
    command = [sys.executable, "-P", "-c", f"from {module} import main; main()", *arguments]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as program:
        assert program.stdout is not None
        try:
            for line in program.stdout:
                lines.append(line)
                if line.startswith(f"{name}: "):
                    failure = re.match(rf"{name}: ([\w.]+(?:Error|Exception)): (.*)", line) or failure
                    print(line, end="", file=sys.stderr, flush=True)
        except BaseException:
            program.terminate()
            raise
    if program.returncode == 0:
        return
    kind, message = failure.groups() if failure else ("StateStoreError", f"{name} failed")
    if failure is None:  # Spark has much to say of itself, the last of it about this
        print("".join(lines), end="", file=sys.stderr, flush=True)
    # What a signal has ended is no exit code of ours.
    code = 1 if program.returncode in (RebuildError.exit_code, *range(-64, 0)) else program.returncode
    ending.say_error(kind, message, code, retriable=code == RetryError.exit_code, said=True)
    raise typer.Exit(code)
