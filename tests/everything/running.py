"""Run one part in its own session, until it ends or its deadline has passed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from demo.processes import Processes
from tests.everything.part import Part

_POLL_S = 0.2
#: Variables of the `make` that runs this, and the arguments that it passes on. They are not meant for the parts.
_OF_MAKE = ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "SCALE", "SEED")


class Ended(NamedTuple):
    """How a run of a part ended: `why` it is red, or an empty string."""

    why: str
    seconds: int


def run(part: Part, seed: int, log: Path, work: Path) -> Ended:
    """Run a part; all processes that it has started end with it.

    Parameters
    ----------
    log
        Receives the output, after the command.
    work
        A directory for the list of the processes that run.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{part.shown(seed)}\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    started = time.monotonic()
    with Processes(work) as processes:
        process = processes.start(part.name, part.arguments(seed), environment, log)
        while process.poll() is None and time.monotonic() < started + part.deadline_s:
            time.sleep(_POLL_S)
        why = _why(process.poll(), part.deadline_s)
    return Ended(why, round(time.monotonic() - started))


def _why(exit_code: int | None, deadline_s: int) -> str:
    if exit_code is None:
        return f"not done after {deadline_s} s"
    return f"exit code {exit_code}" if exit_code else ""
