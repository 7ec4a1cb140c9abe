"""Deep verification of a global store: its rows against those that its topic gives, all partitions in one database.

A key belongs to one partition as a rule. If several have it, Kafka Streams applies their records in an order that
nobody can tell afterwards: while it runs, as they arrive; when it fills the store, partition by partition. So the last
record of any of these partitions is right. The store may lack such a key if one of them deletes it last.

Records without a key are in no row, as Kafka Streams skips them. The log is read up to the offset that the store has of
each partition, which is the next to read. What the log can no longer tell is not judged (exclusions.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, RunWriter, merged, sorted_records
from statestore.changelog import brokers_clock
from statestore.changelog.reader import ChangelogReader
from statestore.compiled.batches import Bytes, Int64s, UInt64s
from statestore.durable import remove_tree
from statestore.errors import unreadable_is_damaged
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, UNKNOWN_TIMESTAMP
from statestore.formats.value_format import value_format
from statestore.kafka.topics import LogRange, Topics
from statestore.model import StoreFormat, TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Contents
from statestore.stores.scan import ScannedDatabase
from statestore.verification.comparison import Allowances, Flags, RowComparison
from statestore.verification.exclusions import ROUNDS, deletes_may_be_gone, gone_before_ms
from statestore.verification.kernels import (
    NO_TIMES,
    ONLY_IN_LOG,
    TIMES_BEHIND_HEADERS,
    TIMES_IN_FRONT,
    hashes_of,
    stored_times,
    times_of,
)
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.global_tables import prove_global

_NO_HASHES = np.empty(0, np.uint64)
#: Odd numbers that mix hashes of keys, values and times into one.
_MIX_VALUE, _MIX_TIME = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class _OfAnyPartition(Allowances):
    """Allowances for keys that several partitions have.

    Attributes
    ----------
    rows
        Sorted hashes of the rows that the last record of any of their partitions gives.
    rows_of_any_time
        The same without their times: a store may not know them.
    absent
        Sorted hashes of those keys that one of their partitions deletes last.
    """

    rows: UInt64s = field(default_factory=lambda: _NO_HASHES)
    rows_of_any_time: UInt64s = field(default_factory=lambda: _NO_HASHES)
    absent: UInt64s = field(default_factory=lambda: _NO_HASHES)

    def excused(self, kinds: Bytes, keys: pa.Array, stored: pa.Array, *, times: int) -> Flags:
        """As `Allowances.excused`, and where another partition than the last one gives what the store has."""
        excused = super().excused(kinds, keys, stored, times=times)
        if not len(self.rows) and not len(self.absent):
            return excused
        of_keys, there = hashes_of(keys), kinds != ONLY_IN_LOG
        excused |= ~there & np.isin(of_keys, self.absent)
        known, timeless = stored_times(stored, times), _without_times(stored, times)
        values, beside = (timeless, known) if times == TIMES_IN_FRONT else (pc.fill_null(stored, b""), None)
        excused |= there & np.isin(_row_hashes(of_keys, values, beside), self.rows)
        if times != NO_TIMES:
            unknown = known == UNKNOWN_TIMESTAMP
            excused |= there & unknown & np.isin(_row_hashes(of_keys, timeless, None), self.rows_of_any_time)
        return excused


def compare_global(
    spec: StorePartitionSpec,
    next_offsets: Mapping[TopicPartition, int | None],
    logs: Mapping[TopicPartition, LogRange],
    topics: Topics,
    options: VerifyOptions,
) -> Contents:
    """Compare a closed global store with its topic; the caller holds its lock. A sample is not taken.

    Parameters
    ----------
    next_offsets
        By partition, the next offset that the store would read; None: it has read nothing of it.

    Raises
    ------
    StoreCorruptedError
        If the store cannot be read.
    StoreBehindLogStartError
        If a log's start has moved since it was asked for.
    """
    proven = _proven(spec, next_offsets, logs, options)
    if isinstance(proven, Contents):
        return proven
    scratch = spec.paths.own_dir / "verify" / spec.store.name
    remove_tree(scratch)
    try:
        topic = _Topic(spec, logs, topics, options)
        for at, (partition, stop) in enumerate(next_offsets.items()):
            writer = RunWriter(
                scratch / str(partition.partition),
                topic.routing,
                options.run_bytes,
                start=logs[partition].start,
                keep_in_memory=at == len(next_offsets) - 1,  # one at most, so that the bound holds
            )
            topic.read(partition, stop, writer)
        comparison = RowComparison(
            spec.store.values, topic.allowances(), first=options.first_keys, name_keys=options.name_keys
        )
        with unreadable_is_damaged(), ScannedDatabase(spec.live, spec.store.values) as database:
            stored = _giving_way(database.rows(), options.give_way)
            comparison.compare(stored, (found.batch for found in merged(topic.runs, topic.routing)))
        return comparison.contents(None).model_copy(update={"not_proven": proven})
    finally:
        remove_tree(scratch)


def _proven(
    spec: StorePartitionSpec,
    next_offsets: Mapping[TopicPartition, int | None],
    logs: Mapping[TopicPartition, LogRange],
    options: VerifyOptions,
) -> Contents | str:
    """Compare without sorting; return the reason if the table is not proven to equal its topic.

    Kafka Streams writes a table at least once, so it can contain records after its committed offset.
    """
    proof = prove_global(spec, logs, options, spec.live)
    if proof is None:
        return "the table has too many keys for the memory"
    if proof.shared:
        return f"several partitions have {proof.shared} keys in common"
    if not proof.is_prefix:
        return "its rows are not those of any offsets"
    found = []
    for partition, prefix in proof.prefixes.items():
        committed = next_offsets.get(partition)
        claim = max(logs[partition].start, committed or 0) - 1
        if prefix.offsets[-1].last < claim:
            return f"the rows of {partition} end at offset {prefix.offsets[-1].last}, before its committed offset"
        found += [(partition.partition, first, last) for first, last in prefix.offsets]
    rows, digest = proof.digest.rows, proof.digest.hexdigest()
    return Contents(
        store_rows=rows,
        log_rows=rows,
        equal=rows,
        unproven=proof.unproven,
        store_digest=digest,
        log_digest=digest,
        partition_offsets=tuple(found),
    )


class _Topic:
    """Records read from a global store's topic.

    Attributes
    ----------
    runs
        Of each partition, sorted.
    """

    def __init__(
        self,
        spec: StorePartitionSpec,
        logs: Mapping[TopicPartition, LogRange],
        topics: Topics,
        options: VerifyOptions,
    ) -> None:
        self.routing = routing_of(spec.store)
        self.runs: list[Runs] = []
        self._spec, self._logs, self._topics, self._options = spec, logs, topics, options
        self._keys: list[UInt64s] = []
        self._deleted: list[UInt64s] = []
        self._changed_since: list[UInt64s] = []
        self._began = time.monotonic()

    def read(self, partition: TopicPartition, stop: int | None, writer: RunWriter) -> None:
        """Read a partition up to where the store would go on, and which keys have changed since."""
        log = self._logs[partition]
        stop = log.start if stop is None else stop
        stable = min(log.last_stable, stop)
        keys: list[UInt64s] = []
        with self._reader(partition, read_committed=True) as reader:
            for batch in self._records(reader, partition, stable, stop):
                self._options.give_way()
                writer.add(batch)
                with_key = batch.filter(batch.column(0).is_valid())
                keys.append(hashes_of(with_key.column(0)))
                if log.start > 0:
                    self._deleted.append(hashes_of(with_key.column(0).filter(with_key.column(1).is_null())))
            self.runs.append(writer.finish(max(stop, log.start)))
            self._keys.append(_unique(keys))
            start = max(stop, log.start)
            for _ in range(ROUNDS):
                end = self._topics.log_ranges([partition])[partition].last_stable
                if end <= start:
                    break
                for batch in reader.read(start, end):
                    self._changed_since.append(hashes_of(batch.column(0).drop_null()))
                start = end

    def _records(
        self, reader: ChangelogReader, partition: TopicPartition, stable: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        start = self._logs[partition].start
        if start < stable:
            yield from reader.read(start, stable, self._spec.store.values)
        if stable < stop:  # an application that processes at least once reads what an open transaction still hides
            with self._reader(partition, read_committed=False) as hidden:
                yield from hidden.read(max(stable, start), stop, self._spec.store.values)

    def _reader(self, partition: TopicPartition, *, read_committed: bool) -> ChangelogReader:
        return ChangelogReader(self._spec.cluster, partition, read_committed=read_committed)

    def allowances(self) -> Allowances:
        """Allowed differences: keys that the topic no longer confirms, and keys in several partitions."""
        changelog = self._spec.changelog
        assert changelog is not None, "its topic was read"
        start = max((log.start for log in self._logs.values()), default=0)
        reading_ms = (time.monotonic() - self._began) * 1000
        shared = self._keys_of_several()
        rows, of_any_time, absent = self._rows_of(shared)
        return _OfAnyPartition(
            changed_since=_unique(self._changed_since),
            deleted=np.setdiff1d(_unique(self._deleted), shared),
            gone_before_ms=gone_before_ms(start, {}, by_time=False, now_ms=brokers_clock.now_ms(self._spec.cluster)),
            deletes_are_gone=deletes_may_be_gone(reading_ms, changelog.delete_retention_ms),
            rows=rows,
            rows_of_any_time=of_any_time,
            absent=absent,
        )

    def _keys_of_several(self) -> UInt64s:
        """Sorted hashes of the keys that more than one partition has."""
        hashes, counts = np.unique(np.concatenate([_NO_HASHES, *self._keys]), return_counts=True)
        return hashes[counts > 1]

    def _rows_of(self, shared: UInt64s) -> tuple[UInt64s, UInt64s, UInt64s]:
        rows: list[UInt64s] = []
        of_any_time: list[UInt64s] = []
        absent: list[UInt64s] = []
        times = times_of(self._spec.store.values)
        for runs in self.runs if len(shared) else ():
            for batch in sorted_records(runs, self.routing):
                self._options.give_way()
                of_keys = hashes_of(batch.column(0))
                those, deletes = np.isin(of_keys, shared), np.asarray(batch.column(1).is_null())
                absent.append(of_keys[those & deletes])
                there = those & ~deletes
                left = batch.filter(pa.array(there))
                beside = np.asarray(left.column(2), np.int64) if times == TIMES_IN_FRONT else None
                rows.append(_row_hashes(of_keys[there], left.column(1), beside))
                timeless = _without_times(left.column(1), times, in_log=True)
                of_any_time.append(_row_hashes(of_keys[there], timeless, None))
        return _unique(rows), _unique(of_any_time), _unique(absent)


def _without_times(values: pa.Array, times: int, *, in_log: bool = False) -> pa.Array:
    """Take timestamps out of values of a store, or of its log, which has none in front; nulls become empty."""
    if times == TIMES_IN_FRONT and not in_log:
        values = pc.binary_slice(values, TIMESTAMP_BYTES, (1 << 31) - 1)
    values = pc.fill_null(values, b"")
    if times != TIMES_BEHIND_HEADERS:
        return values
    layout = value_format(StoreFormat.HEADERS)
    found = [(value, layout.timestamp_at(value) if value else 0) for value in values.to_pylist()]
    return pa.array([value[:at] + value[at + TIMESTAMP_BYTES :] for value, at in found], pa.binary())


def _row_hashes(of_keys: UInt64s, values: pa.Array, times: Int64s | None) -> UInt64s:
    """Hash rows by the hashes of their keys, their values and, if there are any, their times (ms)."""
    found = of_keys ^ (hashes_of(values) * _MIX_VALUE)
    return found if times is None else found ^ ((times.astype(np.uint64) + np.uint64(1)) * _MIX_TIME)


def _unique(hashes: Sequence[UInt64s]) -> UInt64s:
    return np.unique(np.concatenate([_NO_HASHES, *hashes]))


def _giving_way(batches: Iterator[pa.RecordBatch], give_way: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        give_way()
        yield batch
