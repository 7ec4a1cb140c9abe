"""What the tests of the log reader share: both of its ways, and what a plain client sees of the same log."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from statestore.changelog.reader import ChangelogReader
from statestore.kafka import (
    cluster,
    record_kernels,  # noqa: F401  # imports numba: else short ranges are read through librdkafka
)
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition
from tests.integration.broker import consume

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
        monkeypatch.setattr(cluster, "can_fetch", lambda settings: False)


def rows_of(opened: ChangelogReader, start: int, end: int) -> list[Row]:
    """Read a range with a reader that is there."""
    return [Row(*row) for batch in opened.read(start, end) for row in zip(*batch.to_pydict().values(), strict=True)]


def read(
    servers: str | Cluster, topic: str, start: int, end: int, *, read_committed: bool = True, stall_s: float = 60
) -> list[Row]:
    """Read a range with a reader of its own."""
    asked = servers if isinstance(servers, Cluster) else Cluster(servers, stall_s)
    with ChangelogReader(asked, TopicPartition(topic, 0), read_committed=read_committed) as opened:
        return rows_of(opened, start, end)


def consumed(servers: str, topic: str, *, read_committed: bool = True) -> tuple[list[Row], int]:
    """Return the records and the end of a partition, as one of librdkafka's consumers has them."""
    records, end = consume(servers, topic, read_committed=read_committed)
    return [Row(record.key, record.value, record.timestamp, record.offset) for record in records], end
