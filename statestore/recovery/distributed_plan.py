"""The plan of a build in the archive: the parts that several machines read and merge for one store partition.

The rules by which an attempt goes on from what an earlier one left are those of runs on disk (staging.py).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from statestore.archive.builds import ListedBuild, listed_builds, read
from statestore.archive.layout import BuildDirectory
from statestore.archive.server_time import server_time_ms
from statestore.errors import SnapshotError
from statestore.model import StoreFormat
from statestore.objects.store import ObjectStore
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.full import Logs, reading_unfit
from statestore.recovery.staging import BuildPlan, OffsetRange


class DistributedPlan(BaseModel):
    """Ranges that are read to build a store, and the cuts.

    Attributes
    ----------
    reading
        As of a build on one machine.
    format
        Of the store: its files have it.
    cuts
        Row keys in the order of runs, in hexadecimal: each begins a range of keys (`bulk.pieces`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    reading: BuildPlan
    format: StoreFormat
    cuts: tuple[Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$")], ...]

    @model_validator(mode="after")
    def _cuts_are_in_order(self) -> Self:
        routing = self.reading.routing
        if any(len(key) < routing.suffix_bytes for key in self.cut_keys):
            raise ValueError("a cut is no row key")
        if any(routing.place(one) >= routing.place(next_one) for one, next_one in pairwise(self.cut_keys)):
            raise ValueError("its cuts are not in order")
        return self

    @property
    def cut_keys(self) -> tuple[bytes, ...]:
        """The cuts as row keys."""
        return tuple(map(bytes.fromhex, self.cuts))

    @property
    def key_ranges(self) -> range:
        """Numbers of the ranges of keys."""
        return range(len(self.cuts) + 1)


class FoundBuild(NamedTuple):
    """A build of one store partition.

    Attributes
    ----------
    done
        Its objects, as they were listed.
    """

    directory: BuildDirectory
    plan: DistributedPlan
    done: frozenset[str]

    @property
    def ranges_left(self) -> list[OffsetRange]:
        """Ranges of the log that are not read."""
        found = self.plan.reading.ranges
        return [part for part in found if self.directory.log_range(part.partition, part.start) not in self.done]

    @property
    def keys_left(self) -> list[int]:
        """Ranges of keys that are not merged."""
        return [number for number in self.plan.key_ranges if self.directory.key_range(number) not in self.done]


def builds_there(
    store: StorePartitionSpec, objects: ObjectStore, logs: Logs
) -> tuple[FoundBuild | None, list[ListedBuild]]:
    """Return the build of a store partition that fits its log of now and is the furthest; and those of no use."""
    listed = listed_builds(objects, store.snapshot_archive.cluster, store.store_partition)
    now_ms = server_time_ms(objects) if listed else 0
    fitting: list[FoundBuild] = []
    useless: list[ListedBuild] = []
    for one in listed:
        try:
            plan = read(objects, one.directory.plan, DistributedPlan) if one.usable(now_ms) else None
        except SnapshotError:
            plan = None
        found = None if plan is None else FoundBuild(one.directory, plan, one.names)
        if found is None or unfit(store, found, logs) is not None:
            useless.append(one)
        else:
            fitting.append(found)
    return max(fitting, key=lambda found: len(found.done), default=None), useless


def unfit(store: StorePartitionSpec, found: FoundBuild, logs: Logs) -> str | None:
    """Say why a build cannot be used for a store and its log of now; None if it can."""
    if found.plan.format != store.store.format:
        return "it belongs to a store of another format"
    reading, left = found.plan.reading, found.ranges_left
    read_before = {part: part.start if part in left else part.end for part in reading.ranges}
    return reading_unfit(store, reading, read_before, logs)
