"""Definitions, logs and small looks at the disk that several unit tests use."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.definitions.store import StoreDefinition
from statestore.kafka.cluster import Cluster
from statestore.kafka.record_columns import SCHEMA
from statestore.model import TaskId, TopicPartition
from statestore.partition.spec import ChangelogSpec, StorePartitionSpec

TIMESTAMPED = StoreDefinition(name="s")
PLAIN = StoreDefinition(name="s", format="plain")
WINDOW = StoreDefinition(name="s", kind="window", retention_ms=180_000, window_size_ms=60_000)
CHANGELOG = TopicPartition("app-s-changelog", 0)
INPUT = TopicPartition("input", 0)

#: A changelog record: key, plain value, timestamp in ms.
LogRecord = tuple[bytes | None, bytes | None, int]


def batches(log: list[LogRecord], sizes: Iterable[int], first_offset: int = 0) -> list[pa.RecordBatch]:
    """The log as the changelog reader yields it, cut into batches of the given sizes."""
    found, at = [], 0
    for size in [*sizes, len(log)]:
        part = log[at : at + size]
        if part:
            keys, values, timestamps = zip(*part, strict=True)
            offsets = range(first_offset + at, first_offset + at + len(part))
            found.append(pa.record_batch([list(keys), list(values), list(timestamps), list(offsets)], schema=SCHEMA))
        at += size
    return found


def store_partition(state_dir: Path = Path("/state"), **changes: Any) -> StorePartitionSpec:
    """Store `s` of task 0_0 of application `app`; of its changelog nobody is there to ask."""
    spec = StorePartitionSpec(
        application="app",
        task=TaskId(0, 0),
        store=TIMESTAMPED,
        changelog=ChangelogSpec(topic=CHANGELOG.topic, topic_id="id", delete_retention_ms=1_000),
        cluster=Cluster("nowhere:9092", 1),
        state_dir=state_dir,
    )
    return spec.model_copy(update=changes)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below the directory with its bytes; empty if there is none."""
    return {
        str(file.relative_to(directory)): file.read_bytes() for file in sorted(directory.rglob("*")) if file.is_file()
    }


def open_below(directory: Path) -> list[str]:
    """Files below the directory that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(descriptor))
    return [file for file in found if file.startswith(f"{directory}{os.sep}")]
