"""`make bench-restore`: rebuild a store from its changelog: ours, Kafka Streams and Quix Streams.

A figure is records/s from the start of restoring to its end; starting up is left out for all. Ours ends when the store
is on disk, checked and in its place; Kafka Streams' when its listener says so, and once more when it has closed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

from benchmarks.command import Asked, main
from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.peers.kafka_streams_restore import kafka_streams
from benchmarks.peers.quix_streams_restore import fill_quix, quix_streams
from benchmarks.process_input import Broker, delete_topic, group_offsets
from benchmarks.restore_log import Log, LogShape, fill
from benchmarks.restore_ours import ours
from benchmarks.restore_plot import draw
from benchmarks.restore_run import RestoreOutcome, RestoringSystem, measured
from benchmarks.restore_shapes import (
    BASE,
    CLOSED,
    FEW_ROUNDS,
    MEMORY,
    NOT_SMALL,
    ONLY_BASE,
    OTHERS,
    SHAPES,
    SPARK_START,
    Shape,
)
from demo.kafka_jars import check_disk
from demo.processes import Processes
from statestore.model import TopicPartition

_DISK_GIB = 3 if SMALL else 16


def measure_shape(
    processes: Processes,
    scratch: Path,
    systems: Mapping[str, RestoringSystem],
    shape: Shape,
    logs: Mapping[str, Log],
    asked_rounds: int | None = None,
) -> list[Result]:
    """Measure all systems in alternating order.

    Parameters
    ----------
    logs
        What each system restores, by the system's name.
    asked_rounds
        So many rounds instead of the shape's own number.
    """
    outcomes: dict[str, list[RestoreOutcome]] = {name: [] for name in systems}

    def rate(name: str) -> float:
        found = outcomes[name]
        found.append(measured(processes, systems[name], logs[name], shape.cores, scratch, check=not found))
        return found[-1].rate

    case = Case(shape.case, "records/s", {name: partial(rate, name) for name in systems})
    measure([case], shape.rounds, FEW_ROUNDS, asked=asked_rounds)
    return results_of(shape, outcomes)


def results_of(shape: Shape, outcomes: Mapping[str, list[RestoreOutcome]]) -> list[Result]:
    """Return all that was found: rates, with closing and without, peak memory, and Spark's start."""
    figures = (
        (shape.case, "", "records/s", attrgetter("rate")),
        (shape.case, CLOSED, "records/s", attrgetter("closed_rate")),
        (f"{MEMORY}: {shape.case}", "", "MiB", attrgetter("peak_mib")),
        (SPARK_START, "", "s", attrgetter("start_seconds")),
    )
    return [
        Result(case, name + suffix, unit, found)
        for case, suffix, unit, figure in figures
        for name, runs in outcomes.items()
        if (found := [figure(outcome) for outcome in runs if figure(outcome) is not None])
    ]


def run(asked: Asked) -> list[Result]:
    """Start a broker, bring what the systems need, and measure shape by shape."""
    asked.require_some(shape.case for shape in SHAPES)
    shapes = [shape for shape in SHAPES if asked.part in shape.case]
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        check_disk(scratch, _DISK_GIB, "make bench-restore")
        servers = Broker(processes, scratch / "kafka").start()
        with group_offsets(servers, "warm-up", [TopicPartition("warm-up", 0)]) as offsets:
            offsets()  # the broker makes its internal topic, which no system is to wait for
        systems = asked.systems({**ours(), **kafka_streams(processes, scratch), **quix_streams()}, NOT_SMALL)
        warm_up(processes, scratch, servers, shapes)
        log: Log | None = None
        for number, shape in enumerate(shapes):
            taking_part = {name: system for name, system in systems.items() if shape == BASE or name not in ONLY_BASE}
            if log is None or log.shape != shape.log:
                if log is not None:
                    delete_topic(servers, log.topic)
                log = fill(servers, f"bench-{number}", shape.log)
            logs = dict.fromkeys(taking_part, log)
            if "Quix Streams" in taking_part:
                logs["Quix Streams"] = fill_quix(servers, f"quix-{number}", shape.log)
            results += measure_shape(processes, scratch, taking_part, shape, logs, asked.rounds)
    return results


def warm_up(processes: Processes, scratch: Path, servers: str, shapes: Sequence[Shape]) -> None:
    """Restore a little: compiling our kernels is done once for an installation, by the first restore there is."""
    for kind in dict.fromkeys(shape.log.kind for shape in shapes):
        log = fill(servers, f"warm-up-{kind}", LogShape(20_000, kind=kind))
        measured(processes, ours()["ours"], log, 2, scratch)
        delete_topic(servers, log.topic)


def _draw(name: str, results: list[Result]) -> None:
    draw(Path(f"docs/benchmarks/{name}.svg"), results, BASE, OTHERS)


if __name__ == "__main__":
    main("restore", run, _draw)
