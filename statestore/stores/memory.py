"""The in-memory engine: nothing survives the process, so it keeps no offsets (KIP-1035); its changelog rebuilds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakSet

from statestore.errors import InvalidStateError
from statestore.model import TopicPartition
from statestore.stores.sorted_rows import SortedRows
from statestore.stores.table import Changes, DeletedRange, Row


class MemoryTable:
    """Sorted rows in memory.

    Parameters
    ----------
    name
        What an error calls it.
    """

    persistent = False

    def __init__(self, name: str, families: Sequence[str]) -> None:
        self._name = name
        self._families = {family: MemoryFamily(name) for family in families}
        self.closed = False

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""
        return any(family.being_read for family in self._families.values())

    def require_open(self) -> None:
        """Raise InvalidStateError, naming the store, if it is closed."""
        if self.closed:
            raise _closed(self._name)

    def has(self, family: str) -> bool:
        """True if the column family exists."""
        return family in self._families

    def family(self, name: str) -> MemoryFamily:
        """Return the rows of a column family."""
        self.require_open()
        return self._families[name]

    def write(
        self,
        changes: Mapping[str, Changes],
        offsets: Mapping[TopicPartition, int] | None = None,
        position: Mapping[TopicPartition, int] | None = None,
        status: int | None = None,
        ranges: Mapping[str, Sequence[DeletedRange]] | None = None,
    ) -> None:
        """Apply range deletes, then changes. Offsets, position and status are not kept."""
        self.require_open()
        for family, key_ranges in (ranges or {}).items():
            for key_range in key_ranges:
                self._families[family].delete_range(*key_range)
        for family, rows in changes.items():
            self._families[family].put_many(rows)

    def committed_offset(self, topic_partition: TopicPartition) -> None:
        """None: in-memory stores do not manage offsets."""
        self.require_open()

    def offset_partitions(self) -> list[TopicPartition]:
        """None: see `committed_offset`."""
        return []

    def clear_offsets(self) -> None:
        """Nothing to forget."""

    def position(self) -> dict[TopicPartition, int]:
        """Empty: see `committed_offset`."""
        return {}

    def sync(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Forget all rows."""
        self.closed = True
        for family in self._families.values():
            family.release()
        self._families = {}


class MemoryFamily:
    """Rows of one column family in memory."""

    __slots__ = ("_cursors", "_name", "_sorted")

    def __init__(self, name: str) -> None:
        self._name = name
        self._sorted: SortedRows | None = SortedRows()
        self._cursors: WeakSet[_Cursor] = WeakSet()

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""
        return len(self._cursors) > 0

    def get(self, key: bytes) -> bytes | None:
        """Read one value."""
        if self._sorted is None:
            raise _closed(self._name)
        return self._sorted.rows.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of many keys, in their order."""
        get = self._open().rows.get
        return [get(key) for key in keys]

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop`, in key order or in reverse, as of the call."""
        cursor = _Cursor(self._open().slice(start, stop, reverse=reverse))
        self._cursors.add(cursor)
        return self._walk(cursor)

    def _walk(self, cursor: _Cursor) -> Iterator[Row]:
        for key, value in cursor.rows:
            if self._sorted is None:
                raise InvalidStateError(f"{self._name} was closed under this iterator; open it again")
            assert value is not None, "deletes are not kept"
            yield key, value

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one row; None deletes."""
        rows = self._sorted
        if rows is None:
            raise _closed(self._name)
        if value is None:
            rows.remove(key)
        else:
            rows.put(key, value)

    def put_many(self, changes: Changes) -> None:
        """Write many rows; None deletes."""
        for key, value in changes.items():
            self.put(key, value)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop`."""
        rows = self._open()
        for key, _ in list(rows.slice(start, stop)):
            rows.remove(key)

    def release(self) -> None:
        """Forget the rows; iterators that are still open end with an error."""
        self._sorted = None

    def _open(self) -> SortedRows:
        if self._sorted is None:
            raise _closed(self._name)
        return self._sorted


class _Cursor:
    """Rows that an iterator walks; it lives as long as the iterator is not at its end."""

    __slots__ = ("__weakref__", "rows")

    def __init__(self, rows: Iterator[tuple[bytes, bytes | None]]) -> None:
        self.rows = rows


def _closed(name: str) -> InvalidStateError:
    return InvalidStateError(f"{name} is closed")
