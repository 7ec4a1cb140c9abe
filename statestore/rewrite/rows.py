"""The rows of a closed store as the records that a changelog would have of them.

Of most kinds, what the last record of a key says is a row, so a row is also a record. Their order within a partition
tells nothing, as each key comes once. What the versions of a versioned store become is in `version_rows.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.bulk.time_ordered import with_end
from statestore.compiled.batches import Int64s, lengths
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.formats.headers_value import Headers
from statestore.formats.offsets import STATUS_CLOSED
from statestore.formats.position import position_headers
from statestore.formats.timestamped_value import TIMESTAMP_BYTES, UNKNOWN_TIMESTAMP
from statestore.formats.value_format import ValueFormat
from statestore.kafka.key_partitions import partitions_of_keys
from statestore.kinds.kind import by_form
from statestore.kinds.segment_directories import segment_start
from statestore.model import TopicPartition
from statestore.partition.spec import StorePartitionSpec
from statestore.rewrite.row_stage import RowStage
from statestore.rewrite.version_rows import (
    add_versions,
    as_records,
    first_segment,
    history_of,
    version_records,
    version_times,
    versions_digest,
)
from statestore.stores.scan import STORED_SCHEMA, ScannedDatabase
from statestore.verification.kernels import numbers_in
from statestore.verification.row_reading import reading_of

#: End of a slice of values that go to their ends; without one, pyarrow fails.
_LONGEST = (1 << 31) - 1
_TIME_BYTES = 8


class Records(NamedTuple):
    """Records of a changelog, a column each; timestamps in ms.

    Attributes
    ----------
    headers
        None: their store keeps none.
    unknown_times
        How many have a timestamp in the place of one that their row should tell, and does not know.
    """

    keys: pa.Array
    values: pa.Array
    timestamps: Int64s
    headers: Sequence[Headers] | None
    unknown_times: int

    def cut(self, count: int) -> tuple[Records, Records]:
        """Return the first `count` records of a store without headers, and the others."""
        first, others = (
            self._replace(keys=self.keys[part], values=self.values[part], timestamps=self.timestamps[part])
            for part in (slice(count), slice(count, None))
        )
        return first, others

    def with_position(self, position: Mapping[TopicPartition, int]) -> Records:
        """Return the records of a store without headers, each with a position; without any, if it is unknown."""
        return self._replace(headers=[position_headers(position)] * len(self.keys)) if position else self


class Misplaced(NamedTuple):
    """Keys that are in another partition than the partitioner would put them into: how many, and one of them."""

    keys: int
    key: bytes
    partition: int


class Contents(NamedTuple):
    """Content of a store.

    Attributes
    ----------
    rows, bytes
        Rows that have not expired, and bytes of their keys and values.
    expired
        Rows that are past the store's retention: no restore would keep them.
    first_live
        Start (ms) of the first segment that has not expired; 0 without segments.
    unknown_times
        Rows whose timestamps are not known, of those that have not expired.
    misplaced
        None: each key is where it belongs, or nobody asked.
    """

    rows: int = 0
    bytes: int = 0
    expired: int = 0
    first_live: int = 0
    unknown_times: int = 0
    misplaced: Misplaced | None = None


class _Segment:
    """Rows of one segment, or of a whole store without segments."""

    def __init__(self) -> None:
        self.rows = self.bytes = self.unknown = self.latest = 0


def stored_rows(store: StorePartitionSpec, first_segment: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a closed store by the keys of its changelog, with the start (ms) of their segment.

    Parameters
    ----------
    first_segment
        Segments that start before it (ms) are left out.

    Raises
    ------
    InputError
        If a database was not closed in order.
    StoreCorruptedError
        If one is damaged.
    """
    kind = store.store.store_kind
    for directory in kind.databases(store.live):
        segment = (segment_start(directory.name) or 0) if kind.segmented else 0
        if segment < first_segment:
            continue
        with ScannedDatabase(directory, store.store.values) as database:
            if (status := database.status()) != STATUS_CLOSED:
                raise InputError(_not_closed(directory, status))
            for batch in reading_of(store.store).rows(database, segment):
                yield segment, with_end(batch, kind.logged_values_end_with)


def _not_closed(directory: object, status: int | None) -> str:
    if status is None:
        return (
            f"{directory} does not say whether it was closed in order: Kafka Streams before 4.3 wrote it. Start the "
            "application with 4.3 or later, stop it, and run again"
        )
    return (
        f"{directory} was left open: what it had not written to disk is in its changelog alone. If that is left, have "
        "the application or a restore close the store first; if it is lost, nothing here gives that back"
    )


def survey(store: StorePartitionSpec, partitions: int | None) -> Contents:
    """Read all rows of a closed store once, and say what there is.

    Parameters
    ----------
    partitions
        Of the changelog, to find keys which Kafka's partitioner would put elsewhere; None: do not ask.

    Raises
    ------
    InputError
        If a row cannot be logged as it is.
    """
    segments: dict[int, _Segment] = {}
    misplaced = 0
    first: tuple[bytes, int] | None = None
    for start, batch in stored_rows(store):
        found = segments.setdefault(start, _Segment())
        found.rows += batch.num_rows
        found.bytes += bytes_of(batch)
        found.unknown += form_of(store.store).records(store, batch, 1).unknown_times
        if store.store.store_kind.numbers and batch.num_rows:
            times = numbers_in(batch.column(0), back=store.store.store_kind.suffix_bytes)
            found.latest = max(found.latest, int(times.max()))
        if partitions is not None and batch.num_rows:
            wrong, places = _misplaced(store, batch, partitions)
            misplaced += len(wrong)
            if len(wrong) and first is None:
                first = batch.column(0)[int(wrong[0])].as_py(), int(places[wrong[0]])
    first_live = routing_of(store.store).oldest_live(max((found.latest for found in segments.values()), default=0))
    live = [found for start, found in segments.items() if start >= first_live]
    return Contents(
        rows=sum(found.rows for found in live),
        bytes=sum(found.bytes for found in live),
        expired=sum(found.rows for start, found in segments.items() if start < first_live),
        first_live=first_live,
        unknown_times=sum(found.unknown for found in live),
        misplaced=None if first is None else Misplaced(misplaced, *first),
    )


def _misplaced(store: StorePartitionSpec, batch: pa.RecordBatch, partitions: int) -> tuple[Int64s, Int64s]:
    keys, behind = batch.column(0), store.store.store_kind.suffix_bytes
    if behind:
        keys = pc.binary_slice(keys, 0, -behind)
    places = partitions_of_keys(keys, partitions)
    return np.flatnonzero(places != store.task.partition), places


def bytes_of(batch: pa.RecordBatch) -> int:
    """Bytes of the keys and values of rows."""
    return sum(int(lengths(column).sum()) for column in batch.columns[:2])


def _taken_apart(layout: ValueFormat, stored: pa.Array) -> tuple[pa.Array, Int64s, Sequence[Headers] | None]:
    """Return plain values, timestamps (ms; `UNKNOWN_TIMESTAMP` where there is none) and headers of stored values."""
    if layout.keeps_headers:
        found = [layout.logged(value) for value in stored.to_pylist()]
        times = [UNKNOWN_TIMESTAMP if logged[1] is None else logged[1] for logged in found]
        values = pa.array([logged[0] for logged in found], pa.binary())
        return values, np.array(times, np.int64), [logged[2] if len(logged) == 3 else () for logged in found]
    if not layout.timestamped:
        return stored, np.full(len(stored), UNKNOWN_TIMESTAMP, np.int64), None
    if len(stored):
        shortest = lengths(stored).argmin()
        layout.timestamp_at(stored[int(shortest)].as_py())
    return pc.binary_slice(stored, TIMESTAMP_BYTES, _LONGEST), numbers_in(stored), None


#: Name of the column by which rows expire, latest time and starts of the segments that a store has, start of the oldest
#: segment that has not expired with further rows and without them, and earliest time that the store keeps (ms).
Expiry = tuple[str, int, Sequence[int], int, int, int]


class RecordForm:
    """A row is a record.

    Attributes
    ----------
    may_have_deletes
        An overwrite can have rows without a value.
    """

    may_have_deletes = False

    def ordered(
        self, stage: RowStage, stores: Sequence[StorePartitionSpec], run_bytes: int, *, whole: bool
    ) -> RowStage:
        """Return rows in the order that their records must have; see `version_rows.as_records`."""
        return stage

    def records(self, store: StorePartitionSpec, batch: pa.RecordBatch, unknown_ms: int) -> Records:
        """Return the records that rows are of, given by the keys of the changelog.

        Parameters
        ----------
        unknown_ms
            Timestamp (ms) of records whose rows have neither a timestamp nor a time in their keys.

        Raises
        ------
        InputError
            If a row has a timestamp that no record of ours can have.
        StoreCorruptedError
            If a value is not of the store's format.
        """
        layout, kind, keys = store.store.values, store.store.store_kind, batch.column(0)
        values, told, headers = _taken_apart(layout, batch.column(1))
        unknown = told == UNKNOWN_TIMESTAMP
        wrong = np.flatnonzero((told <= 0) & ~unknown)
        if len(wrong):
            raise InputError(
                f"{store.store_partition}: the row with key {keys[int(wrong[0])].as_py()!r:.120} has the timestamp "
                f"{told[wrong[0]]}, and a record that is written here has one above 0: its changelog would not give "
                "the row again. Nothing was changed"
            )
        if unknown.any():
            # Brokers delete records by their timestamps: those of windows shall go when the windows have expired.
            times = np.array(kind.row_times(keys.to_pylist()), np.int64) if kind.numbers else unknown_ms
            told = np.where(unknown, np.maximum(times, 1), told)
        return Records(keys, values, told, headers, int(unknown.sum()) if layout.timestamped else 0)

    def add_expected(self, digest: Digest, store: StorePartitionSpec, batch: pa.RecordBatch, records: Records) -> None:
        """Add to a digest the rows that a store has which is restored from the records of rows.

        They are the rows themselves, except for timestamps that were not known.
        """
        stored = batch.column(1)
        if records.unknown_times:
            layout, none = store.store.values, [()] * len(records.keys)
            rows = zip(
                stored.to_pylist(),
                records.values.to_pylist(),
                records.timestamps.tolist(),
                records.headers or none,
                strict=True,
            )
            made = [
                value if layout.logged(value)[1] is not None else layout.stored(plain, timestamp, headers)
                for value, plain, timestamp, headers in rows
            ]
            stored = pa.array(made, STORED_SCHEMA.field(1).type)
        digest.add_stored(batch.column(0), stored)

    def digest(self, store: StorePartitionSpec, directory: Path, keys: int, digest: str) -> tuple[int, str]:
        """Return the number of rows of a database and their digest, given those of its row keys."""
        return keys, digest

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return rows that are put, and keys that are deleted after them."""
        is_put = pc.is_valid(batch.column(1))
        return batch.filter(is_put), batch.column(0).filter(pc.invert(is_put))

    def named(self, key: bytes) -> tuple[str, str]:
        """Return what rows are identified by, and a row by its row key."""
        return "keys", f"{key!r:.120}"

    def times(self, store: StorePartitionSpec, batch: pa.RecordBatch) -> Int64s:
        """Return the times (ms) by which rows expire."""
        return numbers_in(batch.column(0), back=store.store.store_kind.suffix_bytes)

    def expiry(self, store: StorePartitionSpec, latest: int) -> Expiry:
        """Return what a store keeps if the latest of further rows has this time (ms)."""
        kind, routing = store.store.store_kind, routing_of(store.store)
        starts = [segment_start(path.name) or 0 for path in kind.databases(store.live)]
        stored = (batch for _, batch in stored_rows(store, max(starts))) if starts else ()
        now = max((int(found.max()) for found in map(partial(self.times, store), stored) if len(found)), default=0)
        oldest = routing.oldest_live(max(now, latest))
        return kind.segment_time, now, starts, oldest, routing.oldest_live(now), oldest


class _VersionForm(RecordForm):
    """A row is a version of a key, or a delete between versions."""

    may_have_deletes = True

    def ordered(
        self, stage: RowStage, stores: Sequence[StorePartitionSpec], run_bytes: int, *, whole: bool
    ) -> RowStage:
        return as_records(stage, stores, run_bytes, whole=whole)

    def records(self, store: StorePartitionSpec, batch: pa.RecordBatch, unknown_ms: int) -> Records:
        return Records(*version_records(batch), headers=None, unknown_times=0)

    def add_expected(self, digest: Digest, store: StorePartitionSpec, batch: pa.RecordBatch, records: Records) -> None:
        add_versions(digest, batch)

    def digest(self, store: StorePartitionSpec, directory: Path, keys: int, digest: str) -> tuple[int, str]:
        versions = versions_digest(store, directory)  # a row of the database has several
        return versions.rows, versions.hexdigest()

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        return batch, batch.column(0).slice(0, 0)  # puts and deletes are written in the order of their times

    def named(self, key: bytes) -> tuple[str, str]:
        start = int.from_bytes(key[-_TIME_BYTES:], "big")
        return "versions", f"of {key[:-_TIME_BYTES]!r:.120} with valid_from {start}"

    def times(self, store: StorePartitionSpec, batch: pa.RecordBatch) -> Int64s:
        return version_times(batch.column(0))

    def expiry(self, store: StorePartitionSpec, latest: int) -> Expiry:
        now, starts = history_of(store)
        after = max(now, latest)
        oldest, before = first_segment(store.store, after), first_segment(store.store, now)
        return "valid_from", now, starts, oldest, before, after - (store.store.retention_ms or 0)


_FORMS = by_form(RecordForm(), versions=_VersionForm())


def form_of(store: StoreDefinition) -> RecordForm:
    """Return the strategy for the rows of a store."""
    return _FORMS[store.store_kind.row_form]


def require_single_keys(stage: RowStage, store: StorePartitionSpec) -> None:
    """Refuse rows of a store partition that have the same key.

    Raises
    ------
    InputError
        Naming one of them.
    """
    if (twice := stage.duplicate(store.task.partition)) is not None:
        keys, key = twice
        what, such = form_of(store.store).named(key)
        raise InputError(
            f"{store.store_partition}: the DataFrame has {keys} {what} more than once, such as {such}. Expected "
            "each once: keep one row of each. Nothing was changed"
        )
