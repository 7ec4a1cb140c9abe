"""Rows on their way into a store: each attempt of a Spark task writes them to separate files, by partition.

<state.dir>/.statestore/<application.id>/writes/<store>/<write>/<attempt>/<partition>.arrow

Rows have the keys that the changelog has, and values as the store has them; null is a delete. Nothing of an attempt
counts before the driver names it: files of attempts that were repeated, or killed, are never read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.durable import remove_tree
from statestore.errors import InputError, UnsharedStateError
from statestore.kafka.key_partitions import hashes_of_keys, partitions_of_keys
from statestore.model import check_name
from statestore.statedir.paths import OWN_DIRECTORY

#: Rows of a store; a value of null is a delete.
ROW_SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])
#: Of a version's time, behind its key (`version_rows.py`).
_TIME_BYTES = 8
#: Rows whose keys are compared at a time.
_COMPARED_ROWS = 2_000_000
_MIXING = np.uint64(2_654_435_761)
#: A driver that has begun a write is taken for dead when nothing of it has changed for so long.
_ABANDONED_S = 24 * 60 * 60


class StagedAttempt(NamedTuple):
    """Files written by one attempt of a Spark task.

    Attributes
    ----------
    directory
        Its name in the stage.
    rows, bytes
        By partition; bytes of keys and values.
    """

    directory: str
    rows: dict[int, int]
    bytes: dict[int, int]


def writes_of(state_dir: Path, application: str, store: str) -> Path:
    """Return where all writes of a store have their stages."""
    return state_dir / OWN_DIRECTORY / check_name(application) / "writes" / check_name(store)


class AttemptWriter:
    """Writes the rows of one attempt; nothing is left of one that fails.

    Parameters
    ----------
    stage
        Directory of the write.
    partitions
        How many the changelog has.
    """

    def __init__(self, stage: Path, partitions: int) -> None:
        self._directory = stage / uuid4().hex
        self._directory.mkdir(parents=True)
        self._partitions = partitions
        self._files: dict[int, pa.ipc.RecordBatchFileWriter] = {}
        self._rows: dict[int, int] = {}
        self._bytes: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in self._files.values():
            file.close()
        if kind is not None:
            remove_tree(self._directory)
            with suppress(OSError):  # others are in it; or Spark has given the write up, and nobody else comes
                self._directory.parent.rmdir()

    def add(self, users_keys: pa.Array, rows: pa.RecordBatch) -> pa.Array:
        """Write rows to the files of their partitions, by the keys that the partitioner sees; return the partitions."""
        places = partitions_of_keys(users_keys, self._partitions)
        for number in np.unique(places).tolist():
            self.add_to(number, rows.filter(pa.array(places == number)))
        return pa.array(places)

    def add_to(self, number: int, rows: pa.RecordBatch) -> None:
        """Write rows to the file of a partition."""
        if number not in self._files:
            self._files[number] = pa.ipc.new_file(str(self._directory / f"{number}.arrow"), ROW_SCHEMA)
            self._rows[number] = self._bytes[number] = 0
        self._files[number].write_batch(rows)
        self._rows[number] += rows.num_rows
        self._bytes[number] += sum(int(pc.sum(pc.binary_length(column)).as_py() or 0) for column in rows.columns)

    @property
    def staged(self) -> StagedAttempt:
        """What was written."""
        return StagedAttempt(self._directory.name, dict(self._rows), dict(self._bytes))


class RowStage:
    """The rows of those attempts that count.

    Parameters
    ----------
    directory
        Of the write.
    """

    def __init__(self, directory: Path, attempts: Sequence[StagedAttempt]) -> None:
        self.directory = directory
        self._attempts = attempts

    def rows(self, partition: int) -> int:
        """How many rows a partition gets."""
        return sum(attempt.rows.get(partition, 0) for attempt in self._attempts)

    def size(self, partition: int) -> int:
        """Bytes of the keys and values that a partition gets."""
        return sum(attempt.bytes.get(partition, 0) for attempt in self._attempts)

    @property
    def all_rows(self) -> int:
        """Rows of all partitions."""
        return sum(sum(attempt.rows.values()) for attempt in self._attempts)

    def batches(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition.

        Raises
        ------
        UnsharedStateError
            If files are not there: executors have written to disks of their own.
        """
        for attempt in self._attempts:
            if partition not in attempt.rows:
                continue
            path = self.directory / attempt.directory / f"{partition}.arrow"
            if not path.exists():
                raise UnsharedStateError(
                    f"{path} is not there: an executor has written it where the driver does not see it. All of them "
                    "need one state directory. Nothing was changed"
                )
            with pa.memory_map(str(path)) as source:
                file = pa.ipc.open_file(source)
                for number in range(file.num_record_batches):
                    yield file.get_batch(number)

    def duplicate(self, partition: int) -> tuple[int, bytes] | None:
        """Return how many keys a partition has more than once, and one of them; None if each is there once.

        Keys are compared in parts that fit into memory: those of a part have the same hash, divided by how many
        parts there are.
        """
        parts = max(-(-self.rows(partition) // _COMPARED_ROWS), 1)
        found, example = 0, b""
        for part in range(parts):
            keys = [_of_part(batch.column(0), part, parts) for batch in self.batches(partition)]
            if not keys:
                continue
            counts = pc.value_counts(pa.chunked_array(keys, pa.binary()))
            twice = counts.filter(pc.greater(counts.field("counts"), 1))
            if len(twice):
                found += len(twice)
                example = twice.field("values")[0].as_py()
        return (found, example) if found else None

    def clear(self) -> None:
        """Remove the files."""
        remove_tree(self.directory)


def _of_part(keys: pa.Array, part: int, parts: int) -> pa.Array:
    if parts == 1:
        return keys
    # Hashes of a partition's keys have the same remainder already, so others of their bits decide.
    hashes = hashes_of_keys(keys).astype(np.uint64)
    return keys.filter(pa.array((hashes * _MIXING >> np.uint64(24)) % np.uint64(parts) == part))


def remove_abandoned(writes: Path, but: Path) -> None:
    """Remove the stages of writes whose drivers are gone."""
    oldest = time.time() - _ABANDONED_S
    for stage in writes.glob("*/"):
        newest = max((path.stat().st_mtime for path in (stage, *stage.glob("*"))), default=0.0)
        if stage != but and newest < oldest:
            remove_tree(stage)


def require_rows(stage: RowStage) -> None:
    """Refuse to write nothing.

    Raises
    ------
    InputError
        If there is no row.
    """
    if not stage.all_rows:
        raise InputError("the DataFrame has no rows: nothing was changed. A store is not emptied this way")
