"""`make bench-live`: the throughput of a Kafka Streams application while its stores are verified.

The application counts by key, exactly once, and logs each count. Meanwhile, `statestore verify --live --depth deep`
runs repeatedly, without a pause. Nothing else differs between the systems. A figure is records/s, from the start of
processing until the last input offset is committed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from benchmarks.command import Asked, main
from benchmarks.counting import Command, CountingRun, CountingSystem, rate
from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.peers.kafka_streams import kafka_streams
from benchmarks.process_input import Broker, Input, delete_topic, fill_topic, make_topic, produce_input, warm_up
from demo.kafka_jars import check_disk
from demo.processes import Processes, ServiceError, wait_until
from statestore.reports import Status
from statestore.verification.history import read_history
from statestore.verification.live.pace import Pace

KEYS, PARTITIONS = (10_000, 4) if SMALL else (200_000, 4)
SATURATED, HALF = (50_000, 20_000) if SMALL else (4_000_000, 2_000_000)
ROUNDS = 1 if SMALL else 3
COMMIT_MS = 100
#: MB/s of `--rate`.
RATE = 10
_DISK_GIB = 3 if SMALL else 10
_START_S = 60
#: Records that are sent at once to an application that is fed.
_BATCH = 500
_NOT_VERIFIED, _WITH_RATE = "not verified", f"ours, --rate {RATE}"
#: Options of the verification by the name of the system; None: the application is alone.
SYSTEMS: Mapping[str, Sequence[str] | None] = {"ours": (), _WITH_RATE: ("--rate", str(RATE)), _NOT_VERIFIED: None}
_SATURATED_CASE = f"saturated: {SATURATED / 1e6:g} M records"
_HALF_CASE = f"fed at half its capacity: {HALF / 1e6:g} M records"
#: A store without rows on disk is in use, or empty.
_HARMLESS = {Status.PROVEN, Status.IN_USE, Status.EMPTY, Status.UNCONFIRMED, Status.LOCKED}


@contextmanager
def verifying(
    processes: Processes, run: CountingRun, options: Sequence[str], scratch: Path, proven: list[str]
) -> Iterator[None]:
    """Verify the stores of a run repeatedly in the block; afterwards, print how often, and refuse an alarm."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        argv = [
            *(sys.executable, "-m", "statestore.cli", "verify", "--live", "--depth", "deep", "--every", "10ms"),
            *("--application", run.application, "--bootstrap-servers", run.input.servers),
            *("--state-dir", str(run.directory / "state"), "--reports-dir", directory),
            *("--store", "counts:kind=key-value,format=timestamped", *options),
        ]
        service = processes.start("verify", argv, os.environ, scratch / "verify.log")
        try:
            yield
        finally:
            processes.stop_service(service)
        found = read_history(Path(directory))["status"].to_pylist()
    if not _HARMLESS.issuperset(found):
        raise ServiceError(f"a store raised an alarm: {sorted({*found})}")
    print(f"{len(found)} verifications of a store partition, {found.count(Status.PROVEN)} proven", flush=True)
    proven += [status for status in found if status == Status.PROVEN]


@contextmanager
def feeding(run: CountingRun, records_per_s: float) -> Iterator[None]:
    """Fill the input of a run from the start of processing on, at a steady pace."""

    def feed() -> None:
        wait_until(run.started.exists, _START_S, "the application to start")
        fill_topic(run.input.servers, run.input.topic, run.input.records, KEYS, batch=_BATCH, pace=Pace(records_per_s))

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@dataclass(frozen=True)
class Measuring:
    """Runs of the application, each with another state directory and changelog; `proven`: stores that were, so far."""

    processes: Processes
    scratch: Path
    application: CountingSystem
    proven: list[str] = field(default_factory=list)

    def saturated(self, name: str, counted: Input) -> float:
        """Return the records/s of an application whose input was there before."""
        return self._rate(name, counted, lambda _: nullcontext())

    def fed(self, name: str, counted: Input, records_per_s: float) -> float:
        """Return the records/s of an application whose input comes at a steady pace."""
        topic = f"fed-{uuid4().hex[:8]}"
        make_topic(counted.servers, topic, PARTITIONS)
        found = self._rate(name, counted._replace(topic=topic), lambda run: feeding(run, records_per_s))
        delete_topic(counted.servers, topic)
        return found

    def _rate(self, name: str, counted: Input, feed: Callable[[CountingRun], AbstractContextManager[None]]) -> float:
        options = SYSTEMS[name]
        with ExitStack() as meanwhile:

            def command(run: CountingRun) -> Command:
                meanwhile.enter_context(feed(run))
                if options is not None:
                    meanwhile.enter_context(verifying(self.processes, run, options, self.scratch, self.proven))
                return self.application.command(run)

            return rate(
                self.processes, name, replace(self.application, command=command), counted, COMMIT_MS, self.scratch
            )


def run(asked: Asked) -> list[Result]:
    """Start a broker, find the capacity of the application, and measure."""
    asked.require_some((_SATURATED_CASE, _HALF_CASE))
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        check_disk(scratch, _DISK_GIB, "make bench-live")
        servers = Broker(processes, scratch / "kafka").start()
        warm_up(servers)
        # The capacity of the application is that of one that is not verified.
        systems = dict.fromkeys([*asked.systems(SYSTEMS, not_small=[_WITH_RATE]), _NOT_VERIFIED])
        rounds = asked.rounds or ROUNDS
        measuring = Measuring(processes, scratch, kafka_streams(processes, scratch)["Kafka Streams, no cache"])
        counted = produce_input(servers, "saturated", PARTITIONS, SATURATED, KEYS)
        work = {name: partial(measuring.saturated, name, counted) for name in systems}
        results = measure([Case(_SATURATED_CASE, "records/s", work)], rounds)
        capacity = next(result.median for result in results if result.system == _NOT_VERIFIED)
        if asked.part not in _HALF_CASE:
            return results
        counted = produce_input(servers, "half", PARTITIONS, HALF, KEYS)
        work = {name: partial(measuring.fed, name, counted, capacity / 2) for name in systems if name != _WITH_RATE}
        results += measure([Case(_HALF_CASE, "records/s", work)], rounds)
        # Which runs meet rows on disk is chance: a memtable must have been written.
        if not SMALL and not measuring.proven:
            raise ServiceError("no store was proven, expected some; choose more records")
        return results


if __name__ == "__main__":
    main("live", run)
