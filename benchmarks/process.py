"""`make bench-process`: count by key, exactly once, over the same input: ours, Kafka Streams and Quix Streams.

Every system has two processes or threads, the same partitions and the same commit interval. A figure is records/s from
the start of processing to the moment at which the last input offset is committed; starting up is left out for all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.command import Asked, main
from benchmarks.count_ours import ours
from benchmarks.counting import CountingSystem, rate
from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.peers.kafka_streams import kafka_streams
from benchmarks.peers.quix_streams import quix_streams
from benchmarks.process_input import Broker, Input, delete_topic, produce_input, warm_up
from benchmarks.process_plot import draw
from demo.kafka_jars import check_disk
from demo.processes import Processes

RECORDS = 50_000 if SMALL else 4_000_000
INTERVALS_MS = {"100 ms": 100, "30 s": 30_000}
_DISK_GIB = 3 if SMALL else 20


class Shape(NamedTuple):
    """What an input looks like, and how many rounds it is measured."""

    keys: int
    partitions: int
    rounds: int

    def case(self, interval: str) -> str:
        """Name of the case with this commit interval."""
        return f"{self.keys:,} keys, {self.partitions} partitions, {interval}"


BASE = Shape(10_000, 4, 1) if SMALL else Shape(1_000_000, 4, 3)
#: How it grows with keys and with partitions.
GROWTH = (Shape(10_000, 4, 1), Shape(100_000, 4, 1), Shape(1_000_000, 2, 1), Shape(1_000_000, 8, 1))
SHAPES = (BASE,) if SMALL else (BASE, *GROWTH)
#: Measured at the base alone: they take the longest, or tell little beyond it.
ONLY_BASE = ("Quix Streams", "ours, Spark job", "Kafka Streams, no cache")
#: How often these are measured, unless a number of rounds is asked for: one takes as long as all the others together.
FEW_ROUNDS = {"Quix Streams": 1, "ours, Spark job": 1}
#: Not for a look: these take longer to start than the others to count.
NOT_SMALL = ("Kafka Streams, no cache", "ours, Spark job")


def cases(
    processes: Processes, scratch: Path, systems: Mapping[str, CountingSystem], shape: Shape, counted: Input, part: str
) -> list[Case]:
    """One case per commit interval, as far as its name has `part` in it."""
    return [
        Case(
            shape.case(interval),
            "records/s",
            {
                name: partial(rate, processes, name, system, counted, commit_interval_ms, scratch)
                for name, system in systems.items()
                if shape == BASE or name not in ONLY_BASE
            },
        )
        for interval, commit_interval_ms in INTERVALS_MS.items()
        if part in shape.case(interval)
    ]


def run(asked: Asked) -> list[Result]:
    """Start a broker, bring what the systems need, and measure shape by shape."""
    asked.require_some(shape.case(interval) for shape in SHAPES for interval in INTERVALS_MS)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        check_disk(scratch, _DISK_GIB, "make bench-process")
        servers = Broker(processes, scratch / "kafka").start()
        warm_up(servers)
        systems = asked.systems({**ours(), **kafka_streams(processes, scratch), **quix_streams()}, NOT_SMALL)
        for shape in SHAPES:
            if not any(asked.part in shape.case(interval) for interval in INTERVALS_MS):
                continue
            topic = f"input-{shape.keys}-{shape.partitions}"
            counted = produce_input(servers, topic, shape.partitions, RECORDS, shape.keys)
            measured = cases(processes, scratch, systems, shape, counted, asked.part)
            results += measure(measured, shape.rounds, FEW_ROUNDS, asked=asked.rounds)
            delete_topic(servers, topic)
    return results


def _draw(name: str, results: list[Result]) -> None:
    draw(Path(f"docs/benchmarks/{name}.svg"), results, BASE, SHAPES, INTERVALS_MS)


if __name__ == "__main__":
    main("process", run, _draw)
