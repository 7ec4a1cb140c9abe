"""All rows of a closed database in key order, many at a time, as Arrow arrays.

rocksdict has no reads by column. Its `items` costs a fifth less than a cursor and ends at a damaged block as if that
were the end. So where `items` ends, a cursor looks whether it may: it raises what `items` keeps to itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rocksdict import ReadOptions

from statestore.errors import StateStoreError, UnknownFormatError
from statestore.formats.value_format import AnyFormat, value_format
from statestore.model import TopicPartition
from statestore.stores.accessor import accessor, pending_families
from statestore.stores.commit_log import Piece
from statestore.stores.read_options import in_key_order
from statestore.stores.rocksdb import RocksDB
from statestore.stores.rocksdb_errors import translate
from statestore.stores.table import Row, Rows
from statestore.stores.transaction import Transaction

#: A batch ends with the rows that bring it to so many bytes or rows; so many rows are looked at together.
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_ROWS = 1024
_ROWS_AT_ONCE = 64
_COUNTED_AT_ONCE = 100_000
_LARGEST_BATCH_BYTES = 1 << 30
_READ_AHEAD_BYTES = 2 * 1024 * 1024
#: Memory of changes that are shown with the rows.
_STAGED_BYTES = 64 * 1024 * 1024
#: In `rocksdb.sstables`, whose keys are in hexadecimal: a level, or a file's number and newest sequence number. Files
#: of level 0 may overlap, and are newer than those of level 1, these than those of level 2, and so on.
_SST_FILES = re.compile(r"^--- level (\d+) |^ (\d+):\d+\[\d+ \.\. (\d+)\]", re.MULTILINE)


#: Columns of every batch: row keys, and values as they are stored.
STORED_SCHEMA = pa.schema(
    [pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)


class ScannedDatabase(RocksDB):
    """A closed database that is only read, from its first row to its last.

    Raises
    ------
    StoreCorruptedError
        By every method here, if a block fails its checksum or an SST file is not what it was.
    """

    def __init__(self, directory: Path, store_format: AnyFormat) -> None:
        self._staged: Transaction | None = None
        self._staged_offsets: dict[TopicPartition, int] = {}
        super().__init__(directory, value_format(store_format).column_families, read_only=True)
        self._format = store_format
        self._pending = pending_families(store_format, self)
        #: True if there are rows in an older format.
        self.upgrade_pending = bool(self._pending)
        self._rows = accessor(store_format, self.family, pending=self._pending, migrate=False)
        self._data_family = value_format(store_format).column_families[0]

    def stage(self, pieces: Iterable[Piece], offsets: Mapping[TopicPartition, int], spill_directory: Path) -> None:
        """Show the rows and offsets as they are once changes are applied; the database stays as it is.

        Parameters
        ----------
        pieces
            The changes, in their order.
        spill_directory
            Where changes go that do not fit into memory; it is removed by `close`.
        """
        families = value_format(self._format).column_families
        if self._staged is None:
            self._staged = Transaction(self, families, spill_directory, _STAGED_BYTES)
            self._rows = accessor(self._format, self._staged.family, pending=self._pending, migrate=False)
        for family, ranges, rows in pieces:
            if family not in families:
                raise UnknownFormatError(
                    f"{self.directory} gets rows in the column family {family}, this format has {families}: it is "
                    "another version's or another kind of store"
                )
            staged = self._staged.family(family)
            for deleted in ranges:
                staged.delete_range(*deleted)
            staged.put_many(rows)
        self._staged_offsets.update(offsets)

    def close(self) -> None:
        """Close it."""
        if self._staged is not None:
            self._staged.close()
        super().close()

    def stored(self, family: str) -> Rows:
        """Return the rows of a column family, with what is staged."""
        return self.family(family) if self._staged is None else self._staged.family(family)

    def committed_offset(self, topic_partition: TopicPartition) -> int | None:
        """Offset of the last changelog record in the rows; None if it is unknown."""
        staged = self._staged_offsets.get(topic_partition)
        return super().committed_offset(topic_partition) if staged is None else staged

    def offset_partitions(self) -> list[TopicPartition]:
        """Changelog partitions that offsets were committed for."""
        return list(dict.fromkeys([*super().offset_partitions(), *self._staged_offsets]))

    def live_files(self) -> list[dict[str, Any]]:
        """RocksDB's list of the SST files of all column families; it does not tell which of them a file belongs to."""
        return list(self._open().live_files())

    def sorted_runs(self) -> list[list[Path]] | None:
        """Return the SST files of the rows in runs, older ones first; files of a run follow each other in key order.

        None if there are rows elsewhere: in an older format, or in a log.
        """
        column_family = self.family(self._data_family).rdict
        logs = (log.stat().st_size for log in self.directory.glob("*.log"))
        if column_family is None or self.upgrade_pending or any(logs):
            return None
        levels: list[list[tuple[int, Path]]] = []
        for level, number, newest in _SST_FILES.findall(column_family.property_value("rocksdb.sstables") or ""):
            if level:
                levels.append([])
            else:
                levels[-1].append((int(newest), self.directory / f"{int(number):06d}.sst"))
        written, *sorted_levels = levels or [[]]
        runs = [[path for _, path in files] for files in reversed(sorted_levels) if files]
        return runs + [[path] for _, path in sorted(written)]

    def row(self, key: bytes) -> bytes | None:
        """Read one row as it is stored."""
        return self._rows.get(key)

    def entries(self) -> int:
        """How many rows and deletes the SST files of the rows have."""
        return self.row_count(self._data_family)

    def count(self, between: Callable[[], None] | None = None) -> int:
        """Read every row; return how many there are.

        Parameters
        ----------
        between
            Called now and then.
        """
        if self.upgrade_pending or self._staged is not None:
            return sum(1 for _ in self._rows.scan())
        column_family = self.family(self._data_family).rdict
        if column_family is None:
            return 0
        try:
            cursor = column_family.iter(_read_options(None))
            cursor.seek_to_first()
            valid, step = cursor.valid, cursor.next
            count = 0
            while valid():
                if count % _COUNTED_AT_ONCE == 0 and between is not None:
                    between()
                step()
                count += 1
            cursor.status()
        except StateStoreError:  # of `between`
            raise
        except Exception as error:  # see translate
            raise translate(error, self.directory) from error
        return count

    def rows(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows with `start <= key < stop` as batches with `STORED_SCHEMA`; None is an open end."""
        if self.upgrade_pending or self._staged is not None:
            yield from _batches(self._rows.scan(start, stop))
            return
        column_family = self.family(self._data_family).rdict
        if column_family is None:
            return
        last = start
        try:
            # RocksDB reads the upper bound where it lies in memory: `stop` is held by this frame.
            options = _read_options(stop)
            for batch in _batches(column_family.items(from_key=start, read_opt=options)):
                last = batch.column(0)[-1].as_py()
                yield batch
            self._require_end(column_family, last, stop)
        except Exception as error:  # see translate
            raise translate(error, self.directory) from error

    def _require_end(self, column_family: Any, last: bytes | None, stop: bytes | None) -> None:
        cursor = column_family.iter(_read_options(stop))
        if last is None:
            cursor.seek_to_first()
        else:
            cursor.seek(last)
            if cursor.valid() and cursor.key() == last:
                cursor.next()
        cursor.status()
        # A cursor that read what `items` could not read would be a fault of this module, not of the store.
        assert not cursor.valid(), f"{self.directory}: rows behind {last!r} were not read"


def _read_options(stop: bytes | None) -> ReadOptions:
    options = in_key_order(stop)
    options.fill_cache(False)
    options.set_readahead_size(_READ_AHEAD_BYTES)
    return options


def _batches(rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    rows = iter(rows)
    held: list[Row] = []
    size = 0
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        held += some
        size += sum(map(len, chain.from_iterable(some)))
        if size >= _BATCH_BYTES or len(held) >= _BATCH_ROWS:
            yield from _cut(held, size)
            held, size = [], 0
    yield from _cut(held, size)


def _cut(rows: Sequence[Row], size: int) -> Iterator[pa.RecordBatch]:
    """One batch, or one for each row where all of them would be too large for Arrow's 32-bit offsets."""
    step = max(len(rows), 1) if size < _LARGEST_BATCH_BYTES else 1
    for at in range(0, len(rows), step):
        keys, values = zip(*rows[at : at + step], strict=True)
        yield pa.RecordBatch.from_arrays([_binary(keys), _binary(values)], schema=STORED_SCHEMA)


def _binary(values: Sequence[bytes]) -> pa.Array:
    # From buffers: twice as fast as from a list.
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)
