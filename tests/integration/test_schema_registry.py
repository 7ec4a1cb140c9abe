"""Data that Confluent's serializers write is decoded with the schemas of a real registry, Apicurio."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from statestore.schemas.serdes import load_decoder
from tests.apicurio import running_apicurio

pytestmark = pytest.mark.long

_BY_TOPIC = {"subject.name.strategy.type": "TOPIC"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_apicurio(tmp_path_factory.mktemp("apicurio")) as address:
        yield address


@pytest.fixture
def client(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url})


def _of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def _record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields.items()]}


def test_avro_is_decoded_with_a_schema_that_refers_to_another(client, url):
    client.register_schema("address", Schema(json.dumps(_record("Address", city="string")), "AVRO"))
    order = Schema(
        json.dumps(_record("Order", total="long", to="Address")), "AVRO", [SchemaReference("Address", "address", 1)]
    )
    data = AvroSerializer(client, order, conf=_BY_TOPIC)({"total": 5, "to": {"city": "Basel"}}, _of("avro"))
    assert load_decoder("avro", url)(data) == {"total": 5, "to": {"city": "Basel"}}


def test_json_schema_is_decoded(client, url):
    schema = json.dumps({"title": "Order", "type": "object", "properties": {"total": {"type": "integer"}}})
    data = JSONSerializer(schema, client, conf=_BY_TOPIC)({"total": 5}, _of("json"))
    assert load_decoder("json-schema", url)(data) == {"total": 5}


def test_protobuf_is_decoded(client, url):
    file = descriptor_pb2.FileDescriptorProto(name="real_registry.proto", package="real", syntax="proto3")
    kind = descriptor_pb2.FieldDescriptorProto
    order = file.message_type.add(name="Order")
    order.field.add(name="total", number=1, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.Default()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("real.Order"))
    conf = {**_BY_TOPIC, "use.deprecated.format": False}
    data = ProtobufSerializer(made, client, conf=conf)(made(total=7), _of("protobuf"))
    assert load_decoder("protobuf", url)(data) == {"total": 7}


def test_protobuf_whose_schema_this_registry_has_as_text_is_the_reason_of_a_row(client, url):
    """Java's serializers register the text. Confluent's registry turns it into a descriptor; Apicurio does not."""
    text = 'syntax = "proto3"; package real; message Text { int64 total = 1; }'
    number = client.register_schema("text-value", Schema(text, "PROTOBUF"))
    data = struct.pack(">bI", 0, number) + b"\x00" + b"\x08\x07"
    with pytest.raises(ValueError, match="gives the text of the Protobuf schema, not its descriptor"):
        load_decoder("protobuf", url)(data)


def test_an_id_that_it_does_not_know_is_the_reason_of_a_row(url):
    with pytest.raises(ValueError, match="does not know the schema 1000077"):
        load_decoder("avro", url)(struct.pack(">bI", 0, 1_000_077) + b"data")
