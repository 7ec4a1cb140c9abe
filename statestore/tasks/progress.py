"""How far a running task is, in a small file that others may read at any time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from statestore.tasks.spec import TaskSpec
from statestore.tasks.topology import Counts

_EVERY_S = 1.0


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
        self._path = spec.progress
        self._spec = spec
        self._first: int | None = None
        self._told = 0.0
        self._last: TaskProgress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            self._write(self._last.model_copy(update={"phase": "ended"}))

    def tell(self, phase: str, next_offset: int = 0, counts: Counts | None = None) -> None:
        """Say how far the task is; most calls cost no more than a look at the clock."""
        if self._path is None or (time.monotonic() - self._told < _EVERY_S and self._first is not None):
            return
        if self._first is None and phase == "processing":
            self._first = next_offset - (counts.records_in if counts else 0)
        found = counts or Counts()
        self._told = time.monotonic()
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
        self._write(self._last)

    def _write(self, progress: TaskProgress) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            partial.write_text(progress.model_dump_json(), encoding="utf-8")
            partial.replace(self._path)
        except OSError:  # progress is for people; the work goes on without it
            self._path = None


def read_progress(directory: Path) -> list[TaskProgress]:
    """Read what the tasks of a run say; what cannot be read says nothing."""
    found = []
    for path in sorted(directory.glob("*.json")):
        try:
            found.append(TaskProgress.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            continue
    return found
