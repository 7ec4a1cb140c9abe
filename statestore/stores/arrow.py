"""A key-value store in columns of Arrow: what `process_batch` reads and writes.

A column has the type of the store's serde: int64, string for `utf8`, binary for `bytes`, and for every other serde
binary, as it has written it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import InputError, StateStoreError
from statestore.formats.timestamped_value import TIMESTAMP_BYTES
from statestore.formats.value_format import ValueFormat
from statestore.stores.int64_columns import stored_int64s, to_bytes
from statestore.stores.serdes import INT64, UTF8, Serde
from statestore.stores.typed import KeyValueStore


class FoundRows(NamedTuple):
    """What the store has for keys, in their order.

    Attributes
    ----------
    values
        Null where there is none.
    timestamps
        Those of the values (ms, int64), in a timestamped store; null where there is none. None in a plain one.
    """

    values: pa.Array
    timestamps: pa.Array | None


class ArrowStore:
    """A key-value store with many rows at once.

    Parameters
    ----------
    store
        The open store.

    Raises
    ------
    InputError
        If it is of another kind, or keeps headers.
    """

    def __init__(self, store: Any) -> None:
        if not isinstance(store, KeyValueStore) or store.layout.keeps_headers:
            raise InputError(
                f"store {store.name} cannot be read and written in columns of Arrow: only key-value stores without "
                "headers can; use state_store"
            )
        self._store: KeyValueStore[Any, Any] = store
        self._layout: ValueFormat = store.layout
        self._keys, self._values = store.serdes

    def get_many(self, keys: pa.Array | pa.ChunkedArray) -> FoundRows:
        """Read the rows of many keys; none of these is null."""
        keys = _one_array(keys)
        order = pc.sort_indices(keys)  # RocksDB reads ordered keys in half the time
        ordered = _to_bytes(keys.take(order), self._keys, "key")
        if None in ordered:
            raise TypeError("a key is null")
        try:
            stored = self._store.get_rows(ordered)  # type: ignore[arg-type]  # none is None
        except (StateStoreError, OSError) as error:
            self._store.fail(error)
        place = np.empty(len(order), np.int64)
        place[order.to_numpy()] = np.arange(len(order))
        values, timestamps = self._columns(stored)
        return FoundRows(values.take(place), None if timestamps is None else timestamps.take(place))

    def put_many(
        self,
        keys: pa.Array | pa.ChunkedArray,
        values: pa.Array | pa.ChunkedArray,
        timestamps: pa.Array | pa.ChunkedArray,
    ) -> None:
        """Write many rows, in their order, and log each.

        Parameters
        ----------
        keys
            None of them is null.
        values
            A null deletes.
        timestamps
            Those of the values in a timestamped store, and of the changelog records in any (ms, int64).

        Raises
        ------
        ValueError
            If the columns differ in length, or a timestamp cannot be logged.
        TypeError
            If a column has another type than the store's serde.
        """
        keys, values, timestamps = map(_one_array, (keys, values, timestamps))
        if not len(keys) == len(values) == len(timestamps):
            raise ValueError(f"found {len(keys)} keys, {len(values)} values and {len(timestamps)} timestamps")
        if not len(keys):
            return
        if timestamps.null_count or not pa.types.is_int64(timestamps.type):
            raise TypeError(f"timestamps are int64 without null, found {timestamps.type}")
        raw, plain = _to_bytes(keys, self._keys, "key"), _to_bytes(values, self._values, "value")
        if None in raw:
            raise TypeError("a key is null")
        at = timestamps.to_numpy()
        for bound in (int(at.min()), int(at.max())):
            self._store.check(b"", b"", bound)
        try:
            self._store.put_rows(raw, plain, at.tolist())  # type: ignore[arg-type]  # none is None
        except (StateStoreError, OSError) as error:
            self._store.fail(error)

    def _columns(self, stored: Sequence[bytes | None]) -> tuple[pa.Array, pa.Array | None]:
        timestamped = self._layout.timestamped
        absent = np.fromiter((value is None for value in stored), np.bool_, len(stored))
        if self._values is INT64:
            numbers, times = stored_int64s(stored, timestamped)
            return pa.array(numbers, mask=absent), pa.array(times, mask=absent) if timestamped else None
        kind = pa.string() if self._values is UTF8 else pa.binary()
        if not timestamped:
            return pa.array(stored, pa.binary()).cast(kind), None
        plain = [None if value is None else value[TIMESTAMP_BYTES:] for value in stored]
        heads = b"".join(bytes(TIMESTAMP_BYTES) if value is None else value[:TIMESTAMP_BYTES] for value in stored)
        times = np.frombuffer(heads, ">i8").astype(np.int64)
        return pa.array(plain, pa.binary()).cast(kind), pa.array(times, mask=absent)


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks()
    if not isinstance(column, pa.Array):
        raise TypeError(f"a column is an array of Arrow, found {type(column).__name__}")
    return column


def _to_bytes(column: pa.Array, serde: Serde[Any], what: str) -> list[bytes | None]:
    """Write a column as the store's serde does."""
    if serde is INT64:
        if not pa.types.is_int64(column.type):
            raise TypeError(f"{what}s of this store are int64, found {column.type}")
        raw: list[bytes | None] = [*to_bytes(column.fill_null(0).to_numpy())]
        for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else ():
            raw[index] = None
        return raw
    expected = pa.types.is_string if serde is UTF8 else pa.types.is_binary
    if not expected(column.type):
        raise TypeError(f"{what}s of this store are {'string' if serde is UTF8 else 'binary'}, found {column.type}")
    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found
