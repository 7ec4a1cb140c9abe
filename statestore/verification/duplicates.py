"""Windows that keep duplicates: a store and its log are compared by the values in each window, whatever their numbers.

The number at the end of a row key tells duplicates apart, and nothing more: a store and its log count each by itself.
Kafka Streams' stores do not count nulls, their logs do. So rows that differ by their whole keys are held until their
window is over, and what has its like on the other side is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from statestore.formats.window_key import SEQUENCE_BYTES


class OneSided(NamedTuple):
    """A row that one side has under this key, and the other has not, or not with this value.

    Attributes
    ----------
    value
        Digest of the value alone, by which the sides are compared.
    told
        Digest of the value as a store of this format has it.
    """

    key: bytes
    value: bytes
    told: str


#: Rows by the digests of their values.
_Rows = dict[bytes, list[OneSided]]


@dataclass
class Window:
    """What differs in one window.

    Attributes
    ----------
    changed
        The log has changed the window behind the store's committed offset.
    may_be_gone
        Of what the store has, something may be gone from the log.
    pairs
        Rows that both sides have under different numbers.
    """

    changed: bool = False
    may_be_gone: bool = False
    pairs: int = 0
    _stored: _Rows = field(default_factory=dict, init=False)
    _logged: _Rows = field(default_factory=dict, init=False)

    def add_stored(self, row: OneSided) -> None:
        """Add a row of the store."""
        self._add(row, self._stored, self._logged)

    def add_logged(self, row: OneSided) -> None:
        """Add a row of the log."""
        self._add(row, self._logged, self._stored)

    def _add(self, row: OneSided, mine: _Rows, its: _Rows) -> None:
        if (alike := its.get(row.value)) is None:
            mine.setdefault(row.value, []).append(row)
            return
        self.pairs += 1
        alike.pop()
        if not alike:
            del its[row.value]

    @property
    def only_stored(self) -> list[OneSided]:
        """Rows that the log has nothing like, in the order of their keys."""
        return sorted(row for rows in self._stored.values() for row in rows)

    @property
    def only_logged(self) -> list[OneSided]:
        """Rows that the store has nothing like, in the order of their keys."""
        return sorted(row for rows in self._logged.values() for row in rows)


class Windows:
    """The windows that are not over yet, while rows come in the order of their keys.

    Windows of keys of different length interleave, so that there may be several; one is over with the first row key
    that does not begin as all of its own do.
    """

    def __init__(self) -> None:
        self._open: dict[bytes, Window] = {}

    def over(self, row_key: bytes) -> Iterator[Window]:
        """Yield the windows that are over with this row."""
        for window in [window for window in self._open if not row_key.startswith(window)]:
            yield self._open.pop(window)

    def of(self, row_key: bytes) -> Window:
        """Return the window of a row."""
        return self._open.setdefault(row_key[:-SEQUENCE_BYTES], Window())

    def end(self) -> Iterator[Window]:
        """Yield what is left: no more rows come."""
        while self._open:
            yield self._open.popitem()[1]
