"""The demo's Kafka: fetched, checked, started, stopped and started again."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.kafka import HOST, Kafka, is_free
from demo.kafka_jars import DownloadError, cache_dir, damaged_jars, expected_jars, fetch_jars, find_java
from demo.processes import Processes
from statestore.errors import InputError


def _produce(servers: str, topic: str, value: bytes) -> None:
    admin = AdminClient({"bootstrap.servers": servers})  # kept in a name: its death would end the call
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, value)
    assert producer.flush(120) == 0


def _consume(servers: str, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid4().hex, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_what_is_produced_is_consumed(bootstrap_servers: str) -> None:
    topic = uuid4().hex
    _produce(bootstrap_servers, topic, b"flight")
    assert _consume(bootstrap_servers, topic) == b"flight"


@pytest.mark.long
def test_a_restart_in_the_same_directory_keeps_ports_and_records(tmp_path: Path, bootstrap_servers: str) -> None:
    with Processes(tmp_path) as processes:
        kafka = Kafka(processes, tmp_path / "kafka")
        servers = kafka.start()
        assert servers != bootstrap_servers
        _produce(servers, "kept", b"flight")
        kafka.stop()
        assert Kafka(processes, tmp_path / "kafka").start() == servers
        assert _consume(servers, "kept") == b"flight"
    assert is_free(int(servers.rpartition(":")[2]))


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes, socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port} .* is in use"):
            Kafka(processes, tmp_path / "kafka", port).start()


@pytest.mark.long
@pytest.mark.usefixtures("bootstrap_servers")  # they fill the cache
def test_a_damaged_missing_or_foreign_jar_is_found(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    shutil.copytree(cache_dir() / "jars", jars)
    assert damaged_jars(jars) == []
    flipped, missing, *_ = sorted(expected_jars())
    content = bytearray((jars / flipped).read_bytes())
    content[len(content) // 2] ^= 1
    (jars / flipped).write_bytes(content)
    (jars / missing).unlink()
    (jars / "other.jar").write_bytes(b"")
    problems = damaged_jars(jars)
    assert len(problems) == 3
    for name in (flipped, missing, "other.jar"):
        assert any(problem.startswith(name) for problem in problems)


@pytest.mark.long
def test_a_registry_that_cannot_be_reached_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A proxy port on which nobody listens: Java cannot get out.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dhttps.proxyHost={HOST} -Dhttps.proxyPort=1 -Dhttp.proxyHost={HOST}")
    with (
        Processes(tmp_path) as processes,
        pytest.raises(DownloadError, match=r"could not be fetched .* 3 attempts.*Check the network"),
    ):
        fetch_jars(processes, find_java(), tmp_path / "ivy.log", tmp_path / "cache")
    assert not (tmp_path / "cache" / "jars").exists()


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("#!/bin/sh\necho '    java.specification.version = 1.8' >&2\n", "Java 17 or later.* is Java 8"),
        (None, "Java 17 or later.* cannot be run"),
    ],
)
def test_java_that_is_missing_or_too_old_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, complaint: str
) -> None:
    (tmp_path / "bin").mkdir()
    if script is not None:
        java = tmp_path / "bin" / "java"
        java.write_text(script)
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InputError, match=complaint):
        find_java()
