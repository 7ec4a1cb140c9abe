"""What the tests of the log reader share: both of its ways, and what a plain client sees of the same log."""

from __future__ import annotations

import time
from typing import NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from statestore.changelog import (
    reader,
    record_kernels,  # noqa: F401  # imports numba: else short ranges are read through librdkafka
)
from statestore.changelog.reader import LogReader
from statestore.model import TopicPartition
from tests.integration.broker import WAIT_S

FETCHED, LIBRDKAFKA = WAYS = ("fetched and decoded here", "through librdkafka")


class Row(NamedTuple):
    """A record, as the reader's columns have it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    offset: int


def choose(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the reader go one of its ways: it takes librdkafka's where the brokers ask for more than a connection."""
    if way == LIBRDKAFKA:
        monkeypatch.setattr(reader, "can_fetch", lambda settings: False)


def rows_of(opened: LogReader, start: int, end: int) -> list[Row]:
    """Read a range with a reader that is there."""
    return [Row(*row) for batch in opened.read(start, end) for row in zip(*batch.to_pydict().values(), strict=True)]


def read(
    servers: str, topic: str, start: int, end: int, *, read_committed: bool = True, stall_s: float = 60
) -> list[Row]:
    """Read a range with a reader of its own."""
    with LogReader(servers, TopicPartition(topic, 0), read_committed=read_committed, stall_timeout_s=stall_s) as opened:
        return rows_of(opened, start, end)


def consumed(servers: str, topic: str, *, read_committed: bool = True) -> tuple[list[Row], int]:
    """Return the records and the end of a partition, as one of librdkafka's consumers has them, poll by poll."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid4().hex,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.assign([KafkaTopicPartition(topic, 0, 0)])
    rows: list[Row] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                rows.append(Row(message.key(), message.value(), message.timestamp()[1], message.offset()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return rows, message.offset()
            else:
                raise AssertionError(error)
        raise AssertionError(f"no end of {topic} within {WAIT_S:g} s")
    finally:
        consumer.close()
