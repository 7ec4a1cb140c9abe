"""`make bench-snapshot`: snapshots in object storage: restoring from them, fetching them, and publishing them.

The archive is an S3 server on loopback (s3proxy), and a directory. Both lie on this machine: what is measured is the
work, not the distance to a cloud.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from benchmarks.command import Asked, main
from benchmarks.measure import SMALL, Result
from benchmarks.peers.s3proxy import start_s3proxy
from benchmarks.process_input import Broker, delete_topic, warm_up
from benchmarks.restore_log import LogShape
from benchmarks.restore_run import measured
from benchmarks.snapshot_fetch import ROUNDS as FETCH_ROUNDS
from benchmarks.snapshot_fetch import case_of, measure_fetching
from benchmarks.snapshot_plot import draw
from benchmarks.snapshot_publish import CASES as PUBLISH_CASES
from benchmarks.snapshot_publish import measure_publishing
from benchmarks.snapshot_restore import (
    CORES,
    ROUNDS,
    archives_of,
    filled,
    measure_restores,
    shapes,
    systems_of,
)
from demo.kafka_jars import check_disk
from demo.processes import Processes

_DISK_GIB = 3 if SMALL else 16
_OURS, _IN_DIRECTORY = "ours", "ours, directory"
#: Not for a look: it tells little beyond the other one.
_NOT_SMALL = (_IN_DIRECTORY,)


def run(asked: Asked) -> list[Result]:
    """Start a broker and an S3 server, and measure case by case."""
    fetching = [case_of(name) for name in (_OURS, _IN_DIRECTORY)]
    asked.require_some([*shapes(), *fetching, *PUBLISH_CASES])
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        logging.getLogger("statestore.recovery").setLevel(logging.ERROR)  # that a first snapshot has none before it
        check_disk(scratch, _DISK_GIB, "make bench-snapshot")
        servers = Broker(processes, scratch / "kafka").start()
        warm_up(servers)
        s3proxy = start_s3proxy(processes, scratch / "s3proxy")
        os.environ.update(s3proxy.environment)  # of this process, and of those that it starts
        archives = archives_of(servers, {_OURS: s3proxy.url, _IN_DIRECTORY: f"file://{scratch}/archive"})
        # Compiling our kernels is done once for an installation, by the first restore there is.
        warm_up_log = filled(servers, "warm-up", LogShape(20_000), list(archives.values()), scratch)
        systems = systems_of(processes, scratch, archives)
        measured(processes, systems[_OURS], warm_up_log, CORES, scratch)
        systems = asked.systems(systems, _NOT_SMALL)
        for number, (case, shape) in enumerate(shapes().items()):
            fetched = number == 0 and any(asked.part in name for name in fetching)
            if asked.part not in case and not fetched:
                continue
            log = filled(servers, f"restore-{number}", shape, list(archives.values()), scratch)
            if asked.part in case:
                results += measure_restores(processes, scratch, systems, case, log, asked.rounds or ROUNDS)
            if fetched:
                results += measure_fetching(log, scratch, archives, asked.part, asked.rounds or FETCH_ROUNDS)
            delete_topic(servers, log.topic)
        if any(asked.part in case for case in PUBLISH_CASES):
            results += measure_publishing(processes, scratch, servers, archives[_OURS], asked.rounds)
    return results


def _draw(name: str, results: list[Result]) -> None:
    draw(Path(f"docs/benchmarks/{name}.svg"), results)


if __name__ == "__main__":
    main("snapshot", run, _draw)
