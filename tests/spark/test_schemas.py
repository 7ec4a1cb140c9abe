"""The sources and suites decode values whose schemas are in a Schema Registry, in Spark's Python workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from statestore_expectations.runner import Verdict, validate_store
from statestore_expectations.suites import load_suite

from statestore.errors import InputError
from statestore.schemas.serdes import CONFIG, URL
from tests.schema_registry import Registry, registry
from tests.spark.store_files import StoreFiles, defined

#: pytest finds the fixture by this name.
__all__ = ["registry"]

pytestmark = pytest.mark.long

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "CITY", "type": "string"}, {"name": "TOTAL", "type": "long"}],
}
DEAD = b"\x00\x00\x00\x00\x4dno"
KNOWN_NOT = "the Schema Registry does not know the schema 77"


def order(registry: Registry, city: str, total: int) -> bytes:
    conf = {"subject.name.strategy.type": "TOPIC"}
    serialize = AvroSerializer(registry.client(), json.dumps(ORDER), conf=conf)
    data = serialize({"CITY": city, "TOTAL": total}, SerializationContext("orders", MessageField.VALUE))
    assert data is not None
    return data


def test_a_session_stores_values_are_a_struct_and_a_dead_row_is_kept(
    spark: SparkSession, registry: Registry, tmp_path: Path
) -> None:
    files = StoreFiles(tmp_path, defined("session", "session"))
    with files.opened() as store:
        files.put(store, b"good", order(registry, "Basel", 5), 0, 9)
        files.put(store, b"odd", DEAD, 0, 9)
        store.commit({})
    options = {**files.options, "key_serde": "utf8", "value_serde": "avro", "value_schema": "TOTAL LONG"}
    options["schema_registry_url"] = registry.url  # Spark's JVM has the environment of its start

    frame = spark.read.format("state_store").options(**options).load()
    columns = ["key", "session_end", "value.TOTAL", "undecodable", "value_bytes", "reason"]
    rows = [tuple(row) for row in frame.select(*columns).orderBy("key").collect()]

    assert rows == [("good", 9, 5, False, None, None), ("odd", 9, None, True, DEAD, f"value: {KNOWN_NOT}")]
    with pytest.raises(PySparkException, match=f"its value is not avro: {KNOWN_NOT}"):
        spark.read.format("state_store").options(**options, undecodable="fail").load().collect()
    registry.status = 503
    with pytest.raises(PySparkException, match=f"{registry.url} answers 503"):
        spark.read.format("state_store").options(**options).load().where("key = 'good'").collect()


def test_a_suite_reads_the_fields_of_avro_values_and_says_why_a_value_is_none(
    spark: SparkSession, registry: Registry, tmp_path: Path
) -> None:
    (tmp_path / "own.json").write_text(
        json.dumps(
            {
                "expectations": [
                    {
                        "type": "expect_store_values_to_parse",
                        "kwargs": {"serde": "avro", "value_schema": "CITY STRING, TOTAL BIGINT NOT NULL"},
                    },
                    {
                        "type": "expect_store_rows_to_satisfy",
                        "kwargs": {"condition": "value_json.TOTAL > 0"},
                    },
                ]
            }
        )
    )
    suite = load_suite("app.own", [str(tmp_path / "own.json")])

    def verdict(*values: bytes) -> Verdict:
        rows: list[Any] = [(0, b"%d" % number, value, 1_000) for number, value in enumerate(values)]
        frame = spark.createDataFrame(rows, "partition INT, key BINARY, value BINARY, timestamp LONG")
        return validate_store(spark, frame, frame, suite, run_id="run", data_docs_dir=tmp_path / "docs")

    assert verdict(order(registry, "Basel", 5), order(registry, "Chur", 6)).verdict == "passed"
    failed = verdict(order(registry, "Basel", 5), DEAD)
    assert failed.verdict == "failed"
    assert any(KNOWN_NOT in str(rows) for rows in failed.failed_rows)


def test_a_source_without_a_registry_is_refused_before_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URL, raising=False)
    monkeypatch.delenv(CONFIG, raising=False)
    files = StoreFiles(tmp_path, defined("session", "session"))
    with files.opened() as store:
        files.put(store, b"key", DEAD, 0, 9)
        store.commit({})
    with pytest.raises((InputError, PySparkException), match="no Schema Registry is set"):
        spark.read.format("state_store").options(**files.options, value_serde="avro").load()
