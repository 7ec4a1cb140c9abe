"""The rows of a format: in one column family, or in a new one over older ones with rows that are not yet migrated.

The format decides only this and the value's layout, so a transaction is one decorator below (`Transaction`), and a
store without one writes through `Direct`. The names are Kafka Streams': its `DBAccessor` is one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from statestore import kill_switch
from statestore.formats.value_format import AnyFormat, ValueFormat, value_format
from statestore.model import TopicPartition
from statestore.stores.commit_log import Piece
from statestore.stores.merge import Change, live, overlay
from statestore.stores.table import Changes, Row, Rows, Table


class DBAccessor(Protocol):
    """How writes become part of a table: at once (`Direct`), or by a commit (`Transaction`)."""

    staged_bytes: int
    half_committed: bool

    @property
    def spilled(self) -> bool:
        """True if a commit takes more than one write."""

    @property
    def has_changes(self) -> bool:
        """True if anything is staged."""

    def pieces(self) -> Iterator[Piece]:
        """Yield the staged changes in the order in which a commit applies them."""

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""

    def family(self, name: str) -> Rows:
        """Return the rows of a column family, as their owner sees them."""

    def commit(self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None) -> None:
        """Make what was written part of the table, with its offsets."""

    def rollback(self) -> None:
        """Forget what was not committed."""

    def close(self) -> None:
        """Forget what was not committed, and end open iterators."""


class Direct:
    """Writes of a store without transactions: made at once, committed offsets or not."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.staged_bytes = 0
        self.half_committed = self.spilled = self.has_changes = False

    def pieces(self) -> Iterator[Piece]:
        """Nothing is staged."""
        return iter(())

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""
        return self._table.being_read

    def family(self, name: str) -> Rows:
        """Return the rows of a column family: the table's own."""
        return self._table.family(name)

    def commit(self, offsets: Mapping[TopicPartition, int], position: Mapping[TopicPartition, int] | None) -> None:
        """Write the offsets; the rows are there."""
        if offsets or position is not None:
            self._table.write({}, offsets, position)

    def rollback(self) -> None:
        """Nothing to forget: this is what a store without transactions lacks."""

    def close(self) -> None:
        """Nothing to end."""


class DualColumnFamily:
    """A newer format over rows that may still be in older ones (KIP-258's lazy migration).

    A get migrates the older row that it finds, a put removes it, and a scan shows all. With `migrate` off a get moves
    nothing.

    Parameters
    ----------
    old
        Rows of older formats by their column families, newer ones first.
    """

    def __init__(self, layout: ValueFormat, new: Rows, old: Mapping[str, Rows], *, migrate: bool) -> None:
        self._migrated = layout.migrated
        self._new = new
        self._old = old
        self._migrate = migrate

    def get(self, key: bytes) -> bytes | None:
        """Read a row; an older one is migrated."""
        value = self._new.get(key)
        if value is not None:
            return value
        for family, old in self._old.items():
            if (older := old.get(key)) is not None:
                value = self._migrated(family, older)
                if self._migrate:
                    self.put(key, value)
                return value
        return None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read many rows; older ones are migrated."""
        found = self._new.get_many(keys)
        return [self.get(key) if value is None else value for key, value in zip(keys, found, strict=True)]

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop` in key order, or in reverse, from all column families."""
        rows: Iterator[Change] = self._new.scan(start, stop, reverse=reverse)
        for family, old in self._old.items():
            rows = overlay(rows, self._as_migrated(family, old.scan(start, stop, reverse=reverse)), reverse=reverse)
        return live(rows)

    def _as_migrated(self, family: str, rows: Iterator[Row]) -> Iterator[Change]:
        return ((key, self._migrated(family, older)) for key, older in rows)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write a row, and remove its older predecessors; None deletes all of them."""
        self._new.put(key, value)
        kill_switch.reached("row migrated, the plain one still there")
        for old in self._old.values():
            old.put(key, None)

    def put_many(self, changes: Changes) -> None:
        """Write many rows one by one; None deletes."""
        for key, value in changes.items():
            self.put(key, value)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop` from all column families."""
        self._new.delete_range(start, stop)
        for old in self._old.values():
            old.delete_range(start, stop)


def pending_families(store_format: AnyFormat, table: Table) -> tuple[str, ...]:
    """Column families of older formats that have rows. It is asked once, at the opening, as Kafka Streams does."""
    return tuple(
        old
        for old in value_format(store_format).column_families[1:]
        if table.has(old) and next(table.family(old).scan(), None) is not None
    )


def accessor(store_format: AnyFormat, family: Callable[[str], Rows], *, pending: Sequence[str], migrate: bool) -> Rows:
    """Return the rows of a format.

    Parameters
    ----------
    family
        Gives the rows of a column family.
    pending
        The column families of older formats that have rows.
    migrate
        Whether a get migrates such a row.
    """
    layout = value_format(store_format)
    new = family(layout.column_families[0])
    return DualColumnFamily(layout, new, {old: family(old) for old in pending}, migrate=migrate) if pending else new
