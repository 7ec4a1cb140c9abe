"""The commands of docs/schemas.md show the values of a store, with a registry and with none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from statestore.definitions.store import StoreDefinition
from tests.documents import in_bash, to_run
from tests.integration.support import STORE, Application
from tests.schema_registry import running_registry

pytestmark = [pytest.mark.long, pytest.mark.documents]

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "TOTAL", "type": "long"}]}


def test_the_documented_command_decodes_values_and_keeps_a_dead_row(bootstrap_servers: str, tmp_path: Path) -> None:
    with running_registry() as registry:
        conf = {"subject.name.strategy.type": "TOPIC"}
        serialize = AvroSerializer(registry.client(), json.dumps(ORDER), conf=conf)
        good = serialize({"TOTAL": 5}, SerializationContext("orders", MessageField.VALUE))
        assert good is not None
        stored = (StoreDefinition(name=STORE, value_serde="avro"),)
        application = Application(bootstrap_servers, tmp_path, processor="echo", stores=stored)
        application.send([(b"anna", good), (b"ben", b"\x00\x00\x00\x00\x4dno")])
        assert application.run().failure is None
        definition = tmp_path / "app.yaml"
        stores = (StoreDefinition(name=STORE, key_serde="utf8", value_serde="avro"),)
        definition.write_text(application.definition.model_copy(update={"stores": stores}).model_dump_json())
        settings = {
            "STATESTORE_BOOTSTRAP_SERVERS": bootstrap_servers,
            "STATESTORE_STATE_DIR": str(application.state_dir),
            "STATESTORE_SCHEMA_REGISTRY_URL": registry.url,
        }
        [text] = to_run("docs/schemas.md", "bash")
        shown = text.strip().replace("shop/totals", f"{application.name}/{STORE}")
        command = f"{shown} --definitions {definition} --json -"
        assert "--value-serde avro" in command
        for one in (command, command.replace("--key-serde utf8 --value-serde avro ", "")):
            done = in_bash(one, tmp_path, settings)
            assert done.returncode == 0, done.stderr
            anna, ben = sorted(json.loads(done.stdout)["rows"], key=lambda row: row["key"])
            assert (anna["key"], anna["value"], anna["reason"]) == ("anna", {"TOTAL": 5}, None)
            assert (ben["value"], ben["value_bytes"]) == (None, b"\x00\x00\x00\x00\x4dno".hex())
            assert ben["reason"] == "value: the Schema Registry does not know the schema 77"
            assert "1 rows have a key or a value that its serde cannot decode" in done.stderr
        url = registry.url
    away = in_bash(command, tmp_path, settings)
    assert away.returncode == 3
    assert f"the Schema Registry {url} cannot be reached" in away.stderr
    none = in_bash(command.partition("\n")[2], tmp_path, {**settings, "STATESTORE_SCHEMA_REGISTRY_URL": ""})
    assert none.returncode == 2
    assert "no Schema Registry is set" in none.stderr
