"""Serdes convert between the types of a program and the bytes of a store."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, Generic, TypeVar

from statestore.errors import DefinitionError
from statestore.reference import load

T = TypeVar("T")
_INT64 = Struct(">q")


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


def _int64(value: int) -> bytes:
    if not isinstance(value, int):
        raise TypeError(f"expected int, found {type(value).__name__}")
    try:
        return _INT64.pack(value)
    except StructError as error:
        raise ValueError(f"{value} does not fit into 64 bits") from error


def _from_int64(raw: bytes) -> int:
    if len(raw) != _INT64.size:
        raise ValueError(f"expected {_INT64.size} bytes of an int64, found {len(raw)}")
    value: int = _INT64.unpack(raw)[0]
    return value


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
INT64: Serde[int] = Serde("int64", _int64, _from_int64)
#: Compact, keys in order, so that equal values have equal bytes.
JSON: Serde[Any] = Serde("json", _json, _from_json)


_BY_NAME: dict[str, Serde[Any]] = {serde.name: serde for serde in (BYTES, UTF8, INT64, JSON)}


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
