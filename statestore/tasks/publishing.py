"""Publishing snapshots of a task's stores once they are closed and sealed."""

from __future__ import annotations

import logging

from statestore.archive.grown_from import read_grown_from
from statestore.partition.snapshots import publish_row
from statestore.reports import SnapshotRow
from statestore.tasks.spec import TaskSpec

_log = logging.getLogger(__name__)


def publish_stores(spec: TaskSpec, *, idle: bool = False) -> tuple[SnapshotRow, ...]:
    """Publish what a task has committed; the caller holds its lock.

    At least once, another writer's records may lie between ours, so such stores are not published by their task.

    Parameters
    ----------
    idle
        Nothing was processed: only stores without any snapshot are published.
    """
    if spec.archive is None or not spec.exactly_once:
        return ()
    rows = []
    for store in spec.subtopology.stores:
        known = read_grown_from(spec.paths, store.name)
        if store.engine == "in_memory" or (idle and known is not None and known.url == spec.archive.url):
            continue
        row = publish_row(spec.store_partition(store.name), spec.archive, "process")
        if row.failure is not None:
            _log.warning("process: %s/%s: no snapshot: %s", spec.application.name, spec.task, row.failure.message)
        rows.append(row)
    return tuple(rows)
