"""The stores of a new application: built task by task from its changelogs, each in place when its rows are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from statestore import kill_switch
from statestore.bulk.digest import Digest
from statestore.model import TopicPartition
from statestore.partition.replacement import clear_built
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import put_in_place
from statestore.recovery.spec import RestoreSpec
from statestore.recovery.staging import Staging
from statestore.reports import Loss, Status
from statestore.rewrite.partitioned import Written
from statestore.rewrite.staged_stores import Expected, stage
from statestore.statedir.sidecar import Judgement
from statestore.statedir.swap import locked_task

_BEGINS = "the state of another application"


class Digests:
    """Total of the records written to the partitions of a new changelog."""

    def __init__(self, partitions: int, store: StorePartitionSpec) -> None:
        self._each = [Digest(store.store.values) for _ in range(partitions)]

    def add(self, written: Written) -> None:
        """Add what a store partition has given."""
        for digest, rows, hexdigest in zip(self._each, written.rows, written.digests, strict=True):
            digest.add_digest(rows, hexdigest)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each partition."""
        return tuple(digest.rows for digest in self._each)

    def of(self, partition: int) -> tuple[int, str]:
        """Rows of a partition, and their digest."""
        return self._each[partition].rows, self._each[partition].hexdigest()


class TargetPart(NamedTuple):
    """A store partition that is built: how, of what input its rows are, and what they must be."""

    restore: RestoreSpec
    position: Mapping[TopicPartition, int]
    expected: Expected


class Built(BaseModel):
    """What was built of a task: by store, the offset of the last record; None without one."""

    model_config = ConfigDict(frozen=True)

    committed: tuple[int | None, ...]


class BuiltTasks(BaseModel):
    """What was built of several tasks."""

    model_config = ConfigDict(frozen=True)

    tasks: tuple[Built, ...]


def build_tasks(tasks: Sequence[Sequence[TargetPart]]) -> BuiltTasks:
    """Build the stores of several new tasks at the same time, each as `build_task` does.

    Raises
    ------
    StateStoreError
        The first that one raised, when all have ended.
    """
    with ThreadPoolExecutor(len(tasks)) as threads:
        begun = [threads.submit(build_task, parts, len(tasks)) for parts in tasks]
    return BuiltTasks(tasks=tuple(task.result() for task in begun))


def build_task(parts: Sequence[TargetPart], beside: int = 1) -> Built:
    """Build the stores of a new task from their changelogs, check them, and put them in place.

    Parameters
    ----------
    beside
        How many share the memory that a sorted run may take.

    Raises
    ------
    StoreCorruptedError
        If one has other rows than were written.
    """
    paths = parts[0].restore.store.paths
    with locked_task(paths, parts[0].restore.store.lock_wait_s, rewriting=True):
        shares = [part.restore._replace(run_bytes=max(part.restore.run_bytes // beside, 1)) for part in parts]
        shared = [part._replace(restore=its) for part, its in zip(parts, shares, strict=True)]
        return Built(committed=tuple(map(_build_store, shared)))


def _build_store(part: TargetPart) -> int | None:
    store = part.restore.store
    with Staging(store.paths, store.store.name).alone(store.lock_wait_s):
        clear_built(store.paths)
        staged = stage(part.restore, part.position, part.expected)
        put_in_place(part.restore, staged.built, staged.logs, Judgement(Status.MISSING, Loss.NONE, ""), _BEGINS)
    kill_switch.reached("rewrite, store in place")
    return staged.built.committed_offset
