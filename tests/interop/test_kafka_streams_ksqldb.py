"""The commands of docs/ksqldb.md on the state of a query.

A ksqlDB server cannot be had from the registries. A Kafka Streams application has the ids, the store's name and kind,
and the formats that ksqlDB gives a query, which is all that the commands see of one.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kafka_streams import Command, Driver, KafkaStreams, Store

from statestore.model import StoreFormat
from tests.documents import in_bash, to_run
from tests.integration.broker import T0
from tests.schema_registry import running_registry

pytestmark = [pytest.mark.long, pytest.mark.documents]

QUERY = "_confluent-ksql-default_query_CTAS_TOTALS_7"
STORE = Store("Aggregate-Aggregate-Materialize", format=StoreFormat.TIMESTAMPED)
AT_LEAST_ONCE = {"processing.guarantee": "at_least_once"}
SCHEMA = {
    "type": "record",
    "name": "KsqlDataSourceSchema",
    "fields": [
        {"name": "CITY", "type": ["null", "string"], "default": None},
        {"name": "KSQL_AGG_VARIABLE_0", "type": ["null", "long"], "default": None},
    ],
}


def test_the_state_of_a_query_is_verified_read_restored_and_warmed(
    driver: Driver, bootstrap_servers: str, tmp_path: Path
) -> None:
    app = KafkaStreams(driver, bootstrap_servers)
    app.application_id = QUERY
    state_dir, warmed = tmp_path / "state", tmp_path / "warmed"
    warmed.mkdir()
    with running_registry() as registry:
        conf = {"subject.name.strategy.type": "TOPIC"}
        serialize = AvroSerializer(registry.client(), json.dumps(SCHEMA), conf=conf)
        cities = ("Basel", "Chur", "Zug")
        values = [
            serialize({"CITY": city, "KSQL_AGG_VARIABLE_0": number}, SerializationContext(QUERY, MessageField.VALUE))
            for number, city in enumerate(cities)
        ]
        commands = [
            Command(STORE.name, city.encode(), value, T0 + number)
            for number, (city, value) in enumerate(zip(cities, values, strict=True))
        ]
        app.write(state_dir, [STORE], commands, config=AT_LEAST_ONCE)
        before = app.read(state_dir, [STORE], config=AT_LEAST_ONCE)
        settings = {
            "STATESTORE_BOOTSTRAP_SERVERS": bootstrap_servers,
            "STATESTORE_STATE_DIR": str(state_dir),
            "STATESTORE_SCHEMA_REGISTRY_URL": registry.url,
            "COLUMNS": "200",
        }

        verify_and_read, restore, warm = to_run("docs/ksqldb.md", "bash")
        done = in_bash(verify_and_read, tmp_path, settings)
        assert done.returncode == 0, done.stderr
        assert '{"CITY": "Chur", "KSQL_AGG_VARIABLE_0": 1}' in done.stdout
        assert " OK " in done.stdout

        shutil.rmtree(state_dir / QUERY / "0_0" / "rocksdb" / STORE.name)
        done = in_bash(restore, tmp_path, settings)
        assert done.returncode == 0, done.stderr
        done = in_bash(warm, tmp_path, {**settings, "STATESTORE_STATE_DIR": str(warmed)})
        assert done.returncode == 0, done.stderr

    for directory in (state_dir, warmed):
        after = app.read(directory, [STORE], config=AT_LEAST_ONCE)
        assert after.rows == before.rows
        assert set(after.restored.values()) == {0}
