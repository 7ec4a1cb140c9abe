"""Records of a versioned store's changelog, sorted by key and offset, and the rows that they make of each key.

Other stores need the last record of a key alone. Of a versioned one all count, in the order in which they were logged.
So each record becomes a row of its own for the sorted runs (`runs.py`), and those of a key come together in a merge:

row key    the key with each 00 made 00 ff, 00 00, offset (8)      no key's rows lie between those of another
value      timestamp (8), flags (1), value
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, RunWriter, SegmentRows, merged, stream_time
from statestore.definitions.store import StoreDefinition
from statestore.durable import remove_tree
from statestore.formats.versioned_put import PUT_RETURN_CODE_NOT_PUT, appended, put
from statestore.formats.versioned_row import (
    LATEST,
    SegmentRow,
    Version,
    encode_latest,
    encode_segment_row,
    row_key,
    segment_of,
)
from statestore.kafka.record_columns import SCHEMA
from statestore.kinds.kind import by_form
from statestore.kinds.versioned import VERSIONED
from statestore.stores.abilities import NO_STREAM_TIME

_HEAD = Struct(">qB")
_OFFSET = Struct(">q")
_TOMBSTONE, _LATE, _OPTIONAL = 1, 2, 4
_END = b"\0\0"
_BATCH_ROWS = 10_000
_NEVER = -(1 << 62)


class LoggedVersion(NamedTuple):
    """A record of a key: timestamp (ms), value (None deletes), and whether it came too late to be put."""

    timestamp: int
    value: bytes | None
    late: bool


class OffsetRecord(NamedTuple):
    """A record of a key with its offset.

    Attributes
    ----------
    timestamp
        In ms.
    value
        None deletes.
    late
        It came too late to be put, if the store has seen all earlier records.
    optional
        Its transaction is aborted or open.
    """

    offset: int
    timestamp: int
    value: bytes | None
    late: bool
    optional: bool

    @property
    def required(self) -> bool:
        """True if a store that has its offset must have it."""
        return not self.late and not self.optional


class RecordFold:
    """Folds a log that is read in its order into rows: the last record of each key."""

    def __init__(self, store: StoreDefinition) -> None:
        self.store = store

    def of(self, batch: pa.RecordBatch, chosen: pa.RecordBatch | None = None) -> pa.RecordBatch:
        """Return what the sorted runs get of a batch of `changelog.reader.SCHEMA`, in the same schema.

        Parameters
        ----------
        chosen
            Those records of it that become rows; None: all.
        """
        return batch if chosen is None else chosen

    def rows(self, runs: Sequence[Runs], directory: Path, run_bytes: int) -> Sequence[Runs]:
        """Return the rows of the store, of the sorted runs of its log.

        Parameters
        ----------
        directory
            For further runs; the caller removes it.
        run_bytes
            Bound of a run in memory.
        """
        return runs

    def reached(self, runs: Sequence[Runs]) -> int | None:
        """Return the stream time (ms) at the end of the sorted runs; None if rows do not expire."""
        latest = stream_time(runs)
        return latest if self.store.retention_ms is not None and latest >= 0 else None


class VersionFold(RecordFold):
    """Makes a row for the sorted runs of each record, and the rows of a key of all of its records.

    Attributes
    ----------
    stream_time
        Largest timestamp (ms) so far; -1 before the first.
    """

    stream_time = NO_STREAM_TIME

    def of(
        self, batch: pa.RecordBatch, chosen: pa.RecordBatch | None = None, *, optional: bool = False
    ) -> pa.RecordBatch:
        """Return a row for each record; records without a key stay. Stream time follows all, also those not chosen.

        Parameters
        ----------
        optional
            Their transactions are aborted or open, so stream time does not follow them.
        """
        if chosen is not None and chosen.num_rows < batch.num_rows:
            wanted = set(chosen.column(3).to_pylist())
            made = self.of(batch, optional=optional)
            return made.filter(pa.array([offset in wanted for offset in made.column(3).to_pylist()]))
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        stream_time, retention_ms = self.stream_time, self.store.retention_ms or 0
        columns = [column.to_pylist() for column in batch.columns]
        for key, value, timestamp, offset in zip(*columns, strict=True):
            if key is None:
                keys.append(None)
                values.append(value)
                continue
            flags = (0 if value is not None else _TOMBSTONE) | (_OPTIONAL if optional else 0)
            if timestamp < stream_time - retention_ms:
                flags |= _LATE
            elif timestamp > stream_time and not optional:
                stream_time = timestamp
            keys.append(key.replace(b"\0", b"\0\xff") + _END + _OFFSET.pack(offset))
            values.append(_HEAD.pack(timestamp, flags) + (value or b""))
        self.stream_time = stream_time
        arrays = [pa.array(keys, SCHEMA[0].type), pa.array(values, SCHEMA[1].type), batch.column(2), batch.column(3)]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def rows(self, runs: Sequence[Runs], directory: Path, run_bytes: int) -> Sequence[Runs]:
        """Return the rows of the store, sorted as the store has them."""
        remove_tree(directory)
        interval_ms, routing = VERSIONED.segment_interval_ms(self.store), routing_of(self.store)
        live_from = segment_of(self.stream_time - (self.store.retention_ms or 0), interval_ms)
        writer, count = RunWriter(directory, routing, run_bytes, start=0), 0
        for batch in stored_rows(merged(runs, routing), interval_ms, live_from):
            writer.add(batch)
            count += batch.num_rows
        return [writer.finish(count)]

    def reached(self, runs: Sequence[Runs]) -> int:
        """Return the largest timestamp (ms) of the records, at least 0."""
        return max(self.stream_time, 0)


_FOLDS = by_form(RecordFold, versions=VersionFold)


def fold_of(store: StoreDefinition) -> RecordFold:
    """Return how the log of a store is folded, to be used for one pass over it."""
    return _FOLDS[store.store_kind.row_form](store)


def records_by_key(rows: Iterable[SegmentRows]) -> Iterator[tuple[bytes, Iterator[LoggedVersion]]]:
    """Yield keys in their order, and the records of each in the order of the log; read each before the next."""
    for escaped, group in groupby(_cells(rows), key=lambda cell: cell[0]):
        yield escaped.replace(b"\0\xff", b"\0"), (record for _, record in group)


def _cells(rows: Iterable[SegmentRows]) -> Iterator[tuple[bytes, LoggedVersion]]:
    behind = len(_END) + _OFFSET.size
    for found in rows:
        for raw_key, raw in zip(*(column.to_pylist() for column in found.batch.columns[:2]), strict=True):
            timestamp, flags = _HEAD.unpack_from(raw)
            value = None if flags & _TOMBSTONE else raw[_HEAD.size :]
            yield raw_key[:-behind], LoggedVersion(timestamp, value, bool(flags & _LATE))


def offset_records(rows: Iterable[SegmentRows]) -> Iterator[tuple[bytes, list[OffsetRecord]]]:
    """Yield keys in their order, each with its records in the order of the log."""
    behind, current = len(_END) + _OFFSET.size, b""
    records: list[OffsetRecord] = []
    for found in rows:
        for raw_key, raw in zip(*(column.to_pylist() for column in found.batch.columns[:2]), strict=True):
            if (escaped := raw_key[:-behind]) != current or not records:
                if records:
                    yield current.replace(b"\0\xff", b"\0"), records
                current, records = escaped, []
            timestamp, flags = _HEAD.unpack_from(raw)
            value = None if flags & _TOMBSTONE else raw[_HEAD.size :]
            offset = _OFFSET.unpack_from(raw_key, len(raw_key) - _OFFSET.size)[0]
            records.append(OffsetRecord(offset, timestamp, value, bool(flags & _LATE), bool(flags & _OPTIONAL)))
    if records:
        yield current.replace(b"\0\xff", b"\0"), records


class FoldedKey:
    """All rows of a key, of no segment that has expired yet: what `versioned_put` changes.

    Attributes
    ----------
    disordered
        Timestamps (ms) of records that were logged behind a later one of the key, or came too late.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._rows: dict[int, SegmentRow] = {}
        self._latest: Version | None = None
        self._newest = NO_STREAM_TIME
        # Of the segment that in-order records go to: oldest first, and when the newest ended.
        self._open: tuple[int, list[Version], int] | None = None
        self.disordered: list[int] = []

    def add(self, record: LoggedVersion) -> None:
        """Put the next record of the log; one that came too late is not put."""
        timestamp, value, late = record
        if late:
            self.disordered.append(timestamp)
        elif timestamp > self._newest:
            self._newest = timestamp
            self._add_in_order(Version(timestamp, value))
        else:
            self._close()
            if timestamp < self._newest:
                self.disordered.append(timestamp)
            code = put(self, Version(timestamp, value), self._interval_ms, _NEVER, _NEVER)
            assert code != PUT_RETURN_CODE_NOT_PUT, "nothing has expired"

    def _add_in_order(self, new: Version) -> None:
        """As `put` with a version behind all others; a key with many of them is not copied for each."""
        ended, valid_to = self._latest, new.timestamp
        self._latest = None if new.value is None else new
        if ended is None and new.value is not None:
            return
        segment = segment_of(valid_to, self._interval_ms)
        if self._open is not None and self._open[0] == segment and ended is not None:
            _, versions, until = self._open
            if until < ended.timestamp:
                versions.append(Version(until, None))
            versions.append(ended)
            self._open = segment, versions, valid_to
            return
        self._close()
        row = appended(self._rows.get(segment), ended, valid_to)
        if row.degenerate:
            self._rows[segment] = row
        else:
            self._open = segment, list(reversed(row.versions)), row.next_timestamp

    def _close(self) -> None:
        if self._open is not None:
            segment, versions, until = self._open
            self._rows[segment] = SegmentRow(until, tuple(reversed(versions)))
            self._open = None

    def rows(self) -> dict[int, SegmentRow]:
        """Rows by segment."""
        self._close()
        return self._rows

    # -- what a put uses ----------------------------------------------------------------------------------------------

    def latest(self) -> Version | None:
        """The latest value."""
        return self._latest

    def set_latest(self, version: Version) -> None:
        """Replace the latest value."""
        self._latest = None if version.value is None else version

    def segments_from(self, segment: int) -> Iterable[int]:
        """Segments with a row, the newest first."""
        return sorted((known for known in self._rows if known >= segment), reverse=True)

    def bounds(self, segment: int) -> tuple[int, int] | None:
        """Bounds of a row."""
        row = self._rows.get(segment)
        return None if row is None else (row.next_timestamp, row.min_timestamp)

    def row(self, segment: int) -> SegmentRow | None:
        """A row."""
        return self._rows.get(segment)

    def set_row(self, segment: int, row: SegmentRow) -> None:
        """Replace a row."""
        self._rows[segment] = row


def folded(records: Iterable[LoggedVersion], interval_ms: int) -> FoldedKey:
    """Put all records of a key."""
    key = FoldedKey(interval_ms)
    for record in records:
        key.add(record)
    return key


def stored_rows(rows: Iterable[SegmentRows], interval_ms: int, live_from: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a store that has all of these records, as batches of `changelog.reader.SCHEMA`.

    They come key by key, which is not the order in which the store has them.

    Parameters
    ----------
    live_from
        The first segment that has not expired.
    """
    made: list[tuple[bytes, bytes]] = []
    at = 0
    for key, records in records_by_key(rows):
        found = folded(records, interval_ms)
        for segment, row in found.rows().items():
            if segment >= live_from:
                made.append((row_key(segment, key), encode_segment_row(row)))
        if (latest := found.latest()) is not None and latest.value is not None:
            made.append((row_key(LATEST, key), encode_latest(latest.value, latest.timestamp)))
        if len(made) >= _BATCH_ROWS:
            yield _batch(made, at)
            at += len(made)
            made = []
    if made:
        yield _batch(made, at)


def _batch(rows: list[tuple[bytes, bytes]], at: int) -> pa.RecordBatch:
    keys, values = zip(*rows, strict=True)
    columns = keys, values, [0] * len(rows), range(at, at + len(rows))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
