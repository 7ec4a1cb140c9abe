"""The in-memory engine: nothing survives the process, so it keeps no offsets (KIP-1035); its changelog rebuilds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakSet

from statestore.errors import InvalidStateError
from statestore.model import TopicPartition
from statestore.stores.sorted_rows import SortedRows
from statestore.stores.table import Changes, KeyRange, Row


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
        self._families = {family: SortedRows() for family in families}
        self._cursors: WeakSet[_Cursor] = WeakSet()
        self.closed = False

    @property
    def being_read(self) -> bool:
        """True while an iterator is open."""
        return len(self._cursors) > 0

    def require_open(self) -> None:
        """Raise InvalidStateError, naming the store, if it is closed."""
        self._open()

    def has(self, family: str) -> bool:
        """True if the column family exists."""
        return family in self._families

    def get(self, family: str, key: bytes) -> bytes | None:
        """Read one value."""
        return self._open()[family].rows.get(key)

    def get_many(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of many keys, in their order."""
        rows = self._open()[family].rows
        return [rows.get(key) for key in keys]

    def scan(
        self, family: str, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        """Rows with `start <= key < stop`, in key order or in reverse, as of the call."""
        cursor = _Cursor(self._open()[family].slice(start, stop, reverse=reverse))
        self._cursors.add(cursor)
        return self._walk(cursor)

    def _walk(self, cursor: _Cursor) -> Iterator[Row]:
        for key, value in cursor.rows:
            if self.closed:
                raise InvalidStateError(f"{self._name} was closed under this iterator; open it again")
            assert value is not None, "deletes are not kept"
            yield key, value

    def put(self, family: str, key: bytes, value: bytes | None) -> None:
        """Write one row; None deletes."""
        rows = self._open()[family]
        if value is None:
            rows.remove(key)
        else:
            rows.put(key, value)

    def write(
        self,
        changes: Mapping[str, Changes],
        offsets: Mapping[TopicPartition, int] | None = None,
        position: Mapping[TopicPartition, int] | None = None,
        status: int | None = None,
        ranges: Mapping[str, Sequence[KeyRange]] | None = None,
    ) -> None:
        """Apply range deletes, then changes. Offsets, position and status are not kept."""
        self._open()
        for family, deleted in (ranges or {}).items():
            for key_range in deleted:
                for key, _ in list(self._families[family].slice(*key_range)):
                    self._families[family].remove(key)
        for family, rows in changes.items():
            for key, value in rows.items():
                self.put(family, key, value)

    def committed_offset(self, topic_partition: TopicPartition) -> None:
        """None: in-memory stores do not manage offsets."""
        self._open()

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
        self._families = {}

    def _open(self) -> dict[str, SortedRows]:
        if self.closed:
            raise InvalidStateError(f"{self._name} is closed")
        return self._families


class _Cursor:
    """Rows that an iterator walks; it lives as long as the iterator is not at its end."""

    __slots__ = ("__weakref__", "rows")

    def __init__(self, rows: Iterator[tuple[bytes, bytes | None]]) -> None:
        self.rows = rows
