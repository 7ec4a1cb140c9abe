"""What tests do with the broker, and how they read it: plain clients, none of our own readers or writers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition

#: Where nobody listens.
NO_BROKER = "127.0.0.1:1"
#: An hour ago: neither so old that retention bites, nor in a future that brokers refuse.
T0 = int(time.time() * 1000) - 3_600_000
WAIT_S = 120.0
T = TypeVar("T")
#: Key and value, and headers if there are any.
Row = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def wait_for(condition: Callable[[], T], what: str, deadline_s: float = WAIT_S) -> T:
    """Poll until the condition returns something true, and return that."""
    deadline = time.monotonic() + deadline_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {deadline_s:g} s for {what}"
        time.sleep(0.02)
    return result


class Logged(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def unique(name: str) -> str:
    """Return a name that no other test has."""
    return f"{name}-{uuid4().hex[:8]}"


def create_topic(servers: str, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    """Create a topic, and wait until the broker shows it with its leaders."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, config=config or {})])[name].result(WAIT_S)

    def ready() -> bool:
        topic = admin.list_topics(name, timeout=WAIT_S).topics[name]
        return topic.error is None and len(topic.partitions) == partitions

    wait_for(ready, f"topic {name}")
    return name


@contextmanager
def member_of(servers: str, group: str, topic: str, **config: str) -> Iterator[None]:
    """Have somebody else consume a topic as a group meanwhile; `_` stands for the dot in the configuration."""
    more = {name.replace("_", "."): value for name, value in config.items()}
    member = Consumer({"bootstrap.servers": servers, "group.id": group, "client.id": "somebody-else", **more})
    try:
        member.subscribe([topic])
        wait_for(lambda: member.poll(0.1) or member.assignment(), "the member to have joined")
        yield
    finally:
        member.close()
    admin = AdminClient({"bootstrap.servers": servers})
    wait_for(
        lambda: not admin.describe_consumer_groups([group])[group].result(WAIT_S).members, "the member to have left"
    )


def delete_topic(servers: str, name: str) -> None:
    """Delete a topic, and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([name])[name].result(WAIT_S)
    wait_for(lambda: admin.list_topics(name, timeout=WAIT_S).topics[name].error, f"the end of topic {name}")


def add_partitions(servers: str, topic: str, total: int) -> None:
    """Give a topic more partitions, and wait until the broker shows them."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(WAIT_S)
    wait_for(lambda: len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == total, "the partitions")


def delete_records(servers: str, topic: str, before: int, partition: int = 0) -> None:
    """Move the log's start."""
    admin = AdminClient({"bootstrap.servers": servers})
    where = KafkaTopicPartition(topic, partition, before)
    for future in admin.delete_records([where]).values():
        future.result(WAIT_S)


def set_topic_config(servers: str, topic: str, **settings: str) -> None:
    """Change settings of a topic, and wait until the broker goes by them; `_` stands for the dot."""
    _alter(servers, ConfigResource.Type.TOPIC, topic, settings)
    wanted = {key.replace("_", "."): value for key, value in settings.items()}
    asked = Cluster(servers, WAIT_S).topics
    wait_for(lambda: wanted.items() <= asked.topic_configs([topic])[topic].items(), f"the settings of {topic}")
    # The broker tells settings before its logs have them; a topic that is made after that is shown when they do.
    create_topic(servers, unique("after"))


def _alter(servers: str, kind: Any, name: str, settings: dict[str, str]) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


def make_compaction_eager(servers: str) -> None:
    """Have the broker look for logs to compact every half second instead of every 15 s; a look costs it some time."""
    _alter(servers, ConfigResource.Type.BROKER, "1", {"log_cleaner_backoff_ms": "500"})


def produce(servers: str, topic: str, rows: Iterable[Row], partition: int = 0, timestamp: int = T0) -> None:
    """Produce rows one after the other, the timestamp growing by one with each."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
    for at, row in enumerate(rows):
        _produce(producer, topic, row, partition, timestamp + at)
    assert producer.flush(WAIT_S) == 0


def _produce(producer: Producer, topic: str, row: Row, partition: int, timestamp: int) -> None:
    key, value, *headers = row
    with_headers = {"headers": list(headers[0])} if headers else {}
    producer.produce(topic, value=value, key=key, partition=partition, timestamp=timestamp, **with_headers)


def transaction(
    servers: str,
    topic: str,
    rows: Iterable[Row],
    *,
    end: str = "commit",
    partition: int = 0,
    timestamp: int = T0,
    timeout_ms: int = 60_000,
) -> Producer:
    """Produce rows in one transaction that ends by `commit` or `abort`, or stays `open` until the broker ends it."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": uuid4().hex,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 1,
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for at, row in enumerate(rows):
        _produce(producer, topic, row, partition, timestamp + at)
    assert producer.flush(WAIT_S) == 0
    if end != "open":
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(WAIT_S)
        settle(servers, topic)
    return producer


def settle(servers: str, *topics: str) -> None:
    """Wait until every transaction in the topics has ended: brokers write markers after they answered the commit."""
    asked = Cluster(servers, WAIT_S).topics
    partitions = [
        TopicPartition(topic.name, number)
        for topic in asked.describe(topics).values()
        for number in range(topic.partitions)
    ]
    wait_for(
        lambda: all(log.last_stable == log.high_watermark for log in asked.log_ranges(partitions).values()),
        f"the end of the transactions in {', '.join(topics)}",
        60,  # some 60 to 70 s after its begin the broker itself ends one that we left open
    )


class PlainConsumer:
    """Reads partitions from given offsets to their ends, with a consumer that stays.

    Parameters
    ----------
    reset
        What `auto.offset.reset` says of an offset that is not there.
    """

    def __init__(self, servers: str, *, read_committed: bool = True, reset: str = "earliest") -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": uuid4().hex,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                "enable.auto.commit": False,
                "auto.offset.reset": reset,
                "fetch.wait.max.ms": 10,  # the end of the log is told by the answer to a fetch that found nothing
                "log_level": 2,
            }
        )

    def read(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[list[Logged], int]]:
        """Return records and end of each partition; under read_committed that is the last stable offset."""
        records: dict[TopicPartition, list[Logged]] = {partition: [] for partition in starts}
        ends: dict[TopicPartition, int] = {}

        def ended() -> bool:
            first = self._consumer.poll(0.2)
            for message in [] if first is None else [first, *self._consumer.consume(10_000, 0)]:
                partition, error = TopicPartition(message.topic(), message.partition()), message.error()
                if error is None:
                    record = Logged(message.offset(), message.key(), message.value(), message.timestamp()[1])
                    records[partition].append(record)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ends[partition] = message.offset()
            return len(ends) == len(records)

        self._consumer.assign([KafkaTopicPartition(*partition, start) for partition, start in starts.items()])
        wait_for(ended, f"the ends of {', '.join(map(str, starts))}")
        self._consumer.unassign()
        return {partition: (records[partition], ends[partition]) for partition in starts}

    def close(self) -> None:
        """Let go of the consumer."""
        self._consumer.close()


def consume(
    servers: str, topic: str, partition: int = 0, start: int = 0, *, read_committed: bool = True
) -> tuple[list[Logged], int]:
    """Read a partition from an offset, or the log's start if that is later, to its end; return records and end.

    A number, and not the name of the log's start: to find that out librdkafka first waits for half a second.
    """
    where = TopicPartition(topic, partition)
    with closing(PlainConsumer(servers, read_committed=read_committed)) as consumer:
        return consumer.read({where: start})[where]


def group_offset(servers: str, group: str, topic: str, partition: int = 0) -> int:
    """Return the group's next input offset; negative if it has none."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed"})
    try:
        return consumer.committed([KafkaTopicPartition(topic, partition)], timeout=WAIT_S)[0].offset
    finally:
        consumer.close()


def set_quota(servers: str, name: str, bytes_per_s: float | None, client_id: str | None = None) -> None:
    """Set a quota for a client, and wait until the broker lists it; without a rate, remove it.

    Without a client id, it is for any client.
    """
    # Here: few of the tests that import this file need it.
    from kafka import KafkaAdminClient
    from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

    entry, component = AlterClientQuotasRequest.EntryData, DescribeClientQuotasRequest.ComponentData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="client-id", entity_name=client_id)],
                ops=[entry.OpData(key=name, value=bytes_per_s or 0.0, remove=bytes_per_s is None)],
            )
        ]
    )
    of_client = DescribeClientQuotasRequest(
        components=[component(entity_type="client-id", match_type=0 if client_id else 1, match=client_id)], strict=True
    )
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        # It has no method for quotas.
        answer = admin._manager.run(admin._manager.send, request)
        assert [each.error_code for each in answer.entries] == [0]

        def is_listed() -> bool:
            entries = admin._manager.run(admin._manager.send, of_client).entries
            values = {value.key: value.value for each in entries for value in each.values}
            return values.get(name) == bytes_per_s

        wait_for(is_listed, f"the quota {name} of {client_id}")


@contextmanager
def limited(servers: str, name: str, bytes_per_s: float, directory: Path) -> Iterator[None]:
    """Have the clients of this process share a quota; their configuration is in a directory meanwhile."""
    client_id, config = unique("limited"), directory / "kafka.json"
    config.touch(0o600)
    config.write_text(json.dumps({"client.id": client_id}), encoding="utf-8")
    set_quota(servers, name, bytes_per_s, client_id)
    # A broker lists a change before it applies it, and applies one change after the other.
    set_quota(servers, "request_percentage", 100_000, client_id)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STATESTORE_KAFKA_CONFIG", str(config))
            yield
    finally:
        set_quota(servers, name, None, client_id)
        set_quota(servers, "request_percentage", None, client_id)
