"""The broker and the input of `make bench-process`: uniformly random keys, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.kafka import Kafka
from demo.processes import ServiceError, wait_until
from statestore.kafka.client import client_config, until_answered
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition as LogPartition

KEY_BYTES = 16
VALUE_BYTES = 100
_POOL_BYTES = 1 << 20
BATCH = 10_000
_FLUSH_S = 120


class Input(NamedTuple):
    """An input topic with all its records.

    Attributes
    ----------
    ends
        End offset of each partition.
    """

    servers: str
    topic: str
    records: int
    distinct_keys: int
    ends: tuple[int, ...]

    @property
    def partitions(self) -> list[LogPartition]:
        """Partitions of the topic."""
        return [LogPartition(self.topic, partition) for partition in range(len(self.ends))]


class Broker(Kafka):
    """The demo's broker, which gives a new group time for all its members to join, and deletes files at once.

    Without it the first member would get everything, begin, and lose half of it to the second one.
    """

    def _configure(self, port: int, controller_port: int) -> None:
        super()._configure(port, controller_port)
        with self._config.open("a", encoding="utf-8") as file:
            file.write("group.initial.rebalance.delay.ms=1500\n")  # of two lines the last one holds
            file.write("log.segment.delete.delay.ms=100\n")  # not in the middle of a later round


def warm_up(servers: str) -> None:
    """Have the broker make its internal topics, which takes a second that no system is to pay."""
    Producer(client_config(servers, **{"transactional.id": "warm-up"})).init_transactions(60)
    with group_offsets(servers, "warm-up", [LogPartition("warm-up", 0)]) as offsets:
        offsets()


@contextmanager
def group_offsets(servers: str, group: str, partitions: Sequence[LogPartition]) -> Iterator[Callable[[], list[int]]]:
    """Give a function that asks for a group's committed offsets; the group is not joined.

    Offsets of an open transaction are neither shown nor waited for.
    """
    consumer = Consumer(client_config(servers, **{"group.id": group, "isolation.level": "read_uncommitted"}))
    asked = [TopicPartition(*partition) for partition in partitions]

    def ask(timeout_s: float) -> list[int]:
        return [found.offset for found in consumer.committed(asked, timeout=timeout_s)]

    try:
        yield lambda: until_answered(ask, f"reading the committed offsets of group {group}", 60)
    finally:
        consumer.close()


def batching_producer(servers: str, **settings: object) -> Producer:
    """Return a producer whose queue holds many batches, and that partitions by key as Kafka Streams does.

    Parameters
    ----------
    settings
        Further ones of the client, with `_` for dots.
    """
    return Producer(
        client_config(
            servers,
            **{
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 50,
                "queue.buffering.max.messages": 20 * BATCH,
                "queue.buffering.max.kbytes": 1 << 20,
                **{name.replace("_", "."): value for name, value in settings.items()},
            },
        )
    )


def produce_input(servers: str, topic: str, partitions: int, records: int, keys: int) -> Input:
    """Make the topic and fill it.

    Raises
    ------
    ServiceError
        If the topic does not hold as many records afterwards.
    """
    make_topic(servers, topic, partitions)
    distinct_keys = fill_topic(servers, topic, records, keys)
    ranges = Cluster(servers).topics.log_ranges([LogPartition(topic, partition) for partition in range(partitions)])
    ends = tuple(log.high_watermark for log in ranges.values())
    if sum(ends) != records:
        raise ServiceError(f"topic {topic} was to hold {records:,} records and holds {sum(ends):,}")
    return Input(servers, topic, records, distinct_keys, ends)


def make_topic(servers: str, topic: str, partitions: int) -> None:
    """Make an empty topic."""
    topics = Cluster(servers).topics
    topics.create(topic, partitions, {"retention.ms": "-1"})
    wait_until(lambda: topics.describe([topic]), 30, f"topic {topic} to be there")


def fill_topic(
    servers: str,
    topic: str,
    records: int,
    keys: int,
    *,
    batch: int = BATCH,
    pace: Callable[[int], None] = lambda _: None,
) -> int:
    """Fill a topic, always with the same records, and return how many distinct keys they have.

    Parameters
    ----------
    pace
        Waits before each batch of so many records.
    """
    source = random.Random(7)
    pool = source.randbytes(_POOL_BYTES)
    names = source.randbytes(KEY_BYTES * keys)
    numbers = np.random.default_rng(7)
    chosen = numbers.integers(0, keys, records)
    values_at = numbers.integers(0, _POOL_BYTES - VALUE_BYTES, records)
    producer = batching_producer(servers)
    for start in range(0, records, batch):
        part = slice(start, start + batch)
        pace(len(chosen[part]))
        for key, at in zip(chosen[part].tolist(), values_at[part].tolist(), strict=True):
            producer.produce(topic, pool[at : at + VALUE_BYTES], names[key * KEY_BYTES : (key + 1) * KEY_BYTES])
        wait_until(lambda: producer.poll(0) >= 0 and len(producer) <= 10 * BATCH, _FLUSH_S, "the broker", poll_s=0.01)
    producer.flush(_FLUSH_S)
    return len(np.unique(chosen))


def delete_topic(servers: str, topic: str) -> None:
    """Have the broker delete a topic; its files follow at once."""
    admin = AdminClient(client_config(servers))  # kept until the answer is there: its end would end the request
    admin.delete_topics([topic])[topic].result()
