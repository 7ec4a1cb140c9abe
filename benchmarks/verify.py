"""`make bench-verify`: the offsets of many store partitions, and the contents of a few large ones.

Offsets are compared by one process on one core, and by two on two; a figure is seconds for all of them. Contents are
read by two processes; a figure is records of the log per second, as for a restore of the same log. Stores that were
left open are corrected (`verify_mend.py`).
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from benchmarks.command import Asked, main
from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.process_input import Broker
from benchmarks.restore_log import Log, fill
from benchmarks.restore_ours import order_of
from benchmarks.restore_program import Order
from benchmarks.restore_run import RestoreOutcome, RestoringRun, seconds_of
from benchmarks.restore_shapes import BASE
from benchmarks.verify_fleet import APPLICATION, RECORDS, make_fleet, stores
from benchmarks.verify_job import case_of, measure_job
from benchmarks.verify_mend import WORK, measure_mending, mend_case
from demo.kafka_jars import check_disk
from demo.processes import Processes, ServiceError

STORES, TASKS = (5, 50) if SMALL else (40, 250)
ROUNDS = 1 if SMALL else 3
CORES = 2
_DISK_GIB = 3 if SMALL else 10
#: Work on the base's log; `ours` is the deep verification.
DEPTHS = {"ours": "deep", "in key order": "sorted", "scan": "scan", "restore": "restore", "drain floor": "drain"}
#: With how many cores offsets are compared, by the name of the system.
CORES_OF = {"ours, 1 core": 1, f"ours, {CORES} cores": CORES}


def offsets(processes: Processes, servers: str, scratch: Path, state_dir: Path, cores: int) -> float:
    """Return the seconds in which the offsets of all stores are verified."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        order = _fleet_order(servers, state_dir, Path(directory)).model_copy(update={"workers": cores})
        return _done(processes, order, STORES * TASKS * RECORDS).seconds


def _fleet_order(servers: str, state_dir: Path, directory: Path) -> Order:
    return Order(
        work="offsets",
        servers=servers,
        application=APPLICATION,
        stores=stores(STORES),
        partitions=TASKS,
        workers=CORES,
        state_dir=state_dir,
        result=directory / "result.json",
    )


def contents(processes: Processes, log: Log, work: str, scratch: Path, state_dir: Path) -> float:
    """Return the records/s at which this is done with a log, and with its store where one is to be there."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        run = RestoringRun(log, CORES, Path(directory))
        order = order_of(work, run, None if work == "restore" else state_dir)
        return log.shape.records / _done(processes, order, log.shape.records).seconds


def _done(processes: Processes, order: Order, records: int) -> RestoreOutcome:
    seconds_of(processes, order.command(), order.result.parent, order.workers)
    outcome = RestoreOutcome.read(order.result)
    if outcome.records != records:
        raise ServiceError(f"{order.work} was to speak of {records:,} records, found {outcome.records:,}")
    return outcome


def run(asked: Asked) -> list[Result]:
    """Start a broker, make stores, and measure."""
    many, large = f"offsets of {STORES * TASKS:,} store partitions", f"contents: {BASE.case}"
    job, mend = case_of(STORES * TASKS), mend_case(BASE.log)
    asked.require_some((many, job, large, mend))
    chosen = asked.systems(dict.fromkeys((*DEPTHS, *CORES_OF, *WORK)))
    rounds = asked.rounds or ROUNDS
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        check_disk(scratch, _DISK_GIB, "make bench-verify")
        servers = Broker(processes, scratch / "kafka").start()
        results: list[Result] = []
        if asked.part in large:
            log = fill(servers, "bench", BASE.log)
            state_dir = scratch / "whole"
            _done(processes, order_of("restore", RestoringRun(log, CORES, scratch), state_dir), log.shape.records)
            work = {
                name: partial(contents, processes, log, depth, scratch, state_dir)
                for name, depth in DEPTHS.items()
                if name in chosen
            }
            contents(processes, log, "deep", scratch, state_dir)  # kernels are compiled once for an installation
            results += measure([Case(large, "records/s", work)], rounds)
        if asked.part in mend:
            results += measure_mending(processes, servers, BASE.log, scratch, CORES, rounds, set(chosen))
        if asked.part in many or asked.part in job:
            state_dir = make_fleet(processes, servers, scratch, STORES, TASKS)
        if asked.part in many:
            work = {
                name: partial(offsets, processes, servers, scratch, state_dir, cores)
                for name, cores in CORES_OF.items()
                if name in chosen
            }
            results += measure([Case(many, "s", work)], rounds)
        if asked.part in job:
            results += measure_job(processes, scratch, _fleet_order(servers, state_dir, scratch), rounds)
    return results


if __name__ == "__main__":
    main("verify", run)
