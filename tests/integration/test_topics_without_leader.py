"""Partitions that nobody leads for a moment, after a broker was taken for gone, are waited for."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from statestore.errors import KafkaUnavailableError, TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from tests.integration.broker import create_topic, produce, unique


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of requests that are refused, each so often as it is in the list.

    What librdkafka says is put in its place: one broker that both leads and controls has no leader for milliseconds
    only, and whether a request falls into these is chance.
    """
    names: list[str] = []
    for name in ("list_offsets", "delete_records"):
        monkeypatch.setattr(AdminClient, name, _refusing(getattr(AdminClient, name), name, names))
    return names


def _refusing(request: Any, name: str, names: list[str]) -> Any:
    def asked(admin: AdminClient, partitions: Any, **options: Any) -> Any:
        if name not in names:
            return request(admin, partitions, **options)
        names.remove(name)
        failed: Future[Any] = Future()
        failed.set_exception(KafkaException(KafkaError(KafkaError._NOENT, "No leaders found")))
        return dict.fromkeys(partitions, failed)

    return asked


@pytest.fixture
def partition(bootstrap_servers: str) -> TopicPartition:
    topic = create_topic(bootstrap_servers, unique("led"))
    produce(bootstrap_servers, topic, [(b"k", b"1"), (b"k", b"2")])
    return TopicPartition(topic, 0)


@pytest.mark.long
def test_log_ends_are_asked_for_again(bootstrap_servers: str, partition: TopicPartition, refused: list[str]) -> None:
    refused += ["list_offsets"] * 2
    assert Cluster(bootstrap_servers).topics.log_ranges([partition]) == {partition: LogRange(0, 2, 2, epoch=0)}
    assert refused == []


def test_records_are_deleted_then(bootstrap_servers: str, partition: TopicPartition, refused: list[str]) -> None:
    refused.append("delete_records")
    topics = Cluster(bootstrap_servers).topics
    topics.delete_records({partition: 1})
    assert refused == []
    assert topics.log_ranges([partition])[partition].start == 1


def test_nobody_who_leads_until_the_deadline_is_a_kafka_that_is_away(
    bootstrap_servers: str, partition: TopicPartition, refused: list[str]
) -> None:
    refused += ["list_offsets"] * 1_000
    with pytest.raises(KafkaUnavailableError, match=f"log ends of {partition}"):
        Cluster(bootstrap_servers, 1).topics.log_ranges([partition])


def test_a_partition_that_is_not_there_is_a_mismatch(bootstrap_servers: str, partition: TopicPartition) -> None:
    with pytest.raises(TopicMismatchError, match="create the topic, correct its name"):
        Cluster(bootstrap_servers).topics.log_ranges([partition, partition._replace(partition=1)])


def test_a_client_knows_the_leaders_before_it_asks_them(
    bootstrap_servers: str, partition: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That librdkafka crashes otherwise is chance: another thread's answer must come within microseconds.
    asked: list[str] = []
    for name in ("list_topics", "list_offsets", "delete_records"):
        monkeypatch.setattr(AdminClient, name, _noting(getattr(AdminClient, name), name, asked))
    topics = Cluster(bootstrap_servers).topics
    topics.delete_records({partition: 1})
    topics.log_ranges([partition])
    assert asked == ["list_topics", "delete_records", "list_offsets", "list_offsets", "list_offsets"]
    topics.cluster.forget_admin()
    topics.log_starts([partition])
    assert asked[5:] == ["list_topics", "list_offsets"]


def _noting(request: Any, name: str, names: list[str]) -> Any:
    def asked(admin: AdminClient, *given: Any, **options: Any) -> Any:
        names.append(name)
        return request(admin, *given, **options)

    return asked
