"""A transaction that does not end: its producer is named, and what ends it.

librdkafka's statistics tell a producer's own id and epoch, independently of what brokers answer to us.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from broker import NO_BROKER, T0, WAIT_S, create_topic, transaction, unique, wait_for
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as AskedOffset
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaAdminClient
from kafka import TopicPartition as AskedPartition
from kafka.admin import AbortTransactionSpec
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from statestore.kafka import open_transaction
from statestore.kafka.cluster import Cluster
from statestore.kafka.open_transaction import OpenTransaction, advice, find_open_transaction
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from tests.integration.support import Application

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

ROWS = [(b"key", b"value")]
HangingWrite = Callable[[str, OpenTransaction, int], None]


class Writer(NamedTuple):
    """A producer with a transaction that is open, and what a partition's leader should say of it."""

    producer: Producer
    expected: OpenTransaction


def open_writer(servers: str, topic: str, timeout_ms: int, partition: int = 0) -> Writer:
    """Produce one record in a transaction, and leave it open."""
    told: list[dict[str, int]] = []
    name = unique("writer")
    settings = {
        "bootstrap.servers": servers,
        "transactional.id": name,
        "transaction.timeout.ms": timeout_ms,
        "statistics.interval.ms": 20,
        "stats_cb": lambda text: told.append(json.loads(text)["eos"]),
    }
    Producer(settings).init_transactions(WAIT_S)  # the second one has a later epoch
    producer = Producer(settings)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    write(producer, topic, partition)
    told.clear()
    wait_for(lambda: producer.poll(0.05) >= 0 and told, "the producer's statistics")
    own = told[-1]
    assert own["producer_epoch"] > 0
    return Writer(producer, OpenTransaction(own["producer_id"], own["producer_epoch"], name, timeout_ms))


def write(producer: Producer, topic: str, partition: int = 0) -> None:
    """Produce one record, and wait until it is in the log."""
    producer.produce(topic, value=b"value", partition=partition, timestamp=T0)
    assert producer.flush(WAIT_S) == 0


def log_of(servers: str, partition: TopicPartition) -> LogRange:
    """Return the ends of a log."""
    return Cluster(servers).topics.log_ranges([partition])[partition]


@pytest.fixture
def hanging_write(bootstrap_servers: str) -> Iterator[HangingWrite]:
    """Write a record of a transaction that no coordinator knows, as a late or retried request may (KIP-890).

    Brokers refuse it since Kafka 3.6, unless they are told not to look.
    """
    verify_transactions(bootstrap_servers, "false")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)

    def write_behind(topic: str, producer: OpenTransaction, sequence: int) -> None:
        batch = DefaultRecordBatchBuilder(
            2, 0, True, producer.producer_id, producer.producer_epoch, sequence, batch_size=1_000
        )
        batch.append(0, T0, b"key", b"hanging", [])
        data = ProduceRequest.TopicProduceData
        partition = data.PartitionProduceData(index=0, records=bytes(batch.build()))
        request = ProduceRequest(
            transactional_id=producer.transactional_id or unique("nobody"),
            acks=-1,
            timeout_ms=int(WAIT_S * 1000),
            topic_data=[data(name=topic, partition_data=[partition])],
            max_version=11,  # from 12 on, writing makes the partition part of the transaction
        )

        def taken() -> bool:
            answer: Any = admin._manager.run(admin._manager.send, request, 1)
            return bool(answer.responses[0].partition_responses[0].error_code == 0)

        wait_for(taken, "the broker to take a record without looking for its transaction")

    yield write_behind
    admin.close()
    verify_transactions(bootstrap_servers, "true")


def abort(servers: str, partition: TopicPartition, hanging: OpenTransaction) -> None:
    """Abort a transaction, as kafka-transactions.sh does."""
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.abort_transaction(AbortTransactionSpec(AskedPartition(*partition), *hanging[:2]))


def verify_transactions(servers: str, verify: str) -> None:
    """Have the broker ask the coordinator about the transaction of each record, or not."""
    entry = ConfigEntry(
        "transaction.partition.verification.enable", verify, incremental_operation=AlterConfigOpType.SET
    )
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})  # kept in a name: its death would end the call
    admin.incremental_alter_configs([broker])[broker].result(WAIT_S)


@pytest.mark.long
def test_of_several_open_transactions_the_one_that_holds_back_the_offset_is_found(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, unique("log"), 2)
    partition = TopicPartition(topic, 0)
    transaction(bootstrap_servers, topic, ROWS)
    transaction(bootstrap_servers, topic, ROWS, end="abort")
    elsewhere = open_writer(bootstrap_servers, topic, 70_000, partition=1)
    first = open_writer(bootstrap_servers, topic, 80_000)
    second = open_writer(bootstrap_servers, topic, 90_000)
    write(first.producer, topic)

    start = log_of(bootstrap_servers, partition).last_stable
    assert find_open_transaction(Cluster(bootstrap_servers, WAIT_S), partition, start) == first.expected
    first.producer.commit_transaction(WAIT_S)
    later = wait_for(lambda: max(log_of(bootstrap_servers, partition).last_stable - start, 0), "the first to end")
    assert find_open_transaction(Cluster(bootstrap_servers, WAIT_S), partition, start + later) == second.expected
    assert find_open_transaction(Cluster(bootstrap_servers, WAIT_S), TopicPartition(topic, 1), 0) == elsewhere.expected


def test_a_transaction_that_its_coordinator_will_end_is_to_be_waited_for(bootstrap_servers: str) -> None:
    topic = create_topic(bootstrap_servers, unique("log"))
    _, expected = open_writer(bootstrap_servers, topic, 65_000)
    assert advice(Cluster(bootstrap_servers, WAIT_S), TopicPartition(topic, 0), 0) == (
        f"it is of producer id {expected.producer_id}, epoch {expected.producer_epoch}, transactional id "
        f"{expected.transactional_id}; end that producer, or wait: Kafka aborts it at an age of 65 s"
    )


def test_a_transaction_that_no_coordinator_will_end_is_to_be_aborted(
    bootstrap_servers: str, hanging_write: HangingWrite
) -> None:
    topic = create_topic(bootstrap_servers, unique("log"))
    partition = TopicPartition(topic, 0)
    hanging = OpenTransaction(4_711_000, 3)
    hanging_write(topic, hanging, 0)

    assert find_open_transaction(Cluster(bootstrap_servers, WAIT_S), partition, 0) == hanging
    assert advice(Cluster(bootstrap_servers, WAIT_S), partition, 0) == (
        "it is of producer id 4711000, epoch 3; no coordinator was found that will end it. If that producer is gone "
        f"and its timeout has passed, abort it: kafka-transactions.sh --bootstrap-server {bootstrap_servers} abort "
        f"--topic {topic} --partition 0 --start-offset 0. Kafka may have moved the group's input offset with it all "
        'the same: before anything is processed again, see "A transaction that hangs" in docs/operations.md'
    )
    abort(bootstrap_servers, partition, hanging)
    wait_for(lambda: log_of(bootstrap_servers, partition) == LogRange(0, 2, 2, epoch=0), "the abort's marker")
    assert find_open_transaction(Cluster(bootstrap_servers, WAIT_S), partition, 0) is None


def test_input_that_kafka_counted_with_a_transaction_that_it_forgot_can_be_processed_again(
    bootstrap_servers: str, tmp_path: Path, hanging_write: HangingWrite
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1"), (b"b", b"1")])
    application.send([(b"a", b"2"), (b"c", b"1")])
    hanging = OpenTransaction(4_712_000, 0)
    changelog = TopicPartition(application.changelog, 0)
    hanging_write(application.changelog, hanging, 0)
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": application.name})
    consumer.commit(offsets=[AskedOffset(application.input, 0, 4)], asynchronous=False)
    consumer.close()
    assert "A transaction that hangs" in application.fails(
        "OpenTransactionError", cluster=Cluster(bootstrap_servers, 1)
    )

    abort(bootstrap_servers, changelog, hanging)
    wait_for(lambda: log_of(bootstrap_servers, changelog).last_stable == log_of(bootstrap_servers, changelog)[2], "end")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.delete_consumer_groups([application.name])[application.name].result(WAIT_S)
    row = application.run(resume_from_position=True)
    assert (row.failure, row.records_in) == (None, 2)
    application.assert_oracle()


@pytest.mark.long
def test_a_producers_next_transaction_is_not_taken_for_the_one_that_hangs(
    bootstrap_servers: str, hanging_write: HangingWrite
) -> None:
    topic = create_topic(bootstrap_servers, unique("log"), 2)
    partition = TopicPartition(topic, 0)
    producer, expected = open_writer(bootstrap_servers, topic, 60_000)
    producer.commit_transaction(WAIT_S)
    end = wait_for(lambda: max(log_of(bootstrap_servers, partition).last_stable, 0), "the commit's marker")
    hanging_write(topic, expected, 1)
    producer.begin_transaction()
    write(producer, topic, 1)

    assert find_open_transaction(Cluster(bootstrap_servers, WAIT_S), partition, end) == expected._replace(
        timeout_ms=None
    )
    assert find_open_transaction(Cluster(bootstrap_servers, WAIT_S), TopicPartition(topic, 1), 0) == expected


@pytest.mark.short_for(every=3)
@pytest.mark.parametrize("topic", ["log", "not there", ""])
def test_where_no_transaction_is_open_none_is_found(bootstrap_servers: str, topic: str) -> None:
    if topic == "log":
        topic = create_topic(bootstrap_servers, unique("log"))
        open_writer(bootstrap_servers, topic, 60_000)
    assert find_open_transaction(Cluster(bootstrap_servers, WAIT_S), TopicPartition(topic, 0), 1) is None
    assert advice(Cluster(bootstrap_servers, WAIT_S), TopicPartition(topic, 0), 1) == (
        "its producer could not be found; wait for its timeout, or look for it with kafka-transactions.sh"
    )


def test_brokers_that_do_not_answer_cost_no_more_than_the_deadline_and_leave_no_thread_behind() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for servers in (NO_BROKER, f"127.0.0.1:{silent.getsockname()[1]}", "not:an:address"):
            started = time.monotonic()
            assert find_open_transaction(Cluster(servers, 0.5), TopicPartition("log", 0), 0) is None
            assert time.monotonic() - started < 60
    wait_for(lambda: not [each for each in threading.enumerate() if "kafka-io" in each.name], "kafka-python to stop")


def test_what_was_found_by_the_deadline_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hang(cluster: Cluster, partition: TopicPartition, start: int, found: list[Any]) -> None:
        found.append(OpenTransaction(7, 1))
        released.wait(WAIT_S)

    monkeypatch.setattr(open_transaction, "_ask", hang)
    started = time.monotonic()
    assert find_open_transaction(Cluster(NO_BROKER, 0.2), TopicPartition("log", 0), 0) == OpenTransaction(7, 1)
    assert time.monotonic() - started < WAIT_S / 2
    released.set()
