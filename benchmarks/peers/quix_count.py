"""Counts records by key with Quix Streams; run in its own environment, with one JSON object as argument.

Two processes share the partitions. Each stops at the end of its own, which commits. As static members they leave no
rebalance behind to those that are not yet done.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from multiprocessing.synchronize import Barrier, Lock
from pathlib import Path
from typing import Any

from quixstreams import Application, State


def count(_: bytes, state: State) -> None:
    """Count one record of the message's key."""
    state.set("count", state.get("count", 0) + 1)


def work(number: int, task: dict[str, Any], one_at_a_time: Lock, all_ready: Barrier, started: Any) -> None:
    """Run one of the processes."""
    ends = task["ends"]
    left = len(ends) // task["processes"]

    def processed(_: str, partition: int, offset: int) -> None:
        nonlocal left
        if not started.value:
            started.value = time.time()
        if offset + 1 == ends[partition]:
            left -= 1
            if not left:
                application.stop()

    application = Application(
        task["servers"],
        consumer_group=task["group"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=task["commit_interval_s"],
        consumer_extra_config={"group.instance.id": f"{task['group']}-{number}"},
        state_dir=f"{task['state_dir']}/{number}",
        on_message_processed=processed,
        loglevel="WARNING",
    )
    with one_at_a_time:  # the first one makes the changelog topic
        topic = application.topic(task["topic"], key_deserializer="bytes", value_deserializer="bytes")
        application.dataframe(topic).update(count, stateful=True)
    all_ready.wait(60)
    application.run()


def main(task: dict[str, Any]) -> int:
    """Run the processes and return the exit code."""
    spawn = multiprocessing.get_context("spawn")
    # Without a lock: both may write at their first record, and the difference is nothing.
    shared = spawn.Lock(), spawn.Barrier(task["processes"]), spawn.Value("d", 0.0, lock=False)
    processes = [spawn.Process(target=work, args=(number, task, *shared)) for number in range(task["processes"])]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    Path(task["started"]).write_text(str(shared[2].value), encoding="utf-8")
    return int(any(process.exitcode for process in processes))


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
