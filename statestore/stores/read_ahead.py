"""Committed rows that are prefetched in batches, before they are read one by one.

A hint, and nothing else: a row that is not here is read when it is asked for, and what cannot be read is reported then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from statestore.errors import StateStoreError
from statestore.stores.table import Rows

#: So many rows are read at once, and so many bytes are kept, about.
_ROWS, _FIRST_ROWS = 4_096, 64
_BYTES = 8 * 1024 * 1024
#: If fewer than one of so many was asked for, nothing is read the next times.
_FEW, _PAUSES = 4, 15


class ReadAhead:
    """Rows of one column family.

    Attributes
    ----------
    rows
        Those known; None is a key without a row. Whoever finds something here counts it in `hits`.
    hits
        How often that was.
    """

    __slots__ = ("_committed", "_pauses", "hits", "rows")

    def __init__(self, committed: Rows) -> None:
        self._committed = committed
        self._pauses = 0
        self.rows: dict[bytes, bytes | None] = {}
        self.hits = 0

    def read(self, keys: Collection[bytes]) -> None:
        """Read the rows of these keys, unless such rows were rarely asked for; forget all others."""
        if self.rows and self.hits * _FEW < len(self.rows):
            self._pauses = _PAUSES
        self.forget()
        if self._pauses:
            self._pauses -= 1
            return
        ordered = sorted(keys)  # RocksDB reads ordered keys in half the time
        at, many, size = 0, _FIRST_ROWS, 0
        try:
            while at < len(ordered) and size < _BYTES:
                some = ordered[at : at + many]
                values = self._committed.get_many(some)
                self.rows.update(zip(some, values, strict=True))
                size += sum(map(len, some)) + sum(map(len, filter(None, values)))
                at += len(some)
                many = max(min(_ROWS, (_BYTES - size) * at // max(size, 1)), 1)
        except (StateStoreError, OSError):
            return  # whoever asks for that row is told

    def update(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Know what was committed."""
        if self.rows:
            self.rows.update(changes)

    def forget(self) -> None:
        """Know nothing."""
        self.rows = {}
        self.hits = 0
