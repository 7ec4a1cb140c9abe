"""The program that restores, drains or verifies with fresh worker processes, as its order says, and takes the time.

It brings up its workers and gives each the next store partition when it is free, as Spark's `local[2]` does. Time runs
from there until all is done; of a restore: all stores built, on disk, checked and swapped.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel

from benchmarks.counting import Command
from benchmarks.peak_memory import peak_kib
from benchmarks.restore_run import RestoreOutcome
from demo.processes import ServiceError
from statestore.archive.archive import ArchiveSpec
from statestore.archive.layout import snapshot_name
from statestore.changelog.reader import ChangelogReader
from statestore.compiled.loops import load_kept
from statestore.config import Settings
from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import Topic
from statestore.model import TaskId, changelog_topic
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec
from statestore.recovery.catch_up import find_correction
from statestore.recovery.many import cut_by_length, restore_many
from statestore.recovery.spec import RestoreSpec
from statestore.reports import RestoreRow, Status, VerifyRow
from statestore.requests.restore import Mode, RestoreRequest
from statestore.verification.check import verify, verify_many
from statestore.verification.options import VerifyOptions

S = TypeVar("S")
M = TypeVar("M")

_KAFKA_TIMEOUT_S = 30.0
_DAY_MS = 24 * 60 * 60 * 1000
_READY_S = 120


class Order(BaseModel):
    """What the program is told to do; `work` is a name in `WORK`, `WORK_ON_MANY` or `RESTORES`.

    Attributes
    ----------
    archive
        Where snapshots are; None: nowhere.
    """

    work: str
    servers: str
    application: str
    stores: tuple[StoreDefinition, ...]
    partitions: int
    workers: int
    state_dir: Path
    result: Path
    archive: ArchiveSpec | None = None

    def command(self) -> Command:
        """Return the program that does it."""
        return Command([sys.executable, "-m", "benchmarks.restore_program", self.model_dump_json()])


class Done(NamedTuple):
    """What one piece of work did, and which process did it."""

    records: int
    rows: int | None
    process: int
    peak_kib: int


def specs_of(order: Order) -> list[StorePartitionSpec]:
    """One spec for each store partition, the stores of a task together."""
    names = [changelog_topic(order.application, store.name) for store in order.stores]
    cluster = Cluster(order.servers, _KAFKA_TIMEOUT_S)
    topics = cluster.topics.describe(names)
    return [
        StorePartitionSpec(
            application=order.application,
            task=TaskId(0, partition),
            store=store,
            changelog=_changelog(topics[name]),
            cluster=cluster,
            state_dir=order.state_dir,
            archive=order.archive,
        )
        for partition in range(order.partitions)
        for store, name in zip(order.stores, names, strict=True)
    ]


def _changelog(topic: Topic) -> ChangelogSpec:
    return ChangelogSpec(
        topic=topic.name, topic_id=topic.topic_id, delete_retention_ms=_DAY_MS, partitions=topic.partitions
    )


def _restore_spec(spec: StorePartitionSpec, mode: Mode = "full") -> RestoreSpec:
    run_bytes = Settings.model_fields["restore_run_bytes"].default
    return RestoreSpec(spec, RestoreRequest(mode=mode), "bench", run_bytes)


def _checked(spec: RestoreSpec, row: RestoreRow) -> Done:
    """Return what a restore did; of one from a snapshot, all that the store then has counts."""
    if row.outcome != "restored":
        raise ServiceError(f"{row.label} was to be restored, found {row.outcome}: {row.failure}")
    if spec.request.mode == "full" or (spec.request.mode, row.mode) == ("auto", "tail"):
        return Done(row.records, row.keys, 0, 0)
    begun = None if row.snapshot is None else snapshot_name(f"{row.snapshot}.json")
    if row.mode != "snapshot" or begun is None:
        raise ServiceError(f"{row.label} was to be restored from a snapshot, found mode {row.mode}")
    return Done(begun.offset + row.records, row.keys, 0, 0)


def restore_all(pool: ProcessPoolExecutor, order: Order, specs: Sequence[StorePartitionSpec]) -> list[Done]:
    """Restore store partitions as the job does; what is built from a snapshot is not published."""
    # Stores built from a snapshot are not published, so that the next run begins with the same snapshot.
    asked = [_restore_spec(spec, RESTORES[order.work])._replace(publish=order.work != "snapshot") for spec in specs]
    measured: list[Done] = []

    def run(pieces: Sequence[S], work: Callable[[S], M], *_: object) -> list[M]:
        found = list(pool.map(partial(_with_peak, work), pieces))
        measured.extend(peak for _, peak in found)
        return [row for row, _ in found]

    asked = cut_by_length(asked, order.workers)
    rows = restore_many(asked, run, order.state_dir.with_name("progress"), order.workers)
    return [_checked(spec, row) for spec, row in zip(asked, rows, strict=True)] + measured


def _with_peak(work: Callable[[S], M], piece: S) -> tuple[M, Done]:
    return work(piece), _done(0, 0)


def drain_partition(spec: StorePartitionSpec) -> Done:
    """Read a store partition's changelog and throw it away."""
    log = spec.cluster.topics.log_ranges([spec.partition])[spec.partition]
    with ChangelogReader(spec.cluster, spec.partition) as reader:
        return _done(sum(batch.num_rows for batch in reader.read(log.start, log.last_stable)), None)


def scan_partition(spec: StorePartitionSpec) -> Done:
    """Verify a restored store partition, every row of it."""
    return _verified([verify(spec)])


def compare_partition(spec: StorePartitionSpec) -> Done:
    """Verify a restored store partition, every row of it against the log."""
    return _verified([verify(spec, VerifyOptions(depth="deep"))])


def compare_in_key_order(spec: StorePartitionSpec) -> Done:
    """Verify a restored store partition as `compare_partition` does, without a proof: the log is sorted."""
    return _verified([verify(spec, VerifyOptions(depth="deep", most_passes=0))])


def prove_partition(spec: StorePartitionSpec) -> Done:
    """Find the tail that corrects a store partition that was left open; nothing is replayed."""
    cluster = spec.cluster
    found, log = find_correction(_restore_spec(spec), cluster)
    if found is None or log is None:
        raise ServiceError(f"{spec.store_partition} was to be corrected by a tail of its log")
    return _done(log.last_stable - log.start, None)


def verify_offsets(specs: list[StorePartitionSpec]) -> Done:
    """Verify the offsets of many store partitions."""
    return _verified(verify_many(specs, VerifyOptions(depth="offsets")))


def _verified(rows: list[VerifyRow]) -> Done:
    for row in rows:
        if row.status is not Status.OK or row.committed is None:
            raise ServiceError(f"{row.label} was to be whole, found {row.status}: {row.detail}")
    return _done(sum((row.committed or 0) + 1 for row in rows), None)


#: What can be ordered, each for one store partition.
WORK = {
    "drain": drain_partition,
    "scan": scan_partition,
    "deep": compare_partition,
    "sorted": compare_in_key_order,
    "prove": prove_partition,
}
#: The same, for many at once.
WORK_ON_MANY = {"offsets": verify_offsets}
#: Restores, which are cut and put together as the job does, with their modes.
RESTORES: dict[str, Mode] = {"restore": "full", "snapshot": "snapshot", "mend": "auto"}


def _done(records: int, rows: int | None) -> Done:
    return Done(records, rows, os.getpid(), peak_kib())


def _nothing() -> None:
    """Bring up a worker: this returns when all are there."""


def ready(all_there: Barrier) -> None:
    """Have loaded what the daemon has that Spark forks its workers from (`statestore_jobs/python_daemon.py`)."""
    load_kept()
    all_there.wait(_READY_S)


@contextmanager
def workers(number: int, begin: Callable[[Barrier], None] = ready) -> Iterator[ProcessPoolExecutor]:
    """Have so many fresh processes, which are all there before anything is timed.

    Parameters
    ----------
    begin
        `ready`, or a function that calls it in a module that imports more.
    """
    spawn = multiprocessing.get_context("spawn")
    all_there: Barrier = spawn.Barrier(number)
    with ProcessPoolExecutor(number, spawn, begin, (all_there,)) as pool:
        for ready in [pool.submit(_nothing) for _ in range(number)]:
            ready.result()
        yield pool


def _do(pool: ProcessPoolExecutor, order: Order, specs: list[StorePartitionSpec]) -> list[Done]:
    """Do the work as its job does: many small pieces together, few large ones cut."""
    if order.work in RESTORES:
        return restore_all(pool, order, specs)
    if order.work in WORK_ON_MANY:
        size = -(-len(specs) // order.workers)  # a task's stores share a lock, so they stay together
        return list(pool.map(WORK_ON_MANY[order.work], (specs[at : at + size] for at in range(0, len(specs), size))))
    return list(pool.map(WORK[order.work], specs))


def main(order: Order) -> None:
    """Do the work with fresh workers, and write what it took."""
    specs = specs_of(order)
    with workers(order.workers) as pool:
        started = time.perf_counter()
        done = _do(pool, order, specs)
        seconds = time.perf_counter() - started
    peaks = {part.process: part.peak_kib for part in sorted(done, key=lambda part: part.peak_kib)}
    outcome = RestoreOutcome(
        records=sum(part.records for part in done),
        rows=None if any(part.rows is None for part in done) else sum(part.rows or 0 for part in done),
        seconds=seconds,
        peak_kib=sum(peaks.values()),
    )
    order.result.write_text(json.dumps(outcome._asdict()), encoding="utf-8")


if __name__ == "__main__":
    main(Order.model_validate_json(sys.argv[1]))
