"""`make bench-metastore`: rebuilding the catalogue from its command topic, and how long a command takes.

Rebuilding is done in this process, by a `Metastore` that has read nothing before; a figure is seconds. Commands are
submitted by processes of their own, one alone and eight at the same time; figures are percentiles in ms.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.command import Asked, main
from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.metastore_log import Commands, fill
from benchmarks.metastore_writers import submit_from
from benchmarks.process_input import Broker, warm_up
from demo.kafka_jars import check_disk
from demo.processes import Processes, ServiceError
from statestore.kafka.cluster import Cluster
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.command_topic import CommandRecord, CommandTopic
from statestore.metastore.metastore import Metastore
from statestore.metastore.replay import fold

COMMANDS = 3_000 if SMALL else 100_000
TAIL = 100
#: Commands of each writer, by the number of writers.
WRITERS = {1: 20, 8: 3} if SMALL else {1: 300, 8: 40}
ROUNDS = 1 if SMALL else 5
SYSTEMS = ("ours", "beside the backup", "fold alone", "p50", "p99")
SERVICE = "bench"
_DISK_GIB = 3
_REBUILD, _SNAPSHOT = f"rebuild of {COMMANDS:,} commands", f"rebuild of a snapshot and {TAIL} commands"


class MeasuredTopic(NamedTuple):
    """The command topic, and what it must give.

    Attributes
    ----------
    backup
        Written before the first measurement.
    """

    servers: str
    expected: Catalogue
    backup: Path

    def view(self, *, backup: bool) -> float:
        """Return the seconds of a reader's first look."""
        metastore = Metastore(Cluster(self.servers), SERVICE, self.backup if backup else None)
        started = time.perf_counter()
        view = metastore.view()
        seconds = time.perf_counter() - started
        return self._checked(view.catalogue, seconds)

    def fold(self, records: list[CommandRecord]) -> float:
        """Return the seconds of decoding and applying what was read before."""
        started = time.perf_counter()
        folded = fold(records)
        seconds = time.perf_counter() - started
        return self._checked(folded.catalogue, seconds)

    def records(self) -> list[CommandRecord]:
        """Return all records of the topic."""
        topic = CommandTopic(Cluster(self.servers), SERVICE)
        log = topic.ends()
        return topic.read(log.start, log.last_stable)

    def cases(self, name: str) -> Case:
        """Return what is measured of the topic as it is now."""
        work = {
            "ours": partial(self.view, backup=False),
            "beside the backup": partial(self.view, backup=True),
            "fold alone": partial(self.fold, self.records()),
        }
        return Case(name, "s", work)

    def _checked(self, found: Catalogue, seconds: float) -> float:
        if found != self.expected:
            raise ServiceError(
                f"the catalogue has digest {found.digest()} and next id {found.next_id}, expected "
                f"{self.expected.digest()} and {self.expected.next_id}: its figure would mean nothing"
            )
        return seconds


def rebuilds(servers: str, scratch: Path, rounds: int) -> list[Result]:
    """Measure readers of the whole log, and of the same log compacted."""
    commands = Commands()
    CommandTopic(Cluster(servers), SERVICE).ensure()
    fill(servers, SERVICE, commands.take(COMMANDS))
    topic = MeasuredTopic(servers, commands.catalogue, scratch / "backup")
    topic.view(backup=True)
    results = measure([topic.cases(_REBUILD)], rounds)
    compacted = Metastore(Cluster(servers), SERVICE, topic.backup).compact().view.catalogue
    commands = Commands(compacted)
    fill(servers, SERVICE, commands.take(TAIL))
    topic = topic._replace(expected=commands.catalogue)
    topic.view(backup=True)
    return results + measure([topic.cases(_SNAPSHOT)], rounds)


def latencies(processes: Processes, servers: str, scratch: Path, writers: int, rounds: int) -> list[Result]:
    """Measure commands of so many writers, which begin with an empty catalogue in each round."""
    runs = [
        submit_from(
            processes, servers, f"w{writers}-{number}", writers, WRITERS[writers], scratch / f"w{writers}-{number}"
        )
        for number in range(rounds)
    ]
    name = _latency(writers)
    return [
        Result(name, "p50", "ms", [run.percentile(0.5) for run in runs]),
        Result(name, "p99", "ms", [run.percentile(0.99) for run in runs]),
        Result(f"{name}: rate", "ours", "commands/s", [len(run.ms) / run.seconds for run in runs]),
    ]


def _latency(writers: int) -> str:
    return "a command, alone" if writers == 1 else f"a command, {writers} writers"


def run(asked: Asked) -> list[Result]:
    """Start a broker, and measure."""
    asked.require_some([_REBUILD, _SNAPSHOT, *map(_latency, WRITERS)])
    chosen = asked.systems(dict.fromkeys(SYSTEMS))
    rounds = asked.rounds or ROUNDS
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        check_disk(scratch, _DISK_GIB, "make bench-metastore")
        servers = Broker(processes, scratch / "kafka").start()
        warm_up(servers)
        results: list[Result] = []
        for writers in WRITERS:
            if asked.part in _latency(writers):
                results += latencies(processes, servers, scratch, writers, rounds)
        if asked.part in _REBUILD or asked.part in _SNAPSHOT:
            results += [found for found in rebuilds(servers, scratch, rounds) if asked.part in found.case]
    return [result for result in results if result.system in chosen]


if __name__ == "__main__":
    main("metastore", run)
