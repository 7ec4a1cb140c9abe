"""Progress of a run while it runs: a bar for each task on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from statestore.tasks.progress import TaskProgress, read_progress

_POLL_S = 0.5
_LINE_EVERY_S = 15.0


@contextmanager
def shown(directory: Path, labels: Sequence[str]) -> Iterator[None]:
    """Show what the tasks write into the directory, until the block ends.

    Parameters
    ----------
    labels
        `<application>/<task>` of each task of this stage.
    """
    ended = threading.Event()
    show = _bars if sys.stderr.isatty() else _lines
    thread = threading.Thread(target=show, args=(directory, frozenset(labels), ended), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _found(directory: Path, labels: frozenset[str]) -> dict[str, TaskProgress]:
    return {
        label: found for found in read_progress(directory) if (label := f"{found.application}/{found.task}") in labels
    }


def _until(ended: threading.Event, every_s: float, look: Callable[[], None]) -> None:
    while not ended.wait(every_s):
        look()
    look()


def _bars(directory: Path, labels: frozenset[str], ended: threading.Event) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bars: dict[str, TaskID] = {}

        def look() -> None:
            for label, found in _found(directory, labels).items():
                if label not in bars:
                    bars[label] = progress.add_task(label, total=None)
                description = label if found.phase == "processing" else f"{label} {found.phase}"
                total, completed = found.end - found.first, found.next - found.first
                progress.update(bars[label], description=description, total=total, completed=completed)

        _until(ended, _POLL_S, look)


def _lines(directory: Path, labels: frozenset[str], ended: threading.Event) -> None:
    def look() -> None:
        tasks = _found(directory, labels).values()
        records = sum(found.records_in for found in tasks)
        left = sum(max(found.end - found.next, 0) for found in tasks if found.phase == "processing")
        ended_tasks = sum(found.phase == "ended" for found in tasks)
        print(
            f"process: {ended_tasks} of {len(labels)} tasks ended, {records} records processed, {left} offsets left in "
            "tasks that are at work",
            file=sys.stderr,
            flush=True,
        )

    _until(ended, _LINE_EVERY_S, look)
