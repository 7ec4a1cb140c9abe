"""Metrics of restores: how far running ones are, and what became of stores that were warmed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import get_args, get_type_hints

from statestore.metrics import table
from statestore.metrics.export import exported_meanwhile
from statestore.metrics.samples import Sample, counted, of_ended_restore
from statestore.objects.path import Location, ObjectPath
from statestore.progress.files import Known, read_files
from statestore.recovery.restore_progress import RestoreProgress
from statestore.recovery.warming import WarmRow


@contextmanager
def progress_exported(job: str, directory: Location) -> Iterator[None]:
    """Export what the restores of a run tell in a directory, as long as they run."""
    directory = directory.soon() if isinstance(directory, ObjectPath) else directory
    known: Known[RestoreProgress] = {}
    with exported_meanwhile(job, lambda: of_progress(read_files(directory, RestoreProgress, known))):
        yield


def of_progress(found: Collection[RestoreProgress]) -> Iterator[Sample]:
    """Return what is left to do of store partitions, and of ranges of their logs."""
    for one in found:
        store = (one.application, one.store)
        left = one.end - one.next if one.phase == "reading" else 0
        to_fetch = one.snapshot_bytes - one.fetched_bytes if one.phase == "fetching" else 0
        yield Sample(table.RESTORE_REMAINING, left, store, one.task)
        yield Sample(table.RESTORE_FETCHING, to_fetch, store, one.task)


def of_warmed(rows: Collection[WarmRow]) -> Iterator[Sample]:
    """Return what became of the stores of tasks that were warmed."""
    yield from counted(table.WARM_PARTITIONS, rows, "outcome", get_args(get_type_hints(WarmRow)["outcome"]))
    for row in rows:
        if row.outcome in ("warmed", "failed"):
            yield from of_ended_restore((row.application, row.store), row.task, row.records, row.seconds)
