"""A digest of rows that is the same for a store and for its log, in whatever order and batches the rows come.

Of each row two numbers of 64 bits are made from XXH64 of key, of plain value, and the timestamp; the digest is their
sums. It tells accidents and damage, not forgery.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from statestore.compiled.batches import Address, UInt64s, address_of, int64_column
from statestore.compiled.loops import compiled
from statestore.compiled.memory import Int, load_big_i64, load_i32, load_i64, mixed, xxh64
from statestore.errors import StoreCorruptedError
from statestore.formats.timestamped_value import TIMESTAMP_BYTES
from statestore.formats.value_format import AnyFormat, value_format
from statestore.kafka.record_columns import SCHEMA

_ODD = np.uint64(0x9E3779B97F4A7C15)


class Digest:
    """Counts rows and adds up what is made of each; equal digests mean equal rows.

    The timestamp of a row is part of it in the formats that have one. Where headers are kept, values are as stored.

    Attributes
    ----------
    rows
        How many were added.
    sums
        The digest as two numbers, for loops that add rows by `add_row`.
    """

    def __init__(self, store_format: AnyFormat) -> None:
        self._timestamped = value_format(store_format).timestamp_in_front
        self.sums = np.zeros(2, np.uint64)
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of a log: a batch with `changelog.reader.SCHEMA` without nulls, as `merged` gives it."""
        _add(address_of(rows), self._timestamped, False, self.sums)
        self.rows += rows.num_rows

    def add_stored(self, keys: Sequence[bytes] | pa.Array, values: Sequence[bytes] | pa.Array) -> None:
        """Add rows of a store: row keys, and values as they are stored in its format.

        Raises
        ------
        StoreCorruptedError
            If a value has no room for its timestamp.
        """
        columns = [found if isinstance(found, pa.Array) else pa.array(found, pa.binary()) for found in (keys, values)]
        none = int64_column(np.zeros(len(columns[0]), np.int64))
        batch = pa.RecordBatch.from_arrays([*columns, none, none], schema=SCHEMA)
        if not _add(address_of(batch), self._timestamped, self._timestamped, self.sums):
            raise StoreCorruptedError(
                f"a stored value is shorter than the {TIMESTAMP_BYTES} bytes of a timestamp; restore the store"
            )
        self.rows += batch.num_rows

    def add_digest(self, rows: int, hexdigest: str) -> None:
        """Add rows that another digest was made of."""
        self.sums += np.array([int(hexdigest[:16], 16), int(hexdigest[16:], 16)], np.uint64)
        self.rows += rows

    def hexdigest(self) -> str:
        """The digest of all rows added so far, 32 hex digits."""
        return f"{int(self.sums[0]):016x}{int(self.sums[1]):016x}"


@compiled
def _add(place: Address, timestamped: bool, in_value: bool, sums: UInt64s) -> bool:
    for row in range(place.rows):
        begin = load_i32(place.key_ends + 4 * row)
        key = xxh64(place.keys + begin, load_i32(place.key_ends + 4 * row + 4) - begin)
        begin = load_i32(place.value_ends + 4 * row)
        address, size = place.values + begin, load_i32(place.value_ends + 4 * row + 4) - begin
        time = np.int64(0)
        if in_value:
            if size < TIMESTAMP_BYTES:
                return False
            time = load_big_i64(address)
            address += TIMESTAMP_BYTES
            size -= TIMESTAMP_BYTES
        elif timestamped:
            time = load_i64(place.timestamps + 8 * row)
        add_row(key, xxh64(address, size), time, sums)
    return True


@compiled
def add_row(key: Int, value: Int, time: Int, sums: UInt64s) -> None:
    """Add a row, told by the XXH64 of its key and of its plain value and by its timestamp (0 in the plain format)."""
    one = mixed(key + mixed(value + _ODD * np.uint64(time)))
    sums[0] += one
    sums[1] += mixed((one ^ value) + _ODD * key)
