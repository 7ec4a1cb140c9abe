"""Who does the pieces of work of a restore, several at a time: Spark tasks, or processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from pydantic import BaseModel

from statestore.errors import StateStoreError
from statestore.objects.path import Location
from statestore.progress.display import shown
from statestore.recovery.restore_progress import RESTORES, progress_label
from statestore.recovery.rows import failed
from statestore.recovery.spec import RestoreSpec
from statestore.reports import RestoreRow

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound="Part")


class Runner(Protocol):
    """Does the work on every piece, several at a time, and returns the rows in the order of the pieces."""

    def __call__(
        self,
        pieces: Sequence[S],
        work: Callable[[S], M],
        row_type: type[M],
        lost: Callable[[S, StateStoreError], M] | None = None,
        /,
    ) -> list[M]:
        """Return one row for each piece; `lost` makes that of one whose process died, where the others go on."""


class Part(Protocol):
    """A part of a restore that is done ahead by itself."""

    @property
    def spec(self) -> RestoreSpec:
        """The restore."""

    @property
    def name(self) -> str:
        """Name of the part in its progress."""


def run_parts(
    parts: Sequence[P], work: Callable[[P], RestoreRow], run: Runner, progress: Location
) -> Sequence[RestoreRow]:
    """Do parts of restores, showing how far each is."""
    if not parts:
        return []
    labels = [progress_label(part.spec.store.store_partition, part.name) for part in parts]
    with shown(progress, labels, RESTORES):
        return run(parts, work, RestoreRow, _lost_part)


def _lost_part(part: Part, error: StateStoreError) -> RestoreRow:
    return failed(part.spec, error)
