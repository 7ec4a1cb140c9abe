"""Who does the pieces of work of a restore, several at a time: Spark tasks, or processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from statestore.errors import StateStoreError
from statestore.objects.path import Location
from statestore.progress.display import shown
from statestore.recovery.restore_progress import RESTORES, progress_label
from statestore.recovery.rows import failed
from statestore.recovery.spec import RestoreSpec
from statestore.reports import RestoreRow

S = TypeVar("S")
M = TypeVar("M")
P = TypeVar("P")


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


class Part(NamedTuple, Generic[P]):
    """A part of a restore that is done ahead by itself; `name` is its name in the progress."""

    spec: RestoreSpec
    what: P
    name: str = ""


def run_parts(
    parts: Sequence[Part[P]], work: Callable[[Part[P]], RestoreRow], run: Runner, progress: Location
) -> Sequence[RestoreRow]:
    """Do parts of restores, showing how far each is."""
    if not parts:
        return []
    labels = [progress_label(part.spec.store.store_partition, part.name) for part in parts]
    with shown(progress, labels, RESTORES):
        return run(parts, work, RestoreRow, lambda part, error: failed(part.spec, error))
