"""Proves which offsets of its log a closed versioned store equals.

A version is one row here: its key with its timestamp. A record changes this row alone, so the rules are those of other
stores (prefix.py). Three things differ:

- Versions that are valid until before the oldest time whose history is kept are not compared. The value at that time is
  one row, whatever its timestamp is: the newest of these records counts.
- A delete without an earlier value leaves no row. It is explained if the store has no value at that time.
- A record that was late when it was logged need not be in the store.

Kafka Streams writes a segment before the latest value. If it is killed between the two, the version that is in both
counts once, so the store is as before that record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bulk.routing import routing_of
from statestore.bulk.runs import Runs, RunWriter, merged
from statestore.bulk.versions import OffsetRecord, VersionFold, offset_records
from statestore.durable import remove_tree
from statestore.errors import StoreCorruptedError, TopicMismatchError, unreadable_is_damaged
from statestore.formats.versioned_row import Version
from statestore.kafka.topics import LogRange
from statestore.partition.spec import StorePartitionSpec
from statestore.stores.abilities import NO_STREAM_TIME
from statestore.stores.scan import ScannedDatabase
from statestore.stores.versioned import RawVersion
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.kernels import (
    BY_OPTIONAL,
    COLUMNS,
    FIRST,
    FOLLOWING,
    LAST,
    NO_RECORD,
    OPEN,
    PRINT,
    SEGMENT,
    STORED,
    UNEXPLAINED,
    Intervals,
)
from statestore.verification.proof.prefix import KeyFacts, Prefix, Range, find_prefix
from statestore.verification.proof.prefix import merged as merged_prefixes
from statestore.verification.proof.records import LogRecords
from statestore.verification.proof.unproven import NEVER, Doubts
from statestore.verification.versions import VersionDigest, side_by_side, stored_keys, timeline

#: Rows whose facts are held at once.
_HELD = 100_000
_TIME, _OFFSET = 2, 3


class ProvenVersions(NamedTuple):
    """The position of a versioned store in its log, as its versions show it.

    Attributes
    ----------
    not_judged
        Keys whose value at the oldest time is not compared, because some of their records came late or out of order.
    """

    prefix: Prefix
    digest: VersionDigest
    not_judged: int


def prove_versions(
    spec: StorePartitionSpec, database: ScannedDatabase, log: LogRange, options: VerifyOptions, claim: int | None
) -> ProvenVersions:
    """Find the offsets of its log that a versioned store equals.

    Parameters
    ----------
    claim
        The history that is kept at this offset is compared; None: at the end of the log.

    Raises
    ------
    StoreCorruptedError, TopicMismatchError, StoreBehindLogStartError
        As `closed.prove`.
    """
    scratch = options.scratch or spec.paths.own_dir / "verify" / spec.store.name
    remove_tree(scratch)
    try:
        runs, stream_time, missing = _sorted_log(spec, log, options, claim, scratch)
        rows = VersionRows(log, stream_time - (spec.store.retention_ms or 0), missing)
        with unreadable_is_damaged():
            logged = offset_records(merged([runs], routing_of(spec.store)))
            for key, versions, records in side_by_side(stored_keys(database, None), logged, options.give_way):
                rows.add(key, versions or (), records or ())
        return rows.finish()
    finally:
        remove_tree(scratch)


def _sorted_log(
    spec: StorePartitionSpec, log: LogRange, options: VerifyOptions, claim: int | None, scratch: Path
) -> tuple[Runs, int, int]:
    """Sort all records of a log by key, also those of aborted and open transactions.

    Returns
    -------
    tuple of Runs, int, and int
        The records, the log's stream time, and its first missing offset.
    """
    made, stream_time = VersionFold(spec.store), NO_STREAM_TIME
    writer = RunWriter(scratch, routing_of(spec.store), options.run_bytes, start=log.start)
    try:
        log_records = LogRecords(spec, log, options)
        for records in log_records:
            if records.required:
                stream_time = max(stream_time, _stream_time(records.columns, claim))
            writer.add(made.of(records.columns, optional=not records.required))
    except StoreCorruptedError as error:
        raise TopicMismatchError(f"{spec.partition}: {error}") from error
    first_missing = min(log_records.missing[:1].tolist(), default=NEVER)
    return writer.finish(max(log.last_stable, log.high_watermark)), stream_time, first_missing


def _stream_time(batch: pa.RecordBatch, claim: int | None) -> int:
    """Return the largest timestamp (ms) of the records up to an offset; -1 without any."""
    counted = pc.is_valid(batch.column(0))
    if claim is not None:
        counted = pc.and_(counted, pc.less_equal(batch.column(_OFFSET), claim))
    found = pc.max(batch.column(_TIME).filter(counted)).as_py()
    return NO_STREAM_TIME if found is None else found


class _Row:
    """Facts about one row; see `kernels.py`."""

    __slots__ = ("by_optional", "earlier", "first", "following", "last", "stored")

    def __init__(self, first: int, *, stored: bool) -> None:
        self.first, self.following, self.last = first, OPEN, NO_RECORD
        self.stored, self.by_optional = stored, False
        self.earlier: list[tuple[int, int]] = []

    def take(self, record: OffsetRecord, *, same: bool) -> None:
        """Take the row's next record; `same` is true if the store is as after it."""
        if same:
            explained = self.first != UNEXPLAINED
            if not explained or self.following != OPEN:
                if explained:
                    self.earlier.append((self.first, self.following))
                self.first, self.following = record.offset, OPEN
                self.by_optional = record.optional
            elif record.required:
                self.by_optional = False
        elif record.required and self.following == OPEN:
            self.following = record.offset
        if record.required:
            self.last = record.offset


class VersionRows:
    """All rows of a store and of its log; few are in memory at a time.

    Parameters
    ----------
    oldest_ms
        Oldest time whose history is kept, ms since the epoch.
    first_missing
        First missing offset of the log (`unproven.py`).
    """

    def __init__(self, log: LogRange, oldest_ms: int, first_missing: int = NEVER) -> None:
        self._end = max(log.last_stable, log.high_watermark)
        self._before = log.start - 1
        self._oldest_ms = oldest_ms
        self._held: list[_Row] = []
        self._not_judged = 0
        self._first_missing, self._unproven = first_missing, 0
        self._digest = VersionDigest()
        self._prefix = Prefix((Range(-1, self._end - 1),), self._end, 0, 0, 0)

    def add(self, key: bytes, versions: Sequence[RawVersion], records: Sequence[OffsetRecord]) -> None:
        """Add a key."""
        points = timeline(versions, self._oldest_ms)
        oldest, rows = self._rows_of(points, records)
        if oldest.first == UNEXPLAINED and _is_disordered(records, self._oldest_ms):
            self._not_judged += 1
            points = [point for point in points if point.timestamp > self._oldest_ms]
        else:
            self._held.append(oldest)
        self._held += rows
        # Compaction can have removed any version that has a later record, whatever its timestamp is.
        if any(record.offset > self._first_missing for record in records if not record.optional):
            self._unproven += 1
        self._digest.add(key, points)
        if len(self._held) >= _HELD:
            self._reduce()

    def finish(self) -> ProvenVersions:
        """Return what all of them show."""
        self._reduce()
        doubts = Doubts(*(np.full(self._unproven, at) for at in (self._first_missing, NEVER)))
        return ProvenVersions(self._prefix._replace(doubts=doubts), self._digest, self._not_judged)

    def _rows_of(self, points: Sequence[Version], records: Iterable[OffsetRecord]) -> tuple[_Row, list[_Row]]:
        """Return the facts about a key's value at the oldest time, and about its later versions."""
        oldest_ms, before = self._oldest_ms, self._before
        at_oldest = points[0] if points and points[0].timestamp <= oldest_ms else None
        oldest = _Row(before if at_oldest is None else UNEXPLAINED, stored=at_oldest is not None)
        later = {point.timestamp: point.value for point in points if point is not at_oldest}
        rows = {timestamp: _Row(UNEXPLAINED, stored=True) for timestamp in later}
        times = [point.timestamp for point in points]
        newest = NO_STREAM_TIME
        for record in records:
            timestamp, value = record.timestamp, record.value
            if timestamp <= oldest_ms:
                if timestamp < newest:  # the value at the oldest time stays
                    if record.required:
                        oldest.last = record.offset
                    continue
                newest = max(newest, timestamp) if record.required else newest
                same = value is None if at_oldest is None else at_oldest == (timestamp, value)
                oldest.take(record, same=same)
                continue
            if (row := rows.get(timestamp)) is None:
                row = rows[timestamp] = _Row(before, stored=False)
            if timestamp in later:
                same = later[timestamp] == value
            else:
                same = value is None and _value_before(points, times, timestamp) is None
            row.take(record, same=same)
        return oldest, list(rows.values())

    def _reduce(self) -> None:
        facts = np.zeros((len(self._held), COLUMNS), np.int64)
        earlier: list[tuple[int, int, int]] = []
        for number, row in enumerate(self._held):
            facts[number, FIRST], facts[number, FOLLOWING], facts[number, LAST] = row.first, row.following, row.last
            facts[number, PRINT] = (STORED if row.stored else 0) | (BY_OPTIONAL if row.by_optional else 0)
            earlier += [(number, first, following) for first, following in row.earlier]
        facts[:, SEGMENT] = 0
        columns = np.array(earlier, np.int64).reshape(-1, 3).T
        table = KeyFacts(facts, Intervals(*columns))
        self._prefix = merged_prefixes(self._prefix, find_prefix(table, self._end))
        self._held = []


def _value_before(points: Sequence[Version], times: Sequence[int], timestamp: int) -> bytes | None:
    """Return the value that is valid just before a time (ms)."""
    at = bisect_left(times, timestamp)
    return points[at - 1].value if at else None


def _is_disordered(records: Sequence[OffsetRecord], oldest_ms: int) -> bool:
    """Return whether some of a key's records up to the oldest time came late, or after a later one."""
    newest = NO_STREAM_TIME
    for record in records:
        if record.timestamp <= oldest_ms and (record.late or record.timestamp < newest):
            return True
        newest = max(newest, record.timestamp)
    return False
