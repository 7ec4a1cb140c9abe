"""Store partitions by their task: whoever works on stores of one task at the same time waits for the task's lock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from statestore.partition.spec import StorePartitionSpec
from statestore.statedir.paths import TaskPaths

T = TypeVar("T")


def by_task(specs: Iterable[StorePartitionSpec]) -> list[list[int]]:
    """Return the indexes of the specs of each task, in the order in which the tasks first come."""
    tasks: dict[TaskPaths, list[int]] = {}
    for at, spec in enumerate(specs):
        tasks.setdefault(spec.paths, []).append(at)
    return list(tasks.values())


def in_order(groups: Iterable[Sequence[int]], rows: Iterable[Sequence[T]]) -> list[T]:
    """Return the rows of groups of indexes in the order of the indexes."""
    found = {
        at: row for group, of_group in zip(groups, rows, strict=True) for at, row in zip(group, of_group, strict=True)
    }
    return [found[at] for at in sorted(found)]
