"""Deep verification: a store's rows against the fold of its changelog up to the store's committed offset.

Most stores are proven to equal their log at some offsets (proof/): this reads store and log once, and sorts nothing. If
a store cannot be proven, or its rows are not those of its committed offset, the log is read as in a restore: into
memory, or where that is too small into sorted runs in a scratch directory of ours. Then log and store are compared in
key order.

The rules of exclusions.py decide which rows are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, RunWriter, SegmentRows, merged
from statestore.bulk.time_ordered import with_end
from statestore.bulk.versions import VersionFold, fold_of
from statestore.changelog import brokers_clock
from statestore.changelog.reader import ChangelogReader
from statestore.compiled.batches import UInt64s
from statestore.durable import remove_tree
from statestore.errors import InvalidStateError, StoreCorruptedError, TopicMismatchError, unreadable_is_damaged
from statestore.formats import window_key
from statestore.formats.value_format import ValueFormat
from statestore.kafka.topics import LogRange, Topics
from statestore.kinds.kind import by_form
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Contents
from statestore.sst.layout import OtherLayoutError
from statestore.statedir.record import read_record
from statestore.stores.open import opened
from statestore.stores.scan import ScannedDatabase
from statestore.stores.versioned import RawVersion
from statestore.verification.compared_values import ComparedValues
from statestore.verification.comparison import Allowances, RowComparison
from statestore.verification.duplicates import numbered_by_offset, without_overwritten
from statestore.verification.exclusions import (
    ROUNDS,
    deletes_may_be_gone,
    gone_before_ms,
    live_segments,
)
from statestore.verification.kernels import hashes_of, numbers_in
from statestore.verification.options import VerifyOptions, nobody_waits
from statestore.verification.proof.closed import Proof, is_provable, prove
from statestore.verification.row_files import rows_from_files
from statestore.verification.row_reading import reading_of
from statestore.verification.sampling import Sample, choose, some_keys
from statestore.verification.supplied import as_stored, batches, count
from statestore.verification.time_ordered import as_changes
from statestore.verification.versions import (
    ComparedKey,
    VersionComparison,
    compacted_before_ms,
    logged_keys,
    stored_keys,
)

_HASHES_HELD = 1 << 20
#: Reads the rows of a segment (its start in ms) in the order of the changelog's keys, or those of a sample.
StoredRows = Callable[[ScannedDatabase, Sample | None, int], Iterator[pa.RecordBatch]]


def databases(spec: StorePartitionSpec) -> dict[int, Path]:
    """Directories of a store's databases by segment start (ms), in order; a key-value store's only one is at 0.

    Segments that Kafka Streams no longer uses are left out.
    """
    return spec.segments_used(spec.store.store_kind.segments(spec.live))


def count_rows(spec: StorePartitionSpec, give_way: Callable[[], None] = nobody_waits) -> int:
    """Read every row of a closed store, which finds every block that fails its checksum; return how many there are.

    Parameters
    ----------
    give_way
        Called now and then.

    Raises
    ------
    StoreCorruptedError
        If one does.
    """
    with unreadable_is_damaged():
        return _COUNTS[spec.store.row_form](spec, give_way)


def _count_databases(spec: StorePartitionSpec, give_way: Callable[[], None]) -> int:
    return sum(_count(spec, segment, directory, give_way) for segment, directory in databases(spec).items())


def _count_supplied(spec: StorePartitionSpec, give_way: Callable[[], None]) -> int:
    with opened(spec.store, spec.context(read_only=True)) as store:
        return count(store, spec.store, give_way)


def _count(spec: StorePartitionSpec, segment: int, directory: Path, give_way: Callable[[], None]) -> int:
    with ScannedDatabase(directory, spec.store.values) as database:
        return reading_of(spec.store).count_rows(database, segment, give_way)


def compare_contents(
    spec: StorePartitionSpec, committed: int, log: LogRange, topics: Topics, options: VerifyOptions
) -> Contents:
    """Compare a closed store with its log; the caller holds the task's lock.

    Parameters
    ----------
    committed
        Offset of the last changelog record in the store.
    log
        Where its log begins and ends.

    Raises
    ------
    StoreCorruptedError
        If the store cannot be read.
    TopicMismatchError
        If the log is that of another kind of store.
    StoreBehindLogStartError
        If the log's start has moved since it was asked for.
    """
    proven = _proven(spec, committed, log, options)
    if isinstance(proven, Contents):
        return proven
    scratch = spec.paths.own_dir / "verify" / spec.store.name
    remove_tree(scratch)
    try:
        fold = _Fold(spec, log, options)
        fold.read(committed, scratch, topics)
        with unreadable_is_damaged():  # our scratch files tell their errors themselves
            found = _COMPARISONS[spec.store.row_form](spec, fold, topics, options, scratch)
        if found.only_in_store and spec.store.retain_duplicates:
            remove_tree(scratch)
            fold = _Fold(spec, log, options, overwritten=True)
            fold.read(committed, scratch, topics)
            with unreadable_is_damaged():
                with_all = _compared(spec, fold, fold.allowances(topics), options, _stored)
            found = without_overwritten(found, with_all)
        return found.model_copy(update={"brokers_timestamps": fold.brokers_timestamps, "not_proven": proven})
    finally:
        remove_tree(scratch)


def _proven(spec: StorePartitionSpec, committed: int, log: LogRange, options: VerifyOptions) -> Contents | str:
    """Compare without sorting; return the reason if the store is not proven to equal its log at any offset."""
    if options.sample is not None:
        return "only a sample is compared"
    if not is_provable(spec):
        return "store and log number duplicates independently" if spec.store.retain_duplicates else "custom store"
    proof = prove(spec, databases(spec), log, options, most_passes=options.most_passes, claim=committed)
    if proof is None:
        return "the store has too many keys for the memory, or the log has positions in headers"
    if proof.append_times:
        return "the log has the brokers' timestamps"
    if proof.is_optional:
        return "rows equal records of aborted transactions only"
    if proof.unexplained:
        return f"no record explains {proof.unexplained} rows"
    if not _is_decided(spec, proof, committed):
        return "no offset is common to all rows" if not proof.offsets else "the store is after its committed offset"
    found = proof.digest
    rows, digest = found.rows, found.hexdigest()
    offsets = tuple((first, last) for first, last in proof.offsets)
    at = committed if proof.equals_at(committed) else offsets[-1][1]
    return Contents(
        store_rows=rows,
        log_rows=rows,
        equal=rows,
        not_judged=proof.not_judged,
        unproven=proof.unproven_at(at),
        store_digest=digest,
        log_digest=digest,
        offsets=offsets,
    )


def _is_decided(spec: StorePartitionSpec, proof: Proof, committed: int) -> bool:
    """Return whether a proof confirms the committed offset, or refutes it.

    At least once, a store may have more than it has committed.
    """
    if proof.equals_at(committed):
        return True
    found = proof.offsets
    if not found:
        return False
    # Segments reach the disk each in its own time, so after a crash a store has more than the least of their offsets.
    may_be_ahead = spec.exactly_once and not spec.store.segmented
    return may_be_ahead or found[-1].last < committed


class _HashSet:
    """Hashes of keys, each once; some more are held before they are sorted in."""

    def __init__(self) -> None:
        self._held: list[UInt64s] = [np.empty(0, np.uint64)]

    def add(self, hashes: UInt64s) -> None:
        """Add hashes."""
        self._held.append(hashes)
        if sum(map(len, self._held)) > 2 * len(self._held[0]) + _HASHES_HELD:
            self.sorted()

    def sorted(self) -> UInt64s:
        """Return all of them in order."""
        self._held = [np.unique(np.concatenate(self._held))]
        return self._held[0]


class _Fold:
    """The log of a store partition, sorted, and what it can tell.

    Attributes
    ----------
    sample
        Key ranges that are compared; None: all keys.
    stream_time
        Largest time (ms) in the row keys of a window or session store; -1 before the first.
    brokers_timestamps
        The log of a timestamped store has the brokers' timestamps.
    keeps_timestamps, keeps_headers
        The store gives back the timestamps, and the headers, that it was given.
    row_fold
        Makes rows for the sorted runs of the records that are read.

    Parameters
    ----------
    overwritten
        Have rows of all values in the log of a store that retains duplicates, not only of the last with its number.
    """

    def __init__(
        self, spec: StorePartitionSpec, log: LogRange, options: VerifyOptions, *, overwritten: bool = False
    ) -> None:
        self.sample: Sample | None = None
        self.stream_time = -1
        self.brokers_timestamps = False
        self.keeps_timestamps = True
        self.keeps_headers = True
        self._positions = False
        self.routing = routing_of(spec.store)
        self.row_fold = fold_of(spec.store)
        # Duplicates of a window stand and fall together: store and log count them each by itself.
        self._cut = window_key.SEQUENCE_BYTES if spec.store.retain_duplicates else 0
        self._spec = spec
        self._log = log
        self._options = options
        self._overwritten = overwritten
        self.give_way = options.give_way
        self._runs: Runs | None = None
        self._changed_since, self._deleted = _HashSet(), _HashSet()
        self._began = time.monotonic()

    def read(self, committed: int, scratch: Path, topics: Topics) -> None:
        """Read the log up to the committed offset, and which keys have changed since."""
        spec, start, stop = self._spec, self._log.start, committed + 1
        stable = self._log.last_stable
        if stable < stop:  # the log can have records that the application has not processed
            stable = topics.log_ranges([spec.partition])[spec.partition].last_stable
        stable = min(stable, stop)
        with self._reader(read_committed=True) as reader:
            options = self._options
            if options.sample is not None:
                self.sample = choose(some_keys(reader, start, stable), options.sample, options.seed, cut=self._cut)
            writer = RunWriter(scratch, self.routing, options.run_bytes, start=start)
            try:
                for batch in self._records(reader, stable, stop):
                    self.give_way()
                    self._advance(batch)
                    self._note_deleted(batch)
                    chosen = batch if self.sample is None else self.sample.of(batch)
                    chosen = numbered_by_offset(chosen) if self._overwritten else chosen
                    writer.add(self.row_fold.of(batch, chosen))
            except StoreCorruptedError as error:  # by the writer: that the log is not this store's is no damage of it
                raise TopicMismatchError(f"{spec.partition}: {error}") from error
            self._runs = writer.finish(stop)
            self.stream_time = max(self.stream_time, self._runs.stream_time)
            self._note_timestamps(reader)
            self._positions = self._positions or reader.has_positions
            # Offsets after the store's that are missing were markers.
            self._read_tail(reader, max(stop, self._log.start), topics)

    def _reader(self, *, read_committed: bool) -> ChangelogReader:
        spec = self._spec
        return ChangelogReader(spec.cluster, spec.partition, read_committed=read_committed)

    def _records(self, reader: ChangelogReader, stable: int, stop: int) -> Iterator[pa.RecordBatch]:
        values = self._spec.store.values
        yield from reader.read(self._log.start, stable, values)
        if stable < stop:  # at-least-once stores may have what an open transaction still hides
            with self._reader(read_committed=False) as hidden:
                yield from hidden.read(max(stable, self._log.start), stop, values)
                self._note_timestamps(hidden)
                self._positions = self._positions or hidden.has_positions

    def _note_timestamps(self, reader: ChangelogReader) -> None:
        timestamped = self._spec.store.values.timestamped
        self.brokers_timestamps = self.brokers_timestamps or (timestamped and reader.append_times)

    def _advance(self, batch: pa.RecordBatch) -> None:
        if self.sample is not None and self.routing.interval_ms is not None and batch.num_rows:
            times = numbers_in(batch.column(0), back=self.routing.suffix_bytes)
            self.stream_time = max(self.stream_time, int(times.max()))

    def _read_tail(self, reader: ChangelogReader, start: int, topics: Topics) -> None:
        """Note which keys have records after the store's committed offset.

        The end of the log is asked for only now. Records that were logged while the store's part was read can have let
        the broker remove records from it. Those that are logged while this part is read can do so here.
        """
        partition = self._spec.partition
        for _ in range(ROUNDS):
            # Records of an input that the application has not processed can replace others, too.
            end = topics.log_ranges([partition])[partition].last_stable
            if end <= start:
                return
            self._note_changed(reader.read(start, end))
            start = end

    def _note_deleted(self, batch: pa.RecordBatch) -> None:
        """Note the keys that the log deletes, if it has lost its start. Otherwise, each row is judged."""
        if self._log.start == 0 or self.routing.ignores_deletes:
            return
        self._deleted.add(hashes_of(batch.column(0).filter(pc.is_null(batch.column(1)))))

    def _note_changed(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            self._changed_since.add(hashes_of(batch.column(0), cut=self._cut))

    def allowances(self, topics: Topics) -> Allowances:
        """Rows that the log can no longer confirm."""
        changelog, by_time = self._spec.changelog, self.routing.interval_ms is not None
        assert changelog is not None
        reading_ms = (time.monotonic() - self._began) * 1000
        config = topics.topic_configs([changelog.topic])[changelog.topic] if self._log.start > 0 else {}
        return Allowances(
            changed_since=self._changed_since.sorted(),
            deleted=self._deleted.sorted(),
            gone_before_ms=gone_before_ms(
                self._log.start, config, by_time=by_time, now_ms=brokers_clock.now_ms(self._spec.cluster)
            ),
            time_back=self._spec.store.store_kind.first_time_bytes if by_time else 0,
            deletes_are_gone=deletes_may_be_gone(reading_ms, changelog.delete_retention_ms),
        )

    @property
    def _compared(self) -> ComparedValues:
        """The parts of the values that count."""
        layout = self._spec.store.values
        return ComparedValues(
            layout,
            timestamps=layout.timestamped and self.keeps_timestamps and not self.brokers_timestamps,
            headers=layout.keeps_headers and self.keeps_headers,
            positions=not self._positions,
        )

    @property
    def compared_layout(self) -> ValueFormat:
        """Layout of the rows as both sides have them for the comparison."""
        return self._compared.result

    def comparable(self, stored: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of the store, batches of `scan.STORED_SCHEMA`, in that layout."""
        compared = self._compared
        for batch in stored:
            self.give_way()
            yield compared.of_stored(with_end(batch, self._spec.store.store_kind.logged_values_end_with))

    def rows(self) -> Iterator[SegmentRows]:
        """Yield the rows that a store restored from the log has, in (segment, key) order."""
        assert self._runs is not None, "the log has been read"
        compared = self._compared
        try:
            for found in merged([self._runs], self.routing):
                yield found._replace(batch=compared.of_logged(found.batch))
        except StoreCorruptedError as error:  # our own scratch files: no fault of the store
            raise InvalidStateError(f"sorted runs of {self._spec.partition} cannot be read: {error}") from error


def _compared_fast(
    spec: StorePartitionSpec, fold: _Fold, allowances: Allowances, options: VerifyOptions
) -> Contents | None:
    """Compare without RocksDB where its files allow it; None if they do not, or if a row read so differs.

    So a report has only damage and differences that RocksDB itself sees.
    """
    without = 0

    def stored(database: ScannedDatabase, sample: Sample | None, segment: int) -> Iterator[pa.RecordBatch]:
        nonlocal without
        straight = rows_from_files(database)
        if straight is None:
            return _stored(database, sample, segment)
        without += 1
        return straight

    if fold.sample is not None:
        return None
    try:
        found = _compared(spec, fold, allowances, options, stored)
    except OtherLayoutError:
        return None
    whole = found.equal == found.store_rows == found.log_rows
    return found if whole or not without else None


def _compared(
    spec: StorePartitionSpec,
    fold: _Fold,
    allowances: Allowances,
    options: VerifyOptions,
    stored: StoredRows,
) -> Contents:
    comparison = RowComparison(
        fold.compared_layout,
        allowances,
        first=options.first_keys,
        name_keys=options.name_keys,
        numbered=spec.store.retain_duplicates,
    )
    here = databases(spec)
    logged = _Segments(fold.rows())
    live = live_segments(here, fold.stream_time, fold.routing)
    for segment in logged.with_those_of(here):
        rows = logged.rows_of(segment)
        if live.excludes_logged(segment, stored=segment in here):
            for _ in rows:
                pass
            if segment in here:
                _count(spec, segment, here[segment], fold.give_way)
        elif segment not in here:
            comparison.compare((), rows)
        else:
            with ScannedDatabase(here[segment], spec.store.values) as database:
                comparison.compare(fold.comparable(stored(database, fold.sample, segment)), rows)
    return comparison.contents(fold.sample.fraction if fold.sample else None)


def _compared_records(
    spec: StorePartitionSpec, fold: _Fold, topics: Topics, options: VerifyOptions, scratch: Path
) -> Contents:
    """Compare a store whose rows have the keys of their records, in the fastest of two ways that decides."""
    allowances = fold.allowances(topics)
    return _compared_fast(spec, fold, allowances, options) or _compared(spec, fold, allowances, options, _stored)


def _compared_time_ordered(
    spec: StorePartitionSpec, fold: _Fold, topics: Topics, options: VerifyOptions, scratch: Path
) -> Contents:
    """Compare a store whose row keys begin with their times."""
    stored = _stored_by_ordinary_keys(spec, fold, options, scratch)
    return _compared(spec, fold, fold.allowances(topics), options, stored)


def _compared_versions(
    spec: StorePartitionSpec, fold: _Fold, topics: Topics, options: VerifyOptions, scratch: Path
) -> Contents:
    """Compare a versioned store: a row has the values of several records."""
    comparison = _version_comparison(spec, fold, topics, options)
    with ScannedDatabase(spec.live, spec.store.format) as database:
        comparison.compare(stored_keys(database, fold.sample), logged_keys(fold.rows(), spec.store))
    return comparison.contents(fold.sample.fraction if fold.sample else None)


def compare_versions(
    spec: StorePartitionSpec,
    stored: Iterator[tuple[bytes, list[RawVersion]]],
    committed: int,
    log: LogRange,
    topics: Topics,
    scratch: Path,
) -> Iterator[ComparedKey]:
    """Yield the keys of a versioned store, each with what is compared of it.

    Parameters
    ----------
    stored
        Its keys in order, with their versions.
    committed, log
        See `compare_contents`.
    scratch
        An empty directory for what does not fit into memory.

    Raises
    ------
    TopicMismatchError, StoreBehindLogStartError
        As `compare_contents`.
    """
    options = VerifyOptions()
    fold = _Fold(spec, log, options)
    fold.read(committed, scratch, topics)
    comparison = _version_comparison(spec, fold, topics, options)
    yield from comparison.compared(stored, logged_keys(fold.rows(), spec.store))


def _version_comparison(
    spec: StorePartitionSpec, fold: _Fold, topics: Topics, options: VerifyOptions
) -> VersionComparison:
    allowances = fold.allowances(topics)
    assert isinstance(fold.row_fold, VersionFold), "only versions are compared so"
    assert spec.changelog is not None
    config = topics.topic_configs([spec.changelog.topic])[spec.changelog.topic]
    record = read_record(spec.paths, spec.store.name)
    return VersionComparison(
        spec.store,
        fold.row_fold.stream_time,
        allowances,
        compacted_before_ms(config, allowances.gone_before_ms, brokers_clock.now_ms(spec.cluster)),
        options,
        delete_retention_ms=spec.changelog.delete_retention_ms,
        logs_late=spec.origin.logs_late or record is None or record.adopted,  # our own stores log none
    )


def _compared_supplied(
    spec: StorePartitionSpec, fold: _Fold, topics: Topics, options: VerifyOptions, scratch: Path
) -> Contents:
    """Compare a supplier's store. It returns rows in any order, and may drop each row as it expires."""
    routing, allowances = fold.routing, fold.allowances(topics)
    writer = RunWriter(scratch / "stored", routing, options.run_bytes, start=0)
    count_read = 0
    with opened(spec.store, spec.context(read_only=True)) as store:
        fold.keeps_timestamps = store.inner.keeps_timestamps
        fold.keeps_headers = store.inner.keeps_headers
        for batch in batches(store, spec.store, fold.give_way):
            writer.add(batch if fold.sample is None else fold.sample.of(batch))
            count_read += batch.num_rows
    runs = [writer.finish(count_read)]
    comparison = RowComparison(fold.compared_layout, allowances, first=options.first_keys, name_keys=options.name_keys)
    oldest_ms = fold.stream_time - (spec.store.retention_ms or 0) + 1  # the first time that has not expired

    def live(found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in found:
            if routing.interval_ms is None:
                yield batch
            else:
                yield batch.filter(pa.array(numbers_in(batch.column(0), back=routing.suffix_bytes) >= oldest_ms))

    here = {found.segment for found in merged(runs, routing)}
    stored, logged = groupby(merged(runs, routing), key=lambda found: found.segment), _Segments(fold.rows())
    for segment in logged.with_those_of(here):
        there = next(stored)[1] if segment in here else iter(())
        rows = (as_stored(batch) for batch in live(found.batch for found in there))
        comparison.compare(fold.comparable(rows), live(logged.rows_of(segment)))
    return comparison.contents(fold.sample.fraction if fold.sample else None)


def _stored_by_ordinary_keys(
    spec: StorePartitionSpec, fold: _Fold, options: VerifyOptions, scratch: Path
) -> StoredRows:
    """Sort rows that begin with their times by the keys of the changelog before they are compared."""
    routing = fold.routing

    def stored(database: ScannedDatabase, sample: Sample | None, segment: int) -> Iterator[pa.RecordBatch]:
        runs_dir = scratch / "stored"
        writer, at = RunWriter(runs_dir, routing, options.run_bytes, start=0), 0
        try:
            for batch in reading_of(spec.store).rows(database, segment, fold.give_way):
                writer.add(as_changes(batch if sample is None else sample.of(batch), at))
                at += batch.num_rows
            for found in merged([writer.finish(at)], routing):
                yield as_stored(found.batch)
        finally:
            remove_tree(runs_dir)

    return stored


def _stored(database: ScannedDatabase, sample: Sample | None, segment: int) -> Iterator[pa.RecordBatch]:
    if sample is None:
        return database.rows()
    return (sample.of(batch) for key_range in sample.ranges for batch in database.rows(*key_range))


class _Segments:
    """Rows of a merge, segment by segment."""

    def __init__(self, rows: Iterator[SegmentRows]) -> None:
        self._groups = groupby(rows, key=lambda found: found.segment)
        self._next = next(self._groups, None)

    def with_those_of(self, others: Iterable[int]) -> Iterator[int]:
        """Yield the segments of both in order. Read the `rows_of` of each before the next."""
        left = sorted(others)
        while left or self._next is not None:
            starts = [*left[:1], *([] if self._next is None else [self._next[0]])]
            segment = min(starts)
            yield segment
            left = left[1:] if left and left[0] == segment else left
            if self._next is not None and self._next[0] == segment:
                self._next = next(self._groups, None)

    def rows_of(self, segment: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a segment; none if it has none."""
        if self._next is not None and self._next[0] == segment:
            yield from (found.batch for found in self._next[1])


_COUNTS = by_form(_count_databases, supplied=_count_supplied)
_COMPARISONS = by_form(
    _compared_records, time_ordered=_compared_time_ordered, versions=_compared_versions, supplied=_compared_supplied
)
