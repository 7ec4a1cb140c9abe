"""Hooks that several tests give to their children."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from statestore import kill_switch
from statestore.archive import fetch, upload
from statestore.model import TopicPartition
from statestore.recovery import tail
from statestore.statedir import lock
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


def at_a_moment(after_s: float) -> Callable[[Sequence[Any], Path], None]:
    """Have the process killed so many seconds after it has begun its work, wherever it is then."""
    return partial(_die_after, after_s)


def _die_after(after_s: float, specs: Sequence[Any], directory: Path) -> None:
    timer = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()


def sorted_tails(specs: Sequence[Any], directory: Path) -> None:
    """Have every tail sorted, however short it is."""
    tail.LEAST_SORTED = 1


def file_by_file(specs: Sequence[Any], directory: Path) -> None:
    """Have the kill switch reached when a file of a snapshot has been uploaded or fetched, before the others are."""
    put, fetched = upload._put_one, fetch._fetch_one

    def put_one(*arguments: Any) -> int:
        done = put(*arguments)
        kill_switch.reached("snapshot, file uploaded")
        return done

    def fetch_one(*arguments: Any) -> None:
        fetched(*arguments)
        kill_switch.reached("restore, file fetched")

    upload._put_one, fetch._fetch_one = put_one, fetch_one


def on_another_host(specs: Sequence[Any], directory: Path) -> None:
    """Be a process on another host of the same mount, which does not see what others have open there."""
    lock.open_elsewhere = lambda _: None
