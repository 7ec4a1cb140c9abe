"""The progress of each task of an application as one number, without opening a store (KIP-1035).

Kafka Streams assigns tasks by these sums: the offsets of a task's stores, each plus one, added up. For a closed task
they come from our records; a task that runs is simply at the latest.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from statestore.errors import InputError, LockedError
from statestore.model import TaskId
from statestore.statedir.lock import locked
from statestore.statedir.paths import OWN_DIRECTORY, TaskPaths
from statestore.statedir.record import read_record

#: Kafka Streams' mark of a task that runs.
LATEST_OFFSET = -2
_MAX_SUM = (1 << 63) - 1


def offset_sum(offsets: Iterable[int | None]) -> int:
    """Add up offsets, each plus one; an unknown one counts 0, and more than 64 bits are pinned to the largest."""
    return min(sum(offset + 1 for offset in offsets if offset is not None), _MAX_SUM)


def task_offset_sums(state_dir: Path, application: str) -> dict[TaskId, int]:
    """Return the offset sum of every task that has state here."""
    sums = {}
    own = state_dir / OWN_DIRECTORY / application
    for directory in sorted(own.iterdir()) if own.exists() else ():
        try:
            paths = TaskPaths(state_dir, application, TaskId.parse(directory.name))
        except InputError:
            continue
        try:
            with locked(paths, wait_s=0):
                records = (read_record(paths, store) for store in paths.recorded_stores())
                sums[paths.task] = offset_sum(record.committed for record in records if record is not None)
        except LockedError:
            sums[paths.task] = LATEST_OFFSET
    return sums
