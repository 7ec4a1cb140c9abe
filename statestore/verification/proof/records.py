"""All records of a log for a proof, also those of aborted and open transactions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.changelog.reader import ChangelogReader
from statestore.compiled.batches import Int64s
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.unproven import MissingOffsets

#: Column of `changelog.reader.SCHEMA`.
_OFFSET = 3


class Records(NamedTuple):
    """Some records of a log, in its order.

    Attributes
    ----------
    columns
        A batch with `changelog.reader.SCHEMA`.
    required
        Their transactions are committed.
    times_count
        They have their producers' timestamps, not the broker's.
    """

    columns: pa.RecordBatch
    required: bool
    times_count: bool


class Logged(NamedTuple):
    """Sizes of committed records.

    Attributes
    ----------
    starts, sizes
        By batch: the offset of its first record, and its bytes.
    largest_transaction
        Bytes of the largest transaction. Records without transactions count as one.
    """

    starts: Int64s
    sizes: Int64s
    largest_transaction: int

    def bytes_after(self, offset: int) -> int:
        """Return at most how many bytes they have after an offset."""
        first = max(int(np.searchsorted(self.starts, offset, "right")) - 1, 0)
        return int(self.sizes[first:].sum())


NOTHING_LOGGED = Logged(np.empty(0, np.int64), np.empty(0, np.int64), 0)


def bytes_of(column: pa.Array) -> Int64s:
    """Return how many bytes each key or value has; 0 if it is null."""
    found: Int64s = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return found


class LogRecords:
    """Reads the log of a partition once.

    Parameters
    ----------
    measure
        Note the sizes of the committed records, for `logged`.

    Attributes
    ----------
    append_times
        Some records that were read have the broker's timestamp.
    has_positions
        The last record that was read has a position among its headers.
    missing
        First offset of each gap in what was read that compaction has made, in order.
    """

    def __init__(
        self,
        spec: StorePartitionSpec,
        log: LogRange,
        options: VerifyOptions,
        partition: TopicPartition | None = None,
        *,
        measure: bool = False,
    ) -> None:
        self._measures = measure
        self._spec, self._log, self._options = spec, log, options
        self._partition = partition or spec.partition
        self.append_times = self.has_positions = False
        self.missing: Int64s = np.empty(0, np.int64)
        self._sizes: list[tuple[int, int]] = []
        self._largest, self._last = 0, (0, 0)  # the last transaction: the number of markers before it, and its bytes

    def __iter__(self) -> Iterator[Records]:
        log = self._log
        missing, markers = MissingOffsets(log.start), list[int]()
        ranges = ((log.start, log.last_stable, True), (max(log.start, log.last_stable), log.high_watermark, False))
        for start, end, committed in ranges:
            with self._reader(read_committed=committed) as reader:
                for batch, decided in reader.read_with_aborted(start, end, self._spec.store.values):
                    self._options.give_way()
                    self._options.pace(batch.nbytes)
                    missing.add(batch.column(_OFFSET).to_numpy())
                    if decided and committed and batch.num_rows and self._measures:
                        self._measure(batch, reader.markers)
                    yield Records(batch, decided and committed, not reader.append_times)
                self.append_times |= reader.append_times
                self.has_positions |= reader.has_positions
                markers += reader.markers
        self.missing = missing.found(markers)

    def logged(self) -> Logged:
        """Return the sizes of the committed records that were read."""
        starts, sizes = np.array(self._sizes, np.int64).reshape(-1, 2).T
        return Logged(starts, sizes, self._largest)

    def _measure(self, batch: pa.RecordBatch, markers: Sequence[int]) -> None:
        offsets = batch.column(_OFFSET).to_numpy()
        first, last = (bisect_left(markers, offset) for offset in (offsets[0], offsets[-1]))
        lengths = bytes_of(batch.column(0)) + bytes_of(batch.column(1))
        of_transactions = np.bincount(np.searchsorted(markers[first:last], offsets), weights=lengths)
        if first == self._last[0]:
            of_transactions[0] += self._last[1]
        self._largest = max(self._largest, int(of_transactions.max()))
        self._last = last, int(of_transactions[-1])
        self._sizes.append((int(offsets[0]), int(lengths.sum())))

    def _reader(self, *, read_committed: bool) -> ChangelogReader:
        return ChangelogReader(self._spec.cluster, self._partition, read_committed=read_committed)
