"""Uncommitted writes, staged outside the table (KIP-844's transactional store, in KIP-892's shape).

Reads see staged rows merged over committed ones, in key order. `commit` applies everything with its offsets in one
atomic write; `rollback`, or the end of the process, leaves the table as it was.

Rows are staged in memory up to a bound, beyond it in a secondary RocksDB (`spill.py`). A transaction that spilled is
committed in chunks, its offsets with the last one: after a crash in between, the offsets still name the commit before,
and the changelog from there on, which is committed in Kafka by then, is replayed over the chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from weakref import WeakSet

from statestore import kill_switch
from statestore.model import TopicPartition
from statestore.stores.key_ranges import KeyRanges
from statestore.stores.merge import Change, live, overlay
from statestore.stores.sorted_rows import ROW_OVERHEAD_BYTES, SortedRows
from statestore.stores.spill import Spill
from statestore.stores.table import Changes, Row, Table


class Transaction:
    """Rows of a table's data column families: committed in the table, staged here.

    Parameters
    ----------
    table
        The open table; it is written only by `commit`.
    spill_directory
        Where the secondary RocksDB goes; what a crash left there is removed. None: everything is staged in memory.
    max_bytes
        Memory for staged rows, the secondary RocksDB's own included.
    """

    def __init__(self, table: Table, families: Sequence[str], spill_directory: Path | None, max_bytes: int) -> None:
        self.table = table
        self._families = families
        self._spill_directory = spill_directory
        self._max_bytes = max_bytes
        # Half for the rows; the rest is for sorting, for the secondary RocksDB and for the chunks of a commit.
        self._spill_at = max_bytes // 2 if spill_directory is not None else None
        self._staged = {family: SortedRows() for family in families}
        self._hidden: dict[str, KeyRanges] = {}
        self._spill: Spill | None = None
        self._spills = 0
        self._ended: list[Spill] = []
        self._reads: WeakSet[Iterator[Change]] = WeakSet()
        self.staged_bytes = 0
        #: True while a part of a commit is in the table: after a failure it can be completed, and not taken back.
        self.half_committed = False
        if spill_directory is not None:
            Spill.remove(spill_directory)

    @property
    def spilled(self) -> bool:
        """True if the transaction has outgrown its memory."""
        return self._spill is not None

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def being_read(self) -> bool:
        """True while an iterator is open, over the table or over what a transaction staged."""
        return self.table.being_read or len(self._reads) > 0 or any(spill.being_read for spill in self._ended)

    def get(self, family: str, key: bytes) -> bytes | None:
        """Read a row as the owner of the transaction sees it."""
        rows = self._staged[family].rows
        if key in rows:
            return rows[key]
        if self._spill is not None:
            found, value = self._spill.get(family, key)
            if found:
                return value
        if self._hidden and family in self._hidden and key in self._hidden[family]:
            return None
        return self.table.get(family, key)

    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows, in the order of their keys."""
        rows = self._staged[family].rows
        if not rows and self._spill is None and not self._hidden:
            return self.table.get_many(family, keys)
        if self._spill is not None or self._hidden:
            return [self.get(family, key) for key in keys]
        committed = iter(self.table.get_many(family, [key for key in keys if key not in rows]))
        return [rows[key] if key in rows else next(committed) for key in keys]

    def scan(
        self, family: str, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        """Rows with `start <= key < stop`, staged over committed, in key order; stable against later writes."""
        committed: Iterator[Change] = self.table.scan(family, start, stop, reverse=reverse)
        staged = self._staged[family]
        hidden = self._hidden.get(family)
        if not staged.rows and self._spill is None and not hidden:
            return committed  # type: ignore[return-value]  # a table holds no deletes
        if hidden:
            committed = _outside(committed, hidden.copy())
        if self._spill is not None:
            committed = overlay(self._spill.scan(family, start, stop, reverse=reverse), committed, reverse=reverse)
        rows = staged.slice(start, stop, reverse=reverse)
        self._reads.add(rows)
        return live(overlay(self._while_open(rows), committed, reverse=reverse))

    def _while_open(self, rows: Iterator[Change]) -> Iterator[Change]:
        for row in rows:  # in memory they would outlive the store
            self.table.require_open()
            yield row

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, family: str, key: bytes, value: bytes | None) -> None:
        """Stage a row; None deletes."""
        staged = self._staged[family]
        rows = staged.rows
        size = 0 if value is None else len(value)
        if key in rows:
            before = rows[key]
            self.staged_bytes += size if before is None else size - len(before)
        else:
            self.staged_bytes += size + len(key) + ROW_OVERHEAD_BYTES
        staged.put(key, value)
        if self._spill_at is not None and self.staged_bytes > self._spill_at:
            self._spill_staged()

    def put_many(self, family: str, changes: Changes) -> None:
        """Stage many rows; None deletes."""
        staged = self._staged[family]
        size = sum(map(len, changes)) + sum(len(value) for value in changes.values() if value is not None)
        size += len(changes) * ROW_OVERHEAD_BYTES
        if staged.rows or (self._spill_at is not None and self.staged_bytes + size > self._spill_at):
            for key, value in changes.items():
                self.put(family, key, value)
            return
        put = staged.put
        for key, value in changes.items():
            put(key, value)
        self.staged_bytes += size

    def delete_range(self, family: str, start: bytes, stop: bytes) -> None:
        """Stage the delete of all rows with `start <= key < stop`; a later put of such a key wins."""
        staged = self._staged[family]
        for key, value in list(staged.slice(start, stop)):
            staged.remove(key)
            self.staged_bytes -= len(key) + ROW_OVERHEAD_BYTES + (0 if value is None else len(value))
        if self._spill is not None:
            self._spill.delete_range(family, start, stop)
        self._hidden.setdefault(family, KeyRanges()).add(start, stop)

    def _spill_staged(self) -> None:
        if self._spill is None:
            assert self._spill_directory is not None
            self._spill = Spill(self._spill_directory / str(self._spills), self._families, self._max_bytes)
            self._spills += 1
        for family, staged in self._staged.items():
            if staged.rows:
                self._spill.add(family, staged.slice())
        self._staged = {family: SortedRows() for family in self._families}
        self.staged_bytes = 0

    # -- the end --------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None) -> None:
        """Apply what is staged, with its offsets and position. One that failed half way can be repeated."""
        ranges = {family: hidden.ranges() for family, hidden in self._hidden.items()}
        if self._spill is not None:
            self._spill_staged()  # so that their memory is free for the chunks and for what the table does with them
            self.half_committed = True
            self.table.write({}, ranges=ranges)
            for family, chunk in self._spill.chunks():
                self.table.write({family: chunk})
                kill_switch.reached("chunk of a spilled commit written")
            ranges = {}
        changes = {family: staged.rows for family, staged in self._staged.items() if staged.rows}
        self.table.write(changes, offsets, position, ranges=ranges)
        self.half_committed = False
        self.rollback()

    def rollback(self) -> None:
        """Forget what is staged. The table keeps what a commit that failed half way has written."""
        self._staged = {family: SortedRows() for family in self._families}
        self._hidden = {}
        self.staged_bytes = 0
        if self._spill is not None:
            self._ended.append(self._spill)
            self._spill = None
        self._close_ended(lambda spill: not spill.being_read)

    def close(self) -> None:
        """Roll back, and take everything away from iterators that are still open."""
        self.rollback()
        self._close_ended(lambda _: True)

    def _close_ended(self, may_close: Callable[[Spill], bool]) -> None:
        # An iterator outlives the transaction that it was opened in, so its part of the disk does, too.
        for spill in [spill for spill in self._ended if may_close(spill)]:
            spill.close()
            self._ended.remove(spill)


def _outside(rows: Iterator[Change], hidden: KeyRanges) -> Iterator[Change]:
    return (row for row in rows if row[0] not in hidden)
