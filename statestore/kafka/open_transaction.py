"""Finds the transaction that holds back a partition, and the transactional ids of the producers of topics.

confluent-kafka has none of the requests for it (KIP-664), so they go through kafka-python. An open transaction is
looked for only when a task has failed already: whatever goes wrong in here costs the answer, never the error that is to
be reported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from statestore.errors import InputError
from statestore.kafka.cluster import Cluster
from statestore.kafka.deadline import call_within
from statestore.kafka.secure_connection import can_fetch, kafka_python_settings
from statestore.model import TopicPartition

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition.

    Attributes
    ----------
    producer_id, producer_epoch
        Its producer, as the partition's leader knows it.
    transactional_id
        Of that producer; None if no coordinator shows it to us.
    timeout_ms
        Age at which its coordinator aborts it; None if no coordinator is known that would: then it may hang.
    """

    producer_id: int
    producer_epoch: int
    transactional_id: str | None = None
    timeout_ms: int | None = None

    def __str__(self) -> str:
        name = "" if self.transactional_id is None else f", transactional id {self.transactional_id}"
        return f"producer id {self.producer_id}, epoch {self.producer_epoch}{name}"


def advice(cluster: Cluster, partition: TopicPartition, start: int) -> str:
    """Say whose transaction is open from offset `start` on, and what to do about it; see `find_open_transaction`."""
    found = find_open_transaction(cluster, partition, start)
    if found is None:
        return "its producer could not be found; wait for its timeout, or look for it with kafka-transactions.sh"
    if found.timeout_ms is not None:
        return (
            f"it is of {found}; end that producer, or wait: Kafka aborts it at an age of {found.timeout_ms / 1000:g} s"
        )
    return (
        f"it is of {found}; no coordinator was found that will end it. If that producer is gone and its timeout has "
        f"passed, abort it: kafka-transactions.sh --bootstrap-server {cluster.servers} abort "
        f"--topic {partition.topic} --partition {partition.partition} --start-offset {start}. Kafka may have moved the "
        "group's input offset with it all the same: before anything is processed again, see \"A transaction that "
        'hangs" in docs/operations.md'
    )


def find_open_transaction(cluster: Cluster, partition: TopicPartition, start: int) -> OpenTransaction | None:
    """Return the transaction that is open from an offset on, or None if that cannot be found out. Never raises.

    Parameters
    ----------
    partition
        Where it is open.
    start
        Its first offset; for the one that holds back a log's last stable offset, that offset.
    """
    found: list[OpenTransaction] = []

    with suppress(Exception):
        call_within(cluster.timeout_s, lambda: _ask(cluster, partition, start, found), "find open transaction")
    return found[-1] if found else None


def _ask(cluster: Cluster, partition: TopicPartition, start: int, found: list[OpenTransaction]) -> None:
    """Append what is known of the transaction, and append it again when more is known."""
    import kafka  # takes half a second, and tasks that go well do without it

    asked = kafka.TopicPartition(*partition)
    admin = _admin_client(cluster)
    try:
        producers = admin.describe_producers([asked])[asked].active_producers
        holder = next((each for each in producers if each.current_transaction_start_offset == start), None)
        if holder is None:  # it has ended meanwhile
            return
        found.append(OpenTransaction(holder.producer_id, holder.producer_epoch))
        listed = admin.list_transactions(producer_id_filters=[holder.producer_id])
        transactional_id = next((each.transactional_id for shown in listed.values() for each in shown), None)
        if transactional_id is None:
            return
        found.append(found[-1]._replace(transactional_id=transactional_id))
        coordinated = admin.describe_transactions([transactional_id])[transactional_id]
        # The same producer may be in a later transaction by now, elsewhere.
        if coordinated.producer_id == holder.producer_id and asked in coordinated.topic_partitions:
            found.append(found[-1]._replace(timeout_ms=coordinated.transaction_timeout_ms))
    finally:
        admin.close()


def transactional_ids(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[str, frozenset[str]]:
    """Return the transactional ids of the producers that brokers remember, by topic. Never raises.

    A broker forgets a producer one day after its last record (`producer.id.expiration.ms`). A producer without
    transactions, or one that brokers do not show to us, has no id here.
    """
    asked, found = list(partitions), dict[str, frozenset[str]]()
    if asked:
        with suppress(Exception):
            call_within(
                cluster.timeout_s,
                lambda: found.update(_transactional_ids(cluster, asked)),
                "find transactional ids",
            )
    return found


def _transactional_ids(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Mapping[str, frozenset[str]]:
    import kafka

    admin = _admin_client(cluster)
    try:
        described = admin.describe_producers([kafka.TopicPartition(*partition) for partition in partitions])
        producers = {(at.topic, each.producer_id) for at, shown in described.items() for each in shown.active_producers}
        if not producers:
            return {}
        listed = admin.list_transactions(producer_id_filters=sorted({producer for _, producer in producers}))
    finally:
        admin.close()
    ids = {each.producer_id: each.transactional_id for shown in listed.values() for each in shown}
    return {
        name: frozenset(ids[producer] for topic, producer in producers if topic == name and producer in ids)
        for name, _ in producers
    }


def _admin_client(cluster: Cluster) -> KafkaAdminClient:
    from kafka import KafkaAdminClient
    from kafka.net.compat import KafkaNetClient

    clients: list[KafkaNetClient] = []

    def connect(**settings: Any) -> KafkaNetClient:
        clients.append(KafkaNetClient(**settings))
        return clients[0]

    settings = cluster.config()
    if not can_fetch(settings):  # kafka-python would not come in, or not where librdkafka does
        raise InputError("a setting of the clients is librdkafka's alone")
    named = {
        "bootstrap_servers": cluster.servers,
        "client_id": settings["client.id"],
        **kafka_python_settings(settings),
    }
    # At level debug it logs every request, and one of them is the password.
    logging.getLogger("kafka.net.connection").setLevel(logging.INFO)
    timeout_ms = int(cluster.timeout_s * 1000)
    try:
        return KafkaAdminClient(
            **named, kafka_client=connect, bootstrap_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms
        )
    except BaseException:
        for client in clients:  # else its thread would outlive it
            client.close()
        raise
