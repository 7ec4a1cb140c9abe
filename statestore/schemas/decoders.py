"""Decoders of Avro, Protobuf, and JSON Schema: from Confluent's wire format to values that JSON can express.

The data begins with a byte 0 and the id of its schema (4 bytes, big-endian), or a byte 1 and its GUID (16 bytes).
Protobuf data continues with the position of the message type in its file.
"""

from __future__ import annotations

import math
import os
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from functools import cache
from io import BytesIO
from typing import Any
from uuid import UUID

from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.confluent import meta_pb2  # noqa: F401  Protobuf's pool then has its file
from confluent_kafka.schema_registry.confluent.type import decimal_pb2  # noqa: F401  and this one
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from statestore.errors import SchemaRegistryUnavailableError
from statestore.schemas.registry import Registry, registry_settings
from statestore.schemas.serdes import CONFIG, URL

Decoder = Callable[[bytes], Any]

_WELL_KNOWN = "google.protobuf"
_PROTOBUF = "PROTOBUF"


def decoder_of(serde: str, url: str | None = None) -> Decoder:
    """Return the decoder of a serde. It raises ValueError for data that it cannot decode.

    Parameters
    ----------
    serde
        One of `REGISTRY_SERDES`.
    url
        Address of the registry; None: the environment's.

    Raises
    ------
    InputError
        If no registry is set, or its settings cannot be used.
    """
    return _decoder(serde, url or os.environ.get(URL), os.environ.get(CONFIG), os.getpid())


@cache
def _registry(url: str | None, config: str | None, process: int) -> Registry:
    """Return the only client of a process for a registry: connections do not survive a fork."""
    return Registry(registry_settings(url))


@cache
def _decoder(serde: str, url: str | None, config: str | None, process: int) -> Decoder:
    registry = _registry(url, config, process)
    decode = _MAKERS[serde](registry)

    def decoded(raw: bytes) -> Any:
        try:
            return decode(raw)
        except SchemaRegistryUnavailableError:
            raise
        except Exception as error:  # libraries of all formats raise what damaged data brings about
            raise ValueError(str(error) or type(error).__name__) from error

    return decoded


# -- Avro and JSON Schema ---------------------------------------------------------------------------------------------


def _avro(registry: Registry) -> Decoder:
    decode = AvroDeserializer(registry)
    return lambda raw: _plain(decode(raw))


def _json_schema(registry: Registry) -> Decoder:
    # A schema's rules and migrations are found by subject. None is known here: data is read as it was written.
    conf = {"subject.name.strategy": lambda context, name: None}
    decode: Decoder = JSONDeserializer(None, schema_registry_client=registry, conf=conf)
    return decode


def _plain(value: Any) -> Any:
    """Return a value as JSON expresses it: bytes in hexadecimal, times in ISO 8601, decimals as text."""
    match value:
        case dict():
            return {name: _plain(one) for name, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case bytes():
            return value.hex()
        case datetime() | date() | time_of_day():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)  # JSON has no such number
    return value


# -- Protobuf ---------------------------------------------------------------------------------------------------------


def _protobuf(registry: Registry) -> Decoder:
    pools: dict[Any, tuple[DescriptorPool, str]] = {}

    def decode(raw: bytes) -> Any:
        schema_id = SchemaId(_PROTOBUF)
        data = schema_id.from_bytes(BytesIO(raw))
        known = schema_id.id if schema_id.guid is None else schema_id.guid
        if known not in pools:
            by_id = schema_id.guid is None
            schema = (
                registry.get_schema(known, fmt="serialized")
                if by_id
                else registry.get_schema_by_guid(str(known), fmt="serialized")
            )
            pools[known] = _pool(registry, schema)
        pool, name = pools[known]
        message = message_factory.GetMessageClass(_message_type(pool, name, schema_id.message_indexes or [0]))()
        message.ParseFromString(data.read())
        return _fields(message)

    return decode


def _pool(registry: Registry, schema: Schema) -> tuple[DescriptorPool, str]:
    """Return a pool with a schema's file and those that it imports, and the name of its file."""
    pool, added = DescriptorPool(), set[str]()

    def add(name: str, schema: Schema) -> None:
        try:
            file = FileDescriptorProto.FromString(b64decode(schema.schema_str, validate=True))
        except Base64Error as error:
            raise ValueError(
                "the Schema Registry gives the text of the Protobuf schema, not its descriptor (format=serialized): "
                "register the descriptor, or read the value as bytes"
            ) from error
        file.name = name
        references = {one.name: one for one in schema.references or ()}
        for imported in file.dependency:
            if imported in added:
                continue
            if (reference := references.get(imported)) is None:
                add_known(imported)
            else:
                found = registry.get_version(reference.subject, reference.version, True, "serialized")
                add(imported, found.schema)
        pool.Add(file)
        added.add(name)

    def add_known(name: str) -> None:
        file = descriptor_pool.Default().FindFileByName(name)
        for imported in file.dependencies:
            if imported.name not in added:
                add_known(imported.name)
        pool.AddSerializedFile(file.serialized_pb)
        added.add(name)

    own_name = "schema.proto"
    add(own_name, schema)
    return pool, own_name


def _message_type(pool: DescriptorPool, file: str, indexes: list[int]) -> Descriptor:
    first, *inner = indexes
    types = pool.FindFileByName(file).message_types_by_name.values()
    found = list(types)[first]
    for index in inner:
        found = found.nested_types[index]
    return found


def _fields(message: Message) -> Any:
    """Return a message by the names of its fields. Not Protobuf's own JSON: it has 64-bit numbers as text."""
    kind = message.DESCRIPTOR
    if kind.file.package == _WELL_KNOWN:
        return _plain(message.value) if [*kind.fields_by_name] == ["value"] else json_format.MessageToDict(message)
    shown: dict[str, Any] = {}
    for field in kind.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            shown[field.name] = {str(key): _field(of_value, value[key]) for key in value}
        elif field.is_repeated:
            shown[field.name] = [_field(field, one) for one in value]
        else:
            shown[field.name] = _field(field, value)
    return shown


def _field(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _fields(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return _plain(value)


_MAKERS: dict[str, Callable[[Registry], Decoder]] = {
    "avro": _avro,
    "protobuf": _protobuf,
    "json-schema": _json_schema,
}
