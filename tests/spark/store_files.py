"""Stores of every kind on disk, without a changelog, and the data sources' readers without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.pandas.types import from_arrow_schema
from statestore_jobs.sources.columns import layout_of
from statestore_jobs.sources.state_store import StateStoreReader
from statestore_jobs.sources.stores import definition_of, directories_of

from statestore.definitions.store import StoreDefinition
from statestore.formats.timestamped_value import ValueAndTimestamp
from statestore.model import StoreFormat, TaskId, TopicPartition
from statestore.statedir.paths import TaskPaths
from statestore.stores.api import StoreContext, Windowed
from statestore.stores.open import build_store
from statestore.stores.typed import AnyStore

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
PLAIN, TIMESTAMPED = StoreFormat.PLAIN, StoreFormat.TIMESTAMPED


def defined(name: str, kind: str = "key-value", **fields: Any) -> StoreDefinition:
    """Define a store; windows are a minute long, and rows are kept for an hour."""
    times = {"key-value": {}, "session": {"retention_ms": HOUR_MS}}.get(
        kind, {"retention_ms": HOUR_MS, "window_size_ms": MINUTE_MS}
    )
    return StoreDefinition.model_validate({"name": name, "kind": kind, **times, **fields})


#: Every kind in every format.
ALL_STORES = [
    defined("plain", format=PLAIN),
    defined("timestamped"),
    defined("window", "window", format=PLAIN),
    defined("ts-window", "window"),
    defined("twice", "window", format=PLAIN, retain_duplicates=True),
    defined("ts-twice", "window", retain_duplicates=True),
    defined("session", "session"),
    defined("ts-session", "session", format=TIMESTAMPED),
]


@dataclass(frozen=True)
class StoreFiles:
    """One store of an application in a state directory."""

    state_dir: Path
    definition: StoreDefinition
    application: str = "app"

    def paths(self, partition: int = 0) -> TaskPaths:
        """Paths of a task."""
        return TaskPaths(self.state_dir, self.application, TaskId(0, partition))

    def live(self, partition: int = 0) -> Path:
        """Directory of a store partition."""
        return self.paths(partition).live(self.definition)

    def changelog(self, partition: int = 0) -> TopicPartition:
        """Its changelog partition."""
        return TopicPartition(f"{self.application}-{self.definition.name}-changelog", partition)

    @contextmanager
    def opened(self, partition: int = 0, *, read_only: bool = False) -> Iterator[Any]:
        """Open the store, and close it cleanly."""
        paths = self.paths(partition)
        context = StoreContext(self.application, paths.task, paths.task_dir, paths.own_dir, read_only=read_only)
        store: AnyStore = build_store(self.definition)
        store.init(context)
        try:
            yield store
        except BaseException:
            store.close(clean=False)
            raise
        store.close()

    def put(self, store: Any, key: bytes, value: bytes, start: int = 0, end: int = 0, timestamp: int = 1) -> None:
        """Put a row of the store's kind."""
        given = ValueAndTimestamp(value, timestamp) if self.definition.format is TIMESTAMPED else value
        match self.definition.kind:
            case "key-value":
                store.put(key, given)
            case "window":
                store.put(key, given, start)
            case "session":
                store.put(Windowed(key, start, end), given)

    def fill(self, partition: int = 0, rows: int = 300, seed: int = 1) -> None:
        """Write random rows: keys of several lengths, empty and binary values, times within the retention."""
        rng = random.Random(f"{seed}-{partition}")
        with self.opened(partition) as store:
            for number in range(rows):
                key = rng.choice([b"", b"\x00", b"\xff", b"a", b"a\x00", b"k" * 300, b"key-%03d" % rng.randrange(100)])
                value = rng.choice([b"", b"\x00\xfe", b"%d" % number, rng.randbytes(40)])
                start = MINUTE_MS * rng.randrange(55)
                self.put(store, key, value, start, start + rng.randrange(30_000), rng.choice([0, 5, 1 << 40]))
            store.commit({self.changelog(partition): rows}, {TopicPartition("input", partition): rows})

    def rows(self, partition: int = 0) -> list[tuple[Any, ...]]:
        """Rows as the library reads them: partition, key, start and end if there are any, value, timestamp."""
        found = []
        with self.opened(partition, read_only=True) as store:
            for key, row in store.all():
                value, timestamp = row if isinstance(row, ValueAndTimestamp) else (row, None)
                where = tuple(key) if isinstance(key, Windowed) else (key,)
                found.append((partition, *where, value, timestamp))
        return sorted(found, key=repr)

    @property
    def options(self) -> dict[str, str]:
        """Options of `state_store` that name it, and say what its files do not tell."""
        said = {"state_dir": str(self.state_dir), "application": self.application, "store": self.definition.name}
        if self.definition.window_size_ms is not None:
            said["window_size_ms"] = str(self.definition.window_size_ms)
        return said


def text_of(options: dict[str, Any]) -> dict[str, str]:
    """Options as Spark hands them over."""
    return {name: str(value) for name, value in options.items()}


def schema_of(options: dict[str, Any]) -> pa.Schema:
    """Return the columns that `state_store` gives with these options."""
    said = text_of(options)
    return layout_of(said, definition_of(said, directories_of(said)), with_offset=False).schema


def reader_of(options: dict[str, Any]) -> StateStoreReader:
    """Return the reader of `state_store` as a Spark task has it."""
    return StateStoreReader(text_of(options), from_arrow_schema(schema_of(options)))


def batches_of(reader: DataSourceReader) -> Iterator[pa.RecordBatch]:
    """Read all partitions."""
    for partition in reader.partitions():
        yield from reader.read(partition)  # type: ignore[misc]


def read(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Read rows with `state_store` in this process."""
    return [row for batch in batches_of(reader_of(options)) for row in batch.to_pylist()]


def names_and_sizes(directory: Path) -> dict[str, int]:
    """Every file below a directory: equal before and after means that no file came, went or grew."""
    return {str(path.relative_to(directory)): path.stat().st_size for path in directory.rglob("*") if path.is_file()}
