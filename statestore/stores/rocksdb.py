"""RocksDB as the stores use it: column families, no write-ahead log, atomic flush, offsets next to the data.

One instance owns one open database. Everything is raw bytes (`raw_mode`), so nothing stored is ever unpickled. Rows are
read and written by column family (`column_family.py`); `get`, `scan` and the like name theirs.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from rocksdict import AccessType, Checkpoint, IngestExternalFileOptions, Rdict, WriteBatch, WriteOptions
from rocksdict import ColumnFamily as Handle

from statestore.errors import (
    InputError,
    InvalidStateError,
    StateStoreError,
    StoreCorruptedError,
    UnknownFormatError,
)
from statestore.formats import offsets as offsets_format
from statestore.formats import position as position_format
from statestore.formats.database_files import files_with_rows, is_table
from statestore.formats.value_format import DEFAULT_COLUMN_FAMILY
from statestore.model import TopicPartition
from statestore.stores.abandoned import is_abandoned, leave_open
from statestore.stores.column_family import ColumnFamily, read_only_error
from statestore.stores.foreign_files import find_foreign_file
from statestore.stores.linked_view import linked
from statestore.stores.manifest import check_manifest
from statestore.stores.rocksdb_errors import translate
from statestore.stores.rocksdb_options import ConfigSetter, Memory, options
from statestore.stores.table import Changes, DeletedRange, Row

_FLUSH_DIRECTORY = "flush.tmp"
#: In RocksDB's `aggregated-table-properties`, as `# entries=1000; # deletions=0`.
_TABLE_COUNTS = re.compile(r"# (entries|deletions)=(\d+)")
#: Property of a column family: how many blob files it has.
_BLOB_FILES = "rocksdb.num-blob-files"
#: Properties of a column family: entries in its memtable, and how many full ones are not yet in a file.
_MEMTABLE_ENTRIES = "rocksdb.num-entries-active-mem-table"
_FULL_MEMTABLES = "rocksdb.num-immutable-mem-table"
#: rocksdict writes its own options down at each opening, also to read. It is always given them here, and a directory
#: stays as Kafka Streams would leave it.
_ROCKSDICT_CONFIG = "rocksdict-config.json"


def exists(directory: Path) -> bool:
    """True if there is a database, whole or not."""
    return (directory / "CURRENT").exists()


def column_families(directory: Path) -> list[str]:
    """Names of the column families of a closed database.

    Raises
    ------
    StoreCorruptedError
        If the MANIFEST cannot be read.
    """
    check_manifest(directory)
    try:
        return list(Rdict.list_cf(str(directory)))
    except Exception as error:  # rocksdict raises bare Exception for every status of RocksDB
        raise translate(error, directory) from error


def _is_usable_without(directory: Path, families: Sequence[str]) -> bool:
    """Return whether RocksDB opens a database with our own options, or there is no database to open."""
    if not exists(directory):
        return True
    try:
        RocksDB(directory, families, read_only=True).close()
    except StateStoreError:
        return False
    return True


def drop_column_family(directory: Path, family: str) -> None:
    """Remove a column family of a closed database with all that is in it, and what that leaves behind.

    Raises
    ------
    StoreCorruptedError
        If RocksDB cannot open it.
    """
    kept = options()
    kept.set_disable_auto_compactions(True)
    try:
        for dropped in (family, None):  # files of a dropped family go when the database is opened again
            names = column_families(directory)
            opened = Rdict(str(directory), options=kept, column_families=dict.fromkeys(names, kept))
            try:
                if dropped in names:
                    opened.drop_column_family(dropped)
            finally:
                opened.close()
    except Exception as error:  # see translate
        raise translate(error, directory) from error
    finally:
        (directory / _ROCKSDICT_CONFIG).unlink(missing_ok=True)


class Memtables(NamedTuple):
    """Sizes of the memtables of a database.

    Attributes
    ----------
    entries
        Offsets and positions written since RocksDB last began a new memtable; it begins those of all column families
        at once.
    full
        Number of full memtables that are not yet in a file.
    """

    entries: int = 0
    full: int = 0


class RocksDB:
    """An open database with the given data column families and the `offsets` one.

    Parameters
    ----------
    directory
        The database's own directory.
    data_column_families
        Data column families of the store's format.
    made
        Those of them that are made where they are missing; None: all. `default` always is.
    read_only
        Open without taking RocksDB's lock and without changing the directory, which may be on a read-only mount.
    store
        Name of the store, for errors and for `config_setter`.
    config_setter
        Changes the options before the database is opened.
    memory
        Memtables and block cache.

    Raises
    ------
    StoreCorruptedError
        If RocksDB cannot open it, or if it is to be read and is not there.
    UnknownFormatError
        If it has a column family besides those named.
    LockedError
        If another process has it open.
    """

    persistent = True

    def __init__(
        self,
        directory: Path,
        data_column_families: Sequence[str],
        *,
        made: Sequence[str] | None = None,
        read_only: bool = False,
        store: str = "",
        config_setter: ConfigSetter | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.directory = directory
        self._read_only = read_only
        self._db: Rdict | None = None
        self._handles: dict[str, Handle] = {}
        self._view = ExitStack()
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True
        self._families: dict[str, ColumnFamily] = {}
        known = [*dict.fromkeys([DEFAULT_COLUMN_FAMILY, *data_column_families]), offsets_format.COLUMN_FAMILY]
        wanted = {DEFAULT_COLUMN_FAMILY, *(known if made is None else made), offsets_format.COLUMN_FAMILY}
        names = [name for name in known if name in wanted]
        if exists(directory):
            found = column_families(directory)
            unknown = sorted(set(found) - set(known))
            if unknown:
                raise UnknownFormatError(
                    f"{directory} has the column families {unknown}, this store's format has {known}: "
                    "it was written by another version or as another kind of store, and was not changed"
                )
            # A read-only database cannot create the missing ones.
            names = [name for name in known if name in found or (name in wanted and not read_only)]
        elif read_only or (directory.exists() and files_with_rows(directory)):
            raise StoreCorruptedError(f"{directory} has no CURRENT file; restore it from its changelog")
        else:
            directory.mkdir(parents=True, exist_ok=True)
        access = AccessType.read_only(False) if read_only else AccessType.read_write()
        opened = directory
        if read_only and not os.access(directory, os.W_OK):
            opened = self._view.enter_context(linked(directory))
        config = opened / _ROCKSDICT_CONFIG
        found_config = config.exists()
        # One set of options: all column families share the block cache, as in Kafka Streams.
        set_up = options(store, config_setter, memory, sst_files=sum(1 for _ in directory.glob("*.sst")))
        try:
            self._db = Rdict(
                str(opened),
                options=set_up,
                column_families=dict.fromkeys(names, set_up),
                access_type=access,
            )
            for name in names:
                rdict = self._db.get_column_family(name)
                write_options = None if read_only else self._write_options
                self._families[name] = ColumnFamily(self, name, directory, rdict, write_options)
                self._handles[name] = self._db.get_column_family_handle(name)
            self._require_blob_files()
        except StateStoreError:
            self.close()
            raise
        except Exception as error:  # see translate
            told = translate(error, directory)
            self.close()
            is_refusal = isinstance(told, StoreCorruptedError) or not isinstance(told, StateStoreError)
            if is_refusal and config_setter is not None and _is_usable_without(directory, names):
                raise InputError(
                    f"store {store}: RocksDB refuses the options that rocksdb_config_setter sets, or the store with "
                    f"them: {error}. Change the options; nothing is wrong with the store in {directory}"
                ) from error
            raise told from error
        finally:
            if not found_config:
                config.unlink(missing_ok=True)

    def _require_blob_files(self) -> None:
        """Refuse a database that has lost a blob file: RocksDB finds that out only when it reads from it.

        Raises
        ------
        StoreCorruptedError
            If files are missing.
        """
        families = (family.rdict for family in self._families.values() if family.rdict is not None)
        expected = sum(family.property_int_value(_BLOB_FILES) or 0 for family in families)
        if not expected:
            return
        found = sum(1 for path in files_with_rows(self.directory) if not is_table(path.name))
        if found < expected:
            raise StoreCorruptedError(
                f"{self.directory} has {found} blob files, expected {expected} as of its MANIFEST; restore it from its "
                "changelog"
            )

    # -- reading --------------------------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise InvalidStateError, naming the directory, if it is closed."""
        self._open()

    def has(self, family: str) -> bool:
        """True if the column family exists."""
        return family in self._families

    def family(self, name: str) -> ColumnFamily:
        """Return a column family; one that a read-only database does not have is empty."""
        self._open()
        return self._families.get(name) or ColumnFamily(self, name, self.directory, None, None)

    def get(self, family: str, key: bytes) -> bytes | None:
        """Read one value; a bad checksum raises StoreCorruptedError."""
        return self.family(family).get(key)

    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of many keys, in their order."""
        return self.family(family).get_many(keys)

    def scan(
        self, family: str, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        """Rows with `start <= key < stop` in key order, or in reverse, as of the call."""
        return self.family(family).scan(start, stop, reverse=reverse)

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""
        return any(family.being_read for family in self._families.values())

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Offset of the last changelog record in the store; None if none was ever committed (KIP-1035)."""
        key = offsets_format.offset_key(topic_partition)
        raw = self._offsets_get(key)
        if raw is None:
            return None
        return offsets_format.decode_offset(raw, f"{self.directory}: offset of {topic_partition}")

    def offset_partitions(self) -> list[TopicPartition]:
        """Changelog partitions that offsets were committed for."""
        own = (offsets_format.STATUS_KEY, offsets_format.POSITION_KEY)
        keys = (key for key, _ in self.scan(offsets_format.COLUMN_FAMILY) if key not in own)
        return [offsets_format.decode_key(key, f"{self.directory}: offsets") for key in keys]

    def status(self) -> int | None:
        """`STATUS_OPEN` or `STATUS_CLOSED`; None in a store from before KIP-1035."""
        raw = self._offsets_get(offsets_format.STATUS_KEY)
        return None if raw is None else offsets_format.decode_int64(raw, f"{self.directory}: status")

    @property
    def last_write(self) -> int:
        """RocksDB's number of the last write, 0 before the first; of a database that is only read, the last on disk."""
        return int(self._open().latest_sequence_number())

    def require_no_foreign_files(self) -> None:
        """Refuse an empty database beside SST files of another one, which an opening for writing would delete.

        Raises
        ------
        StoreCorruptedError
            Naming the first of these files.
        """
        if self.last_write or self._open().live_files():
            return
        if (foreign := find_foreign_file(self.directory)) is not None:
            raise StoreCorruptedError(
                f"{foreign} belongs to another database. The database in its directory is empty: it was created after "
                "CURRENT was lost. RocksDB would delete the file when it opens the store for writing, so the store "
                "was not changed. Restore the store from its changelog"
            )

    def position(self) -> dict[TopicPartition, int]:
        """Input offsets up to which the store was written; empty if unknown."""
        raw = self._offsets_get(offsets_format.POSITION_KEY)
        return {} if raw is None else position_format.decode(raw)

    def row_count(self, family: str) -> int:
        """Rows by the properties of all SST files: exact where all are in files and none was written again or deleted.

        RocksDB's estimate of its keys is made from some of the files only.
        """
        rdict = self.family(family).rdict
        if rdict is None:
            return 0
        told: str = rdict.property_value("rocksdb.aggregated-table-properties") or ""
        found = {name: int(count) for name, count in _TABLE_COUNTS.findall(told)}
        return found.get("entries", 0) - found.get("deletions", 0)

    def _offsets_get(self, key: bytes) -> bytes | None:
        return self.get(offsets_format.COLUMN_FAMILY, key)

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, family: str, key: bytes, value: bytes | None) -> None:
        """Write one row into the memtable at once; None deletes."""
        self.family(family).put(key, value)

    def delete_range(self, family: str, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop` at once."""
        self.family(family).delete_range(start, stop)

    def write(
        self,
        changes: Mapping[str, Changes],
        offsets: Mapping[TopicPartition, int] | None = None,
        position: Mapping[TopicPartition, int] | None = None,
        status: int | None = None,
        ranges: Mapping[str, Sequence[DeletedRange]] | None = None,
    ) -> None:
        """Apply range deletes, then changes (None deletes), offsets, position and status, in one atomic write.

        An empty position replaces the one that is there: it is unknown from then on. None leaves it.

        The write is in the memtables when the call returns; after a crash the database is at this or an earlier
        write, whole, because the column families are flushed atomically.
        """
        database = self._writable()
        batch = WriteBatch(raw_mode=True)
        for family, key_ranges in (ranges or {}).items():
            for key_range in key_ranges:
                if key_range.start < key_range.stop:  # RocksDB takes any other for an error of the whole database
                    batch.delete_range(*key_range, self._handles[family])
        for family, rows in changes.items():
            handle = self._handles[family]
            put = batch.put
            for key in sorted(rows):  # RocksDB takes ordered keys faster, by more than the sorting costs
                value = rows[key]
                if value is None:
                    batch.delete(key, handle)
                else:
                    put(key, value, handle)
        self._add_offsets(batch, offsets or {}, position, status)
        try:
            database.write(batch, self._write_options)
        except Exception as error:  # see translate
            raise translate(error, self.directory) from error

    def _add_offsets(
        self,
        batch: WriteBatch,
        offsets: Mapping[TopicPartition, int],
        position: Mapping[TopicPartition, int] | None,
        status: int | None,
    ) -> None:
        handle = self._handles[offsets_format.COLUMN_FAMILY]
        for topic_partition, offset in offsets.items():
            batch.put(offsets_format.offset_key(topic_partition), offsets_format.encode_int64(offset), handle)
        if position is not None:
            batch.put(offsets_format.POSITION_KEY, position_format.encode(position), handle)
        if status is not None:
            batch.put(offsets_format.STATUS_KEY, offsets_format.encode_int64(status), handle)

    def clear_offsets(self) -> None:
        """Forget all offsets and the position; the status stays."""
        database = self._writable()
        handle = self._handles[offsets_format.COLUMN_FAMILY]
        batch = WriteBatch(raw_mode=True)
        for key, _ in self.scan(offsets_format.COLUMN_FAMILY):
            if key != offsets_format.STATUS_KEY:
                batch.delete(key, handle)
        try:
            database.write(batch, self._write_options)
        except Exception as error:  # see translate
            raise translate(error, self.directory) from error

    def ingest(self, family: str, sst_files: Sequence[Path]) -> None:
        """Take over SST files by moving them; of several, a later one wins."""
        ingest_options = IngestExternalFileOptions()
        ingest_options.set_move_files(True)
        rdict = self.family(family).rdict
        assert rdict is not None, "only a read-only database lacks one of its column families"
        try:
            for sst_file in sst_files:
                rdict.ingest_external_file([str(sst_file)], ingest_options)
        except Exception as error:  # see translate
            raise translate(error, self.directory) from error

    def memtables(self) -> Memtables:
        """Return the sizes of the memtables."""
        self._open()
        families = {name: family.rdict for name, family in self._families.items() if family.rdict is not None}
        entries = families[offsets_format.COLUMN_FAMILY].property_int_value(_MEMTABLE_ENTRIES) or 0
        return Memtables(entries, sum(rdict.property_int_value(_FULL_MEMTABLES) or 0 for rdict in families.values()))

    def sync(self) -> None:
        """Write the memtables of all column families to disk in one atomic step, and wait for it.

        rocksdict's own flush takes one column family at a time. Making a RocksDB checkpoint flushes all of them
        together, so one is made and thrown away: it is a directory of hard links.
        """
        database = self._open()
        thrown_away = self.directory / _FLUSH_DIRECTORY
        shutil.rmtree(thrown_away, ignore_errors=True)
        try:
            Checkpoint(database).create_checkpoint(str(thrown_away))
        except Exception as error:  # see translate
            raise translate(error, self.directory) from error
        finally:
            shutil.rmtree(thrown_away, ignore_errors=True)

    # -- closing --------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True after close."""
        return self._db is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the database and RocksDB's LOCK. Iterators and handles of column families must go first.

        A database whose task another process has by now is left open, and can no longer be used.
        """
        handles, self._handles = self._handles, {}
        opened = [*(family.release() for family in self._families.values()), self._db]
        self._families.clear()
        self._db = None
        if not self._read_only and is_abandoned(self.directory):
            leave_open(self.directory, handles, *opened)
            return
        del handles  # before the database
        first: Exception | None = None
        for rdict in opened:  # closing one flushes it, which may fail; it is gone all the same
            try:
                if rdict is not None:
                    rdict.close()
            except Exception as error:  # see translate
                first = first or error
        told = None if first is None else translate(first, self.directory)
        self._view.close()
        if told is not None:
            raise told from first

    def _open(self) -> Rdict:
        if self._db is None:
            raise InvalidStateError(f"the store in {self.directory} is closed")
        return self._db

    def _writable(self) -> Rdict:
        if self._db is None or self._read_only:
            self._open()
            raise read_only_error(self.directory)
        return self._db
