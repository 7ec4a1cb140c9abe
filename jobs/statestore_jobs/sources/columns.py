"""The columns in which rows of a store are shown, whether they come from the store or from its changelog.

| kind      | columns                                                                                       |
|-----------|-----------------------------------------------------------------------------------------------|
| key-value | partition, key, value, timestamp                                                              |
| window    | partition, key, window_start, window_end, value, timestamp; `sequence` where duplicates are retained |
| session   | partition, key, session_start, session_end, value, timestamp                                  |
| versioned | partition, key, valid_from, valid_to, value, timestamp                                        |

Where headers are kept, `headers` is behind `timestamp`. Behind `partition` there may be an `offset`, at the end what
`undecodable=keep` adds. Keys are split and values
decoded by the column: nothing here walks over rows that are fit to be shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, StoreCorruptedError
from statestore.formats.headers_value import Headers, decode_aggregation
from statestore.formats.headers_value import decode as decode_value
from statestore.formats.timestamped_value import TIMESTAMP_BYTES
from statestore.formats.value_format import ValueFormat
from statestore.kinds.kind import StoreKind
from statestore.schemas.serdes import KEY_HEADER, REGISTRY_SERDES, VALUE_HEADER
from statestore_jobs.sources.decoding import (
    END,
    DecodedColumn,
    Decoding,
    arrow,
    check_fields,
    decode,
    decoding_of,
    fixed,
    with_schema_ids,
)

_KEPT_DDL = "undecodable BOOLEAN, key_bytes BINARY, value_bytes BINARY, reason STRING"
_KEPT = [
    *[("undecodable", pa.bool_()), ("key_bytes", pa.binary()), ("value_bytes", pa.binary())],
    ("reason", pa.string()),
]

#: Types of a kind's numbers by their bytes: for Spark, and for Arrow.
_NUMBERS = {4: ("INT", pa.int32()), 8: ("LONG", pa.int64())}


#: Headers of a value.
_HEADERS_DDL = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))


class Values(NamedTuple):
    """Stored values, split; timestamps are in ms, and headers None where the store keeps none."""

    values: pa.Array
    timestamps: pa.Array
    headers: pa.Array | None = None


class RowKeys(NamedTuple):
    """Row keys of a store, split.

    Attributes
    ----------
    keys
        The user's keys.
    numbers
        What is behind them, by the names of the kind's numbers: int32 or int64.
    """

    keys: pa.Array
    numbers: Mapping[str, npt.NDArray[Any]]


def split_keys(row_keys: pa.Array, kind: StoreKind) -> RowKeys:
    """Split the row keys of a store of a kind.

    Raises
    ------
    StoreCorruptedError
        If one is too short to be one of such a store.
    """
    size = kind.suffix_bytes
    if not size:
        return RowKeys(row_keys, {})
    _require_length(row_keys, size, f"a {kind.name} store's row key")
    found = fixed(row_keys, -size, END, np.dtype([(number.name, f">i{number.bytes}") for number in kind.numbers]))
    numbers = {number.name: found[number.name].astype(f"i{number.bytes}") for number in kind.numbers}
    return RowKeys(pc.binary_slice(row_keys, 0, -size), numbers)


def split_values(stored: pa.Array, layout: ValueFormat) -> Values:
    """Split values as they are stored; where the layout has no timestamps, these are null.

    Raises
    ------
    StoreCorruptedError
        If one is not of the layout.
    """
    if layout.keeps_headers:
        return _split_headers(stored, layout)
    if not layout.timestamped:
        return Values(stored, pa.nulls(len(stored), pa.int64()))
    _require_length(stored, TIMESTAMP_BYTES, "a timestamped value")
    timestamps = fixed(stored, 0, TIMESTAMP_BYTES, np.dtype(">i8")).astype(np.int64)
    return Values(pc.binary_slice(stored, TIMESTAMP_BYTES, END), arrow(timestamps))


def _split_headers(stored: pa.Array, layout: ValueFormat) -> Values:
    nothing: tuple[Any, Any, Any] = (None, None, None)
    rows = [nothing if raw is None else _row_of(raw, layout) for raw in stored.to_pylist()]
    values, timestamps, headers = zip(*rows, strict=True) if rows else ((), (), ())
    return Values(pa.array(values, pa.binary()), pa.array(timestamps, pa.int64()), pa.array(headers, _HEADERS))


def _row_of(stored: bytes, layout: ValueFormat) -> tuple[bytes, int | None, list[dict[str, Any]]]:
    """Split a value into plain value, timestamp and headers, -1 being a timestamp that is not known."""
    if layout.timestamped:
        value, timestamp, headers = decode_value(stored)
        return value, timestamp, _shown_headers(headers)
    aggregation, headers = decode_aggregation(stored)
    return aggregation, None, _shown_headers(headers)


def _shown_headers(headers: Headers) -> list[dict[str, Any]]:
    return [{"key": name, "value": value} for name, value in headers]


def _require_length(array: pa.Array, size: int, what: str) -> None:
    shortest = pc.min(pc.binary_length(array)).as_py()
    if shortest is not None and shortest < size:
        raise StoreCorruptedError(
            f"{what} has at least {size} bytes, found {shortest}: the store is of another kind or format than it is "
            "read as, or damaged; correct the options kind and format, or restore it"
        )


class Layout(NamedTuple):
    """The columns of a store's rows, and how batches of them are made.

    Attributes
    ----------
    ddl
        Columns and types, for Spark.
    schema
        The same for Arrow. Spark takes batches as they are: names, order and types are those of the DDL.
    """

    store: StoreDefinition
    decoding: Decoding
    ddl: str
    schema: pa.Schema

    def batch(
        self,
        partition: int | None,
        keys: pa.Array,
        values: pa.Array | None,
        timestamps: pa.Array,
        offsets: pa.Array | None = None,
        headers: pa.Array | None = None,
        numbers: Mapping[str, pa.Array] | None = None,
    ) -> pa.RecordBatch:
        """Show rows.

        Parameters
        ----------
        keys
            Row keys as the store has them, binary.
        values
            What the application put, binary; null where there is none, None if values are not shown.
        timestamps
            In ms; null in a plain store, -1 where it is not known.
        offsets
            Offsets of the records in the changelog, if they are shown.
        headers
            Headers of the values, in a store that keeps them.
        numbers
            Columns of the kind, where row keys do not tell them.

        Raises
        ------
        InputError
            If a key or a value cannot be decoded, and such rows are not to be kept.
        StoreCorruptedError
            If a row key is not one of the store's kind.
        """
        rows = len(keys)
        split = split_keys(keys, self.store.store_kind)
        nowhere = pa.nulls(rows, pa.int32())
        where = nowhere if partition is None else arrow(np.full(rows, partition, np.int32))
        shown: dict[str, Any] = {"partition": where, "offset": offsets}
        key = self._decoded("key", split.keys, headers)
        value_type = self.schema.field("value").type
        value = DecodedColumn(pa.nulls(rows, value_type))
        if self.decoding.values and values is not None:
            value = self._decoded("value", values, headers)
        of_keys = self.store.store_kind.shown(split.numbers, self.store)
        shown |= {name: arrow(found) for name, found in of_keys.items()} | dict(numbers or {})
        shown |= {"key": key.values, "value": value.values, "timestamp": timestamps}
        shown["headers"] = pa.nulls(rows, _HEADERS) if headers is None else headers
        if self.decoding.keep:
            shown |= _kept(rows, _reasons(key, value), split.keys, values)
        elif key.reasons or value.reasons:
            raise self._undecodable(split.keys, key, value)
        return pa.RecordBatch.from_arrays([shown[name] for name in self.schema.names], schema=self.schema)

    def _decoded(self, part: str, array: pa.Array, headers: pa.Array | None) -> DecodedColumn:
        serde = self.decoding.key_serde if part == "key" else self.decoding.value_serde
        if serde in REGISTRY_SERDES:
            array = with_schema_ids(array, headers, KEY_HEADER if part == "key" else VALUE_HEADER)
        return decode(array, serde, self.schema.field(part).type, self.decoding.registry_url)

    def _undecodable(self, keys: pa.Array, key: DecodedColumn, value: DecodedColumn) -> InputError:
        at = min({*key.reasons, *value.reasons})
        part, found = ("key", key) if at in key.reasons else ("value", value)
        serde = self.decoding.key_serde if part == "key" else self.decoding.value_serde
        return InputError(
            f"key {keys[at].as_py().hex()} (hexadecimal): its {part} is not {serde}: {found.reasons[at]}; correct "
            f"option {part}_serde, or keep such rows as bytes with .option('undecodable', 'keep')"
        )


def layout_of(
    options: Mapping[str, str], store: StoreDefinition, *, with_offset: bool, schema: StructType | None = None
) -> Layout:
    """Return the columns of a store's rows, decoded as the options say (`DECODING_OPTIONS`).

    Parameters
    ----------
    schema
        What Spark made of the layout's DDL. Without it the type of a struct is not known: such a layout is for its DDL.

    Raises
    ------
    InputError
        If an option is malformed, or the schema is another one.
    """
    decoding = decoding_of(options)
    value_type = decoding.value_type or pa.struct([])
    if schema is not None and decoding.value_type is None and "value" in schema.names:
        value_type = to_arrow_schema(schema).field("value").type
        check_fields(value_type)
    columns = [
        ("partition", "INT", pa.int32()),
        *([("offset", "LONG", pa.int64())] if with_offset else []),
        ("key", decoding.key_ddl, decoding.key_type),
        *((number.name, *_NUMBERS[number.bytes]) for number in store.store_kind.columns(store)),
        ("value", decoding.value_ddl, value_type),
        ("timestamp", "LONG", pa.int64()),
        *([("headers", _HEADERS_DDL, _HEADERS)] if store.values.keeps_headers else []),
    ]
    ddl = ", ".join(f"{name} {ddl}" for name, ddl, _ in columns)
    fields = [(name, arrow_type) for name, _, arrow_type in columns]
    if decoding.keep:
        ddl, fields = f"{ddl}, {_KEPT_DDL}", fields + _KEPT
    result = Layout(store, decoding, ddl, pa.schema(fields))
    if schema is not None and to_arrow_schema(schema) != result.schema:
        raise InputError(f"the columns are given by the options: {ddl}; leave .schema(...) out")
    return result


def _reasons(key: DecodedColumn, value: DecodedColumn) -> dict[int, str]:
    """Return why rows cannot be decoded, by their index."""
    found = {index: f"key: {reason}" for index, reason in key.reasons.items()}
    for index, reason in value.reasons.items():
        found[index] = "; ".join(filter(None, (found.get(index), f"value: {reason}")))
    return found


def _kept(rows: int, reasons: Mapping[int, str], keys: pa.Array, values: pa.Array | None) -> dict[str, pa.Array]:
    bad = np.zeros(rows, np.bool_)
    bad[[*reasons]] = True
    nothing, marks = pa.nulls(rows, pa.binary()), arrow(bad)
    return {
        "undecodable": marks,
        "key_bytes": pc.if_else(marks, keys, nothing),
        "value_bytes": nothing if values is None else pc.if_else(marks, values, nothing),
        "reason": pa.array([reasons.get(index) for index in range(rows)], pa.string())
        if reasons
        else pa.nulls(rows, pa.string()),
    }
