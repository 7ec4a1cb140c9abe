"""Rows whose schemas are in a Schema Registry are decoded, or shown as bytes with the reason."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from statestore_jobs.sources.columns import layout_of
from statestore_jobs.sources.decoding import decode
from test_store_rows import Serdes, read, written

from statestore.definitions.store import StoreDefinition
from statestore.errors import InputError, SchemaRegistryUnavailableError
from statestore.formats.headers_value import encode
from statestore.schemas.serdes import CONFIG, KEY_HEADER, REGISTRY_SERDES, URL, VALUE_HEADER, load_decoder
from statestore.stores.serdes import load_serde
from tests.integration.secured_broker import make_certificate, pem
from tests.schema_registry import TOKEN, TOKENS, Registry, basic, registry, running_registry

#: pytest finds the fixture by this name.
__all__ = ["registry"]

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "CITY", "type": ["null", "string"], "default": None},
        {"name": "TOTAL", "type": ["null", "long"], "default": None},
    ],
}
UNKNOWN = struct.pack(">bI", 0, 77)


def context(field: str = MessageField.VALUE, headers: list[Any] | None = None) -> SerializationContext:
    return SerializationContext("orders", field, headers)


def avro(registry: Registry, value: Any, schema: Any = ORDER, field: str = MessageField.VALUE, **conf: Any) -> bytes:
    headers = conf.pop("headers", None)
    conf = {"subject.name.strategy.type": "TOPIC", **conf}
    data = AvroSerializer(registry.client(), json.dumps(schema), conf=conf)(value, context(field, headers))
    assert data is not None
    return data


# -- formats ----------------------------------------------------------------------------------------------------------


def test_avro_is_read_with_the_schema_that_wrote_it(registry):
    first = avro(registry, {"CITY": "Zürich", "TOTAL": 1 << 40})
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "NOTE", "type": "string", "default": ""}]}
    second = avro(registry, {"CITY": None, "TOTAL": 2, "NOTE": "late"}, newer)
    decoder = load_decoder("avro")
    assert decoder(first) == {"CITY": "Zürich", "TOTAL": 1 << 40}
    assert decoder(second) == {"CITY": None, "TOTAL": 2, "NOTE": "late"}
    assert decoder(avro(registry, "plain", "string")) == "plain"


def test_logical_types_of_avro_are_shown_as_json_has_them(registry):
    at = {"type": "long", "logicalType": "timestamp-millis"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    fields = {"at": at, "price": price, "raw": "bytes", "share": "double"}
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": one} for name, one in fields.items()]}
    value = {
        "at": datetime(2026, 1, 31, tzinfo=UTC),
        "price": Decimal("9.50"),
        "raw": b"\x00\xff",
        "share": float("nan"),
    }
    assert load_decoder("avro")(avro(registry, value, schema)) == {
        **{"at": "2026-01-31T00:00:00+00:00", "price": "9.50", "raw": "00ff", "share": "nan"}
    }


def test_json_schema_is_checked(registry):
    schema = {"title": "Order", "type": "object", "properties": {"total": {"type": "integer"}}}
    client = registry.client()
    conf = {"subject.name.strategy.type": "TOPIC", "validate": False}
    serialize = JSONSerializer(json.dumps(schema), client, conf=conf)
    decoder = load_decoder("json-schema")
    assert decoder(serialize({"total": 5}, context())) == {"total": 5}
    with pytest.raises(ValueError, match="'five' is not of type 'integer'"):
        decoder(serialize({"total": "five"}, context()))


def test_protobuf_is_read_by_the_type_that_the_data_names(registry):
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Outer").nested_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    order.field.add(name="total", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    at = order.field.add(name="at", number=2, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL)
    at.type_name = ".google.protobuf.Timestamp"
    order.field.add(name="tags", number=3, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    entry = order.nested_type.add(name="SharesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_DOUBLE, label=kinds.LABEL_OPTIONAL)
    shares = order.field.add(name="shares", number=4, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_REPEATED)
    shares.type_name = ".shop.Outer.Order.SharesEntry"
    pool = descriptor_pool.Default()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Outer.Order"))
    message = kind(total=1 << 40, tags=["a", "b"], shares={"x": 0.5})
    message.at.FromDatetime(datetime(2026, 1, 31, tzinfo=UTC))
    conf = {"use.deprecated.format": False, "subject.name.strategy.type": "TOPIC"}
    serialize = ProtobufSerializer(kind, registry.client(), conf=conf)
    decoder = load_decoder("protobuf")
    assert decoder(serialize(message, context())) == {
        **{"total": 1 << 40, "at": "2026-01-31T00:00:00Z", "tags": ["a", "b"], "shares": {"x": 0.5}}
    }
    assert decoder(serialize(kind(), context())) == {"total": 0, "tags": [], "shares": {}}


@pytest.mark.parametrize(
    ("serde", "raw", "value"),
    [
        ("int32", b"\xff\xff\xff\xfe", -2),
        ("double", struct.pack(">d", 0.5), 0.5),
        ("delimited", b'Basel,5,"a,b"', ["Basel", "5", "a,b"]),
    ],
)
def test_formats_of_ksqldb_without_a_schema_are_read_and_written(serde, raw, value):
    assert load_serde(serde).deserialize(raw) == value
    assert load_serde(serde).serialize(value) == raw
    kind = layout_of({"value_serde": serde}, StoreDefinition(name="s"), with_offset=False).schema.field("value").type
    found = decode(pa.array([raw, None, b"\xff"], pa.binary()), serde, kind)
    assert found.values.to_pylist() == [value, None, None]
    assert [*found.reasons] == [2]


# -- rows that cannot be decoded --------------------------------------------------------------------------------------


@pytest.mark.parametrize("serde", REGISTRY_SERDES)
@pytest.mark.parametrize("raw", [b"", b"\x00", b"text of no schema", UNKNOWN + b"data", UNKNOWN + b"\x00data"])
def test_data_of_no_known_schema_has_a_reason(registry, serde, raw):
    with pytest.raises(ValueError, match=r"\w"):
        load_decoder(serde)(raw)


def test_an_id_that_the_registry_does_not_know_is_asked_for_once(registry):
    decoder = load_decoder("avro")
    for _ in range(3):
        with pytest.raises(ValueError, match="does not know the schema 77"):
            decoder(UNKNOWN + b"data")
    good = avro(registry, {"CITY": "Basel", "TOTAL": 1})
    assert [decoder(good)["TOTAL"] for _ in range(3)] == [1, 1, 1]
    assert registry.asked == ["/schemas/ids/77", "/schemas/ids/1"]


@pytest.mark.parametrize("kind", ["key-value", "window", "session"])
def test_read_shows_keys_and_values_of_every_kind_and_a_dead_row_as_bytes(registry, tmp_path, kind):
    settings = {"key-value": {}, "window": {"window_size_ms": 1_000}}.get(kind, {})
    settings |= {} if kind == "key-value" else {"retention_ms": 100_000}
    store = StoreDefinition(name="s", kind=kind, **settings)
    key = avro(registry, "Basel", "string", MessageField.KEY)
    of_rows = {
        "window": lambda user_key: user_key + struct.pack(">qi", 5_000, 0),
        "session": lambda user_key: user_key + struct.pack(">qq", 6_000, 5_000),
    }.get(kind, lambda user_key: user_key)
    good = avro(registry, {"CITY": "Basel", "TOTAL": 3})
    written(tmp_path, store, [(of_rows(key), good, 5), (of_rows(b"zz"), UNKNOWN + b"data", 6)])
    found = {row.key: row for row in read(tmp_path, store, serdes=Serdes("avro", "avro"))}
    assert (found["Basel"].value, found["Basel"].reason) == ({"CITY": "Basel", "TOTAL": 3}, None)
    dead = found[None]
    assert (dead.key_bytes, dead.value, dead.value_bytes) == (b"zz".hex(), None, (UNKNOWN + b"data").hex())
    assert "key: " in dead.reason
    assert "value: the Schema Registry does not know the schema 77" in dead.reason
    [row] = read(tmp_path, store, keys=(key.hex(), None, None), serdes=Serdes("avro", "avro"))
    assert row.key == "Basel"


def test_ids_in_headers_are_found(registry, tmp_path):
    headers: list[Any] = []
    conf = {"schema.id.serializer": header_schema_id_serializer, "headers": headers}
    key = avro(registry, "Basel", "string", MessageField.KEY, **conf)
    value = avro(registry, {"CITY": "Basel", "TOTAL": 4}, ORDER, MessageField.VALUE, **conf)
    assert [name for name, _ in headers] == [KEY_HEADER, VALUE_HEADER]
    store = StoreDefinition(name="s", format="headers")
    stored = encode(value, 7, tuple(headers))
    written(tmp_path, store, [(key, stored, 7)])
    [row] = read(tmp_path, store, serdes=Serdes("avro", "avro"))
    assert (row.key, row.value) == ("Basel", {"CITY": "Basel", "TOTAL": 4})
    layout = layout_of({"key_serde": "avro", "value_serde": "avro"}, store, with_offset=False)
    carried = pa.array([[{"key": name, "value": raw} for name, raw in headers]], layout.schema.field("headers").type)
    keys, values = (pa.array([raw], pa.binary()) for raw in (key, value))
    [shown] = layout.batch(0, keys, values, pa.array([7]), headers=carried).to_pylist()
    assert (shown["key"], shown["value"]) == ('"Basel"', '{"CITY": "Basel", "TOTAL": 4}')
    assert not shown["undecodable"]


def test_a_column_has_the_fields_that_are_asked_for_and_keeps_dead_rows(registry):
    options = {"value_serde": "avro", "key_serde": "utf8"}
    layout = layout_of(options, StoreDefinition(name="s"), with_offset=False)
    assert layout.decoding.registry_url == registry.url
    values = pa.array([avro(registry, {"CITY": "Basel", "TOTAL": 5}), None, UNKNOWN + b"data"], pa.binary())
    rows = layout.batch(0, pa.array([b"a", b"b", b"c"], pa.binary()), values, pa.array([1, 2, 3])).to_pylist()
    assert [row["value"] for row in rows] == ['{"CITY": "Basel", "TOTAL": 5}', None, None]
    assert [row["undecodable"] for row in rows] == [False, False, True]
    assert rows[2]["value_bytes"] == UNKNOWN + b"data"
    assert rows[2]["reason"] == "value: the Schema Registry does not know the schema 77"
    found = decode(values, "avro", pa.struct([("TOTAL", pa.int64())]), registry.url)
    assert found.values.to_pylist() == [{"TOTAL": 5}, None, None]


# -- the registry -----------------------------------------------------------------------------------------------------


def test_a_registry_that_is_away_is_an_error_that_names_it(registry, monkeypatch):
    data = avro(registry, {"CITY": None, "TOTAL": 1})
    registry.status = 500
    monkeypatch.setattr("statestore.schemas.registry._DEFAULTS", {"timeout": 5, "max.retries": 0})
    with pytest.raises(SchemaRegistryUnavailableError, match=f"{registry.url} answers 500"):
        load_decoder("avro")(data)
    registry.status = None
    assert load_decoder("avro")(data)["TOTAL"] == 1
    with running_registry() as other:
        monkeypatch.setenv(URL, other.url)
        gone = other.url
    with pytest.raises(SchemaRegistryUnavailableError, match=f"{gone} cannot be reached"):
        load_decoder("avro", gone)(data)


@pytest.mark.parametrize(
    ("properties", "authorization"),
    [
        ({"basic.auth.user.info": "ann:canary"}, basic("ann", "canary")),
        ({"bearer.auth.token": "canary"}, "Bearer canary"),
    ],
)
def test_a_sign_in_is_read_from_the_private_file(tmp_path, monkeypatch, properties, authorization):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    key.write_bytes(pem(make_certificate(certificate)))
    file = tmp_path / "registry.json"
    monkeypatch.delenv(URL, raising=False)
    monkeypatch.setenv(CONFIG, str(file))
    with running_registry(certificate, key) as registry:
        data = avro(registry_client(registry, certificate), {"CITY": None, "TOTAL": 1})
        registry.authorization = authorization
        for given in (properties, {}):
            file.write_text(json.dumps({"url": registry.url, "ssl.ca.location": str(certificate), **given}))
            file.chmod(0o600)
            if given:
                assert load_decoder("avro", f"{registry.url}/")(data)["TOTAL"] == 1
                continue
            with pytest.raises(SchemaRegistryUnavailableError, match="answers 401") as refused:
                load_decoder("avro", registry.url)(data)
            assert "canary" not in str(refused.value)


def test_a_token_is_requested_from_an_issuer(tmp_path, monkeypatch):
    monkeypatch.delenv(URL, raising=False)
    with running_registry() as registry:
        data = avro(registry, {"CITY": None, "TOTAL": 1})
        registry.authorization = f"Bearer {TOKEN}"
        for number, secret in enumerate(("canary", "canary of another")):
            file = tmp_path / f"{number}.json"
            monkeypatch.setenv(CONFIG, str(file))
            issuer = {"issuer.endpoint.url": f"{registry.url}{TOKENS}", "client.id": "ann", "scope": "schemas"}
            settings = {**issuer, "client.secret": secret}
            properties = {f"bearer.auth.{name}": value for name, value in settings.items()}
            file.write_text(json.dumps({"url": registry.url, **properties}))
            file.chmod(0o600)
            if secret == "canary":
                assert load_decoder("avro")(data)["TOTAL"] == 1
                continue
            with pytest.raises(SchemaRegistryUnavailableError, match="needs a token, and its issuer") as refused:
                load_decoder("avro")(data)
            assert "canary" not in str(refused.value)


def registry_client(registry: Registry, certificate: Path) -> Any:
    """Return what `avro` takes, for a registry with TLS."""

    class Trusted:
        def client(self) -> Any:
            return registry.client(**{"ssl.ca.location": str(certificate)})

    return Trusted()


@pytest.mark.parametrize(
    ("url", "properties", "expected"),
    [
        (None, None, f"no Schema Registry is set. Set {URL}"),
        ("ftp://registry", None, "expected URLs with http or https"),
        ("http://ann:canary@registry:8081", None, "a password in a URL is shown. Set basic.auth.user.info"),
        ("http://registry:8081", {"sasl.password": "canary"}, "sasl.password: not accepted"),
        ("http://registry:8081", {"ssl.ca.location": "/nowhere"}, "cannot be made .*; check ssl.ca.location"),
        ("http://registry:8081", {"basic.auth.user.info": "canary"}, "cannot be made .*; check basic.auth.user.info"),
    ],
)
def test_settings_that_cannot_be_used_are_named_without_secrets(tmp_path, monkeypatch, url, properties, expected):
    monkeypatch.delenv(URL, raising=False)
    monkeypatch.delenv(CONFIG, raising=False)
    if properties is not None:
        file = tmp_path / "registry.json"
        file.write_text(json.dumps(properties))
        file.chmod(0o600)
        monkeypatch.setenv(CONFIG, str(file))
    with pytest.raises(InputError, match=expected) as refused:
        load_decoder("avro", url)
    assert "canary" not in str(refused.value)


def test_a_serde_of_a_registry_takes_encoded_bytes_alone(registry):
    data = avro(registry, {"CITY": "Basel", "TOTAL": 1})
    assert load_serde("avro").serialize(data) == data
    assert load_serde("avro").deserialize(data) == {"CITY": "Basel", "TOTAL": 1}
    with pytest.raises(TypeError, match="expected bytes with the id of their schema, as avro has them, found dict"):
        load_serde("avro").serialize({})
