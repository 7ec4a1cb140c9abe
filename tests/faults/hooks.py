"""Hooks that several tests give to their children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from statestore.model import TopicPartition
from statestore.tasks.spec import TaskSpec
from statestore.tasks.stream_task import StreamTask


def to_disk(specs: Sequence[TaskSpec], directory: Path) -> None:
    """Have all that stores hold reach the disk before each commit in Kafka, as RocksDB does when it is full.

    A kill would else lose the rows that were written without a transaction, and test nothing.
    """
    recover = StreamTask.recover

    def recover_and_watch(task: StreamTask) -> None:
        recover(task)
        flush = task._writer.flush

        def flush_all() -> Mapping[TopicPartition, int]:
            delivered = flush()
            for store in task._stores.by_name.values():
                store.sync()
            return delivered

        task._writer.flush = flush_all  # type: ignore[method-assign, assignment]

    StreamTask.recover = recover_and_watch  # type: ignore[method-assign]
