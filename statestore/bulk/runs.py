"""Sorted runs: ranges of a log with the last record per key, and their merge.

A run is bounded in bytes, so memory is, whatever the log's size. A range of the log becomes one run in memory, behind
others as files (run_file.py) if it does not fit. An interrupted build goes on behind the last file that is whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pyarrow as pa

from statestore import kill_switch
from statestore.bulk.last_records import LastRecords
from statestore.bulk.merging import merge
from statestore.bulk.ordering import SortedRun
from statestore.bulk.routing import Routing
from statestore.bulk.run_file import PARTIAL, RunFacts, read_facts, read_run, whole_runs, write_run
from statestore.errors import InvalidStateError, of_os_error

_BATCH_BYTES = 1 << 20
_LEAST_BATCH_BYTES = 1 << 12
_MERGED_BATCH_BYTES = 1 << 16
#: So many runs are merged at once; each holds a file open, and a batch in memory.
_FAN_IN = 64
_MERGING = "merge-"
#: A merge holds a batch of each run, so that a batch on disk is at most this part of a run.
_BATCHES_OF_A_RUN = 2 * _FAN_IN
#: A run stays in memory beside files if such a share of the bound is left, for what a merge takes besides.
_FREE_FOR_A_MERGE = 0.25
_NO_TIME = -1


class SegmentRows(NamedTuple):
    """Rows of one segment (its start in ms; 0 in a key-value store) in key order, with `changelog.reader.SCHEMA`."""

    segment: int
    batch: pa.RecordBatch


class Runs(NamedTuple):
    """Sorted runs of one range of a log, in offset order, and what went into them.

    Attributes
    ----------
    files
        Runs on disk.
    memory
        The last run, if it was kept in memory.
    records, skipped
        Records with a key; without, or a null value where that is no delete.
    last_offset
        Offset of the last record read, also if it had no key; None if there was none.
    start, position
        The range: its first offset, and where reading ended (exclusive).
    stream_time
        Largest time (ms) in the row keys; -1 before the first, and in key-value stores.
    """

    files: tuple[Path, ...]
    memory: SortedRun | None
    records: int
    skipped: int
    last_offset: int | None
    start: int
    position: int
    stream_time: int


class RunWriter:
    """Sorts the records of a range of a log into runs.

    Parameters
    ----------
    directory
        Where runs that do not fit go; made when needed.
    run_bytes
        Bound of a run in memory. A single record that is larger is a run of its own.
    start
        First offset of the range.
    keep_in_memory
        False: also a single run becomes a file, for another process.
    before_a_file
        Called before each run that becomes a file.
    """

    def __init__(
        self,
        directory: Path,
        routing: Routing,
        run_bytes: int,
        *,
        start: int,
        keep_in_memory: bool = True,
        before_a_file: Callable[[], None] | None = None,
    ) -> None:
        self._directory = directory
        self._routing = routing
        self._keep_in_memory = keep_in_memory
        self._before_a_file = before_a_file
        self._latest = LastRecords(routing, run_bytes)
        self._batch_bytes = min(max(run_bytes // _BATCHES_OF_A_RUN, _LEAST_BATCH_BYTES), _BATCH_BYTES)
        self._start = start
        self._spilled: list[tuple[Path, RunFacts]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records with `changelog.reader.SCHEMA`, in offset order; the batch is not held.

        Raises
        ------
        StoreCorruptedError
            If a key cannot be one of this kind of store, naming its offset.
        DiskSpaceError, StoreAccessError
            If a run cannot be written.
        """
        row = self._latest.add(batch, 0)
        while row < batch.num_rows:
            assert self._latest.last_offset is not None, "a run that is full has records"
            self._spill(self._latest.last_offset + 1)
            row = self._latest.add(batch, row)

    def finish(self, position: int) -> Runs:
        """End the range where reading ended: `position` is exclusive, and may be past the last record."""
        if self._keep_in_memory and (not self._spilled or self._latest.free_share >= _FREE_FOR_A_MERGE):
            run, found = SortedRun(self._latest, self._routing), self._latest.facts
            facts = RunFacts(self._behind_files, position, *found)
            files = tuple(path for path, _ in self._spilled)
            return _runs(files, run, [*(known for _, known in self._spilled), facts], self._start, position)
        if position > self._behind_files:
            self._spill(position)
        return _on_disk(self._spilled, self._start, position)

    @property
    def _behind_files(self) -> int:
        return self._spilled[-1][1].end if self._spilled else self._start

    def _spill(self, end: int) -> None:
        run = SortedRun(self._latest, self._routing)
        found = self._latest.facts
        facts = RunFacts(self._behind_files, end, *found)
        if self._before_a_file is not None:
            self._before_a_file()
        path = write_run(self._directory, run.batches(self._batch_bytes), facts, self._routing)
        self._spilled.append((path, facts))
        self._latest.clear()


def finished_runs(directory: Path) -> Runs | None:
    """Return what an interrupted build left: whole runs from the first offset on without a gap; None: nothing.

    A `RunWriter` that starts at its `position` goes on behind it, in the same directory.
    """
    found = whole_runs(directory) if directory.exists() else []
    return _on_disk(found, found[0][1].start, found[-1][1].end) if found else None


def unfinished(directory: Path) -> list[Path]:
    """Return the files and directories beside finished runs that a killed process left: a run cut short, or a merge."""
    return [*directory.glob(f"*{PARTIAL}"), *directory.glob(f"{_MERGING}*")]


def merge_passes(runs: int) -> int:
    """Return how often so many runs are merged into fewer before the merge that gives the rows. Pure."""
    passes = 0
    while runs > _FAN_IN:
        runs, passes = -(-runs // _FAN_IN), passes + 1
    return passes


def _on_disk(spilled: Sequence[tuple[Path, RunFacts]], start: int, position: int) -> Runs:
    return _runs(tuple(path for path, _ in spilled), None, [found for _, found in spilled], start, position)


def _runs(
    files: tuple[Path, ...], memory: SortedRun | None, facts: Sequence[RunFacts], start: int, position: int
) -> Runs:
    return Runs(
        files,
        memory,
        sum(found.records for found in facts),
        sum(found.skipped for found in facts),
        next((found.last_offset for found in reversed(facts) if found.last_offset is not None), None),
        start,
        position,
        max((found.stream_time for found in facts), default=_NO_TIME),
    )


def merged(runs: Sequence[Runs], routing: Routing, *, with_deletes: bool = False) -> Generator[SegmentRows, None, None]:
    """Yield the rows that a store restored from these ranges has.

    Parameters
    ----------
    runs
        One for each range, in offset order; of a global store's several partitions, one after the other.
    with_deletes
        Also yield the deletes, as null values: for a store that has rows already.

    Yields
    ------
    SegmentRows
        In (segment, key) order, the last write per key. Rows of segments that are no longer live at the ranges' stream
        time are left out, and deletes unless they are asked for. Timestamp and offset are those of the record.

    Raises
    ------
    StoreCorruptedError
        If a run is not as it was written.
    InvalidStateError
        If the runs were made for a store with other segments.
    """
    _check(runs, routing)
    oldest = routing.oldest_live(stream_time(runs))
    sources = _sources(runs)
    if len(sources) == 1 and isinstance(sources[0], SortedRun):
        rows = sources[0].rows(_BATCH_BYTES, oldest, with_deletes=with_deletes)
    else:
        rows = _merged(sources, routing, oldest, with_deletes=with_deletes)
    return (SegmentRows(*found) for found in rows)


def sorted_records(runs: Runs, routing: Routing) -> Iterator[pa.RecordBatch]:
    """Yield the last record of each key of one range, deletes included, in the order of segments and keys.

    Raises
    ------
    StoreCorruptedError
        If a run is not as it was written.
    """
    sources = _sources([runs])
    if len(sources) == 1 and isinstance(sources[0], SortedRun):
        return sources[0].batches(_MERGED_BATCH_BYTES)
    merging = _merged(sources, routing, 0, with_deletes=True, across_segments=True)
    return (batch for _, batch in merging)


def _sources(runs: Sequence[Runs]) -> list[Path | SortedRun]:
    return [source for found in runs for source in (*found.files, found.memory) if source is not None]


def stream_time(runs: Sequence[Runs]) -> int:
    """Largest time (ms) in the row keys of ranges; -1 before the first, and in key-value stores."""
    return max((found.stream_time for found in runs), default=_NO_TIME)


def _merged(
    sources: list[Path | SortedRun],
    routing: Routing,
    oldest: int,
    *,
    with_deletes: bool,
    across_segments: bool = False,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    scratch: list[Path] = []
    beside = next((source.parent for source in sources if isinstance(source, Path)), None)
    try:
        while len(sources) > _FAN_IN:
            scratch.append(Path(mkdtemp(prefix=_MERGING, dir=beside)))
            sources = [
                _narrowed(sources[at : at + _FAN_IN], routing, scratch[-1], at)
                for at in range(0, len(sources), _FAN_IN)
            ]
            kill_switch.reached("restore, runs merged")
            read_from = {source.parent for source in sources if isinstance(source, Path)}
            for done in [directory for directory in scratch if directory not in read_from]:
                shutil.rmtree(done)
                scratch.remove(done)
        batches = [_batches(source) for source in sources]
        size = _MERGED_BATCH_BYTES if across_segments else _BATCH_BYTES
        yield from merge(batches, routing, size, oldest, with_deletes=with_deletes, across_segments=across_segments)
    except OSError as error:
        raise of_os_error(error) from error
    finally:
        for directory in scratch:
            shutil.rmtree(directory, ignore_errors=True)


def _narrowed(sources: Sequence[Path | SortedRun], routing: Routing, directory: Path, number: int) -> Path | SortedRun:
    """Make one run of neighbours, deletes included."""
    if len(sources) == 1:
        return sources[0]
    batches = merge(
        [_batches(source) for source in sources],
        routing,
        _MERGED_BATCH_BYTES,
        0,
        with_deletes=True,
        across_segments=True,
    )
    facts = RunFacts(number, number + len(sources), 0, 0, None, _NO_TIME)
    return write_run(directory, (batch for _, batch in batches), facts, routing)


def _batches(source: Path | SortedRun) -> Iterator[pa.RecordBatch]:
    return read_run(source) if isinstance(source, Path) else source.batches(_BATCH_BYTES)


def _check(runs: Sequence[Runs], routing: Routing) -> None:
    for path in (path for found in runs for path in found.files):
        if (made_for := read_facts(path)[1]) != routing:
            raise InvalidStateError(
                f"{path} was made for {made_for}, expected {routing}: the store's definition was changed; remove the "
                "runs, then read the log again"
            )
