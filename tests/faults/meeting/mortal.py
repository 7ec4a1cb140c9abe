"""Work on a task in a process of its own, which may be killed at a point; it says what came of it if it was not."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from tests.faults.hooks import to_disk
from tests.integration import dying

Row = TypeVar("Row", bound=BaseModel)


def killed_or(
    kind: type[Row], spec: Any, point: str, said: Path, *, ahead_s: float = 0, on_disk: bool = False
) -> Row | None:
    """Work as a specification says, in a process that is killed at `point`, or the n-th time at `point:n`.

    Parameters
    ----------
    kind
        Of the row that the work ends with.
    said
        File for it.
    ahead_s
        How far the process' clock is ahead.
    on_disk
        Whether stores reach the disk before each commit.

    Returns
    -------
    Row or None
        None: it was killed. A point need not be met.
    """
    said.unlink(missing_ok=True)
    hooks = [partial(shift_clock, ahead_s), *([partial(to_disk, [], said.parent)] if on_disk else [])]
    code = dying.exit_code(spec, point, said, hooks)
    if code == -signal.SIGKILL:
        return None
    assert code == 0, f"exit code {code} instead of a kill at {point!r} or an end"
    return kind.model_validate_json(said.read_text())


def shift_clock(ahead_s: float) -> None:
    """Put this process' clock ahead, as Python code reads it."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + ahead_s
    time.time_ns = lambda: now_ns() + int(ahead_s * 1e9)
