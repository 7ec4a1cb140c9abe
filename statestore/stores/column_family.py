"""One column family of an open RocksDB: the last step from a store to rocksdict.

Reads go through `get` and `iter` + `status`, which raise on a bad checksum; rocksdict's `items`, `keys` and `values`
do not. What RocksDB raises is told in the library's words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from weakref import WeakSet

from rocksdict import Rdict, RdictIter, WriteOptions

from statestore.errors import InvalidStateError
from statestore.stores.read_options import in_key_order
from statestore.stores.rocksdb_errors import translate
from statestore.stores.table import Changes, DeletedRange, Row, Table


class ColumnFamily:
    """Rows of one column family.

    Parameters
    ----------
    table
        The database, for what is written in one batch.
    rdict
        rocksdict's column family; None in a read-only database that does not have it: then there are no rows.
    write_options
        None if the database was opened to be read.
    """

    __slots__ = ("_cursors", "_directory", "_name", "_table", "_write_options", "rdict")

    def __init__(
        self, table: Table, name: str, directory: Path, rdict: Rdict | None, write_options: WriteOptions | None
    ) -> None:
        self.rdict = rdict
        self._table = table
        self._name = name
        self._directory = directory
        self._write_options = write_options
        self._cursors: WeakSet[_Cursor] = WeakSet()

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """Read one value; a bad checksum raises StoreCorruptedError."""
        rdict = self.rdict
        if rdict is None:
            self._table.require_open()
            return None
        try:
            value: bytes | None = rdict.get(key)
        except Exception as error:  # see translate
            raise translate(error, self._directory) from error
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of many keys, in their order."""
        rdict = self.rdict
        if rdict is None:
            self._table.require_open()
            return [None] * len(keys)
        try:
            values: list[bytes | None] = rdict.get(keys if isinstance(keys, list) else list(keys))
        except Exception as error:  # see translate
            raise translate(error, self._directory) from error
        return values

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop` in key order, or in reverse, as of the call.

        A bad checksum raises StoreCorruptedError; going on after the database was closed, InvalidStateError.
        """
        rdict = self.rdict
        if rdict is None:
            self._table.require_open()
        if rdict is None or (start is not None and stop is not None and start >= stop):
            return iter(())
        try:
            rows = rdict.iter(in_key_order(stop))
            if reverse:
                rows.seek_to_last()
            elif start is None:
                rows.seek_to_first()
            else:
                rows.seek(start)
        except Exception as error:  # see translate
            raise translate(error, self._directory) from error
        cursor = _Cursor(rows, stop)
        self._cursors.add(cursor)
        return self._walk_back(cursor, start) if reverse else self._walk(cursor)

    def _walk(self, cursor: _Cursor) -> Iterator[Row]:
        # Only the cursor holds the iterator, not this frame: close() takes it away, and with it RocksDB's LOCK.
        try:
            while cursor.rows is not None and cursor.rows.valid():
                row = cursor.rows.key(), cursor.rows.value()
                cursor.rows.next()
                yield row
            self._end(cursor)
        except InvalidStateError:
            raise
        except Exception as error:  # see translate
            raise translate(error, self._directory) from error

    def _walk_back(self, cursor: _Cursor, start: bytes | None) -> Iterator[Row]:
        try:
            while cursor.rows is not None and cursor.rows.valid():
                row = cursor.rows.key(), cursor.rows.value()
                if start is not None and row[0] < start:
                    return
                cursor.rows.prev()
                yield row
            self._end(cursor)
        except InvalidStateError:
            raise
        except Exception as error:  # see translate
            raise translate(error, self._directory) from error

    def _end(self, cursor: _Cursor) -> None:
        if cursor.rows is None:
            raise InvalidStateError(f"the store in {self._directory} was closed under this iterator; open it again")
        cursor.rows.status()

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""
        return len(self._cursors) > 0

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one row into the memtable at once; None deletes."""
        rdict, write_options = self.rdict, self._write_options
        if rdict is None or write_options is None:
            self._table.require_open()
            raise read_only_error(self._directory)
        try:
            if value is None:
                rdict.delete(key, write_options)
            else:
                rdict.put(key, value, write_options)
        except Exception as error:  # see translate
            raise translate(error, self._directory) from error

    def put_many(self, changes: Changes) -> None:
        """Write many rows in one atomic write; None deletes."""
        self._table.write({self._name: changes})

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop` at once."""
        self._table.write({}, ranges={self._name: [DeletedRange(start, stop)]})

    # -- closing --------------------------------------------------------------------------------------------------

    def release(self) -> Rdict | None:
        """Take everything away from iterators that are still open; return what is to be closed."""
        for cursor in self._cursors:
            cursor.rows = None
        rdict, self.rdict = self.rdict, None
        return rdict


def read_only_error(directory: Path) -> InvalidStateError:
    """Return the error of a write into a database that was opened to be read."""
    return InvalidStateError(f"the store in {directory} was opened to be read; open it for writing")


class _Cursor:
    """Holds an iterator of RocksDB, so that it can be taken away from whoever walks it.

    It also keeps the upper bound alive: RocksDB reads it where it lies in memory, and rocksdict does not hold it.
    """

    __slots__ = ("__weakref__", "_stop", "rows")

    def __init__(self, rows: RdictIter, stop: bytes | None) -> None:
        self.rows: RdictIter | None = rows
        self._stop = stop
