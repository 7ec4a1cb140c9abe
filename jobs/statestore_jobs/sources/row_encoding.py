"""From the columns of a DataFrame to the rows of a store: what `columns.py` and `decoding.py` do, the other way round.

Keys and values are encoded by the type of their column: BINARY as it is, STRING in UTF-8, LONG big-endian. That they
are what the store's serdes read is checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.compiled.batches import big_endian
from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError
from statestore.formats.headers_value import Headers
from statestore.rewrite.row_stage import ROW_SCHEMA
from statestore.rewrite.version_rows import OPEN, version_rows
from statestore.stores.serdes import load_serde
from statestore_jobs.sources.decoding import SERDES, column_type, decode

_DDL = "key BINARY, STRING, or LONG"
_JOINED = pa.scalar(b"", pa.binary())
_NONE = "Nothing was changed"


class EncodedRows(NamedTuple):
    """Rows of a store.

    Attributes
    ----------
    users_keys
        What the partitioner sees of each key.
    rows
        With `ROW_SCHEMA`.
    partitions
        Where the DataFrame says that they are; None: it does not say.
    """

    users_keys: pa.Array
    rows: pa.RecordBatch
    partitions: pa.Array | None


class RowEncoder:
    """Encodes rows of one store.

    Parameters
    ----------
    schema
        Of the DataFrame.
    deletes
        Whether a row without a value is a delete; if not, it is refused.

    Raises
    ------
    InputError
        If columns are missing, are not known, or have other types.
    """

    def __init__(self, store: StoreDefinition, schema: pa.Schema, *, deletes: bool) -> None:
        self._store, self._kind, self._deletes = store, store.store_kind, deletes
        self._shown = {number.name: number.bytes for number in self._kind.columns(store)}
        self._versioned = self._kind.has_history
        if self._versioned and deletes:  # what a version ends is put behind it, or is there already
            del self._shown["valid_to"]
        self._hidden = [number.name for number in self._kind.numbers if number.name not in self._shown]
        needed = {"key", "value", *(set(self._shown) & {number.name for number in self._kind.numbers})}
        needed |= {*self._shown} if self._versioned else set()
        needed |= {"timestamp"} if store.values.timestamped else set()
        needed |= {"headers"} if store.values.keeps_headers else set()
        known = [*needed, "partition", "timestamp", *self._shown]
        if missing := sorted(needed - set(schema.names)):
            raise InputError(self._said(f"columns {', '.join(missing)} are missing"))
        if unknown := sorted(set(schema.names) - set(known)):
            raise InputError(self._said(f"columns {', '.join(unknown)} are not known"))
        for name in ("key", "value"):
            kind = schema.field(name).type
            if not (_is_text(kind) or pa.types.is_int64(kind)):
                raise InputError(self._said(f"column {name} is {kind}"))
        for name in (*self._shown, "partition", "timestamp"):
            if name in schema.names and not pa.types.is_integer(schema.field(name).type):
                raise InputError(self._said(f"column {name} is {schema.field(name).type}"))

    def _said(self, found: str) -> str:
        columns = [_DDL, *(f"{name} {'LONG' if size == 8 else 'INT'}" for name, size in self._shown.items())]
        columns += ["value BINARY, STRING, or LONG"]
        columns += ["timestamp LONG"] if self._store.values.timestamped else []
        columns += ["headers ARRAY<STRUCT<key: STRING, value: BINARY>>"] if self._store.values.keeps_headers else []
        return (
            f"store {self._store.name}, of kind {self._store.kind} and format {self._store.format}: {found}; expected "
            f"{', '.join(columns)}, and perhaps partition INT. {_NONE}"
        )

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Encode a batch.

        Raises
        ------
        InputError
            If a row is none that the store can have, naming it.
        """
        keys, values = (_encoded(batch.column(name)) for name in ("key", "value"))
        if keys.null_count:
            raise InputError(f"{keys.null_count} rows have no key; expected one in each. {_NONE}")
        if values.null_count and not self._deletes:
            raise self._wrong(keys, _first(pc.is_null(values)), "no value: an overwrite has rows only")
        self._require_serde(keys, "key", self._store.key_serde, keys)
        self._require_serde(values, "value", self._store.value_serde, keys)
        if self._versioned:
            rows = self._versions(batch, keys, values)
        else:
            stored = [self._row_keys(batch, keys), self._stored(batch, keys, values)]
            rows = pa.RecordBatch.from_arrays(stored, schema=ROW_SCHEMA)
        return EncodedRows(keys, rows, batch.column("partition") if "partition" in batch.schema.names else None)

    def _wrong(self, keys: pa.Array, at: int, found: str) -> InputError:
        return InputError(f"store {self._store.name}: the row with key {keys[at].as_py()!r:.120} has {found}. {_NONE}")

    def _require_serde(self, found: pa.Array, part: str, serde: str, keys: pa.Array) -> None:
        if serde in SERDES:
            reasons = decode(found, serde, column_type(serde)).reasons
            if reasons:
                at = min(reasons)
                raise self._wrong(keys, at, f"a {part} that the store's serde {serde} cannot read: {reasons[at]}")
            return
        loaded = load_serde(serde)
        for at, raw in enumerate(found.to_pylist()):
            try:
                if raw is not None:
                    loaded.deserialize(raw)
            except Exception as error:  # the user's own code
                raise self._wrong(
                    keys, at, f"a {part} that the store's serde {loaded.name} cannot read: {error}"
                ) from error

    # -- keys ---------------------------------------------------------------------------------------------------------

    def _row_keys(self, batch: pa.RecordBatch, keys: pa.Array) -> pa.Array:
        if not self._kind.numbers:
            return keys
        given = {name: self._numbers(batch, keys, name) for name in self._shown if name in batch.schema.names}
        hidden = {name: np.zeros(len(keys), np.int64) for name in self._hidden}
        numbers = {number.name: {**given, **hidden}[number.name] for number in self._kind.numbers}
        first, last = numbers[self._kind.first_time], numbers[self._kind.last_time]
        if (wrong := first > last).any():
            at = int(wrong.argmax())
            raise self._wrong(keys, at, f"{self._kind.first_time} {first[at]} after {self._kind.last_time} {last[at]}")
        shown = self._kind.shown(numbers, self._store)
        for name, said in given.items():
            if (wrong := said != shown[name]).any():
                at = int(wrong.argmax())
                raise self._wrong(keys, at, f"{name} {said[at]}; expected {shown[name][at]}")
        behind = [big_endian(numbers[number.name], number.bytes) for number in self._kind.numbers]
        return pc.binary_join_element_wise(keys, *behind, _JOINED)

    def _numbers(self, batch: pa.RecordBatch, keys: pa.Array, name: str) -> npt.NDArray[np.int64]:
        column = batch.column(name)
        if column.null_count:
            raise self._wrong(keys, _first(pc.is_null(column)), f"no {name}")
        found: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if (wrong := (found < 0) | (found >= 1 << 8 * self._shown[name] - 1)).any():
            at = int(wrong.argmax())
            raise self._wrong(keys, at, f"{name} {found[at]}; expected 0 or more, in {self._shown[name]} bytes")
        return found

    def _versions(self, batch: pa.RecordBatch, keys: pa.Array, values: pa.Array) -> pa.RecordBatch:
        begins = self._numbers(batch, keys, "valid_from")
        if (wrong := begins == 0).any():  # brokers' clients take it for a record without a time
            raise self._wrong(keys, int(wrong.argmax()), "valid_from 0; expected ms since 1970, above 0")
        if "timestamp" in batch.schema.names and pc.any(pc.not_equal(batch.column("timestamp"), begins)).as_py():
            at = _first(pc.fill_null(pc.not_equal(batch.column("timestamp"), begins), False))
            raise self._wrong(
                keys, at, f"timestamp {batch.column('timestamp')[at]}; expected its valid_from {begins[at]}"
            )
        ends = np.full(len(keys), OPEN, np.int64)
        if "valid_to" in self._shown:
            column = batch.column("valid_to").cast(pa.int64())
            ends = pc.fill_null(column, OPEN).to_numpy(zero_copy_only=False)
            if (wrong := pc.is_valid(column).to_numpy(zero_copy_only=False) & (ends <= begins)).any():
                at = int(wrong.argmax())
                raise self._wrong(keys, at, f"valid_to {ends[at]}; expected null, or after its valid_from {begins[at]}")
        return version_rows(keys, values, begins, ends)

    # -- values -------------------------------------------------------------------------------------------------------

    def _stored(self, batch: pa.RecordBatch, keys: pa.Array, values: pa.Array) -> pa.Array:
        layout = self._store.values
        times = self._times(batch, keys)
        if layout.keeps_headers:
            headers = [_headers(found) for found in batch.column("headers").to_pylist()]
            rows = zip(values.to_pylist(), [0] * len(keys) if times is None else times.tolist(), headers, strict=True)
            stored = [None if value is None else layout.stored(value, time, found) for value, time, found in rows]
            return pa.array(stored, pa.binary())
        if times is None:
            return values
        return pc.binary_join_element_wise(big_endian(times, 8), values, _JOINED)

    def _times(self, batch: pa.RecordBatch, keys: pa.Array) -> npt.NDArray[np.int64] | None:
        if "timestamp" not in batch.schema.names:
            return None
        column = batch.column("timestamp")
        if not self._store.values.timestamped:
            if column.null_count < len(column):
                raise self._wrong(
                    keys, _first(pc.is_valid(column)), "a timestamp, and the store keeps none: expected null"
                )
            return None
        if column.null_count:
            raise self._wrong(keys, _first(pc.is_null(column)), "no timestamp; expected ms since 1970, above 0")
        times: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if (wrong := times <= 0).any():
            at = int(wrong.argmax())
            raise self._wrong(keys, at, f"the timestamp {times[at]}; expected ms since 1970, above 0")
        return times


def _first(flags: pa.Array) -> int:
    found: int = pc.index(flags, True).as_py()
    return found


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_binary, types.is_string, types.is_large_binary, types.is_large_string))


def _encoded(column: pa.Array) -> pa.Array:
    if not pa.types.is_int64(column.type):
        return column.cast(pa.binary())
    numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    encoded = big_endian(numbers, 8)
    return pc.if_else(pc.is_valid(column), encoded, pa.scalar(None, pa.binary())) if column.null_count else encoded


def _headers(found: list[dict[str, Any]] | None) -> Headers:
    return tuple((header["key"], header["value"]) for header in found or ())
