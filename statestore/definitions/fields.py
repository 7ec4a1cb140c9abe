"""Fields that definitions share, and how a definition is read and written."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from statestore.kinds.known import BUILT_IN, is_built_in
from statestore.model import check_name

#: Fields that came later. While they say nothing they are left out, so that a catalogue is what it was before them.
_CAME_LATER = frozenset({"supplier", "rocksdb_config_setter", "ttl_ms", "logged", "objectives", "suites"})


class Definition(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_serializer(mode="wrap")
    def _without_what_came_later(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialized(self)
        return {
            name: value
            for name, value in fields.items()
            if name not in _CAME_LATER or value is not type(self).model_fields[name].default
        }


def _check_printable(text: str) -> str:
    """Return `text` if a terminal shows it as it is: one line, nothing that moves the cursor."""
    if not text.isprintable():
        raise ValueError(f"{text!r} has characters that cannot be printed; expected one line of text")
    return text


def _check_suite(text: str) -> str:
    """Return `text` if it names a suite of this package, or is the path of a file that any job can find."""
    if not text.endswith(".json"):
        return check_name(text)
    if not PurePath(text).is_absolute():
        raise ValueError(f"{text!r:.120} is a relative path, and jobs run in directories of their own; expected /...")
    return _check_printable(text)


def _check_kind(text: str) -> str:
    """Return `text` if it is a kind of ours, or may be the reference of another one."""
    if not is_built_in(text) and not re.fullmatch(_REFERENCE, text):
        ours = ", ".join(name for name, kind in BUILT_IN.items() if not kind.ordinary_kin)
        raise ValueError(f"expected one of {ours}, or module:attribute of a kind, found {text!r:.120}")
    return text


_REFERENCE = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
#: A suite of expectations/suites, by its name, or a user's own, by the absolute path of its JSON file.
Suite = Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(_check_suite)]

#: Free text for people, on one line.
Line = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_printable)]

#: An attribute of a module on the Python path, as `package.module:attribute`.
Reference = Annotated[str, Field(pattern=_REFERENCE)]

#: A kind of stores: one of ours, or a reference to a `StoreKind` of the user's own.
KindName = Annotated[str, AfterValidator(_check_kind)]
#: Values of Kafka Streams' `processing.guarantee`.
Guarantee = Literal["exactly_once_v2", "at_least_once"]

#: How a key or value of a store is turned into bytes; a reference names a `Serde` of the user's own.
SerdeName = (
    Literal["bytes", "utf8", "int32", "int64", "double", "json", "delimited", "avro", "protobuf", "json-schema"]
    | Reference
)

#: Values of Kafka Streams' `default.dsl.store`; `txn_rocksDB` is RocksDB with transactions (KIP-844).
Engine = Literal["rocksDB", "in_memory", "txn_rocksDB"]
