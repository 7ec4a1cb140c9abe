"""`make bench-warm`: pods of a Kafka Streams application on empty disks, from their start until all tasks run.

Ours is what docs/kubernetes.md recommends: an init container warms all tasks in each pod, and Kafka Streams then has
nothing to restore. The peer is the same Kafka Streams, which restores by itself. Everything that a pod starts is part
of the time, Python and the JVMs among it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.command import Asked, main
from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.peers.kafka_streams import compiled
from benchmarks.peers.s3proxy import start_s3proxy
from benchmarks.process_input import Broker, delete_topic, warm_up
from benchmarks.restore_log import STORE, Log, LogShape
from benchmarks.snapshot_restore import FULL, PEER, archives_of, filled
from benchmarks.warm_pods import PODS, Outcome, Pod, check_rows, check_warmed, start_pods
from demo.kafka_jars import check_disk
from demo.processes import Processes, ServiceError
from tests.packaging.environments import REPOSITORY, WAIT_S, Installed

#: Millions of records: the more there are, the less it matters how long Python and a JVM take to start.
_MILLIONS = (0.04,) if SMALL else (4, 20)
ROUNDS = 1 if SMALL else 3
_DISK_GIB = 3 if SMALL else 16
_OURS, _IN_DIRECTORY, _NOTHING_TO_RESTORE = "ours", "ours, directory", "Kafka Streams, nothing to restore"
#: On a volume that has no compiled kernels either: docs/kubernetes.md keeps them there.
_FIRST = "ours, first start"
#: Each of these starts pods once more.
_NOT_SMALL = (_IN_DIRECTORY, FULL, _FIRST, _NOTHING_TO_RESTORE)
#: Part of a name: of ours, the part of the time until the last JVM was started.
_WARMED = "until warmed"


class Start(NamedTuple):
    """How pods are started.

    Attributes
    ----------
    warm
        Arguments of `statestore warm`; None: Kafka Streams restores by itself.
    again
        Whether the instances are started once more on what they have, and only that counts.
    compiling
        Whether our kernels are compiled, too.
    """

    warm: tuple[str, ...] | None
    again: bool = False
    compiling: bool = False


def case_of(millions: float) -> str:
    """Name of the case with so many records."""
    return f"{PODS} pods, {millions:g} M records"


def install(scratch: Path) -> Path:
    """Install the wheel as the image of the init container has it, and return its Python."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(scratch / "wheel")]
    subprocess.run(build, cwd=REPOSITORY, capture_output=True, timeout=WAIT_S, check=True)
    [wheel] = (scratch / "wheel").glob("*.whl")
    lock = REPOSITORY / "requirements" / "demo.txt"
    Installed(scratch / "installed", wheel, "--compile-bytecode", "--constraints", str(lock))
    return scratch / "installed" / "bin" / "python"


class Starts:
    """Starts of the pods of one application, each on empty disks."""

    def __init__(self, processes: Processes, scratch: Path, python: Path, java: tuple[str, str], log: Log) -> None:
        self._processes, self._scratch, self._python, self._java, self._log = processes, scratch, python, java, log
        self._checked: set[str] = set()
        self.outcomes: dict[str, list[Outcome]] = {}

    def seconds(self, name: str, start: Start) -> float:
        """Start the pods once, and check what they did; the first time, compare their rows with what was logged."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as directory:
            pods = [Pod(Path(directory) / f"pod-{number}") for number in range(PODS)]
            run = partial(start_pods, self._processes, pods, self._log)
            outcome = run(partial(self._program, start))
            if start.again:
                outcome = run(partial(self._program, Start(None)))
            if start.warm is not None:
                check_warmed(pods, self._log)
            expected = self._log.shape.records if start.warm is None else 0
            if outcome.restored != expected:
                raise ServiceError(f"{name}: {expected:,} records were to be restored, found {outcome.restored:,}")
            if name not in self._checked:
                check_rows(pods, self._log, outcome)
                self._checked.add(name)
        self.outcomes.setdefault(name, []).append(outcome)
        return outcome.running

    def _program(self, start: Start, pod: Pod) -> list[list[str]]:
        instance = pod.instance(*self._java, self._log)
        if start.warm is None:
            return [instance]
        kernels = [f"NUMBA_CACHE_DIR={pod.directory / 'compiled'}"] if start.compiling else []
        argv = [
            *("env", *kernels, str(self._python), "-m", "statestore.cli", "warm"),
            *("--application", self._log.application, "--bootstrap-servers", self._log.servers),
            *("--state-dir", str(pod.state_dir), "--kafka-streams", "4.3.1", "--max-bytes", "1Ti"),
            *("--store", f"{STORE}:kind=key-value,format=plain,subtopology=0"),
            *("--require", "--json", str(pod.warmed), *start.warm),
        ]
        return [argv, instance]


def starts_of(urls: Mapping[str, str]) -> dict[str, Start]:
    """Return ways to start, by the name of the system.

    Parameters
    ----------
    urls
        Of archives, by the system's name.
    """
    return {
        **{name: Start(("--archive", url)) for name, url in urls.items()},
        _FIRST: Start(("--archive", urls[_OURS]), compiling=True),
        FULL: Start(()),
        PEER: Start(None),
        _NOTHING_TO_RESTORE: Start((), again=True),
    }


def measure_starts(starts: Starts, case: str, systems: Mapping[str, Start], rounds: int) -> list[Result]:
    """Measure all systems in alternating order; of those that warm, also how long that took."""
    results = measure(
        [Case(case, "s", {name: partial(starts.seconds, name, start) for name, start in systems.items()})], rounds
    )
    warming = [name for name, start in systems.items() if start.warm is not None and not start.again]
    return results + [
        Result(f"{_WARMED}: {case}", name, "s", [outcome.began for outcome in starts.outcomes[name]])
        for name in warming
    ]


def run(asked: Asked) -> list[Result]:
    """Start a broker and an S3 server, install the command, and measure case by case."""
    asked.require_some(map(case_of, _MILLIONS))
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory, Processes(Path(directory)) as processes:
        scratch = Path(directory)
        logging.getLogger("statestore.recovery").setLevel(logging.ERROR)  # that a first snapshot has none before it
        check_disk(scratch, _DISK_GIB, "make bench-warm")
        servers = Broker(processes, scratch / "kafka").start()
        warm_up(servers)
        s3proxy = start_s3proxy(processes, scratch / "s3proxy")
        os.environ.update(s3proxy.environment)  # of this process, and of those that it starts
        urls = {_OURS: s3proxy.url, _IN_DIRECTORY: f"file://{scratch}/archive"}
        archives = list(archives_of(servers, urls).values())
        python, java = install(scratch), compiled(processes, scratch)
        starts = starts_of(urls)
        # Compiling our kernels is done once for an installation, by the first command there is.
        log = filled(servers, "warm-up", LogShape(20_000), archives, scratch)
        for name in [_OURS] if SMALL else [_OURS, FULL]:
            Starts(processes, scratch, python, java, log).seconds(name, starts[name])
        systems = asked.systems(starts, _NOT_SMALL)
        for number, millions in enumerate(_MILLIONS):
            if asked.part not in case_of(millions):
                continue
            log = filled(servers, f"warm-{number}", LogShape(round(millions * 1_000_000)), archives, scratch)
            its = Starts(processes, scratch, python, java, log)
            results += measure_starts(its, case_of(millions), systems, asked.rounds or ROUNDS)
            delete_topic(servers, log.topic)
    return results


if __name__ == "__main__":
    main("warm", run)
