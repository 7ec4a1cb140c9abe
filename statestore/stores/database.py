"""One table in one format, with or without a transaction: a key-value store, or one segment of a windowed store.

    Database -> accessor (format) -> Transaction | Direct -> RocksDB | MemoryTable

Each step gives the rows of a column family as the step below has them, or its own over them. So a row is read from
RocksDB by two calls: `StagedRows.get` and `ColumnFamily.get`, without a transaction by the second alone.

Opening decides whether the directory may be used at all, and does so before anything in it is changed. A database that
we open for writing is marked open on disk before anybody can write to it, and before that recorded as ours
(`last_use.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from statestore import kill_switch
from statestore.errors import InvalidStateError, StoreUncleanError, WrongStoreError
from statestore.formats import offsets as offsets_format
from statestore.formats.value_format import AnyFormat, value_format
from statestore.kinds.kind import RowLayout
from statestore.model import TopicPartition
from statestore.stores.accessor import DBAccessor, Direct, accessor, pending_families
from statestore.stores.commit_log import CommitLog, Piece
from statestore.stores.last_use import LastUse
from statestore.stores.memory import MemoryTable
from statestore.stores.rocksdb import Memtables, RocksDB, exists
from statestore.stores.rocksdb_options import ConfigSetter
from statestore.stores.table import Rows, Table
from statestore.stores.time_ordered_rows import TimeOrderedRows
from statestore.stores.transaction import Transaction


@dataclass(frozen=True)
class DatabaseSpec:
    """How the databases of one store are opened.

    Attributes
    ----------
    store
        Name of the store, for errors.
    transactional
        Whether writes are staged until they are committed.
    exactly_once
        Whether a database that was left open is used only if it holds no uncommitted rows.
    last_use
        Tells which of the databases that were left open hold none.
    changelogs
        Changelog partitions whose offsets may be found in it; None: not checked.
    uncommitted_max_bytes
        Memory for what is staged, before it spills to disk.
    layout
        How its row keys differ from those of its changelog; None: they are the same.
    """

    store: str
    format: AnyFormat
    transactional: bool
    exactly_once: bool
    last_use: LastUse
    changelogs: frozenset[TopicPartition] | None
    uncommitted_max_bytes: int
    config_setter: ConfigSetter | None
    layout: RowLayout | None = None
    logged: bool = True


class Database:
    """Rows in one format, and what was committed with them.

    Attributes
    ----------
    rows
        The rows as the owner of the store sees them; reading one in an older format migrates it.
    unmigrated
        The same rows; reading them migrates nothing.
    is_decided
        True while a commit is in a file, and perhaps not as a whole in the table.
    pending
        The column families of older formats that were found to have rows.
    """

    def __init__(
        self,
        spec: DatabaseSpec,
        table: Table,
        writes: DBAccessor,
        commits: CommitLog | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self._commits = commits
        self._unflushed_bytes = self._unflushed_commits = 0
        self.is_decided = False
        self._logged = spec.logged
        self._last_change: Mapping[TopicPartition, int] | None = None
        self._store = spec.store
        self._format = spec.format
        self._read_only = read_only
        self._changelogs = spec.changelogs or ()
        self._table = table
        self._writes = writes
        self.pending = pending = pending_families(spec.format, table)
        self.rows = accessor(spec.format, writes.family, pending=pending, migrate=not read_only)
        self.unmigrated = accessor(spec.format, writes.family, pending=pending, migrate=False)
        self._committed = accessor(spec.format, table.family, pending=pending, migrate=False)
        if spec.layout is not None:
            self.rows = TimeOrderedRows(self.rows, spec.layout)
            self.unmigrated = TimeOrderedRows(self.unmigrated, spec.layout)
            self._committed = TimeOrderedRows(self._committed, spec.layout)

    @property
    def committed(self) -> Rows:
        """The committed rows, with those of a commit that is decided; reading them migrates nothing."""
        return self.unmigrated if self.half_committed else self._committed

    @property
    def upgrade_pending(self) -> bool:
        """Whether rows in an older format were found."""
        return bool(self.pending)

    @property
    def databases(self) -> list[Database]:
        """The database itself, as `Segments` has several."""
        return [self]

    @property
    def staged_bytes(self) -> int:
        """Memory held by uncommitted rows."""
        return self._writes.staged_bytes

    def commit(
        self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Make what was written part of the table, with its offsets: in one atomic write (KIP-1035).

        If the transaction has spilled, it is several writes, which the next opening completes. The position follows
        `StateStore.commit`.
        """
        self.require_open()
        if not self._logged:
            self._last_change = {**self.last_change, **(offsets if self.has_changes else {})}
        if self._commits is not None and self._commits.only_copy:
            self._commit_unlogged(self._commits, offsets, position)
            return
        commits = self._commits if self._writes.spilled else None
        if commits is not None:
            commits.add({ONLY: self._writes.pieces()}, offsets, position)
            self.is_decided = True
        self._writes.commit(offsets, _position_after(self._table.position, offsets, position))
        if commits is not None:
            self._table.sync()
            kill_switch.reached("spilled commit on disk, its file still there")
            commits.end()
            self.is_decided = False

    @property
    def last_change(self) -> Mapping[TopicPartition, int]:
        """Offsets of the last commit that changed its rows, as far as it is known since the database was opened.

        A file on disk has at least these offsets once the file of that commit is removed. Later ones only reach the
        disk with other rows.
        """
        if self._last_change is not None:
            return self._last_change
        found = {partition: self._table.committed_offset(partition) for partition in self._table.offset_partitions()}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def prepare(
        self, number: int, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None
    ) -> None:
        """Write what is staged to a file, durably, so that the next `commit` can be completed after a crash.

        Only for a store without a changelog. See `CommitLog.prepare`.
        """
        self.require_open()
        assert self._commits is not None, "only a store on disk is without a changelog"
        after = {ONLY: self.last_change}
        self._commits.prepare(number, {ONLY: self._writes.pieces()}, offsets, position, after)

    def _commit_unlogged(
        self,
        commits: CommitLog,
        offsets: Mapping[TopicPartition, int],
        position: Mapping[TopicPartition, int] | None,
    ) -> None:
        """Commit, with all rows in a file until RocksDB has them on disk: there is no changelog that has them."""
        if self.has_changes and not commits.is_prepared:
            self.prepare(0, offsets, position)
        size = 0
        if commits.is_prepared:
            self.is_decided = True
            _, size = commits.promote()
        spilled = self._writes.spilled
        self._writes.commit(offsets, _position_after(self._table.position, offsets, position))
        self.is_decided = False
        self._unflushed_bytes += size
        self._unflushed_commits += 1
        if spilled or self._unflushed_bytes > HELD_BACK_BYTES or self._unflushed_commits > HELD_BACK_COMMITS:
            self.sync()

    def decide(self, committed: int | None) -> None:
        """Complete or discard a commit that was prepared when the process was killed (`CommitLog.decide`)."""
        assert self._commits is not None, "only a store on disk is without a changelog"
        self._commits.decide({ONLY: self}, committed)

    @property
    def has_changes(self) -> bool:
        """True if anything is staged."""
        return self._writes.has_changes

    def pieces(self) -> Iterator[Piece]:
        """Yield the staged changes in the order in which a commit applies them."""
        return self._writes.pieces()

    def repeat(
        self,
        pieces: Iterable[Piece],
        offsets: Mapping[TopicPartition, int],
        position: Mapping[TopicPartition, int] | None,
    ) -> None:
        """Apply the pieces of a commit, then its offsets and position."""
        for family, ranges, rows in pieces:
            self._table.write({family: rows}, ranges={family: ranges})
        self._table.write({}, offsets, _position_after(self._table.position, offsets, position))

    @property
    def memtables(self) -> Memtables:
        """Sizes of the memtables."""
        return self._table.memtables() if isinstance(self._table, RocksDB) else Memtables()

    def ingest(self, rows: Sequence[Path], deletes: Sequence[Path]) -> None:
        """Take SST files over as if their rows had just been written and committed.

        Only for a database on disk without staged rows, that is lost as a whole if it is not committed afterwards.

        Parameters
        ----------
        rows
            Rows of the store's format, and deletes.
        deletes
            Of all their keys, while rows in an older format are pending.
        """
        assert isinstance(self._table, RocksDB), "rows in memory are written one by one"
        self._table.ingest(value_format(self._format).column_families[0], rows)
        for family in self.pending[1:]:  # files are moved: each family takes its own
            self._table.ingest(family, [_copied(file, family) for file in deletes])
        for family in self.pending[:1]:
            self._table.ingest(family, deletes)

    @property
    def half_committed(self) -> bool:
        """True after a commit that failed half way: it can be repeated, and not rolled back."""
        return self.is_decided or self._writes.half_committed

    def rollback(self) -> None:
        """Forget what was not committed; not after a commit that failed half way."""
        self._writes.rollback()

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Offset of the last changelog record in the table; None if none was ever committed."""
        return self._table.committed_offset(topic_partition)

    def offset_partitions(self) -> list[TopicPartition]:
        """Changelog partitions that offsets were committed for."""
        return self._table.offset_partitions()

    def position(self) -> dict[TopicPartition, int]:
        """Input offsets committed."""
        return self._table.position()

    def clear_offsets(self) -> None:
        """Forget offsets and position; the status stays."""
        self.require_open()
        self._table.clear_offsets()

    def sync(self) -> None:
        """Wait until all that was committed is on disk."""
        self._table.sync()
        if self._commits is not None and self._commits.only_copy and not self.is_decided:
            self._unflushed_bytes = self._unflushed_commits = 0
            self._commits.keep_last()

    def require_open(self) -> None:
        """Raise InvalidStateError, naming the store, if it is closed."""
        if self._table.closed:
            raise InvalidStateError(f"store {self._store} is closed; open it again")

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""
        return self._writes.being_read

    @property
    def closed(self) -> bool:
        """True after close."""
        return self._table.closed

    def close(self, *, clean: bool) -> None:
        """Close it. A clean close after writing marks it so and waits until all that was committed is on disk."""
        undecided = self._commits is not None and self._commits.is_prepared
        clean = clean and not self.half_committed and not undecided
        try:
            self._writes.close()
            if clean and not self._read_only and not self._table.closed:
                # Kafka Streams takes a store of its task without any offset for a corrupted task.
                unknown = [partition for partition in self._changelogs if self.committed_offset(partition) is None]
                offsets = dict.fromkeys(unknown, offsets_format.UNKNOWN_OFFSET)
                self._table.write({}, offsets, status=offsets_format.STATUS_CLOSED)
                self._table.sync()
                if self._commits is not None:
                    self._commits.clear()
        finally:
            self._table.close()


def _copied(file: Path, name: str) -> Path:
    """Copy a file, beside it and with something added to its name."""
    copy = file.with_name(f"{name}-{file.name}")
    shutil.copyfile(file, copy)
    return copy


#: If commits of more bytes, or more commits, wait for RocksDB to put their rows on disk, these are flushed. This bounds
#: the work after a crash (repeating commits, or a replay), and the number of files that a reader opens.
HELD_BACK_BYTES = 32 * 1024 * 1024
HELD_BACK_COMMITS = 256


def open_in_memory(spec: DatabaseSpec) -> Database:
    """Open an empty table in memory. One family is enough: nothing old can be in it."""
    families = value_format(spec.format).column_families[:1]
    table = MemoryTable(f"store {spec.store}", families)
    return Database(spec, table, Transaction(table, families, None, 0) if spec.transactional else Direct(table))


class Place(NamedTuple):
    """Where a database lies on disk.

    Attributes
    ----------
    directory
        The database's own.
    spill
        Where a transaction that outgrows its memory goes on.
    """

    directory: Path
    spill: Path


#: The name of a database that is its store's only one.
ONLY = ""


class LookedAt(NamedTuple):
    """State of a database before it is opened.

    Attributes
    ----------
    sequence
        Number of the last write on disk, 0 before the first; None: there is no database.
    left_open
        Whether it was not closed.
    """

    sequence: int | None = None
    left_open: bool = False


def open_on_disk(
    spec: DatabaseSpec,
    places: Mapping[str, Place],
    looked_at: Mapping[str, LookedAt],
    offsets: Mapping[TopicPartition, int] | None = None,
    position: Mapping[TopicPartition, int] | None = None,
    commits: CommitLog | None = None,
    *,
    read_only: bool = False,
) -> dict[str, Database]:
    """Open databases of a store, or make them. `check_on_disk` says first whether they may be opened.

    Parameters
    ----------
    places
        By the names that they have in the store.
    looked_at
        What `check_on_disk` found, where there is a database.
    offsets, position
        What new databases begin with.
    commits
        Where a database keeps its commits that take more than one write; None: its store does that.

    Raises
    ------
    UnknownFormatError
        If one has column families that the format does not.
    StoreCorruptedError
        If RocksDB cannot open one.
    """
    layout = value_format(spec.format)
    tables: dict[str, RocksDB] = {}
    try:
        if not read_only:
            spec.last_use.about_to_open({name: one.sequence or 0 for name, one in looked_at.items() if one.left_open})
            kill_switch.reached("databases about to be opened")
        for name, (directory, _) in places.items():
            tables[name] = RocksDB(
                directory,
                layout.column_families,
                made=layout.made_families,
                read_only=read_only,
                store=spec.store,
                config_setter=spec.config_setter,
            )
            kill_switch.reached("database opened, not recorded")
        if read_only:
            return {name: Database(spec, table, Direct(table), read_only=True) for name, table in tables.items()}
        spec.last_use.opened({name: place.directory for name, place in places.items()})
        kill_switch.reached("databases recorded, not marked open")
        for table in tables.values():
            if table.status() != offsets_format.STATUS_OPEN:
                table.write({}, offsets, position or None, status=offsets_format.STATUS_OPEN)
                table.sync()  # the mark is for the next opening, after a crash of this one
                kill_switch.reached("database marked open")
        return {
            name: Database(spec, table, _writes(spec, table, places[name].spill), commits)
            for name, table in tables.items()
        }
    except BaseException:
        for table in tables.values():
            table.close()
        raise


def finish_commits(commits: CommitLog, databases: Mapping[str, Database], *, usable: bool) -> None:
    """Repeat the commits that are left (`CommitLog.finish`); if that fails, close the databases."""
    try:
        commits.finish(databases, usable=usable)
    except BaseException:
        for database in databases.values():
            database.close(clean=False)
        raise


def _writes(spec: DatabaseSpec, table: RocksDB, spill: Path) -> DBAccessor:
    if not spec.transactional:
        return Direct(table)
    return Transaction(table, value_format(spec.format).column_families, spill, spec.uncommitted_max_bytes)


def check_on_disk(spec: DatabaseSpec, name: str, directory: Path) -> LookedAt:
    """Refuse what must not be opened; opening for writing would already change it.

    Parameters
    ----------
    name
        The database's in its store.

    Raises
    ------
    UnknownFormatError
        If it has column families that the format does not.
    WrongStoreError
        If it holds offsets of another store or partition.
    StoreUncleanError
        If it was left open and may hold uncommitted rows.
    StoreCorruptedError
        If RocksDB cannot open it, or would delete rows of another database.
    """
    if not exists(directory):
        return LookedAt()
    table = RocksDB(directory, value_format(spec.format).column_families, read_only=True, store=spec.store)
    try:
        if spec.changelogs is not None:
            expected = {str(partition) for partition in spec.changelogs}
            foreign = [str(found) for found in table.offset_partitions() if str(found) not in expected]
            if foreign:
                raise WrongStoreError(
                    f"{directory} holds offsets of {', '.join(sorted(foreign)[:3])}, expected "
                    f"{', '.join(sorted(expected)) or 'none'} for store {spec.store}: it is another store's or "
                    "partition's directory, and was not changed; restore the store from its changelog"
                )
        table.require_no_foreign_files()
        found = LookedAt(table.last_write, table.status() == offsets_format.STATUS_OPEN)
    finally:
        table.close()
    if found.left_open and spec.exactly_once and not spec.last_use.was_ours(name, directory, found.sequence or 0):
        raise StoreUncleanError(
            f"store {spec.store} in {directory} was left open by use without transactions, or by another program than "
            "this one: under exactly once it may hold rows that were never committed; restore it from its changelog"
        )
    return found


def _position_after(
    before: Callable[[], Mapping[TopicPartition, int]],
    offsets: Mapping[TopicPartition, int],
    position: Mapping[TopicPartition, int] | None,
) -> Mapping[TopicPartition, int] | None:
    """Return the position to write with a commit; empty if it becomes unknown, None if it stays."""
    if position:
        return merged(before(), position)
    return {} if position is None and offsets and before() else None


def merged(position: Mapping[TopicPartition, int], other: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Merge two positions: the larger offset of each input partition."""
    result = dict(position)
    for partition, offset in other.items():
        result[partition] = max(offset, result.get(partition, offset))
    return result
