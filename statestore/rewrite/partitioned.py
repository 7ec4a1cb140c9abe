"""The rows of closed stores as records of changelogs with another number of partitions.

A row goes to the partition where Kafka's partitioner puts its key: of a window or session, the key without its times.
All rows of a key come from one partition, so each key comes once in the new one, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from statestore import kill_switch
from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.compiled.batches import Int64s, int64_column, lengths
from statestore.errors import InputError
from statestore.kafka.key_partitions import hashes_of_keys
from statestore.partition.inspection import inspect
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.changelog_writing import NewChangelogWriter
from statestore.rewrite.examination import require_caught_up
from statestore.rewrite.rows import form_of, stored_rows
from statestore.stores.open import opened
from statestore.verification.kernels import numbers_in


class SourcePart(NamedTuple):
    """A store partition whose rows are given new partitions; its task is locked.

    Attributes
    ----------
    partitions
        Of its changelog.
    into
        Of the new one.
    any_partitioner
        Rows stay in their partition, wherever Kafka's partitioner would put them.
    caught_up
        It must have all of its changelog.
    """

    store: StorePartitionSpec
    partitions: int
    into: int
    any_partitioner: bool
    caught_up: bool


class Surveyed(BaseModel):
    """Content of a store partition for each partition of the new changelog.

    Attributes
    ----------
    rows, bytes
        By start (ms) of a segment: for each new partition, how many rows, and bytes of their keys and values.
    unknown_times
        By start of a segment: how many rows have a timestamp that is not known.
    latest
        For each new partition, the largest time (ms) of a row; 0: none, or the rows have none.
    first_live
        Start (ms) of its first segment that has not expired here.
    topics
        Of the input that its rows say they are of.
    """

    model_config = ConfigDict(frozen=True)

    rows: dict[int, tuple[int, ...]]
    bytes: dict[int, tuple[int, ...]]
    unknown_times: dict[int, int]
    latest: tuple[int, ...]
    first_live: int
    topics: tuple[str, ...] = ()


class Counted(NamedTuple):
    """Content of a new changelog: rows, bytes, and start of the first live segment of each partition."""

    rows: tuple[int, ...]
    bytes: tuple[int, ...]
    first_live: tuple[int, ...]
    expired: int
    unknown_times: int


class WritePart(NamedTuple):
    """A store partition whose rows are written.

    Attributes
    ----------
    topic, max_batch_bytes
        The new changelog, and its `max.message.bytes`.
    first_live
        For each new partition, the start (ms) of the first segment of which rows are written.
    started_ms
        Timestamp (ms) of records whose rows tell none.
    compress
        Compress the records.
    ending
        New partitions whose last record is returned instead of written.
    """

    part: SourcePart
    topic: str
    max_batch_bytes: int
    first_live: tuple[int, ...]
    started_ms: int
    compress: bool
    ending: tuple[int, ...] = ()


class LastRecord(BaseModel):
    """The last record of a new partition, which is not written yet."""

    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    partition: int
    key: bytes
    value: bytes | None
    timestamp: int

    @property
    def record(self) -> tuple[int, bytes, bytes | None, int]:
        """Partition, key, value, and timestamp (ms)."""
        return self.partition, self.key, self.value, self.timestamp


class Written(BaseModel):
    """Records for each new partition: number of rows, and their digest.

    Attributes
    ----------
    held
        Records among them that are not written yet.
    """

    model_config = ConfigDict(frozen=True)

    rows: tuple[int, ...]
    digests: tuple[str, ...]
    held: tuple[LastRecord, ...] = ()


def survey_part(part: SourcePart) -> Surveyed:
    """Read all rows of a store partition once, and count what goes where.

    Raises
    ------
    InputError
        If it cannot be used, a row cannot be logged as it is, or a key is not where Kafka's partitioner puts it.
    StoreCorruptedError
        If a block is damaged.
    """
    store = part.store
    if part.caught_up:
        require_caught_up(store, "A new application is only made of such stores, every partition of them")
    if (trouble := inspect(store, contents=True).trouble) is not None:
        raise InputError(f"{store.store_partition} is {trouble.status}: {trouble.detail}. Nothing was changed")
    kind, route = store.store.store_kind, routing_of(store.store)
    rows: dict[int, Int64s] = {}
    sizes: dict[int, Int64s] = {}
    unknown: dict[int, int] = {}
    latest = np.zeros(part.into, np.int64)
    misplaced, example = 0, None
    for segment, batch in stored_rows(store) if store.live.exists() else ():
        if not batch.num_rows:
            continue
        places, wrong = _places(part, batch)
        if len(wrong):
            misplaced += len(wrong)
            example = example or batch.column(0)[int(wrong[0])].as_py()
        found = rows.setdefault(segment, np.zeros(part.into, np.int64))
        found += np.bincount(places, minlength=part.into)
        size = sizes.setdefault(segment, np.zeros(part.into, np.int64))
        size += np.bincount(places, weights=_row_bytes(batch), minlength=part.into).astype(np.int64)
        unknown[segment] = unknown.get(segment, 0) + form_of(store.store).records(store, batch, 1).unknown_times
        if kind.numbers:
            np.maximum.at(latest, places, numbers_in(batch.column(0), back=kind.suffix_bytes))
    if example is not None:
        raise InputError(
            f"{store.store_partition} has {misplaced} keys that Kafka's partitioner puts elsewhere, such as "
            f"{example!r:.120}: the application has its own partitioner, or the store is one of a foreign-key join. "
            "Where its keys belong among another number of partitions is not known here. With as many partitions as "
            "it has, say --partitioner any: then rows stay in theirs. Nothing was changed"
        )
    return Surveyed(
        rows={segment: tuple(map(int, found)) for segment, found in rows.items()},
        bytes={segment: tuple(map(int, found)) for segment, found in sizes.items()},
        unknown_times=unknown,
        latest=tuple(map(int, latest)),
        first_live=route.oldest_live(int(latest.max())),
        topics=_topics(store),
    )


def _topics(store: StorePartitionSpec) -> tuple[str, ...]:
    """Return the topics that the position of a store names."""
    if not store.live.exists():
        return ()
    with opened(store.store, store.context(read_only=True)) as found:
        return tuple(sorted({where.topic for where in found.position()}))


def counted(store: StorePartitionSpec, parts: Sequence[Surveyed], into: int) -> Counted:
    """Put together what a new changelog gets from all partitions of a store.

    A row has expired if it has in its own partition, or would in the new one, whose rows go further in time.
    """
    latest = [max((part.latest[number] for part in parts), default=0) for number in range(into)]
    first_live = np.array([routing_of(store.store).oldest_live(time) for time in latest], np.int64)
    rows, sizes = np.zeros(into, np.int64), np.zeros(into, np.int64)
    every = unknown = 0
    for part in parts:
        for segment, found in part.rows.items():
            live = (segment >= first_live) & (segment >= part.first_live)
            every += sum(found)
            rows += np.where(live, found, 0)
            sizes += np.where(live, part.bytes[segment], 0)
            unknown += part.unknown_times[segment] if live.any() else 0
    return Counted(
        rows=tuple(map(int, rows)),
        bytes=tuple(map(int, sizes)),
        first_live=tuple(map(int, first_live)),
        expired=every - int(rows.sum()),
        unknown_times=unknown,
    )


def last_with_rows(parts: Sequence[Surveyed], first_live: Sequence[int]) -> list[int | None]:
    """Return for each new partition the index of the last part that has live rows for it; None: none has any."""
    bounds = np.array(first_live, np.int64)
    result: list[int | None] = [None] * len(bounds)
    for index, part in enumerate(parts):
        for segment, found in part.rows.items():
            live = (np.array(found) > 0) & (segment >= bounds) & (segment >= part.first_live)
            for number in np.flatnonzero(live).tolist():
                result[number] = index
    return result


def write_part(work: WritePart) -> Written:
    """Write the live rows of a store partition to the new changelog, and wait until they are acknowledged.

    Raises
    ------
    StateStoreError
        If a record is not taken, or the store cannot be read.
    """
    part, store = work.part, work.part.store
    digests = [Digest(store.store.values) for _ in range(part.into)]
    bounds = np.array(work.first_live, np.int64)
    limit, compress, ending = work.max_batch_bytes, work.compress, work.ending
    writer = NewChangelogWriter(store, work.topic, limit, work.started_ms, compress=compress, ending=ending)
    held = []
    with closing(writer):
        for segment, batch in stored_rows(store, int(bounds.min())) if store.live.exists() else ():
            places, _ = _places(part, batch)
            # numpy sorts numbers of two bytes by their digits; more partitions than those tell are sorted as they are.
            order = np.argsort(places.astype(np.uint16) if part.into <= 1 << 16 else places, kind="stable")
            ends = np.searchsorted(places[order], np.arange(part.into + 1))
            batch = batch.take(int64_column(order))
            for number in np.flatnonzero(np.diff(ends)):
                if segment < bounds[number]:
                    continue
                rows = batch.slice(ends[number], ends[number + 1] - ends[number])
                writer.write(int(number), rows, digests[number])
            kill_switch.reached("rewrite, batch sent")
        for to in ending:
            if (last := writer.last(to)) is not None:
                ((key,), (value,), (timestamp,)) = last.keys.to_pylist(), last.values.to_pylist(), last.timestamps
                held.append(LastRecord(partition=to, key=key, value=value, timestamp=timestamp))
        writer.flush()
    kill_switch.reached("rewrite, partition written")
    return Written(
        rows=tuple(digest.rows for digest in digests),
        digests=tuple(digest.hexdigest() for digest in digests),
        held=tuple(held),
    )


def _places(part: SourcePart, batch: pa.RecordBatch) -> tuple[Int64s, Int64s]:
    """Return the new partition of each row, and the rows that are not where the partitioner puts them now."""
    count, task = batch.num_rows, part.store.task.partition
    if part.any_partitioner:
        return np.full(count, task, np.int64), np.zeros(0, np.int64)
    keys, behind = batch.column(0), part.store.store.store_kind.suffix_bytes
    if behind:
        keys = pc.binary_slice(keys, 0, -behind)
    hashes = hashes_of_keys(keys)
    return hashes % part.into, np.flatnonzero(hashes % part.partitions != task)


def _row_bytes(batch: pa.RecordBatch) -> Int64s:
    keys, values = map(lengths, batch.columns[:2])
    found: Int64s = keys + values
    return found
