"""Windows that keep duplicates: a store and its log are compared by the values in each window, whatever their numbers.

The number at the end of a row key tells duplicates apart, and nothing more: a store and its log count each by itself.
Kafka Streams' stores do not count nulls, their logs do. So rows that differ by their whole keys are held until their
window is over, and what has its like on the other side is the same.

Kafka Streams begins with number 1 whenever it starts. So a record of one time and key with another may have taken its
number in the log, and not in the store, which then has both. The log is read once more for that, with all its records.
The reverse cannot be told from a row that the store has lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.window_key import SEQUENCE_BYTES
from statestore.reports import Contents

_LARGEST_NUMBER = (1 << 8 * SEQUENCE_BYTES) - 1


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
    """Differences in one window.

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


def numbered_by_offset(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Number the records of a log by their offsets instead, so that none has the row key of another."""
    keys, offsets = batch.column("key"), batch.column("offset").to_numpy()
    numbers = pa.py_buffer((offsets & _LARGEST_NUMBER).astype(f">u{SEQUENCE_BYTES}").tobytes())
    ends = pa.Array.from_buffers(pa.binary(SEQUENCE_BYTES), len(offsets), [None, numbers]).cast(keys.type)
    numbered = pc.binary_join_element_wise(pc.binary_slice(keys, 0, -SEQUENCE_BYTES), ends, b"")
    return batch.set_column(batch.schema.get_field_index("key"), batch.schema.field("key"), numbered)


def without_overwritten(found: Contents, with_all: Contents) -> Contents:
    """Leave out what is only in the store, and was in the log before another record took its number there.

    Parameters
    ----------
    with_all
        The comparison with all records of the log.
    """
    first = [
        *(key for key in found.first if key.found != "only in store"),
        *(key for key in with_all.first if key.found == "only in store"),
    ]
    return found.model_copy(
        update={
            "only_in_store": with_all.only_in_store,
            "not_judged": found.not_judged + found.only_in_store - with_all.only_in_store,
            "first": tuple(first),
        }
    )
