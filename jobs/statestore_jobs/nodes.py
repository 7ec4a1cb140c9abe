"""Runs a task after it has fetched stores from an archive: stores of a node with its own disk, or versioned stores."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from statestore.errors import StateStoreError
from statestore.partition.archived import adopt_shape, archived_records
from statestore.recovery.bringing import bring_stores, may_be_brought
from statestore.recovery.copies import clean_copies
from statestore.recovery.spec import QUARANTINE_KEPT_S
from statestore.reports import Failure, ProcessRow, RestoreRow, StoreFigures
from statestore.tasks.idle import idle_offset
from statestore.tasks.spec import TaskSpec
from statestore.tasks.stream_task import idle_row, run_task

_log = logging.getLogger(__name__)


def run_here(spec: TaskSpec, label: str, run_bytes: int, quarantine_s: float = QUARANTINE_KEPT_S) -> ProcessRow:
    """Run a task wherever this is.

    Parameters
    ----------
    label
        Names what is replaced, in quarantine.
    run_bytes
        Bound of a sorted run in memory.
    quarantine_s
        Age in seconds at which this node's replaced stores are removed, and its copies of stores that others have.
    """
    if not any(map(may_be_brought, spec.stores_on_disk)):
        return run_task(spec)
    node_local = not all(store.home.disks_are_shared for store in spec.stores_on_disk)
    started = time.monotonic()
    try:
        if node_local and (offset := _idle_elsewhere(spec)) is not None:
            return _timed(idle_row(spec, offset), started)
        brought = bring_stores(spec.stores_on_disk, label, run_bytes)
        for why, built in brought.values():
            if built.failure is not None:
                return _timed(_failed(spec, _about(built.failure, built.label, why)), started)
        if node_local:
            adopt_shape(spec.stores_on_disk)
    except (StateStoreError, OSError) as error:
        return _timed(_failed(spec, Failure.of(error)), started)
    row = run_task(spec)
    if node_local:
        _clean_up(spec, quarantine_s)
    stores = (_with_building(figures, brought) for figures in row.stores)
    return _timed(row.model_copy(update={"stores": tuple(stores)}), started)


def _clean_up(spec: TaskSpec, quarantine_s: float) -> None:
    """Remove what nobody needs of this node's other tasks; this one has done its work, whatever comes of that."""
    try:
        for gone in clean_copies(spec.stores_on_disk, quarantine_s):
            _log.info("process: %s was removed from this node: another one has published it since", gone)
    except Exception:  # also of the user's own code, such as a supplied store
        _log.exception("process: this node was not searched")


def _idle_elsewhere(spec: TaskSpec) -> int | None:
    """Return the next input offset of a task that has nothing to do and whose stores are not all here; else None."""
    stores = spec.stores_on_disk
    if len(stores) < len(spec.subtopology.stores) or all(store.live.exists() for store in stores):
        return None
    records = archived_records(stores)
    names = [store.store.name for store in stores]
    return None if records is None else idle_offset(spec, dict(zip(names, records, strict=True)))


def _with_building(figures: StoreFigures, brought: Mapping[str, tuple[str, RestoreRow]]) -> StoreFigures:
    if figures.store not in brought:
        return figures
    why, built = brought[figures.store]
    seconds = round(figures.restore_seconds + built.seconds, 3)
    restored = figures.restored + built.records
    return figures.model_copy(update={"rebuilt": why, "restored": restored, "restore_seconds": seconds})


def _about(failure: Failure, label: str, why: str) -> Failure:
    said = f"{label} was to be built on this node, because {why}: {failure.message}"
    return failure.model_copy(update={"message": said})


def _failed(spec: TaskSpec, failure: Failure) -> ProcessRow:
    return ProcessRow(application=spec.application.name, task=str(spec.task), failure=failure)


def _timed(row: ProcessRow, started: float) -> ProcessRow:
    return row.model_copy(update={"seconds": round(time.monotonic() - started, 3)})
