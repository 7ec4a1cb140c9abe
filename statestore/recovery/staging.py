"""The directory in which a replacement is built: its plan, its runs, and its lock.

    <own directory>/runs-<store>.lock                    shared while ranges are read, alone to plan and to assemble
    <own directory>/runs/<store>/plan.json               what is read, the same for all attempts; before any run
    <own directory>/runs/<store>/<partition>-<offset>/   sorted runs from this offset on, the position in their headers

An attempt that was interrupted left whole runs. The next one goes on behind them, if the plan still fits the log;
otherwise it starts over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from statestore.bulk.routing import Routing
from statestore.bulk.runs import Runs, finished_runs, unfinished
from statestore.changelog.epochs import LogEnd
from statestore.durable import read_checked, remove_tree, write_checked, write_durably
from statestore.errors import StateStoreError
from statestore.formats import checkpoint_file
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.statedir.lock import locked_file, require_held
from statestore.statedir.paths import TaskPaths
from statestore.stores.database import merged

_PLAN, _POSITION = "plan.json", "position"


class OffsetRange(NamedTuple):
    """Offsets of one changelog partition, the end exclusive."""

    partition: int
    start: int
    end: int


class BuildPlan(BaseModel):
    """Plan of the ranges that are read to build a store.

    Attributes
    ----------
    routing
        How rows are sorted: of a store whose retention was changed, old runs are of no use.
    started_ms
        Time of the brokers when reading began. A tombstone that came later is in the log for `delete.retention.ms` or
        more.
    ranges
        By partition and offset, each beginning where the one before ended.
    ends
        By partition, where its log was seen to end: if it is cut and grows again, offsets do not tell.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    topic: str
    topic_id: str
    routing: Routing
    started_ms: int
    ranges: tuple[OffsetRange, ...]
    ends: dict[int, LogEnd] = {}

    def extended(self, ends: Mapping[int, int], seen: Mapping[int, LogEnd]) -> BuildPlan:
        """The plan with what the log has got since, and where it was seen to end by now."""
        last = {found.partition: found.end for found in self.ranges}
        more = [
            OffsetRange(number, last[number], end)
            for number, end in ends.items()
            if number in last and end > last[number]
        ]
        return self.model_copy(update={"ranges": tuple(sorted((*self.ranges, *more))), "ends": {**self.ends, **seen}})


class Staging:
    """The runs of one store partition.

    Parameters
    ----------
    paths
        Of the task.
    """

    def __init__(self, paths: TaskPaths, store: str) -> None:
        self.directory = paths.runs(store)
        self._lock = paths.runs_lock(store)
        self._unwritten: BuildPlan | None = None

    def reading(self, wait_s: float) -> AbstractContextManager[None]:
        """Hold the runs together with others that read ranges.

        Raises
        ------
        LockedError
            If a restore assembles them now.
        """
        return locked_file(self._lock, wait_s, shared=True)

    def reading_range(self, part: OffsetRange, wait_s: float) -> AbstractContextManager[None]:
        """Hold one range, which a lost attempt of the same Spark task may still be reading."""
        return locked_file(self.directory / f"{part.partition}-{part.start}.lock", wait_s)

    def alone(self, wait_s: float) -> AbstractContextManager[None]:
        """Hold the runs alone.

        Raises
        ------
        LockedError
            If another restore of this store is at work.
        """
        return locked_file(self._lock, wait_s)

    def plan(self) -> BuildPlan | None:
        """Return the plan of an earlier attempt; None if there is none that can be read."""
        try:
            return BuildPlan.model_validate_json(read_checked(self.directory / _PLAN))
        except (FileNotFoundError, ValueError):
            return None

    def begin(self, plan: BuildPlan) -> None:
        """Keep the plan."""
        require_held(self._lock)
        self._unwritten = None
        write_checked(self.directory / _PLAN, plan.model_dump_json())

    def begin_with_a_run(self, plan: BuildPlan) -> None:
        """Keep the plan when the first run goes to the disk: what stays in memory leaves nothing to go on with."""
        self._unwritten = plan

    def before_a_run(self) -> None:
        """Keep the plan if it is not kept yet; to be called before a run is written."""
        if self._unwritten is not None:
            self.begin(self._unwritten)

    def found(self, part: OffsetRange) -> list[Runs]:
        """Runs of a range that are there, from its start on without a gap."""
        runs: list[Runs] = []
        position = part.start
        while position < part.end:
            try:
                more = finished_runs(self.runs_directory(part.partition, position))
            except (OSError, ValueError, StateStoreError):  # not readable: read from the log again
                break
            if more is None or more.start != position or more.position <= position:
                break
            runs.append(more)
            position = more.position
        return runs

    @property
    def has_runs(self) -> bool:
        """True if an earlier attempt, or somebody who reads ranges, has left runs."""
        return any(self.directory.glob("*/*.arrow"))

    def runs_directory(self, partition: int, offset: int) -> Path:
        """Where the runs from an offset on are."""
        return self.directory / f"{partition}-{offset}"

    def keep_position(self, partition: int, offset: int, position: Mapping[TopicPartition, int]) -> None:
        """Keep the position of the records from an offset on, empty if it is unknown; call it before the runs end."""
        write_durably(self.runs_directory(partition, offset) / _POSITION, checkpoint_file.write(position))

    def position(self) -> dict[TopicPartition, int]:
        """Position of all records in the runs; see `merged_positions`."""
        found = {
            (int(partition), int(offset)): checkpoint_file.read(path)
            for path in self.directory.glob(f"*/{_POSITION}")
            for partition, offset in [path.parent.name.split("-")]
        }
        known = {at: {where: offset or 0 for where, offset in one.items()} for at, one in found.items()}
        return merged_positions(known)

    @property
    def held_bytes(self) -> int:
        """Bytes of the runs that are complete; what killed attempts left besides is not counted."""
        return sum(file.stat().st_size for file in self.directory.glob("*/run-*.arrow"))

    def clear_unfinished(self) -> None:
        """Remove what killed attempts left besides complete runs; the caller holds the runs alone."""
        for directory in self.directory.glob("*/"):
            for path in unfinished(directory):
                if path.is_dir():
                    remove_tree(path)
                else:
                    path.unlink()

    def clear(self) -> None:
        """Forget all runs; the caller holds them alone."""
        require_held(self._lock)
        self._unwritten = None
        remove_tree(self.directory)


def misfit(
    plan: BuildPlan,
    read: Mapping[OffsetRange, int],
    logs: Mapping[TopicPartition, LogRange],
    *,
    topic_id: str,
    routing: Routing,
    delete_retention_ms: int,
    now_ms: int,
) -> str | None:
    """Say why runs that an earlier attempt left cannot be used; None if they can. Pure.

    Parameters
    ----------
    read
        By range, the offset before which its records are in runs.
    """
    if plan.topic_id != topic_id or plan.routing != routing:
        return "they belong to another changelog topic, or to a store of another kind or retention"
    if plan.started_ms > now_ms:
        return "their plan is damaged: it says that they began in the future"
    if now_ms - plan.started_ms >= delete_retention_ms:
        return "they are older than delete.retention.ms: later deletes may be missing from the log"
    for partition, log in logs.items():
        ranges = [found for found in plan.ranges if found.partition == partition.partition]
        if not ranges or max(found.end for found in ranges) > log.high_watermark:
            return f"they reach beyond the end of {partition}, which is {log.high_watermark}"
        if any(read[found] < min(log.start, found.end) for found in ranges):
            return f"{partition} now begins at {log.start}: records between them are gone"
        at = log.start
        for found in sorted(ranges):
            if found.start > at or found.end < found.start:
                return f"their plan is damaged: it leaves out offsets of {partition} from {at} on"
            at = max(at, found.end)
    return None


def cut(partition: int, start: int, end: int, count: int) -> list[OffsetRange]:
    """Cut offsets into ranges of about the same length, none of them empty. Pure."""
    size = max(-(-(end - start) // max(count, 1)), 1)
    return [OffsetRange(partition, at, min(at + size, end)) for at in range(start, end, size)]


def next_offsets(staging: Staging, ranges: Iterable[OffsetRange]) -> dict[OffsetRange, int]:
    """By range, the offset before which its records are in runs."""
    return {part: max((found.position for found in staging.found(part)), default=part.start) for part in ranges}


def merged_positions(ranges: Mapping[tuple[int, int], Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    """Return the position of ranges that have records, by changelog partition and first offset.

    The position of a changelog partition is known only if the position of its last range is known. Otherwise, the rows
    are ahead of the merged position (`changelog/header_positions.py`).
    """
    result: dict[TopicPartition, int] = {}
    for _, parts in groupby(sorted(ranges), key=itemgetter(0)):
        found: dict[TopicPartition, int] = {}
        last: Mapping[TopicPartition, int] = {}
        for part in parts:
            last = ranges[part]
            found |= last  # of an input topic that was recreated, a later offset may be smaller
        result = merged(result, found) if last else result
    return result
