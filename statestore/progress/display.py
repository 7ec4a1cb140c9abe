"""Progress files as people see them: a bar for each piece of work on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from statestore.objects.path import Location, ObjectPath
from statestore.progress.files import Known, read_files

_POLL_S = 0.5
#: In object storage, where it is not written more often either.
_POLL_OBJECTS_S = 5.0
_LINE_EVERY_S = 15.0
M = TypeVar("M", bound=BaseModel)


class Bar(NamedTuple):
    """A bar for one piece of work. Without a total, it only pulses."""

    description: str
    completed: int
    total: int | None


class ProgressView(NamedTuple, Generic[M]):
    """How one kind of progress file is shown.

    Attributes
    ----------
    kind
        What a file holds.
    label
        Names the piece of work that a file speaks of.
    bar
        What its bar says.
    line
        One line about all pieces, given how many there are to be.
    """

    kind: type[M]
    label: Callable[[M], str]
    bar: Callable[[M], Bar]
    line: Callable[[Collection[M], int], str]


@contextmanager
def shown(directory: Location, labels: Sequence[str], view: ProgressView[M]) -> Iterator[None]:
    """Show what the work of these labels writes into the directory, until the block ends."""
    directory = directory.soon() if isinstance(directory, ObjectPath) else directory
    ended = threading.Event()
    show = _bars if sys.stderr.isatty() else _lines
    thread = threading.Thread(
        target=show, args=(directory, frozenset(labels), view, ended), name="progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _found(directory: Location, labels: frozenset[str], view: ProgressView[M], known: Known[M]) -> dict[str, M]:
    return {label: found for found in read_files(directory, view.kind, known) if (label := view.label(found)) in labels}


def _until(ended: threading.Event, every_s: float, look: Callable[[], None]) -> None:
    while not ended.wait(every_s):
        look()
    look()


def _bars(directory: Location, labels: frozenset[str], view: ProgressView[M], ended: threading.Event) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bars: dict[str, TaskID] = {}
        known: Known[M] = {}

        def look() -> None:
            for label, found in _found(directory, labels, view, known).items():
                if label not in bars:
                    bars[label] = progress.add_task(label, total=None)
                description, completed, total = view.bar(found)
                progress.update(bars[label], description=description, total=total, completed=completed)

        _until(ended, _POLL_OBJECTS_S if isinstance(directory, ObjectPath) else _POLL_S, look)


def _lines(directory: Location, labels: frozenset[str], view: ProgressView[M], ended: threading.Event) -> None:
    known: Known[M] = {}

    def look() -> None:
        line = view.line(_found(directory, labels, view, known).values(), len(labels))
        print(line, file=sys.stderr, flush=True)

    _until(ended, _LINE_EVERY_S, look)
