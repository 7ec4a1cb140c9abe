"""Restores the state of an application with Quix Streams; run in its own environment, with one JSON object as argument.

The application is a real one, with its input read up to its end: it is assigned its partitions, restores them, and is
stopped when all processes have done so. Nothing in it tells when a partition's last record was restored; its recovery
ends with a poll that waits for a second in vain, so that second is taken off.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from multiprocessing.synchronize import Barrier, Lock
from pathlib import Path
from typing import Any

from quixstreams import Application, State
from quixstreams.state.recovery import RecoveryManager

_VAIN_POLL_S = 1.0
_ALL_RESTORED_S = 600


def count(_: Any, state: State) -> None:
    """Count one record of the message's key."""
    state.set("count", state.get("count", 0) + 1)


def work(task: dict[str, Any], one_at_a_time: Lock, all_restored: Barrier, results: Any) -> None:
    """Run one of the processes."""
    last_vain_poll = 0.0
    update, recover = RecoveryManager._update_recovery_status, RecoveryManager.do_recovery

    def updating(manager: RecoveryManager) -> None:  # only called after a poll in vain: costs nothing per record
        nonlocal last_vain_poll
        last_vain_poll = time.time()
        update(manager)

    def recovering(manager: RecoveryManager) -> None:
        started = time.time()
        recover(manager)
        ended = last_vain_poll - _VAIN_POLL_S
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        all_restored.wait(_ALL_RESTORED_S)  # whoever left before would leave its partitions to the others
        ((stores),) = application._state_manager.stores.values()
        ((store),) = stores.values()
        held = store.partitions.values()
        rows = sum(len(list(part.get_or_create_column_family("default").keys())) for part in held)
        records = sum(part.get_changelog_offset() + 1 for part in held)
        results.put((started, ended, records, rows, peak_kib))
        application.stop()

    RecoveryManager._update_recovery_status, RecoveryManager.do_recovery = updating, recovering
    application = Application(
        task["servers"],
        consumer_group=task["group"],
        auto_offset_reset="earliest",
        state_dir=f"{task['state_dir']}/{multiprocessing.current_process().pid}",
        loglevel="WARNING",
    )
    with one_at_a_time:
        topic = application.topic(task["topic"], key_deserializer="bytes", value_deserializer="bytes")
        application.dataframe(topic).update(count, stateful=True)
    application.run()


def main(task: dict[str, Any]) -> int:
    """Run the processes and return the exit code."""
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    shared = spawn.Lock(), spawn.Barrier(task["processes"]), results
    processes = [spawn.Process(target=work, args=(task, *shared)) for _ in range(task["processes"])]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        return 1
    started, ended, records, rows, peak_kib = zip(*(results.get(timeout=10) for _ in processes), strict=True)
    result = {
        "records": sum(records),
        "rows": sum(rows),
        "seconds": max(ended) - min(started),
        "peak_kib": sum(peak_kib),
    }
    Path(task["result"]).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
