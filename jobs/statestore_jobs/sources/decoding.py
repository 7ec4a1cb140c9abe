"""From the bytes of keys and values to columns of Spark's types, and what becomes of bytes that cannot be decoded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import InputError
from statestore.schemas.serdes import REGISTRY_SERDES, load_decoder, registry_url, with_schema_id
from statestore.stores.serdes import DELIMITED
from statestore_jobs.sources.json_values import check_type, read_json, read_json_text
from statestore_jobs.sources.options import choice, flag

#: Options that say how keys and values are shown (see `decoding_of`).
DECODING_OPTIONS = ("values", "key_serde", "value_serde", "value_schema", "undecodable", "schema_registry_url")
_TEXT = ("STRING", pa.string())
_COLUMNS = {
    "bytes": ("BINARY", pa.binary()),
    "utf8": _TEXT,
    "int32": ("INT", pa.int32()),
    "int64": ("LONG", pa.int64()),
    "double": ("DOUBLE", pa.float64()),
    "json": _TEXT,
    "delimited": ("ARRAY<STRING>", pa.list_(pa.field("element", pa.string()))),
    **dict.fromkeys(REGISTRY_SERDES, _TEXT),  # as JSON
}
SERDES = tuple(_COLUMNS)
_NUMBERS: Mapping[str, np.dtype[Any]] = {"int32": np.dtype(">i4"), "int64": np.dtype(">i8"), "double": np.dtype(">f8")}
#: Behind the end of every value. Arrow's `binary_slice` takes None for the largest number, and overflows at it.
END = 1 << 31


class Decoding(NamedTuple):
    """How keys and values are shown.

    Attributes
    ----------
    values
        Whether values are shown at all; if not, their column is null.
    value_fields
        Fields of JSON values, or of a Schema Registry's, as DDL; None: the column is JSON text.
    keep
        Whether a row that cannot be decoded is kept, as bytes; if not, it is an error.
    registry_url
        Address of the Schema Registry, if a serde needs it.
    """

    values: bool
    key_serde: str
    value_serde: str
    value_fields: str | None
    keep: bool
    registry_url: str | None = None

    @property
    def key_ddl(self) -> str:
        """Type of the column `key`."""
        return _COLUMNS[self.key_serde][0]

    @property
    def value_ddl(self) -> str:
        """Type of the column `value`."""
        return _COLUMNS[self.value_serde][0] if self.value_fields is None else f"STRUCT<{self.value_fields}>"

    @property
    def key_type(self) -> pa.DataType:
        """Arrow's type of the column `key`."""
        return _COLUMNS[self.key_serde][1]

    @property
    def value_type(self) -> pa.DataType | None:
        """Arrow's type of the column `value`; None if only Spark can tell, from its DDL."""
        return _COLUMNS[self.value_serde][1] if self.value_fields is None else None


def decoding_of(options: Mapping[str, str]) -> Decoding:
    """Read `DECODING_OPTIONS`.

    Raises
    ------
    InputError
        If one is malformed.
    """
    value_serde = choice(options, "value_serde", SERDES, "bytes")
    fields = options.get("value_schema")
    if fields is not None and value_serde not in ("json", *REGISTRY_SERDES):
        raise InputError(
            f"option value_schema is for JSON values, found value_serde {value_serde}: say json, or "
            f"{', '.join(REGISTRY_SERDES)}"
        )
    if fields is not None and not fields.strip():
        raise InputError("option value_schema: expected fields such as 'flights INT, delay DOUBLE', found none")
    key_serde = choice(options, "key_serde", SERDES, "bytes")
    url = None
    if needs_registry := bool({key_serde, value_serde} & {*REGISTRY_SERDES}):
        url = registry_url(options.get("schema_registry_url"))
    return Decoding(
        values=flag(options, "values", True),
        key_serde=key_serde,
        value_serde=value_serde,
        value_fields=fields,
        # One row of another schema is common there, and must not end a run.
        keep=choice(options, "undecodable", ("fail", "keep"), "keep" if needs_registry else "fail") == "keep",
        registry_url=url,
    )


class DecodedColumn(NamedTuple):
    """A column that was decoded.

    Attributes
    ----------
    values
        Null where the bytes are null or cannot be decoded.
    reasons
        Why rows cannot be decoded, by their index.
    """

    values: pa.Array
    reasons: Mapping[int, str] = MappingProxyType({})


def decode(array: pa.Array, serde: str, kind: pa.DataType, registry_url: str | None = None) -> DecodedColumn:
    """Decode a binary array into one of a type: that of the serde, or a struct of JSON's fields.

    Data of a Schema Registry begins with the id of its schema.
    """
    if serde in REGISTRY_SERDES:
        return _of_registry(array, load_decoder(serde, registry_url), kind)
    match serde:
        case "utf8":
            return _utf8(array)
        case "json":
            return _json(array, kind)
        case "delimited":
            return _row_by_row(array, DELIMITED.deserialize, kind)
    return _number(array, serde, kind) if serde in _NUMBERS else DecodedColumn(array)


def column_type(serde: str) -> pa.DataType:
    """Return the type of a column of a serde."""
    return _COLUMNS[serde][1]


def with_schema_ids(array: pa.Array, headers: pa.Array | None, name: str) -> pa.Array:
    """Put the ids of schemas that headers carry before the data."""
    if headers is None:
        return array
    rows = zip(array.to_pylist(), headers.to_pylist(), strict=True)
    pairs = ((raw, [(one["key"], one["value"]) for one in found or ()]) for raw, found in rows)
    return pa.array([None if raw is None else with_schema_id(raw, found, name) for raw, found in pairs], pa.binary())


def check_fields(kind: pa.DataType) -> None:
    """Refuse a type of a field in `value_schema` that JSON values are not read into."""
    check_type(kind, "value")


def _utf8(array: pa.Array) -> DecodedColumn:
    try:
        return DecodedColumn(array.cast(pa.string()))
    except pa.ArrowInvalid:
        return _row_by_row(array, bytes.decode, pa.string())


def _number(array: pa.Array, serde: str, kind: pa.DataType) -> DecodedColumn:
    layout = _NUMBERS[serde]
    size = layout.itemsize
    sizes = pc.binary_length(array)
    bad = pc.fill_null(pc.not_equal(sizes, size), False)
    reasons = {}
    if pc.any(bad).as_py():
        article = "a" if serde == "double" else "an"
        found = ((int(index), sizes[int(index)]) for index in np.flatnonzero(flags(bad)))
        reasons = {index: f"expected {size} bytes of {article} {serde}, found {length}" for index, length in found}
        array = pc.if_else(bad, pa.scalar(None, pa.binary()), array)
    nulls = flags(array.is_null())
    packed = pc.fill_null(array, bytes(size)) if nulls.any() else array
    return DecodedColumn(arrow(fixed(packed, 0, size, layout).astype(layout.newbyteorder("=")), ~nulls), reasons)


def _of_registry(array: pa.Array, parse: Callable[[bytes], Any], kind: pa.DataType) -> DecodedColumn:
    """Decode to JSON text, and that into the fields that are asked for."""
    texts = _row_by_row(array, lambda raw: json.dumps(parse(raw), ensure_ascii=False), pa.string())
    if pa.types.is_string(kind):
        return texts
    fields = _json(texts.values.cast(pa.binary()), kind)
    return DecodedColumn(fields.values, {**texts.reasons, **fields.reasons})


def arrow(numbers: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers or flags as an array, null where not valid. Not `pa.array`, which would load pandas first."""

    def bits(found: npt.NDArray[np.bool_]) -> pa.Buffer:
        return pa.py_buffer(np.packbits(found, bitorder="little"))

    data = bits(numbers) if numbers.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(numbers))
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [None if valid is None else bits(valid), data])


def flags(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return a boolean array without nulls as flags. Not `to_numpy`, which would load pandas first."""
    if not len(array):
        return np.empty(0, np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def fixed(array: pa.Array, start: int, stop: int, layout: np.dtype[Any]) -> npt.NDArray[Any]:
    """Read the same bytes of each row, as many as the layout has; rows are long enough and none is null."""
    data = pc.binary_slice(array, start, stop).buffers()[2]
    return np.frombuffer(data, layout, len(array)) if len(array) else np.empty(0, layout)


def _json(array: pa.Array, kind: pa.DataType) -> DecodedColumn:
    as_text = pa.types.is_string(kind)
    dense = array.drop_null() if array.null_count else array
    quick, parse = read_json_text(kind) if as_text else read_json(kind)
    found = quick(dense)
    decoded = _row_by_row(dense, parse, kind) if found is None else DecodedColumn(found)
    if not array.null_count:
        return decoded
    valid = flags(array.is_valid())
    where = arrow(np.cumsum(valid) - 1, valid)
    places = np.flatnonzero(valid)
    reasons = {int(places[index]): reason for index, reason in decoded.reasons.items()}
    return DecodedColumn(decoded.values.take(where), reasons)


def _row_by_row(array: pa.Array, parse: Callable[[bytes], Any], kind: pa.DataType) -> DecodedColumn:
    rows: list[Any] = []
    reasons = {}
    for index, raw in enumerate(array.to_pylist()):
        try:
            rows.append(None if raw is None else parse(raw))
        except (ValueError, RecursionError) as error:
            rows.append(None)
            reasons[index] = str(error)
    return DecodedColumn(pa.array(rows, kind), reasons)
