"""Uncommitted writes, staged outside the table (KIP-844's transactional store, in KIP-892's shape).

Reads see staged rows merged over committed ones, in key order. `commit` applies everything with its offsets in one
atomic write; `rollback`, or the end of the process, leaves the table as it was.

Rows are staged in memory up to a bound, beyond it in a secondary RocksDB (`spill.py`). A transaction that spilled is
committed in chunks, its offsets with the last one. All of it is in a file before the first chunk is written
(`commit_log.py`), from which the next opening repeats it after a crash in between.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn
from weakref import WeakSet

from statestore import kill_switch
from statestore.model import TopicPartition
from statestore.stores.commit_log import Piece
from statestore.stores.key_ranges import KeyRanges
from statestore.stores.merge import Change, live, overlay
from statestore.stores.read_ahead import ReadAhead
from statestore.stores.sorted_rows import ROW_OVERHEAD_BYTES, SortedRows
from statestore.stores.spill import Spill
from statestore.stores.table import Changes, Row, Table


class Transaction:
    """Writes of a table's data column families: committed in the table, staged here.

    Parameters
    ----------
    table
        The open table; it is written only by `commit`.
    spill_directory
        Where the secondary RocksDB goes; what a crash left there is removed. None: everything is staged in memory.
    max_bytes
        Memory for staged rows, the secondary RocksDB's own included.

    Attributes
    ----------
    staged_bytes
        Memory held by staged rows.
    half_committed
        True while a part of a commit is in the table: after a failure it can be completed, and not taken back.
    """

    def __init__(self, table: Table, families: Sequence[str], spill_directory: Path | None, max_bytes: int) -> None:
        self._table = table
        self._spill_directory = spill_directory
        self._max_bytes = max_bytes
        # Half for the rows; the rest is for sorting, for the secondary RocksDB and for the chunks of a commit.
        self.spill_at = sys.maxsize if spill_directory is None else max_bytes // 2
        self._families = {family: StagedRows(self, table, family) for family in families}
        self._spill: Spill | None = None
        self._spills = 0
        self._ended: list[Spill] = []
        self.staged_bytes = 0
        self.half_committed = False
        if spill_directory is not None:
            Spill.remove(spill_directory)

    @property
    def spilled(self) -> bool:
        """True if the transaction has outgrown its memory."""
        return self._spill is not None

    @property
    def being_read(self) -> bool:
        """True while an iterator is open, over the table or over what a transaction staged."""
        return (
            self._table.being_read
            or any(family.being_read for family in self._families.values())
            or any(spill.being_read for spill in self._ended)
        )

    @property
    def has_changes(self) -> bool:
        """True if anything is staged."""
        return self.spilled or any(rows.staged.rows or rows.hidden is not None for rows in self._families.values())

    def pieces(self) -> Iterator[Piece]:
        """Yield the staged changes in the order in which a commit applies them; spilled ones in small parts."""
        for name, family in self._families.items():
            if family.hidden is not None:
                yield Piece(name, family.hidden.ranges(), {})
        if self._spill is not None:
            yield from (Piece(name, (), chunk) for name, chunk in self._spill.chunks())
        yield from (Piece(name, (), family.staged.rows) for name, family in self._families.items())

    def family(self, name: str) -> StagedRows:
        """Return the rows of a column family, staged over committed."""
        return self._families[name]

    def spill_staged(self) -> None:
        """Move what is staged to disk."""
        if self._spill is None:
            assert self._spill_directory is not None
            self._spill = Spill(self._spill_directory / str(self._spills), list(self._families), self._max_bytes)
            self._spills += 1
        for family in self._families.values():
            family.move_to(self._spill)
        self.staged_bytes = 0

    # -- the end --------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None) -> None:
        """Apply what is staged, with its offsets and position. One that failed half way can be repeated."""
        ranges = {name: family.hidden.ranges() for name, family in self._families.items() if family.hidden is not None}
        if self._spill is not None:
            self.spill_staged()  # so that their memory is free for the chunks and for what the table does with them
            self.half_committed = True
            self._table.write({}, ranges=ranges)
            for family, chunk in self._spill.chunks():
                self._table.write({family: chunk})
                kill_switch.reached("chunk of a spilled commit written")
            ranges = {}
        changes = {name: family.staged.rows for name, family in self._families.items() if family.staged.rows}
        self._table.write(changes, offsets, position, ranges=ranges)
        for rows in self._families.values():
            rows.committed()
        self.half_committed = False
        self.rollback()

    def rollback(self) -> None:
        """Forget what is staged. The table keeps what a commit that failed half way has written."""
        for family in self._families.values():
            family.forget()
        self.staged_bytes = 0
        if self._spill is not None:
            self._ended.append(self._spill)
            self._spill = None
        self._close_ended(lambda spill: not spill.being_read)

    def close(self) -> None:
        """Roll back, and take everything away from iterators and callers that still have the rows."""
        self.rollback()
        self._close_ended(lambda _: True)
        for family in self._families.values():
            family.close()

    def _close_ended(self, may_close: Callable[[Spill], bool]) -> None:
        # An iterator outlives the transaction that it was opened in, so its part of the disk does, too.
        for spill in [spill for spill in self._ended if may_close(spill)]:
            spill.close()
            self._ended.remove(spill)


class StagedRows:
    """Rows of one column family as the owner of the transaction sees them: staged over committed.

    Attributes
    ----------
    staged
        What is staged in memory; a delete is a row without a value.
    hidden
        Ranges that were deleted: the committed rows in them do not show. None: there is none.
    ahead
        Committed rows that are known; none while `hidden` or a spill is to be looked at before the committed rows.
    """

    __slots__ = ("_committed", "_name", "_reads", "_spill", "_table", "_transaction", "ahead", "hidden", "staged")

    def __init__(self, transaction: Transaction, table: Table, name: str) -> None:
        self._transaction = transaction
        self._table = table
        self._name = name
        self._committed = table.family(name)
        self._reads: WeakSet[Iterator[Change]] = WeakSet()
        self._spill: Spill | None = None
        self.staged = SortedRows()
        self.hidden: KeyRanges | None = None
        self.ahead = ReadAhead(self._committed)

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def being_read(self) -> bool:
        """True while an iterator over what is staged in memory is open."""
        return len(self._reads) > 0

    def get(self, key: bytes) -> bytes | None:
        """Read a row."""
        rows = self.staged.rows
        if key in rows:
            return rows[key]
        if self._spill is not None:
            found, value = self._spill.get(self._name, key)
            if found:
                return value
        if self.hidden is not None and key in self.hidden:
            return None
        return self._committed.get(key)

    def read_ahead(self, keys: Iterable[bytes | None]) -> None:
        """Read committed rows that are likely to be asked for next."""
        if self._spill is None and self.hidden is None:
            rows = self.staged.rows
            self.ahead.read({key for key in keys if key is not None and key not in rows})

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows, in the order of their keys."""
        if self._spill is not None or self.hidden is not None:
            return [self.get(key) for key in keys]
        rows = self.staged.rows
        if not rows:
            return self._committed.get_many(keys)
        committed = iter(self._committed.get_many([key for key in keys if key not in rows]))
        return [rows[key] if key in rows else next(committed) for key in keys]

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop`, staged over committed, in key order; stable against later writes."""
        rows = self._committed.scan(start, stop, reverse=reverse)
        if not self.staged.rows and self._spill is None and self.hidden is None:
            return rows
        committed: Iterator[Change] = rows
        if self.hidden is not None:
            committed = _outside(committed, self.hidden.copy())
        if self._spill is not None:
            committed = overlay(self._spill.scan(self._name, start, stop, reverse=reverse), committed, reverse=reverse)
        staged = self.staged.slice(start, stop, reverse=reverse)
        self._reads.add(staged)
        return live(overlay(self._while_open(staged), committed, reverse=reverse))

    def _while_open(self, rows: Iterator[Change]) -> Iterator[Change]:
        for row in rows:  # in memory they would outlive the store
            self._table.require_open()
            yield row

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes | None) -> None:
        """Stage a row; None deletes."""
        staged, transaction = self.staged, self._transaction
        rows, size = staged.rows, 0 if value is None else len(value)
        if key in rows:
            before = rows[key]
            transaction.staged_bytes += size if before is None else size - len(before)
        else:
            transaction.staged_bytes += size + len(key) + ROW_OVERHEAD_BYTES
        if key not in rows or staged.walks:
            staged.put(key, value)
        else:
            rows[key] = value
        if transaction.staged_bytes > transaction.spill_at:
            transaction.spill_staged()

    def put_many(self, changes: Changes) -> None:
        """Stage many rows; None deletes."""
        staged, transaction = self.staged, self._transaction
        size = _bytes_of(changes, changes.values())
        if staged.rows:
            replaced = changes.keys() & staged.rows.keys()
            size -= _bytes_of(replaced, map(staged.rows.__getitem__, replaced))
        if transaction.staged_bytes + size > transaction.spill_at:
            for key, value in changes.items():
                self.put(key, value)
            return
        staged.put_many(changes)
        transaction.staged_bytes += size

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Stage the delete of all rows with `start <= key < stop`; a later put of such a key wins."""
        for key, value in list(self.staged.slice(start, stop)):
            self.staged.remove(key)
            self._transaction.staged_bytes -= len(key) + ROW_OVERHEAD_BYTES + (0 if value is None else len(value))
        if self._spill is not None:
            self._spill.delete_range(self._name, start, stop)
        self.ahead.forget()
        if self.hidden is None:
            self.hidden = KeyRanges()
        self.hidden.add(start, stop)

    # -- the transaction's own ------------------------------------------------------------------------------------

    def move_to(self, spill: Spill) -> None:
        """Move what is staged in memory to disk, and read it there from now on."""
        self.ahead.forget()
        self._spill = spill
        if self.staged.rows:
            spill.add(self._name, self.staged.slice())
            self.staged = SortedRows()

    def committed(self) -> None:
        """Know that the table has what was staged."""
        if self._spill is None and self.hidden is None:
            self.ahead.update(self.staged.rows)

    def forget(self) -> None:
        """Show the committed rows alone."""
        self.staged, self.hidden, self._spill = SortedRows(), None, None

    def close(self) -> None:
        """Refuse every later read and write: a processor may keep the shortcuts, which use these rows."""
        self.ahead.forget()
        self.staged = _ClosedRows(self._table)  # type: ignore[assignment]  # it stands for them


class _ClosedRows:
    """Stands for the staged rows of a closed table: whatever is asked of them raises InvalidStateError."""

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        self._table = table

    def __getattr__(self, name: str) -> NoReturn:
        self._table.require_open()
        raise AttributeError(name)


def _bytes_of(keys: Collection[bytes], values: Iterable[bytes | None]) -> int:
    """Memory that rows take."""
    return sum(map(len, keys)) + sum(map(len, filter(None, values))) + len(keys) * ROW_OVERHEAD_BYTES


def _outside(rows: Iterator[Change], hidden: KeyRanges) -> Iterator[Change]:
    return (row for row in rows if row[0] not in hidden)
