"""From the bytes of keys and values to columns of Spark's types, and what becomes of bytes that cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import InputError
from statestore_jobs.sources.json_values import check_type, read_json, read_json_text
from statestore_jobs.sources.options import choice, flag

#: Options that say how keys and values are shown (see `decoding_of`).
DECODING_OPTIONS = ("values", "key_serde", "value_serde", "value_schema", "undecodable")
SERDES = ("bytes", "utf8", "int64", "json")
_COLUMNS = {
    "bytes": ("BINARY", pa.binary()),
    "utf8": ("STRING", pa.string()),
    "int64": ("LONG", pa.int64()),
    "json": ("STRING", pa.string()),
}
_INT64_BYTES = 8
#: Behind the end of every value. Arrow's `binary_slice` takes None for the largest number, and overflows at it.
END = 1 << 31


class Decoding(NamedTuple):
    """How keys and values are shown.

    Attributes
    ----------
    values
        Whether values are shown at all; if not, their column is null.
    value_fields
        Fields of JSON values, as DDL; None: JSON is shown as text.
    keep
        Whether a row that cannot be decoded is kept, as bytes; if not, it is an error.
    """

    values: bool
    key_serde: str
    value_serde: str
    value_fields: str | None
    keep: bool

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
    if fields is not None and value_serde != "json":
        raise InputError(f"option value_schema is for JSON values, found value_serde {value_serde}: say json")
    if fields is not None and not fields.strip():
        raise InputError("option value_schema: expected fields such as 'flights INT, delay DOUBLE', found none")
    return Decoding(
        values=flag(options, "values", True),
        key_serde=choice(options, "key_serde", SERDES, "bytes"),
        value_serde=value_serde,
        value_fields=fields,
        keep=choice(options, "undecodable", ("fail", "keep"), "fail") == "keep",
    )


class DecodedColumn(NamedTuple):
    """A column that was decoded.

    Attributes
    ----------
    values
        Null where the bytes are null or cannot be decoded.
    bad
        Rows that cannot be decoded; None if all can.
    reason
        Why the first of them cannot.
    """

    values: pa.Array
    bad: npt.NDArray[np.bool_] | None = None
    reason: str = ""


def decode(array: pa.Array, serde: str, kind: pa.DataType) -> DecodedColumn:
    """Decode a binary array into one of a type: that of the serde, or a struct of JSON's fields."""
    match serde:
        case "utf8":
            return _utf8(array)
        case "int64":
            return _int64(array)
        case "json":
            return _json(array, kind)
    return DecodedColumn(array)


def check_fields(kind: pa.DataType) -> None:
    """Refuse a type of a field in `value_schema` that JSON values are not read into."""
    check_type(kind, "value")


def _utf8(array: pa.Array) -> DecodedColumn:
    try:
        return DecodedColumn(array.cast(pa.string()))
    except pa.ArrowInvalid:
        return _row_by_row(array, bytes.decode, pa.string())


def _int64(array: pa.Array) -> DecodedColumn:
    sizes = pc.binary_length(array)
    bad = pc.fill_null(pc.not_equal(sizes, _INT64_BYTES), False)
    reason = ""
    if has_bad := bool(pc.any(bad).as_py()):
        found = sizes[pc.index(bad, True).as_py()]
        reason = f"expected {_INT64_BYTES} bytes of an int64, found {found}"
        array = pc.if_else(bad, pa.scalar(None, pa.binary()), array)
    nulls = flags(array.is_null())
    packed = pc.fill_null(array, bytes(_INT64_BYTES)) if nulls.any() else array
    numbers = fixed(packed, 0, _INT64_BYTES, np.dtype(">i8")).astype(np.int64)
    values = arrow(numbers, ~nulls)
    return DecodedColumn(values, flags(bad), reason) if has_bad else DecodedColumn(values)


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
    bad = None
    if decoded.bad is not None:
        bad = np.zeros(len(array), np.bool_)
        bad[valid] = decoded.bad
    return DecodedColumn(decoded.values.take(where), bad, decoded.reason)


def _row_by_row(array: pa.Array, parse: Callable[[bytes], Any], kind: pa.DataType) -> DecodedColumn:
    rows: list[Any] = []
    bad = np.zeros(len(array), np.bool_)
    reason = ""
    for index, raw in enumerate(array.to_pylist()):
        try:
            rows.append(None if raw is None else parse(raw))
        except (ValueError, RecursionError) as error:
            rows.append(None)
            bad[index] = True
            reason = reason or str(error)
    return DecodedColumn(pa.array(rows, kind), bad if bad.any() else None, reason)
