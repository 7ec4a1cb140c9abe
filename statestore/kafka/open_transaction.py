"""Finds the transaction that holds back a partition, and the transactional ids of the producers of topics.

confluent-kafka has none of the requests for it (KIP-664), so they go over our own connections (admin_requests.py). An
open transaction is looked for only when a task has failed already: if this fails, only the answer is missing, and the
error of the task is still reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from statestore.errors import StateStoreError
from statestore.kafka.admin_requests import Brokers, Versions
from statestore.kafka.cluster import Cluster
from statestore.kafka.deadline import call_within
from statestore.kafka.leaders import find_leaders
from statestore.model import TopicPartition

_VERSIONS = Versions(0, 0)


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
    """Append the known facts about the transaction, and append them again when more is known."""
    from kafka.protocol import admin  # takes half a second, and tasks that go well do without it

    with Brokers(cluster) as brokers:
        producers = (each for _, each in _active_producers(cluster, brokers, [partition]))
        holder = next((each for each in producers if each.current_txn_start_offset == start), None)
        if holder is None:  # it has ended meanwhile
            return
        found.append(OpenTransaction(holder.producer_id, holder.producer_epoch))
        for coordinator, transactional_id in _listed(brokers, [holder.producer_id]).values():
            found.append(found[-1]._replace(transactional_id=transactional_id))
            request = admin.DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (described,) = _checked(brokers.ask(coordinator, request, _VERSIONS)).transaction_states
            # The same producer may be in a later transaction by now, elsewhere.
            where = {TopicPartition(each.topic, number) for each in described.topics for number in each.partitions}
            if described.producer_id == holder.producer_id and partition in where:
                found.append(found[-1]._replace(timeout_ms=described.transaction_timeout_ms))


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
    with Brokers(cluster) as brokers:
        producers = {(topic, each.producer_id) for topic, each in _active_producers(cluster, brokers, partitions)}
        listed = _listed(brokers, sorted({producer for _, producer in producers})) if producers else {}
    return {
        name: frozenset(
            listed[producer].transactional_id for topic, producer in producers if topic == name and producer in listed
        )
        for name, _ in producers
    }


class _Listed(NamedTuple):
    coordinator: int
    transactional_id: str


def _active_producers(
    cluster: Cluster, brokers: Brokers, partitions: Iterable[TopicPartition]
) -> Iterator[tuple[str, Any]]:
    """Yield the producers that the leaders of partitions remember, each with the name of the topic."""
    from kafka.protocol import admin

    form = admin.DescribeProducersRequest.TopicRequest
    nodes = {address: node for node, address in brokers.addresses.items()}
    asked: dict[int, dict[str, list[int]]] = {}
    for partition, leader in find_leaders(cluster, partitions, cluster.timeout_s).items():
        if isinstance(leader, KafkaError):
            raise KafkaException(leader)
        asked.setdefault(nodes[leader], {}).setdefault(partition.topic, []).append(partition.partition)
    requests = {
        node: admin.DescribeProducersRequest(
            topics=[form(name=topic, partition_indexes=numbers) for topic, numbers in topics.items()]
        )
        for node, topics in asked.items()
    }
    for answer in brokers.ask_each(requests, _VERSIONS).values():
        for topic in _checked(answer).topics:
            for of_partition in topic.partitions:
                yield from ((topic.name, each) for each in _checked(of_partition).active_producers)


def _listed(brokers: Brokers, producer_ids: Sequence[int]) -> dict[int, _Listed]:
    """Return the transactional ids of producers with their coordinators, by producer id."""
    from kafka.protocol import admin

    request = admin.ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids))
    answers = brokers.ask_each(dict.fromkeys(brokers.addresses, request), _VERSIONS)
    return {
        each.producer_id: _Listed(node, each.transactional_id)
        for node, answer in answers.items()
        for each in _checked(answer).transaction_states
    }


def _checked(answer: Any) -> Any:
    """Return an answer, or the answer about a partition, without an error."""
    if isinstance(answer, StateStoreError):
        raise answer
    if code := getattr(answer, "error_code", 0):
        raise KafkaException(KafkaError(code))
    return answer
