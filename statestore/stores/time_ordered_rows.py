"""Rows of a database that have their times in front (`formats/time_ordered_key.py`), used by their ordinary keys.

The store above writes and reads by the keys of the changelog, as a store of the ordinary kind does. Every row goes with
its index row, where the kind has an index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from statestore.errors import StoreCorruptedError
from statestore.formats import time_ordered_key
from statestore.kinds.kind import RowLayout
from statestore.stores.table import Changes, Row, Rows

_NO_VALUE = b""
_FIRST_INDEX, _AFTER_INDEX = time_ordered_key.index(b""), bytes([time_ordered_key.INDEX + 1])


class TimeOrderedRows:
    """Rows by their ordinary keys over such rows."""

    def __init__(self, rows: Rows, layout: RowLayout) -> None:
        self._rows = rows
        self._layout = layout

    def _row_key(self, key: bytes) -> bytes:
        if len(key) < sum(self._layout.key):
            raise StoreCorruptedError(f"a row key has at least {sum(self._layout.key)} bytes, found {len(key)}")
        return time_ordered_key.row(key, self._layout.key)

    def get(self, key: bytes) -> bytes | None:
        """Read one value."""
        return self._rows.get(self._row_key(key))

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of many keys, in their order."""
        return self._rows.get_many([self._row_key(key) for key in keys])

    def scan(self, start: bytes | None = None, stop: bytes | None = None, *, reverse: bool = False) -> Iterator[Row]:
        """Rows with `start <= key < stop` in key order, or in reverse.

        Without an index all rows of the database are read, and come in the order of their times, as in Kafka Streams.
        """
        if self._layout.indexed:
            return self._by_index(start, stop, reverse=reverse)
        return self._by_time(start, stop, reverse=reverse)

    def _by_index(self, start: bytes | None, stop: bytes | None, *, reverse: bool) -> Iterator[Row]:
        first = _FIRST_INDEX if start is None else time_ordered_key.index(start)
        after = _AFTER_INDEX if stop is None else time_ordered_key.index(stop)
        for row_key, _ in self._rows.scan(first, after, reverse=reverse):
            key = row_key[time_ordered_key.PREFIX_BYTES :]
            value = self.get(key)
            if value is not None:  # Kafka Streams leaves the index of a row that a null value deletes
                yield key, value

    def _by_time(self, start: bytes | None, stop: bytes | None, *, reverse: bool) -> Iterator[Row]:
        for row_key, value in self._rows.scan(*time_ordered_key.ROWS_WITHOUT_INDEX, reverse=reverse):
            key = time_ordered_key.ordinary(row_key, self._layout.key)
            if key is None:
                raise StoreCorruptedError(f"a row key of {len(row_key)} bytes is too short for its times")
            if (start is None or key >= start) and (stop is None or key < stop):
                yield key, value

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write one row; None deletes."""
        self.put_many({key: value})

    def put_many(self, changes: Changes) -> None:
        """Write many rows; None deletes."""
        changed: dict[bytes, bytes | None] = {self._row_key(key): value for key, value in changes.items()}
        if self._layout.indexed:
            for key, value in changes.items():
                changed[time_ordered_key.index(key)] = None if value is None else _NO_VALUE
        self._rows.put_many(changed)

    def delete_range(self, start: bytes, stop: bytes) -> None:
        """Delete the rows with `start <= key < stop`."""
        self.put_many(dict.fromkeys(key for key, _ in list(self.scan(start, stop))))
