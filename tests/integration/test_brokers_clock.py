"""The ages of deletes are judged by the brokers' clock, whatever the clocks of our hosts say."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from demo.processes import Processes
from statestore import clock
from statestore.changelog import brokers_clock
from statestore.changelog.brokers_clock import TOPIC
from statestore.errors import KafkaUnavailableError
from statestore.kafka.cluster import Cluster
from tests.integration import broker
from tests.integration.broker import T0, WAIT_S, consume, produce, wait_for
from tests.integration.secured_broker import USER, SecuredBroker, configured
from tests.integration.test_node_local import Nodes

DELETED = {
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "0",
    "max.compaction.lag.ms": "500",
}
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def set_host_clock(monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """Set this host's clock, as the library reads it, apart from the right time."""
    monkeypatch.setattr(clock, "now_ms", lambda: int(time.time() * 1000) + by_ms)


def delete_and_forget(nodes: Nodes, key: bytes) -> None:
    """Log a delete that no store of ours has seen, and wait until compaction has removed it."""
    broker.transaction(nodes.servers, nodes.changelog, [(key, None)], timestamp=T0 + 100)

    def is_gone() -> bool:
        produce(nodes.servers, nodes.changelog, [(b"tick", b"1")], timestamp=int(time.time() * 1000))
        time.sleep(0.3)
        return all(record.key != key for record in consume(nodes.servers, nodes.changelog)[0])

    wait_for(is_gone, "the delete to be compacted away", 100)


@pytest.mark.parametrize("by_ms", [-45 * MINUTE_MS, 3 * 365 * 24 * HOUR_MS], ids=["behind", "ahead"])
def test_the_brokers_time_does_not_depend_on_the_clock_of_this_host(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, by_ms: int
) -> None:
    topics = Cluster(bootstrap_servers).topics
    brokers_clock.now_ms(topics.cluster)
    set_host_clock(monkeypatch, by_ms)
    before_ms = int(time.time() * 1000)
    assert before_ms - 1000 <= brokers_clock.now_ms(topics.cluster) <= int(time.time() * 1000)


def test_a_measurement_serves_for_minutes_and_outlives_an_outage(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: object) -> int:  # other processes write to the topic, so its end does not show what this one asks
        raise KafkaUnavailableError("no broker answers")

    topics = Cluster(bootstrap_servers).topics
    found = brokers_clock.now_ms(topics.cluster)
    monkeypatch.setattr(brokers_clock, "_ask", no_answer)
    assert found <= brokers_clock.now_ms(topics.cluster) < found + MINUTE_MS
    set_host_clock(monkeypatch, HOUR_MS)
    assert found <= brokers_clock.now_ms(topics.cluster) < found + MINUTE_MS
    with pytest.raises(KafkaUnavailableError):
        brokers_clock.now_ms(Cluster("localhost:1"))


@pytest.mark.long
def test_without_the_right_to_write_the_last_append_of_others_shows_a_clock_that_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Processes(tmp_path) as processes:
        secured = SecuredBroker(
            processes,
            tmp_path,
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users="User:ANONYMOUS",
        )
        with configured(tmp_path / "client.json", secured.configuration()) as servers:
            now_ms = int(time.time() * 1000)
            assert now_ms <= brokers_clock.now_ms(Cluster(servers)) <= now_ms + MINUTE_MS
            assert "is judged by this machine's clock" in caplog.text
        others_ms = brokers_clock.now_ms(Cluster(secured.plain_servers))
        admin = AdminClient({"bootstrap.servers": secured.plain_servers})
        rights = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
        made = admin.create_acls([may(right, TOPIC) for right in rights])
        [future.result(WAIT_S) for future in made.values()]
        set_host_clock(monkeypatch, -45 * MINUTE_MS)
        with configured(tmp_path / "client.json", secured.configuration()) as servers:
            assert others_ms - 1000 <= brokers_clock.now_ms(Cluster(servers)) <= others_ms + MINUTE_MS


def may(right: AclOperation, topic: str) -> AclBinding:
    """Return the right of the user of a secured broker."""
    place = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    return AclBinding(*place, f"User:{USER}", "*", right, AclPermissionType.ALLOW)


def behind_a_forgotten_delete(servers: str, directory: Path) -> Nodes:
    """Return an application with a store and a snapshot that have a key whose delete is no longer in the log."""
    nodes = Nodes(servers, directory, changelog_config=DELETED)
    nodes.delete_retention_ms = 1000
    nodes.send([(b"gone", b"1"), (b"kept", b"1")])
    nodes.run_on("a")
    delete_and_forget(nodes, b"gone")
    return nodes


@pytest.mark.long
@pytest.mark.behaviour("R6")
def test_r6_without_the_brokers_time_a_snapshot_is_judged_by_the_archives_time(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:  # as brokers with access control do, which are tested above
        raise KafkaUnavailableError("refused") from KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    nodes = behind_a_forgotten_delete(bootstrap_servers, tmp_path)
    monkeypatch.setattr(brokers_clock, "_append", refuse)
    monkeypatch.setattr(brokers_clock, "_last_append_ms", lambda _: 0)
    set_host_clock(monkeypatch, -30_000)
    nodes.send([(b"new", b"1")], timestamp=T0 + 9000)
    nodes.run_on("b")
    assert set(nodes.contents_on("b")) == {b"kept", b"new", b"tick"}


@pytest.mark.long
@pytest.mark.behaviour("R6")
@pytest.mark.parametrize("node", ["a", "b"], ids=["its own store", "a snapshot"])
@pytest.mark.parametrize("by_ms", [-30_000, 3 * 365 * 24 * HOUR_MS], ids=["behind", "ahead"])
def test_r6_a_deleted_key_stays_deleted_on_a_host_with_a_wrong_clock(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str, by_ms: int
) -> None:
    nodes = behind_a_forgotten_delete(bootstrap_servers, tmp_path)
    set_host_clock(monkeypatch, by_ms)
    nodes.send([(b"new", b"1")], timestamp=T0 + 9000)
    nodes.run_on(node)
    assert set(nodes.contents_on(node)) == {b"kept", b"new", b"tick"}
