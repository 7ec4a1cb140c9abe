"""`make bench-restore`: rebuild a store from its changelog: ours, Kafka Streams and Quix Streams.

A figure is records/s from the start of restoring to its end; starting up is left out for all. Ours ends when the store
is on disk, checked and in its place; Kafka Streams' when its listener says so, and once more when it has closed.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

from benchmarks.measure import SMALL, Case, Result, measure, report
from benchmarks.peers.kafka_streams_restore import kafka_streams
from benchmarks.peers.quix_streams_restore import fill_quix, quix_streams
from benchmarks.process_input import Broker, delete_topic, group_offsets
from benchmarks.restore_log import Log, LogShape, fill
from benchmarks.restore_ours import ours
from benchmarks.restore_plot import draw
from benchmarks.restore_run import Outcome, System, measured
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
from statestore.errors import InputError, StateStoreError
from statestore.model import TopicPartition

_DISK_GIB = 3 if SMALL else 16


def measure_shape(
    processes: Processes,
    scratch: Path,
    systems: Mapping[str, System],
    shape: Shape,
    logs: Mapping[str, Log],
    rounds: int,
) -> list[Result]:
    """Measure all systems in alternating order.

    Parameters
    ----------
    logs
        What each system restores, by the system's name.
    """
    outcomes: dict[str, list[Outcome]] = {name: [] for name in systems}

    def rate(name: str) -> float:
        found = outcomes[name]
        found.append(measured(processes, systems[name], logs[name], shape.cores, scratch, check=not found))
        return found[-1].rate

    measure([Case(shape.case, "records/s", {name: partial(rate, name) for name in systems})], rounds, FEW_ROUNDS)
    return results_of(shape, outcomes)


def results_of(shape: Shape, outcomes: Mapping[str, list[Outcome]]) -> list[Result]:
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


def run(part: str = "", only: list[str] | None = None, rounds: int | None = None) -> list[Result]:
    """Start a broker, bring what the systems need, and measure shape by shape.

    Parameters
    ----------
    part
        Measure only cases that have this in their names.
    only
        Measure only these systems.
    rounds
        Measure so many rounds instead of the shape's own number.

    Raises
    ------
    InputError
        If no case is called so, or a system is not there.
    """
    shapes = [shape for shape in SHAPES if part in shape.case]
    if not shapes:
        raise InputError(f"no case has {part!r} in its name; the cases are: {'; '.join(s.case for s in SHAPES)}")
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        check_disk(scratch, _DISK_GIB, "make bench-restore")
        servers = Broker(processes, scratch / "kafka").start()
        with group_offsets(servers, "warm-up", [TopicPartition("warm-up", 0)]) as offsets:
            offsets()  # the broker makes its internal topic, which no system is to wait for
        systems = {**ours(), **kafka_streams(processes, scratch), **quix_streams()}
        if unknown := set(only or ()).difference(systems):
            raise InputError(f"no system is called {', '.join(unknown)}; the systems are: {'; '.join(systems)}")
        default = [name for name in systems if not (SMALL and name in NOT_SMALL)]
        systems = {name: system for name, system in systems.items() if name in (only or default)}
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
            results += measure_shape(processes, scratch, taking_part, shape, logs, rounds or shape.rounds)
    return results


def warm_up(processes: Processes, scratch: Path, servers: str, shapes: Sequence[Shape]) -> None:
    """Restore a little: compiling our kernels is done once for an installation, by the first restore there is."""
    for kind in dict.fromkeys(shape.log.kind for shape in shapes):
        log = fill(servers, f"warm-up-{kind}", LogShape(20_000, kind=kind))
        measured(processes, ours()["ours"], log, 2, scratch)
        delete_topic(servers, log.topic)


def main() -> None:
    """Measure everything and report it; a choice of cases or systems is only shown."""
    parser = ArgumentParser(prog="bench-restore")
    parser.add_argument("--case", default="", help="measure only cases that have this in their names")
    parser.add_argument("--system", action="append", help="measure only this system; may be repeated")
    parser.add_argument("--rounds", type=int, help="measure so many rounds")
    arguments = parser.parse_args()
    results = run(arguments.case, arguments.system, arguments.rounds)
    if not (arguments.case or arguments.system or arguments.rounds):
        report("restore", results, _draw)
        return
    for result in results:
        runs = " ".join(f"{figure:,.1f}" for figure in result.runs)
        print(f"{result.case}: {result.system}: {result.median:,.1f} {result.unit} ({runs})")


def _draw(name: str, results: list[Result]) -> None:
    draw(Path(f"docs/benchmarks/{name}.svg"), results, BASE, OTHERS)


if __name__ == "__main__":
    try:
        main()
    except StateStoreError as error:
        sys.exit(f"bench-restore: {error}")
