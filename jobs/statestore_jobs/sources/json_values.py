"""JSON values as text or as structs of a schema: many at once where Arrow's reader is exact, else one by one.

A field that is missing is null, one that the schema does not name is left out, and one of another type than the schema
says makes the value undecodable: nothing is converted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from statestore.errors import InputError

#: Reads a whole array, or returns None where only reading one value at a time is exact.
Quick = Callable[[pa.Array], "pa.Array | None"]
Parse = Callable[[bytes], Any]

_MANY_BYTES = 1 << 30
#: A field that no value has: what values have is then checked and left out.
_NOTHING = pa.schema([pa.field("\0", pa.null())])


def read_json_text(kind: pa.DataType) -> tuple[Quick, Parse]:
    """Return readers of JSON as text, which check that it is JSON."""

    def quick(array: pa.Array) -> pa.Array | None:
        return None if _parsed(array, _NOTHING) is None else array.cast(kind)

    def parse(raw: bytes) -> str:
        text = raw.decode()
        _loads(text)
        return text

    return quick, parse


def read_json(kind: pa.DataType) -> tuple[Quick, Parse]:
    """Return readers of JSON objects as structs."""
    exact = _is_exact(kind)
    convert = _converter(kind)

    def quick(array: pa.Array) -> pa.Array | None:
        table = _parsed(array, pa.schema(list(kind))) if exact else None
        if table is None:
            return None
        columns = [
            table.column(field.name).combine_chunks() if len(array) else pa.nulls(0, field.type) for field in kind
        ]
        return pa.StructArray.from_arrays(
            [one.cast(field.type) for one, field in zip(columns, kind, strict=True)], fields=list(kind)
        )

    def parse(raw: bytes) -> Any:
        return convert(_loads(raw.decode()))

    return quick, parse


def check_type(kind: pa.DataType, name: str) -> None:
    """Refuse a type that JSON is not read into.

    Raises
    ------
    InputError
        Naming the field.
    """
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        if len(set(names)) < len(names):
            raise InputError(f"option value_schema: a field of {name} occurs twice, found {', '.join(names)}")
        for field in kind:
            check_type(field.type, f"{name}.{field.name}")
    elif pa.types.is_list(kind):
        check_type(kind.value_type, f"{name}[]")
    elif pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        check_type(kind.item_type, f"{name}{{}}")
    elif not (
        pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
    ):
        raise InputError(
            f"option value_schema: {name} is {kind}, expected BOOLEAN, a whole number (BYTE to LONG), FLOAT, DOUBLE, "
            "STRING, or ARRAY, STRUCT or MAP<STRING, ...> of these; read it as one of them and cast it in Spark"
        )


# -- many at once -----------------------------------------------------------------------------------------------------


def _is_exact(kind: pa.DataType) -> bool:
    """Whether Arrow reads this type just as `_converter` does."""
    if pa.types.is_struct(kind):
        return all(field.nullable and _is_exact(field.type) for field in kind)
    if pa.types.is_list(kind):
        return bool(kind.value_field.nullable) and _is_exact(kind.value_type)
    # A map is not an object to Arrow, and a float is not rounded by way of a double.
    return not (pa.types.is_map(kind) or pa.types.is_float32(kind))


def _parsed(array: pa.Array, schema: pa.Schema) -> pa.Table | None:
    """Read one object from each value, or None if there may be anything else.

    What ends in `}` and is followed by `{` is complete there: no JSON goes on so. So each value is at least one object,
    and as many rows as values means one each.
    """
    if not len(array):
        return schema.empty_table()
    if not pc.all(pc.and_(pc.starts_with(array, b"{"), pc.ends_with(array, b"}"))).as_py():
        return None
    lines = pc.binary_join_element_wise(array, b"", b"\n")
    if lines.nbytes >= _MANY_BYTES:
        return None
    ends, data = (pa.py_buffer(buffer) for buffer in lines.buffers()[1:])
    data = data.to_pybytes()[: np.frombuffer(ends, np.int32)[len(lines)]]
    # Numbers that JSON does not have, and that Arrow would take.
    if b"NaN" in data or b"Inf" in data:
        return None
    try:
        data.decode()  # Arrow does not look
        table = pa.json.read_json(
            pa.BufferReader(data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except ValueError:  # ArrowInvalid is one, too
        return None
    return table if table.num_rows == len(array) else None


# -- one by one -------------------------------------------------------------------------------------------------------


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return a function that gives what `pa.array` takes for a type, or raises ValueError."""
    convert = _of_some(kind)
    return lambda found: None if found is None else convert(found)


def _of_some(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind):
        element = _required(kind.value_field)
        return lambda found: [element(one) for one in _a(list, found, kind)]
    if pa.types.is_map(kind):
        item = _required(kind.item_field)
        return lambda found: [(key, item(one)) for key, one in _a(dict, found, kind).items()]
    if pa.types.is_boolean(kind):
        return lambda found: _a(bool, found, kind)
    if pa.types.is_floating(kind):
        return lambda found: _float(found, kind)
    if pa.types.is_string(kind):
        return lambda found: _text(_a(str, found, kind))
    bound = 1 << (kind.bit_width - 1)
    return lambda found: _integer(found, kind, bound)


def _struct(kind: pa.DataType) -> Callable[[Any], Any]:
    fields = [(field.name, _required(field)) for field in kind]

    def convert(found: Any) -> Any:
        values = _a(dict, found, kind)
        result = {}
        for name, of_field in fields:
            try:
                result[name] = of_field(values.get(name))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return result

    return convert


def _required(field: pa.Field) -> Callable[[Any], Any]:
    convert = _converter(field.type)
    if field.nullable:
        return convert

    def of_field(found: Any) -> Any:
        if found is None:
            raise ValueError("found null, which the schema excludes")
        return convert(found)

    return of_field


def _a(wanted: type, found: Any, kind: pa.DataType) -> Any:
    if type(found) is not wanted:
        raise ValueError(f"expected {kind}, found {json.dumps(found)[:80]}")
    return found


def _integer(found: Any, kind: pa.DataType, bound: int) -> int:
    number: int = _a(int, found, kind)
    if not -bound <= number < bound:
        raise ValueError(f"{number} does not fit into {kind}")
    return number


def _float(found: Any, kind: pa.DataType) -> float:
    try:
        number = float(found if type(found) is int else _a(float, found, kind))
    except OverflowError as error:
        raise ValueError(str(error)) from error
    if not math.isfinite(number):
        raise ValueError(f"number too large for {kind}")
    return number


def _text(found: str) -> str:
    found.encode()  # a lone surrogate is no text
    return found
