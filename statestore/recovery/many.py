"""Restoring many store partitions, several at a time, whoever runs the pieces: Spark tasks, or processes.

A log that is long enough is cut into ranges first: each becomes sorted runs by itself, and the piece of work that
restores the store partition then puts them together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

from statestore.errors import StateStoreError
from statestore.partition.judgement import row as judged_row
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.as_of import claim_target, point_and_target, point_range, require_free_target
from statestore.recovery.planning import range_count, store_logs
from statestore.recovery.progress import RESTORES, progress_label
from statestore.recovery.restore import begin_ranges, restore, restore_range
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Range
from statestore.reports import Action, RestoreRow, Status, VerifyRow
from statestore.tasks.progress_shown import shown
from statestore.verification.check import verify

S = TypeVar("S")
M = TypeVar("M", bound=BaseModel)


class Runner(Protocol):
    """Does the work on every piece, several at a time, and returns the rows in the order of the pieces."""

    def __call__(self, pieces: Sequence[S], work: Callable[[S], M], row_type: type[M], /) -> list[M]:
        """Return one row for each piece."""


class _RangeOf(NamedTuple):
    """A range to read, and what its progress is called."""

    spec: RestoreSpec
    part: Range
    name: str


def require_points(restores: Sequence[RestoreSpec]) -> None:
    """Refuse points that are not in the logs, and targets that are in use, before anything is made.

    Raises
    ------
    InputError
        With the numbers.
    """
    for spec in restores:
        if spec.mode == "as-of":
            as_of, target = point_and_target(spec)
            require_free_target(target, spec.store.state_dir, as_of)
            point_range(spec.store, as_of)


def cut_by_length(restores: Sequence[RestoreSpec], parallelism: int) -> list[RestoreSpec]:
    """Decide into how many ranges logs are cut, so that there is work for all.

    Parameters
    ----------
    parallelism
        Pieces of work that are done at the same time.
    """
    if len(restores) >= parallelism:
        return list(restores)
    cut = []
    for spec in restores:
        try:
            logs = store_logs(spec.store).values() if spec.store.changelog and spec.mode in ("auto", "full") else ()
        except (StateStoreError, OSError):
            logs = ()  # the restore, or its plan, says why
        offsets = sum(log.last_stable - log.start for log in logs)
        cut.append(spec._replace(ranges=range_count(offsets, len(restores), parallelism)))
    return cut


def restore_many(restores: Sequence[RestoreSpec], run: Runner, progress: Path) -> list[RestoreRow]:
    """Restore store partitions, showing how far each is.

    Parameters
    ----------
    progress
        Directory that the restores tell their progress in.
    """
    for spec in restores[:1]:
        if spec.mode == "as-of":
            as_of, target = point_and_target(spec)
            claim_target(target, spec.store.state_dir, as_of)
    _read_ranges(restores, run, progress)
    with shown(progress, [progress_label(spec.store.store_partition) for spec in restores], RESTORES):
        return run(restores, restore, RestoreRow)


def _read_ranges(restores: Sequence[RestoreSpec], run: Runner, progress: Path) -> None:
    """Read logs that are cut into ranges; what fails here, the restore reads again, or says why it cannot."""
    candidates = [spec for spec in restores if spec.ranges > 1 and spec.mode in ("auto", "full")]
    unsure = [spec for spec in candidates if not spec.force]
    found = run([spec.store for spec in unsure], _look_at, VerifyRow)
    whole = {spec.store for spec, row in zip(unsure, found, strict=True) if not _is_rebuilt(spec, row)}
    parts: list[_RangeOf] = []
    for spec in candidates:
        if spec.store in whole:
            continue
        try:
            ranges = begin_ranges(spec)
        except (StateStoreError, OSError):
            continue
        parts += [_RangeOf(spec, part, f"{number}/{len(ranges)}") for number, part in enumerate(ranges, start=1)]
    labels = [progress_label(item.spec.store.store_partition, item.name) for item in parts]
    if not parts:
        return
    with shown(progress, labels, RESTORES):
        rows = run(parts, _read_range, RestoreRow)
    for row in rows:
        if row.failure is not None:
            print(f"restore: a range of {row.label} is read again: {row.failure.message}", file=sys.stderr)


def _look_at(store: StorePartitionSpec) -> VerifyRow:
    """Verify a store partition; one that cannot be verified now is left to its restore, which says why."""
    try:
        return verify(store)
    except (StateStoreError, OSError) as error:
        return judged_row(store, Status.LOCKED, Action.LATER, str(error))


def _is_rebuilt(spec: RestoreSpec, row: VerifyRow) -> bool:
    """True if `restore` will read the whole log, as far as can be told before it looks for itself."""
    return row.action is Action.FULL or (spec.mode == "full" and row.action is Action.TAIL)


def _read_range(item: _RangeOf) -> RestoreRow:
    return restore_range(item.spec, item.part, item.name)
