"""`make bench-rewrite`: the state of an application with another number of partitions, beside a restore of that state.

A figure is the seconds from the locks of the application to the last step: all rows written to new changelogs, and all
new stores on disk, compared with what was written, and in their places. The restore is the one of `make bench-restore`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import rmtree

from benchmarks.command import Asked, main
from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.process_input import Broker, delete_topic, warm_up
from benchmarks.restore_log import STORE, Log, LogShape, fill
from benchmarks.restore_ours import digest_of, order_of
from benchmarks.restore_program import Order
from benchmarks.restore_run import RestoreOutcome, RestoringRun, seconds_of
from benchmarks.restore_shapes import BASE
from benchmarks.rewrite_program import RepartitionOrder
from demo.kafka_jars import check_disk
from demo.processes import Processes, ServiceError
from statestore.kafka.cluster import Cluster
from statestore.model import changelog_topic
from statestore.statedir.paths import OWN_DIRECTORY

#: Number of partitions afterwards.
INTO = 16
CORES = 2
ROUNDS = 1 if SMALL else 5
_DISK_GIB = 3 if SMALL else 8
_CASE = f"{BASE.log.partitions} -> {INTO} partitions: {BASE.case}"


class Rewrites:
    """The repartitions of one application, each into a new one, which is then deleted.

    Parameters
    ----------
    state_dir
        Where the application's stores are, and those of the new ones are made.
    """

    def __init__(self, processes: Processes, scratch: Path, state_dir: Path, log: Log) -> None:
        self._processes, self._scratch, self._state_dir, self._log = processes, scratch, state_dir, log
        self._number = 0
        Cluster(log.servers).topics.create(self._input, INTO, {"retention.ms": "-1"})

    @property
    def _input(self) -> str:
        return f"{self._log.application}-{INTO}-in"

    def seconds(self) -> float:
        """Repartition once; the first time, compare the rows that were made with those that were logged."""
        self._number += 1
        with tempfile.TemporaryDirectory(dir=self._scratch) as directory:
            run = RestoringRun(self._log, CORES, Path(directory))
            its = order_of("repartition", run, self._state_dir).model_dump()
            to = f"{self._log.application}-made-{self._number}"
            order = RepartitionOrder(**its, to=to, into=INTO, new_input=self._input)
            found = _done(self._processes, order, self._log.rows)
            if self._number == 1 and (digest := digest_of(order.made)) != self._log.digest:
                raise ServiceError(f"the stores of {to} have the digest {digest}, expected {self._log.digest}")
            delete_topic(self._log.servers, changelog_topic(to, STORE))
            for place in (self._state_dir, self._state_dir / OWN_DIRECTORY):
                rmtree(place / to)
            return found


def restored(processes: Processes, log: Log, scratch: Path) -> float:
    """Return the seconds of a restore into an empty directory."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        return _done(processes, order_of("restore", RestoringRun(log, CORES, Path(directory))), log.rows)


def _done(processes: Processes, order: Order, rows: int) -> float:
    seconds_of(processes, order.command(), order.result.parent, order.workers)
    outcome = RestoreOutcome.read(order.result)
    if outcome.rows != rows:
        raise ServiceError(f"{order.work} was to give {rows:,} rows, found {outcome.rows:,}")
    return outcome.seconds


def _work_on(processes: Processes, scratch: Path, servers: str, name: str, shape: LogShape) -> tuple[Log, Rewrites]:
    """Fill a log, and restore the stores that are then repartitioned."""
    log, state_dir = fill(servers, name, shape), scratch / name
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        _done(processes, order_of("restore", RestoringRun(log, CORES, Path(directory)), state_dir), log.rows)
    return log, Rewrites(processes, scratch, state_dir, log)


def run(asked: Asked) -> list[Result]:
    """Start a broker, fill the log, and measure."""
    asked.require_some([_CASE])
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        check_disk(scratch, _DISK_GIB, "make bench-rewrite")
        servers = Broker(processes, scratch / "kafka").start()
        warm_up(servers)
        # Compiling our kernels is done once for an installation.
        _work_on(processes, scratch, servers, "warm-up", LogShape(20_000))[1].seconds()
        log, rewrites = _work_on(processes, scratch, servers, "bench", BASE.log)
        there: dict[str, Callable[[], float]] = {
            "ours": rewrites.seconds,
            "restore": partial(restored, processes, log, scratch),
        }
        systems = asked.systems(there)
        return measure([Case(_CASE, "s", systems)], ROUNDS, asked=asked.rounds)


if __name__ == "__main__":
    main("rewrite", run)
