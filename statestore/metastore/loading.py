"""Checks that the code and suites of definitions can be loaded, in a separate process with a deadline.

It sees what a job on this machine sees: the Python path of the environment. How the two speak is told in
`load_code.py`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import IO, Any

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import DefinitionError

_PROGRAM = "statestore.metastore.load_code"
#: Loading one thing may take so long.
LOAD_S = 60.0
#: So may Python, the library and Great Expectations, on a machine that is busy.
_START_S = 300.0
_SHOWN_BYTES = 2_000


def require_loadable(definitions: Sequence[ApplicationDefinition], load_s: float = LOAD_S) -> None:
    """Refuse definitions whose processors, aggregates, serdes or suites cannot be loaded.

    Parameters
    ----------
    load_s
        Deadline (s) of loading one of them.

    Raises
    ------
    DefinitionError
        If any cannot be loaded, does not load in time, or ends its process. The message names all that were found.
    """
    if definitions and (problems := list(_problems(definitions, load_s))):
        raise DefinitionError("\n".join(problems))


def _problems(definitions: Sequence[ApplicationDefinition], load_s: float) -> Iterator[str]:
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(json.dumps([definition.model_dump(mode="json") for definition in definitions]).encode())
        given.seek(0)
        read, write = os.pipe()
        with open(read, "rb", buffering=0) as told:
            try:
                program = subprocess.Popen(
                    [sys.executable, "-P", "-m", _PROGRAM, str(write)],
                    stdin=given,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    pass_fds=[write],
                    start_new_session=True,  # what it has started goes with it
                )
            finally:
                os.close(write)
            try:
                yield from _told(program, told, said, load_s)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
                program.wait()


def _told(program: subprocess.Popen[bytes], told: IO[bytes], said: IO[bytes], load_s: float) -> Iterator[str]:
    loading = "the program that loads the code of applications"
    allowed_s = _START_S
    while (line := _line(told, allowed_s)) is not None:
        if not line:
            program.wait()
            said.seek(max(said.seek(0, os.SEEK_END) - _SHOWN_BYTES, 0))
            last = said.read().decode(errors="replace").strip()
            yield f"{loading} ended the process that loaded it, with code {program.returncode}. Its last output: {last}"
            return
        found: dict[str, Any] = json.loads(line)
        if "ended" in found:
            return
        if "problem" in found:
            yield found["problem"].encode(errors="backslashreplace").decode()
        loading = found.get("loading", loading)
        allowed_s = _START_S if ": suite " in loading else load_s
    yield f"{loading} did not load within {allowed_s:g} s. Make sure that its import finishes"


def _line(told: IO[bytes], allowed_s: float) -> bytes | None:
    """Return the next line; an empty one if there are no more, None if none came in time."""
    deadline = time.monotonic() + allowed_s
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([told], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return None
        byte = told.read(1)
        if not byte:
            return b""
        line += byte
    return line
