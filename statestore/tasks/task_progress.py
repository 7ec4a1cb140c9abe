"""The progress of a task of `process`, in a file that is rewritten from time to time."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict

from statestore.progress.files import ProgressFile
from statestore.tasks.spec import TaskSpec
from statestore.tasks.topology import Counts


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


class TaskProgressWriter:
    """Writes the progress file of a task now and then; nothing where the spec names none."""

    def __init__(self, spec: TaskSpec) -> None:
        self._file = ProgressFile(spec.progress)
        self._spec = spec
        self._first: int | None = None
        self._told: tuple[int, Counts | None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._told is not None:
            self._file.end(self._progress("ended", *self._told))

    def tell(self, phase: str, next_offset: int = 0, counts: Counts | None = None) -> None:
        """Say how far the task is; most calls cost no more than a look at the clock."""
        if not self._file.wanted:
            return
        self._told = next_offset, counts
        if self._first is None and phase == "processing":
            self._first = next_offset - (counts.records_in if counts else 0)
        elif self._first is not None and not self._file.due:
            return
        self._file.write(self._progress(phase, next_offset, counts))

    def _progress(self, phase: str, next_offset: int, counts: Counts | None) -> TaskProgress:
        found = counts or Counts()
        return TaskProgress(
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
