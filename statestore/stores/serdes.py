"""Serdes convert between the types of a program and the bytes of a store."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from struct import Struct
from struct import error as StructError
from typing import Any, Generic, TypeVar

from statestore.errors import DefinitionError
from statestore.reference import load
from statestore.schemas.serdes import REGISTRY_SERDES, load_decoder

T = TypeVar("T")
_INT32, _INT64, _DOUBLE = Struct(">i"), Struct(">q"), Struct(">d")


@dataclass(frozen=True)
class Serde(Generic[T]):
    """A serializer and a deserializer. `name` appears in errors. Create your own serde for other types."""

    name: str
    serialize: Callable[[T], bytes]
    deserialize: Callable[[bytes], T]


def _bytes(value: bytes) -> bytes:
    if value.__class__ is not bytes:
        raise TypeError(f"expected bytes, found {type(value).__name__}: encode it first, or give the store a serde")
    return value


def _as_is(raw: bytes) -> bytes:
    return raw


def _utf8(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"expected str, found {type(value).__name__}")
    return value.encode()


def _number(name: str, layout: Struct, kind: type[Any]) -> Serde[Any]:
    article = "an" if kind is int else "a"

    def serialize(value: Any) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
        try:
            return layout.pack(value)
        except StructError as error:
            raise ValueError(f"{value} does not fit into {8 * layout.size} bits") from error

    def deserialize(raw: bytes) -> Any:
        if len(raw) != layout.size:
            raise ValueError(f"expected {layout.size} bytes of {article} {name}, found {len(raw)}")
        return layout.unpack(raw)[0]

    return Serde(name, serialize, deserialize)


def _delimited(value: list[str]) -> bytes:
    text = StringIO()
    csv.writer(text, lineterminator="").writerow(value)
    return text.getvalue().encode()


def _from_delimited(raw: bytes) -> list[str]:
    try:
        [columns] = csv.reader([raw.decode()], strict=True)
    except csv.Error as error:
        raise ValueError(str(error)) from error
    return columns


def _json(value: Any) -> bytes:
    if value is None:
        raise TypeError("expected a JSON value, found None, which means a delete")
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("the JSON value is nested too deeply") from error


def _from_json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise ValueError("the JSON value is nested too deeply") from error


BYTES: Serde[bytes] = Serde("bytes", _bytes, _as_is)
UTF8: Serde[str] = Serde("utf8", _utf8, bytes.decode)
#: Big-endian, as Kafka's LongSerializer.
INT64: Serde[int] = _number("int64", _INT64, int)
#: Compact, keys in order, so that equal values have equal bytes.
JSON: Serde[Any] = Serde("json", _json, _from_json)
#: Big-endian, as Kafka's IntegerSerializer and DoubleSerializer.
INT32: Serde[int] = _number("int32", _INT32, int)
DOUBLE: Serde[float] = _number("double", _DOUBLE, float)
#: Columns as texts, as ksqlDB's format DELIMITED with commas.
DELIMITED: Serde[list[str]] = Serde("delimited", _delimited, _from_delimited)


def _of_registry(name: str) -> Serde[Any]:
    """Return a serde that decodes, and takes encoded bytes. No registry is needed until the first value is decoded."""

    def serialize(value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        raise TypeError(
            f"expected bytes with the id of their schema, as {name} has them, found {type(value).__name__}. Which "
            "schema to write with is not known: encode the value first, or give the store a serde of your own "
            "(module:attribute)"
        )

    return Serde(name, serialize, lambda raw: load_decoder(name)(raw))


_BUILT_IN: tuple[Serde[Any], ...] = (BYTES, UTF8, INT32, INT64, DOUBLE, JSON, DELIMITED)
_BY_NAME = {serde.name: serde for serde in (*_BUILT_IN, *map(_of_registry, REGISTRY_SERDES))}
_KEY_TEXTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "int32": ("a number of 32 bits", int),
    "int64": ("a number of 64 bits", int),
    "double": ("a number", float),
    "json": ("JSON", json.loads),
    "delimited": ("columns separated by commas", lambda text: _from_delimited(text.encode())),
}


def key_of_text(text: str, serde: str, option: str) -> bytes:
    """Return a key that is written as text.

    Hexadecimal digits for `bytes` and the serdes of a Schema Registry, a number, JSON, columns, else the text itself.

    Parameters
    ----------
    option
        Name of the option with the serde, for the error.

    Raises
    ------
    ValueError
        If it is no such key, naming what was expected.
    """
    in_hex = ("hexadecimal digits", bytes.fromhex)
    expected, parse = in_hex if serde in ("bytes", *REGISTRY_SERDES) else _KEY_TEXTS.get(serde, ("text", str))
    try:
        value = parse(text)
        return value if expected == in_hex[0] else load_serde(serde).serialize(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{text!r} is not {expected}, as {option} {serde} requires: {error}") from error


def load_serde(name: str) -> Serde[Any]:
    """Return the serde of a definition: a built-in serde by its name, or a custom one as `module:attribute`.

    Raises
    ------
    DefinitionError
        If there is no such serde.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    found = load(name, "serde", "a statestore.stores.serdes.Serde")
    if not isinstance(found, Serde):
        raise DefinitionError(f"serde {name} is a {type(found).__name__}, expected a statestore.stores.serdes.Serde")
    return found
