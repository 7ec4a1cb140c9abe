"""Rows of a restore report, while the work on them goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

from statestore.errors import StateStoreError
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Failure, RestoreRow


def in_row(store: StorePartitionSpec, work: Callable[[RestoreRow], RestoreRow]) -> RestoreRow:
    """Return what a piece of work makes of its row, with its time; a failure of ours becomes part of it."""
    started, row = time.monotonic(), row_of(store)
    try:
        row = work(row)
    except (StateStoreError, OSError) as error:
        row = failed_row(row, error)
    return row.model_copy(update={"seconds": round(time.monotonic() - started, 3)})


def failed(spec: RestoreSpec, error: StateStoreError | OSError) -> RestoreRow:
    """Return the row of a store partition whose restore did not begin, or was lost."""
    return failed_row(row_of(spec.store), error)


def row_of(store: StorePartitionSpec) -> RestoreRow:
    """Return the row of a store partition before anything was done."""
    return RestoreRow(application=store.application, store=store.store.name, task=str(store.task), outcome="failed")


def failed_row(row: RestoreRow, error: StateStoreError | OSError) -> RestoreRow:
    """Return a row with the reason why its work was not done."""
    return row.model_copy(update={"failure": Failure.of(error)})
