"""Count by key, for any system: give it the input, time it from outside, and check what it counted.

A system is a program of its own. It writes the time at which it starts to process into a file, it commits its input
offsets to Kafka, and it ends by itself after the last record. The end is the moment at which the committed offsets
of its consumer group are seen to be those of the input's end. Starting and ending a program is no part of the time.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.process_input import Input, delete_topic, group_offsets
from demo.processes import Processes, ServiceError, ServiceProcess, wait_until
from statestore.changelog.reader import ChangelogReader
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition

_RUN_S = 900
_EXIT_S = 90
_POLL_S = 0.02  # a request each; half a percent of the shortest run


@dataclass(frozen=True)
class CountingRun:
    """One run of one system.

    Attributes
    ----------
    application
        Its consumer group, with a name of its own.
    directory
        For state, logs and whatever else it writes; deleted after the run.
    """

    input: Input
    commit_interval_ms: int
    application: str
    directory: Path

    @property
    def started(self) -> Path:
        """File into which the system writes when it began to process, in seconds since the epoch."""
        return self.directory / "started"


@dataclass(frozen=True)
class Command:
    """A program to start, with what it needs in its environment."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def since_started(run: CountingRun, ended: float) -> float:
    """Seconds from the time that the system wrote to the end."""
    return ended - float(run.started.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class CountingSystem:
    """What can be asked to count.

    Attributes
    ----------
    command
        Writes what the run needs into its directory and returns what to start.
    changelog
        Name of the changelog topic of a run.
    counts_are
        How its changelog's values are written: 8 bytes, big-endian, or JSON.
    seconds
        The run's time, from the run and the time of its end.
    """

    command: Callable[[CountingRun], Command]
    changelog: Callable[[CountingRun], str]
    counts_are: Literal["int64", "json"] = "int64"
    seconds: Callable[[CountingRun, float], float] = since_started


def rate(
    processes: Processes, name: str, system: CountingSystem, counted: Input, commit_interval_ms: int, scratch: Path
) -> float:
    """Have the system count the input, say how far apart its commits were, and return records/s.

    Raises
    ------
    ServiceError
        If it fails, does not come to an end, or counted anything else than the input's records.
    """
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        run = CountingRun(counted, commit_interval_ms, f"bench-{uuid4().hex[:8]}", Path(directory))
        command = system.command(run)
        environment = {**os.environ, **command.environment}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling modules anew in each run is nobody's work
        service = processes.start(run.application, command.argv, environment, run.directory / "log")
        try:
            ended, commits = _wait_for_the_end(run, service)
            wait_until(lambda: service.poll() == 0, _EXIT_S, f"{run.application} to end well", service)
            seconds = system.seconds(run, ended)
        finally:
            processes.stop_service(service)
        changelog = system.changelog(run)
        _check(run, changelog, system.counts_are)
        delete_topic(counted.servers, changelog)
    print(f"{name}: commits {commits.apart_ms:,.0f} ms apart", flush=True)
    return counted.records / seconds


def _wait_for_the_end(run: CountingRun, service: ServiceProcess) -> tuple[float, _Commits]:
    """Return the time, in seconds since the epoch, at which every partition is committed to its end."""
    counted, commits = run.input, _Commits(len(run.input.ends))
    with group_offsets(counted.servers, run.application, counted.partitions) as offsets:

        def is_counted() -> bool:
            found = offsets()
            commits.see(found)
            return all(offset >= end for offset, end in zip(found, counted.ends, strict=True))

        wait_until(is_counted, _RUN_S, f"the input of {run.application} to be committed", service, _POLL_S)
        return time.time(), commits


class _Commits:
    """The commits of a group, as far as its offsets show them when they are looked at."""

    def __init__(self, partitions: int) -> None:
        self._last = [-1] * partitions
        self._at = [math.inf] * partitions
        self._apart: list[float] = []

    def see(self, offsets: Sequence[int]) -> None:
        now = time.monotonic()
        for partition, offset in enumerate(offsets):
            if offset != self._last[partition]:
                if self._last[partition] > 0:
                    self._apart.append(now - self._at[partition])
                self._last[partition], self._at[partition] = offset, now

    @property
    def apart_ms(self) -> float:
        """Median time between two commits of a partition."""
        return statistics.median(self._apart) * 1000 if self._apart else math.nan


def _check(run: CountingRun, changelog: str, counts_are: str) -> None:
    """Compare the last committed count of every key with the input."""
    ranges = Cluster(run.input.servers).topics.log_ranges(
        TopicPartition(changelog, partition) for _, partition in run.input.partitions
    )
    batches = []
    for partition, log in ranges.items():
        with ChangelogReader(Cluster(run.input.servers), partition) as reader:
            batches += list(reader.read(log.start, log.last_stable))
    table = pa.Table.from_batches(batches)
    counts = _integers(table["value"].combine_chunks()) if counts_are == "int64" else _json(table["value"])
    counted = pa.table({"key": table["key"], "count": counts})
    last = counted.group_by("key", use_threads=False).aggregate([("count", "last")])
    total, keys = pc.sum(last["count_last"]).as_py(), last.num_rows
    if (total, keys) != (run.input.records, run.input.distinct_keys):
        raise ServiceError(
            f"{changelog} counts {total:,} records of {keys:,} keys; "
            f"the input has {run.input.records:,} of {run.input.distinct_keys:,}: its figure would mean nothing"
        )


def _integers(values: pa.Array) -> pa.Array:
    data = b"".join(values.to_pylist())
    return pa.array(np.frombuffer(data, dtype=">i8").astype(np.int64))


def _json(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(pc.cast(values, pa.string()), pa.int64())
