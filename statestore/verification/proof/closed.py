"""Proves which offsets of its log a store equals: one pass over its rows, then one over its log.

Nothing is sorted, and the store's committed offset is not used: the offsets follow from the rows (prefix.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from statestore.bulk.digest import Digest
from statestore.bulk.routing import routing_of
from statestore.discovery.options_file import row_changes_in_options_files
from statestore.errors import unreadable_is_damaged
from statestore.kafka.topics import LogRange
from statestore.kinds.kind import by_form
from statestore.model import StoreFormat
from statestore.partition.spec import StorePartitionSpec
from statestore.sst.layout import OtherLayoutError
from statestore.stores.scan import ScannedDatabase
from statestore.verification.exclusions import live_segments
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.kernels import KEY_BYTES, RUNS_OF_MEMORY, SEGMENT
from statestore.verification.proof.key_table import KeyTable, TooManyKeysError
from statestore.verification.proof.prefix import Prefix, Range, common_ranges, find_prefix, merged
from statestore.verification.proof.records import NOTHING_LOGGED, Logged, LogRecords
from statestore.verification.proof.suspects import NO_SUSPECTS, Suspects, find_suspects
from statestore.verification.proof.versioned import prove_versions
from statestore.verification.row_files import rows_from_files
from statestore.verification.row_reading import reading_of

#: The directory of a closed database, or an open view of a live one.
Database = Path | ScannedDatabase


class Proof(NamedTuple):
    """The position of a store in its log, as its rows show it.

    Attributes
    ----------
    prefixes
        By start (ms) of a segment: the offsets that its database equals. A key-value store has one database, at 0.
        Expired segments are left out.
    end
        Offset after the last record that was read.
    misplaced
        Number of rows that occur twice, or are in the segment of another time.
    digests
        One digest for the rows of each database.
    append_times
        Some records have the broker's timestamp, so it was not compared.
    orphan_keys
        Keys of the orphans by segment, if requested.
    not_judged
        Keys of a versioned store whose oldest value is not compared.
    suspects
        By start (ms) of a segment: rows that are not those of the database's position, if requested.
    logged
        Sizes of the committed records, if suspects were requested.
    """

    prefixes: Mapping[int, Prefix]
    end: int
    misplaced: int
    digests: Mapping[int, Digest]
    append_times: bool
    orphan_keys: Mapping[int, tuple[bytes, ...]] = MappingProxyType({})
    not_judged: int = 0
    suspects: Mapping[int, Suspects] = MappingProxyType({})
    logged: Logged = NOTHING_LOGGED

    @property
    def ranges(self) -> dict[int, tuple[Range, ...]]:
        """By start (ms) of a segment: the offsets that its database equals, as far as its rows can be judged."""
        return {at: self.suspects.get(at, NO_SUSPECTS).limited(prefix.offsets) for at, prefix in self.prefixes.items()}

    def bytes_after(self, offset: int) -> int:
        """Return at most how many bytes of keys and values were logged after an offset, in committed records."""
        return self.logged.bytes_after(offset)

    @property
    def replay_from(self) -> int:
        """First offset of the shortest tail whose replay corrects all rows except orphans."""
        return min((found.replay_from for found in self.prefixes.values()), default=self.end)

    @property
    def orphans(self) -> int:
        """Rows whose keys have no committed record at all."""
        return sum(found.orphans for found in self.prefixes.values())

    @property
    def is_optional(self) -> bool:
        """True if only records of aborted or open transactions explain some rows."""
        return self.orphans > 0 or any(found.by_optional for found in self.prefixes.values())

    @property
    def unexplained(self) -> int:
        """Rows that no record of the log explains."""
        return sum(found.unexplained for found in self.prefixes.values()) + self.misplaced

    @property
    def digest(self) -> Digest:
        """Digest of the rows of all databases that count."""
        found = Digest(StoreFormat.PLAIN)
        for segment in self.prefixes.keys() & self.digests.keys():
            found.add_digest(self.digests[segment].rows, self.digests[segment].hexdigest())
        return found

    def merged(self, other: Proof) -> Proof:
        """Return the proof for the keys of this part and of another one."""
        ours, theirs = dict(self.prefixes), dict(other.prefixes)
        both = {at: merged(ours[at], theirs[at]) for at in ours.keys() & theirs.keys()}
        return self._replace(
            prefixes={**ours, **theirs, **both},
            misplaced=self.misplaced + other.misplaced,
            append_times=self.append_times or other.append_times,
            orphan_keys={
                at: (*self.orphan_keys.get(at, ()), *other.orphan_keys.get(at, ()))
                for at in self.orphan_keys.keys() | other.orphan_keys.keys()
            },
            suspects={
                at: self.suspects.get(at, NO_SUSPECTS).merged(other.suspects.get(at, NO_SUSPECTS))
                for at in self.suspects.keys() | other.suspects.keys()
            },
        )

    @property
    def offsets(self) -> tuple[Range, ...]:
        """Ranges of offsets at which the log gives exactly these rows, in order; empty if it never does."""
        if self.unexplained:
            return ()
        return common_ranges(found.offsets for found in self.prefixes.values())

    def equals_at(self, offset: int) -> bool:
        """True if the log gives exactly these rows at an offset."""
        return any(offset in found for found in self.offsets)

    def unproven_at(self, offset: int) -> int:
        """Return how many keys compaction leaves unproven if the store is at an offset."""
        return sum(found.doubts.count_at(offset) for found in self.prefixes.values())


def is_provable(spec: StorePartitionSpec) -> bool:
    """True if each row of a store, or each version, corresponds to records of its log.

    Global stores: see `global_tables.py`.
    """
    return spec.store.rows_prove_offsets and spec.origin.proves_offsets


def why_not_comparable(spec: StorePartitionSpec) -> str:
    """Return why the rows of a store can differ from its log without damage; empty if they cannot."""
    for directory in spec.store.store_kind.segments(spec.live).values():
        if setting := row_changes_in_options_files(directory):
            return f"the store has {setting}, with which RocksDB changes or deletes rows by itself"
    return ""


def prove(
    spec: StorePartitionSpec,
    databases: Mapping[int, Database],
    log: LogRange,
    options: VerifyOptions,
    *,
    name_orphans: bool = False,
    most_passes: int | None = None,
    claim: int | None = None,
    name_suspects: bool = False,
) -> Proof | None:
    """Find the offsets of its log that a store equals.

    Parameters
    ----------
    databases
        Its databases by the start (ms) of the segment: closed ones, or open views of live ones.
    log
        Offsets of its log, asked for after the databases were closed or linked.
    name_orphans
        Read the store again for the keys of orphans.
    most_passes
        Do not read store and log more often than this; None: as often as the memory requires.
    claim
        Committed offset of a versioned store, whose history at this offset is compared; None: at the log's end.
    name_suspects
        Find the rows that are not those of their database's position; not for versioned stores.

    Returns
    -------
    Proof or None
        None if more passes are needed, or if the log has positions among the headers that the store keeps: rows have
        them only after a restore.

    Raises
    ------
    StoreCorruptedError
        If a row cannot be read.
    TopicMismatchError
        If the log is that of another kind of store.
    StoreBehindLogStartError
        If the log's start has moved since it was asked for.
    """
    prove_form = _PROOFS[spec.store.row_form]
    return prove_form(spec, databases, log, options, _Asked(name_orphans, most_passes, claim, name_suspects))


class _Asked(NamedTuple):
    """Arguments of `prove`."""

    name_orphans: bool
    most_passes: int | None
    claim: int | None
    name_suspects: bool


def _prove_versions(
    spec: StorePartitionSpec,
    databases: Mapping[int, Database],
    log: LogRange,
    options: VerifyOptions,
    asked: _Asked,
) -> Proof | None:
    (database,) = databases.values()
    with scanned(spec, database) as found:
        versions = prove_versions(spec, found, log, options, asked.claim)
    end, digest = max(log.last_stable, log.high_watermark), versions.digest.finished()
    return Proof({0: versions.prefix}, end, 0, {0: digest}, append_times=False, not_judged=versions.not_judged)


def _prove_rows(
    spec: StorePartitionSpec,
    databases: Mapping[int, Database],
    log: LogRange,
    options: VerifyOptions,
    asked: _Asked,
) -> Proof | None:
    rows, most_keys = _row_count(spec, databases), RUNS_OF_MEMORY * options.run_bytes // KEY_BYTES
    # Each pass takes a part of the keys, so that their memory is bounded. The log can have more keys than the store.
    passes = 1 + rows // most_keys
    while asked.most_passes is None or passes <= asked.most_passes:
        try:
            return _prove_in_passes(spec, databases, log, options, _Passes(passes, rows, most_keys), asked)
        except TooManyKeysError:
            passes *= 2
    return None


class _Passes(NamedTuple):
    """How a proof is divided: number of passes, rows of the store, and keys that a pass may have."""

    number: int
    rows: int
    most_keys: int


def _prove_in_passes(
    spec: StorePartitionSpec,
    databases: Mapping[int, Database],
    log: LogRange,
    options: VerifyOptions,
    passes: _Passes,
    asked: _Asked,
) -> Proof | None:
    if all(isinstance(database, Path) for database in databases.values()):
        try:
            found = _prove(spec, databases, log, options, passes, asked, from_files=True)
        except OtherLayoutError:
            pass
        else:
            if found is None or not found.unexplained:
                return found
    # RocksDB decides what is damaged, and how.
    return _prove(spec, databases, log, options, passes, asked, from_files=False)


@contextmanager
def scanned(spec: StorePartitionSpec, database: Database) -> Iterator[ScannedDatabase]:
    """Open a closed database for the block; a database that is open stays open."""
    if isinstance(database, ScannedDatabase):
        yield database
        return
    opened = ScannedDatabase(database, spec.store.values)
    try:
        yield opened
    finally:
        opened.close()


def _row_count(spec: StorePartitionSpec, databases: Mapping[int, Database]) -> int:
    """Return about how many rows a store has."""
    rows = 0
    for each in databases.values():
        with scanned(spec, each) as database:
            rows += database.entries()
    return rows


def _prove(
    spec: StorePartitionSpec,
    databases: Mapping[int, Database],
    log: LogRange,
    options: VerifyOptions,
    passes: _Passes,
    asked: _Asked,
    *,
    from_files: bool,
) -> Proof | None:
    routing, values = routing_of(spec.store), spec.store.values
    proof: Proof | None = None
    for part in range(passes.number):
        table = KeyTable(routing, values, part=part, parts=passes.number, rows=passes.rows, most_keys=passes.most_keys)
        digests = {segment: Digest(values) for segment in databases}
        with unreadable_is_damaged():
            for segment, directory in databases.items():
                for batch in _rows(spec, segment, directory, options, from_files=from_files):
                    table.add_rows(segment, batch)
                    if part == 0:
                        digests[segment].add_stored(*batch.columns)
        log_records = LogRecords(spec, log, options, measure=asked.name_suspects)
        for records in log_records:
            table.take(
                records.columns,
                required=records.required,
                times_count=records.times_count,
                log_start=log.start,
            )
        if values.keeps_headers and log_records.has_positions:
            return None
        end = max(log.last_stable, log.high_watermark)
        prefixes = {
            segment: find_prefix(table.found, end, segment, log_records.missing)
            for segment in _judged(spec, table, databases)
        }
        found = Proof(prefixes, end, table.misplaced, digests, log_records.append_times, logged=log_records.logged())
        if asked.name_suspects:
            compacted = spec.changelog is None or spec.changelog.compacted
            suspects = {segment: find_suspects(table.found, log, segment, compacted=compacted) for segment in prefixes}
            found = found._replace(suspects=suspects)
        if found.orphans and asked.name_orphans:
            named: dict[int, tuple[bytes, ...]] = {}
            for segment in prefixes.keys() & databases.keys():
                for batch in _rows(spec, segment, databases[segment], options, from_files=from_files):
                    keys = batch.column(0).filter(pa.array(table.orphans(batch).view(np.bool_))).to_pylist()
                    named[segment] = (*named.get(segment, ()), *keys)
            found = found._replace(orphan_keys=named)
        proof = found if proof is None else proof.merged(found)
    return proof


def _rows(
    spec: StorePartitionSpec, segment: int, place: Database, options: VerifyOptions, *, from_files: bool
) -> Iterator[pa.RecordBatch]:
    with scanned(spec, place) as database:
        read = _rows_from_files if from_files else ScannedDatabase.rows
        for batch in reading_of(spec.store).rows(database, segment, options.give_way, read):
            options.give_way()
            options.pace(batch.nbytes)
            yield batch


def _rows_from_files(database: ScannedDatabase) -> Iterator[pa.RecordBatch]:
    return rows_from_files(database) or database.rows()


def _judged(spec: StorePartitionSpec, table: KeyTable, databases: Mapping[int, Database]) -> list[int]:
    """Return the start (ms) of each segment that is judged; 0 for a key-value store."""
    if not spec.store.segmented:
        return [0]
    live = live_segments(databases, table.stream_time, routing_of(spec.store))
    found = {*databases, *np.unique(table.found.facts[:, SEGMENT]).tolist()}
    return [at for at in sorted(found) if not live.excludes_logged(at, stored=at in databases)]


_PROOFS = by_form(_prove_rows, versions=_prove_versions)
