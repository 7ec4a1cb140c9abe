"""Restoring from a snapshot that covers most of the log, beside a restore from the log alone and Kafka Streams.

The snapshot is taken when the log has 95 in 100 of its records. So it is what `statestore snapshot create` publishes,
and the rest of the log is its tail. The same snapshot is published into each archive.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.counting import Command
from benchmarks.measure import SMALL, Case, Result, measure
from benchmarks.peers.kafka_streams_restore import kafka_streams
from benchmarks.restore_log import Log, LogShape, fill
from benchmarks.restore_ours import check_rows, order_of
from benchmarks.restore_program import specs_of
from benchmarks.restore_run import RestoringRun, RestoringSystem, measured
from demo.processes import Processes, ServiceError
from statestore.archive.archive import ArchiveSpec, archive_spec
from statestore.config import Settings
from statestore.kafka.cluster import Cluster
from statestore.recovery.snapshot_building import SnapshotSpec, snapshot_from_log

CORES = 2
#: Per cent of the log that the snapshot covers.
COVERED = 95
PEER = "Kafka Streams, tuned"
FULL = "ours, full"
#: Records by records per key. What does not depend on the log's length is small beside a full restore of some seconds.
_RECORDS = {4: 40_000} if SMALL else {1: 4_000_000, 4: 4_000_000, 20: 20_000_000}
ROUNDS = 1 if SMALL else 2
_TIMEOUT_S = 60.0

Archives = Mapping[str, ArchiveSpec]


def archives_of(servers: str, urls: Mapping[str, str]) -> dict[str, ArchiveSpec]:
    """Return the archives for this broker's cluster, by the system's name."""
    found = {name: archive_spec(url, _TIMEOUT_S, Cluster(servers).topics) for name, url in urls.items()}
    return {name: spec for name, spec in found.items() if spec is not None}


def shapes() -> dict[str, LogShape]:
    """Return what is restored, by the case's name."""
    return {
        f"restore, {per_key} record{'s' if per_key > 1 else ''} per key": LogShape(records, per_key)
        for per_key, records in _RECORDS.items()
    }


def systems_of(processes: Processes, scratch: Path, archives: Archives) -> dict[str, RestoringSystem]:
    """Return ours with each archive, ours from the log alone, and the peer."""
    return {
        **{
            name: RestoringSystem(_ordered("snapshot", archive), check=check_rows) for name, archive in archives.items()
        },
        FULL: RestoringSystem(_ordered("restore", None), check=check_rows),
        PEER: kafka_streams(processes, scratch)[PEER],
    }


def _ordered(work: str, archive: ArchiveSpec | None) -> Callable[[RestoringRun], Command]:
    return lambda run: order_of(work, run, archive=archive).command()


def filled(servers: str, application: str, shape: LogShape, archives: Sequence[ArchiveSpec], scratch: Path) -> Log:
    """Fill a changelog, and publish snapshots of its stores into each archive when most of it is there."""
    return fill(
        servers,
        application,
        shape,
        midway=(shape.records * COVERED // 100, lambda log: publish(log, archives, scratch)),
    )


def publish(log: Log, archives: Sequence[ArchiveSpec], scratch: Path) -> None:
    """Publish a snapshot of each store partition from the log as it is now."""
    run_bytes = Settings.model_fields["restore_run_bytes"].default
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        run = RestoringRun(log, CORES, Path(directory))
        for archive in archives:
            for spec in specs_of(order_of("restore", run, archive=archive)):
                row = snapshot_from_log(SnapshotSpec(spec, "bench", run_bytes, run.directory))
                if row.failure is not None:
                    raise ServiceError(f"{row.label} was to be published: {row.failure}")


def measure_restores(
    processes: Processes, scratch: Path, systems: Mapping[str, RestoringSystem], case: str, log: Log, rounds: int
) -> list[Result]:
    """Measure all systems in alternating order; a figure is the seconds of a restore."""
    checked: set[str] = set()

    def seconds(name: str) -> float:
        found = measured(processes, systems[name], log, CORES, scratch, check=name not in checked)
        checked.add(name)
        return found.seconds

    return measure([Case(case, "s", {name: partial(seconds, name) for name in systems})], rounds)
