"""Stores that have 95 % of the base's log, for `make bench-verify`: closed, or left open without their offsets.

Before each run, the stores are made anew from links to the same files. Afterwards, their rows must be those of the log.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks.measure import Case, Result, measure
from benchmarks.restore_log import Log, LogShape, fill
from benchmarks.restore_ours import digest_of, order_of
from benchmarks.restore_program import Order, specs_of
from benchmarks.restore_run import RestoreOutcome, RestoringRun, seconds_of
from demo.processes import Processes, ServiceError
from statestore.formats.database_files import files_with_rows
from statestore.formats.offsets import COLUMN_FAMILY, STATUS_OPEN
from statestore.statedir.seal import break_seal
from statestore.stores.rocksdb import RocksDB
from statestore.stores.table import DeletedRange

#: Part of the log, in percent, that the stores have.
PERCENT = 95
#: Work on the stores, and whether they were left open. `tail` trusts their committed offset.
WORK: Mapping[str, tuple[str, bool]] = {
    "ours": ("mend", True),
    "proof": ("prove", True),
    "tail": ("mend", False),
    "full restore": ("restore", True),
}


def mend_case(shape: LogShape) -> str:
    """Return the name of the case whose figures are seconds."""
    return f"left open at {PERCENT} %: {shape.records / 1e6:g} M records"


def written_case(shape: LogShape) -> str:
    """Return the name of the case whose figures are the bytes of new files, in percent of the store."""
    return f"{mend_case(shape)}, new files"


def measure_mending(
    processes: Processes, servers: str, shape: LogShape, scratch: Path, workers: int, rounds: int, chosen: set[str]
) -> list[Result]:
    """Measure what it takes to bring stores to the end of their log."""
    earlier = scratch / "earlier"

    def restore(log: Log) -> None:
        _run(processes, order_of("restore", RestoringRun(log, workers, scratch), earlier))

    log = fill(servers, "mend", shape, midway=(shape.records * PERCENT // 100, restore))
    written: dict[str, list[float]] = {}
    systems = {
        name: partial(_seconds, processes, log, name, scratch, earlier, workers, written)
        for name in WORK
        if name in chosen
    }
    found = measure([Case(mend_case(shape), "s", systems)], rounds)
    return found + [Result(written_case(shape), name, "%", figures) for name, figures in written.items()]


def _seconds(
    processes: Processes,
    log: Log,
    name: str,
    scratch: Path,
    earlier: Path,
    workers: int,
    written: dict[str, list[float]],
) -> float:
    work, left_open = WORK[name]
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        order = order_of(work, RestoringRun(log, workers, Path(directory)))
        _link(earlier, order.state_dir)
        if left_open:
            _leave_open(order)
        before = {inode for _, inode in _files(order)}
        outcome = _run(processes, order)
        if work == "prove":
            return outcome.seconds
        if (found := digest_of(order)) != log.digest:
            raise ServiceError(f"the stores have digest {found} after {name}, expected {log.digest}")
        sizes = {inode: size for size, inode in _files(order)}
        new = sum(size for inode, size in sizes.items() if inode not in before)
        written.setdefault(name, []).append(100 * new / sum(sizes.values()))
        return outcome.seconds


def _run(processes: Processes, order: Order) -> RestoreOutcome:
    seconds_of(processes, order.command(), order.result.parent, order.workers)
    return RestoreOutcome.read(order.result)


def _files(order: Order) -> Iterator[tuple[int, int]]:
    """Yield the size and inode of each file with rows of the live stores."""
    for spec in specs_of(order):
        for path in files_with_rows(spec.live):
            yield path.stat().st_size, path.stat().st_ino


def _link(source: Path, target: Path) -> None:
    """Copy a state directory; files with rows never change, so they are linked."""

    def copy(one: str, other: str) -> None:
        (os.link if one.endswith(".sst") else shutil.copy2)(one, other)

    shutil.copytree(source, target, copy_function=copy)


def _leave_open(order: Order) -> None:
    """Leave the stores as a killed application does: open, without their offsets."""
    for spec in specs_of(order):
        break_seal(spec.paths, spec.store.name)
        with RocksDB(spec.live, spec.store.values.column_families) as database:
            database.write({}, status=STATUS_OPEN, ranges={COLUMN_FAMILY: [DeletedRange(b"", b"\xff")]})
            database.sync()
