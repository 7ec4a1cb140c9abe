"""Proves which offsets of its log a closed store equals: one pass over its rows, then one over its log.

Nothing is sorted, and no offset of the store itself is asked for: its rows tell it (prefix.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore.bulk.routing import routing_of
from statestore.changelog.reader import LogReader
from statestore.changelog.topics import LogRange
from statestore.errors import unreadable_is_damaged
from statestore.partition.spec import StorePartitionSpec
from statestore.sst.layout import OtherLayoutError
from statestore.stores.scan import ScannedDatabase
from statestore.verification.exclusions import live_segments
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.key_table import KeyTable
from statestore.verification.proof.prefix import Prefix, find_prefix
from statestore.verification.row_files import rows_from_files
from statestore.verification.time_ordered import time_ordered_rows


class Proof(NamedTuple):
    """What the rows of a store show about its position in its log.

    Attributes
    ----------
    prefixes
        Of each database that counts, by the start (ms) of its segment; a key-value store has one at 0. Segments that
        have expired do not count.
    end
        Offset after the last record that was read.
    misplaced
        Rows that come twice, or lie in the segment of another time.
    """

    prefixes: Mapping[int, Prefix]
    end: int
    misplaced: int

    @property
    def replay_from(self) -> int:
        """First offset of the shortest tail whose replay makes the rows those of the log's end, but for orphans."""
        return min((found.replay_from for found in self.prefixes.values()), default=self.end)

    @property
    def orphans(self) -> int:
        """Rows whose keys have no committed record at all."""
        return sum(found.orphans for found in self.prefixes.values())

    @property
    def unexplained(self) -> int:
        """Rows that no record of the log explains."""
        return sum(found.unexplained for found in self.prefixes.values()) + self.misplaced

    def equals_at(self, offset: int) -> bool:
        """True if the log gives exactly these rows at an offset."""
        return not self.misplaced and all(found.equals_at(offset) for found in self.prefixes.values())


def is_provable(spec: StorePartitionSpec) -> bool:
    """True if rows of a store and records of its log correspond one to one.

    A row of a versioned store has several records, duplicates are numbered by store and log independently, and the
    files of a supplier's store are unknown.
    """
    store = spec.store
    return store.rows_are_records and not store.retain_duplicates and not store.supplied and not spec.is_global


def prove(
    spec: StorePartitionSpec, databases: Mapping[int, Path], log: LogRange, options: VerifyOptions
) -> Proof | None:
    """Find the offsets of its log that a store equals.

    Parameters
    ----------
    databases
        Its closed databases, or links to them, by the start (ms) of the segment.
    log
        Offsets of its log, asked for after the databases were closed or linked.

    Returns
    -------
    Proof or None
        None if the log has positions among the headers that the store keeps: rows have them only after a restore.

    Raises
    ------
    StoreCorruptedError
        If a row cannot be read.
    TopicMismatchError
        If the log is that of another kind of store.
    StoreBehindLogStartError
        If the log's start has moved since it was asked for.
    """
    try:
        found = _prove(spec, databases, log, options, from_files=True)
    except OtherLayoutError:
        found = None
    else:
        if found is None or not found.unexplained:
            return found
    return _prove(spec, databases, log, options, from_files=False)  # RocksDB decides what is damaged, and how


def _prove(
    spec: StorePartitionSpec,
    databases: Mapping[int, Path],
    log: LogRange,
    options: VerifyOptions,
    *,
    from_files: bool,
) -> Proof | None:
    table = KeyTable(routing_of(spec.store), spec.store.values, log.start)
    with unreadable_is_damaged():
        for segment, directory in databases.items():
            for batch in _rows(spec, segment, directory, options, from_files=from_files):
                table.add_rows(segment, batch)
    if not _read_log(spec, table, log, options):
        return None
    end = max(log.last_stable, log.high_watermark)
    prefixes = {found: find_prefix(table, end, at) for found, at in _judged(spec, table, databases)}
    return Proof(prefixes, end, table.misplaced)


def _rows(
    spec: StorePartitionSpec, segment: int, directory: Path, options: VerifyOptions, *, from_files: bool
) -> Iterator[pa.RecordBatch]:
    database = ScannedDatabase(directory, spec.store.values)
    try:
        if (layout := spec.store.store_kind.layout) is not None:
            yield from time_ordered_rows(database, layout, segment, routing_of(spec.store), options.give_way)
            return
        for batch in (rows_from_files(database) if from_files else None) or database.rows():
            options.give_way()
            yield batch
    finally:
        database.close()


def _read_log(spec: StorePartitionSpec, table: KeyTable, log: LogRange, options: VerifyOptions) -> bool:
    """Take the records of a log, also those of aborted and open transactions; False if they have positions that count."""
    values = spec.store.values
    ranges = ((log.start, log.last_stable, True), (max(log.start, log.last_stable), log.high_watermark, False))
    for start, end, committed in ranges:
        with LogReader(
            spec.bootstrap_servers,
            spec.partition,
            read_committed=committed,
            stall_timeout_s=spec.kafka_timeout_s,
        ) as reader:
            for batch, decided in reader.read_with_aborted(start, end, values):
                options.give_way()
                table.take(batch, required=decided and committed, times_count=not reader.append_times)
            if values.keeps_headers and reader.position:
                return False
    return True


def _judged(
    spec: StorePartitionSpec, table: KeyTable, databases: Mapping[int, Path]
) -> Iterator[tuple[int, int | None]]:
    """Yield the start (ms) of each segment that counts, as a name and as `find_prefix` selects it."""
    if not spec.store.segmented:
        yield 0, None
        return
    live = live_segments(databases, table.stream_time, routing_of(spec.store))
    for segment in sorted({*databases, *np.unique(table.keys.segments[: table.key_count]).tolist()}):
        if not live.excludes_logged(segment, stored=segment in databases):
            yield segment, segment
