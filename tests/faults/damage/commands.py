"""Our processor for the input of the real Kafka Streams' driver: the same commands, done to the same stores.

So one application is run by Kafka Streams and by us in turn: one consumer group, one set of changelogs, one directory.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer

from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.model import StoreFormat
from statestore.stores.api import Windowed
from statestore.tasks import ProcessorContext, Record, ValueAndTimestamp
from tests.integration.broker import WAIT_S
from tests.interop.kafka_streams import Command, KafkaStreams, Store

STORES = (
    Store("plain-kv"),
    Store("ts-kv", format=StoreFormat.TIMESTAMPED),
    Store("ts-window", "window", StoreFormat.TIMESTAMPED),
    Store("session", "session"),
)
_T0 = 1_700_000_000_000
_KINDS = {"kv": "key-value", "window": "window", "session": "session"}


def process(record: Record, context: ProcessorContext) -> None:
    """Do what a command says, as the driver's CommandProcessor does."""
    assert record.value is not None
    command = json.loads(record.value)
    store: Any = context.state_store(command["store"])
    key, value = bytes.fromhex(command["key"]), command["value"] and bytes.fromhex(command["value"])
    if command["op"] == "delete":
        value = None
    if value is not None and store.format is StoreFormat.TIMESTAMPED:
        value = ValueAndTimestamp(value, command["value_timestamp"] or record.timestamp)
    if command["end"] is not None:
        store.put(Windowed(key, command["start"], command["end"]), value)
    elif command["start"] is not None:
        store.put(key, value, command["start"])
    else:
        store.put(key, value)


def definition_of(app: KafkaStreams) -> ApplicationDefinition:
    """Define the application of Kafka Streams as one of ours."""
    return ApplicationDefinition(
        name=app.application_id,
        input_topic=app.input_topic,
        processor=f"{__name__}:process",
        stores=tuple(_definition(store) for store in STORES),
    )


def _definition(store: Store) -> StoreDefinition:
    fields: dict[str, Any] = {"name": store.name, "kind": _KINDS[store.kind], "format": store.format}
    if store.kind != "kv":
        fields["retention_ms"] = store.retention_ms
    if store.kind == "window":
        fields["window_size_ms"] = store.window_ms
    return StoreDefinition(engine="txn_rocksDB", **fields)


def commands(chance: random.Random, turn: int, number: int) -> Iterator[Command]:
    """Puts and deletes in all stores; time goes on from turn to turn, so that segments expire."""
    for each in range(number):
        store = chance.choice(STORES)
        at = turn * store.retention_ms // 2 + each * 1_000
        value = None if chance.random() < 0.2 else b"%d of %d" % (each, turn)
        command = Command(store.name, b"key-%d" % chance.randrange(20), value, _T0 + turn * 1_000 + each)
        if store.kind != "kv":
            command = command._replace(start=at - at % store.window_ms)
        if store.kind == "session":
            command = command._replace(end=at)
        yield command if value is not None else command._replace(op="delete")


def produce(app: KafkaStreams, found: Iterator[Command]) -> None:
    """Produce commands that Kafka Streams is not to run now."""
    producer = Producer({"bootstrap.servers": app.bootstrap_servers, "linger.ms": 1})
    for command in found:
        fields = command._asdict()
        partition, timestamp = fields.pop("partition"), fields.pop("timestamp")
        fields |= {name: fields[name] and fields[name].hex() for name in ("key", "value")}
        producer.produce(app.input_topic, value=json.dumps(fields).encode(), partition=partition, timestamp=timestamp)
    assert producer.flush(WAIT_S) == 0
