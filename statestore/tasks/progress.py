"""How far running work is, in small files that others may read at any time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.durable import write_atomically
from statestore.tasks.spec import TaskSpec
from statestore.tasks.topology import Counts

_EVERY_S = 1.0
M = TypeVar("M", bound=BaseModel)


class ProgressFile:
    """A file that is written anew now and then, each time as a whole; nothing where there is no path.

    Progress is for people: where the file cannot be written, the work goes on without it. It has no checksum, as
    nothing is decided by it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._told = 0.0

    @property
    def wanted(self) -> bool:
        """False if nobody wants to know, or nothing can be written."""
        return self._path is not None

    @property
    def due(self) -> bool:
        """True if the last time is long enough ago; costs no more than a look at the clock."""
        return self._path is not None and time.monotonic() - self._told >= _EVERY_S

    def write(self, progress: BaseModel) -> None:
        """Replace the file."""
        if self._path is None:
            return
        self._told = time.monotonic()
        try:
            write_atomically(self._path, progress.model_dump_json())
        except OSError:
            self._path = None


def read_files(directory: Path, kind: type[M]) -> list[M]:
    """Read what the work of a run says; what cannot be read says nothing."""
    found = []
    for path in sorted(directory.glob("*.json")):
        try:
            found.append(kind.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            continue
    return found


class TaskProgress(BaseModel):
    """One task's progress.

    Attributes
    ----------
    phase
        `recovering`, `processing` or `ended`.
    first, next, end
        Input offsets: where this run began, the next to read, and where it ends.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    application: str
    task: str
    phase: str
    first: int = 0
    next: int = 0
    end: int = 0
    records_in: int = 0
    late_records: int = 0
    poison_records: int = 0


class Progress:
    """Writes the progress file of a task now and then; nothing where the spec names none."""

    def __init__(self, spec: TaskSpec) -> None:
        self._file = ProgressFile(spec.progress)
        self._spec = spec
        self._first: int | None = None
        self._last: TaskProgress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._file.write(self._last.model_copy(update={"phase": "ended"}))

    def tell(self, phase: str, next_offset: int = 0, counts: Counts | None = None) -> None:
        """Say how far the task is; most calls cost no more than a look at the clock."""
        if not (self._file.due if self._first is not None else self._file.wanted):
            return
        if self._first is None and phase == "processing":
            self._first = next_offset - (counts.records_in if counts else 0)
        found = counts or Counts()
        self._last = TaskProgress(
            application=self._spec.application.name,
            task=str(self._spec.task),
            phase=phase,
            first=self._first or 0,
            next=next_offset,
            end=self._spec.input_end,
            records_in=found.records_in,
            late_records=found.late,
            poison_records=found.poison,
        )
        self._file.write(self._last)
