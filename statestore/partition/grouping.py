"""Groups store partitions by task, because parallel work on the stores of one task waits for its lock."""

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


def in_pieces(groups: Sequence[Sequence[int]], size: int) -> list[list[int]]:
    """Put so many groups of indexes together, one behind the other."""
    return [[at for group in groups[first : first + size] for at in group] for first in range(0, len(groups), size)]


def in_order(groups: Iterable[Sequence[int]], rows: Iterable[Sequence[T]]) -> list[T]:
    """Return the rows of groups of indexes in the order of the indexes."""
    found = {
        at: row for group, of_group in zip(groups, rows, strict=True) for at, row in zip(group, of_group, strict=True)
    }
    return [found[at] for at in sorted(found)]


def by_store(stores: Sequence[StorePartitionSpec]) -> dict[str, list[StorePartitionSpec]]:
    """Return store partitions by store, in order."""
    found: dict[str, list[StorePartitionSpec]] = {}
    for store in sorted(stores, key=lambda store: (store.store.name, store.task)):
        found.setdefault(store.store.name, []).append(store)
    return found
