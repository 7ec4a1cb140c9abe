"""Logs whose beginnings are fetched together: each reader gets what it would get alone, from its own log."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain

import pytest

from statestore.changelog.reader import ChangelogReader
from statestore.kafka import shared_fetch as module
from statestore.kafka.cluster import Cluster
from statestore.kafka.fetch import FetchConnection
from statestore.kafka.reader import first_offsets
from statestore.kafka.shared_fetch import fetched_together, take_fetched
from statestore.model import TopicPartition
from tests.integration import broker
from tests.integration.broker import NO_BROKER, WAIT_S, produce, settle, transaction
from tests.integration.log_reading import read, rows_of

_PARTITIONS = 10


@pytest.fixture(scope="module")
def topic(bootstrap_servers):
    """Ten partitions: the last has nothing, all others have two records, in the first around one that was aborted."""
    name = broker.create_topic(bootstrap_servers, broker.unique("together"), _PARTITIONS)
    for key, end in ((b"a", "commit"), (b"b", "abort"), (b"c", "commit")):
        transaction(bootstrap_servers, name, [(key, b"0")], end=end)
    for number in range(1, _PARTITIONS - 1):
        produce(bootstrap_servers, name, [(b"a", b"%d" % number), (b"c", b"%d" % number)], number)
    settle(bootstrap_servers, name)
    return name


@pytest.fixture
def asked(monkeypatch):
    """Partitions of each request for records."""
    found = []
    request = FetchConnection.request

    def counted(self, positions, *limits, **more):
        found.append([partition.partition for partition in positions])
        return request(self, positions, *limits, **more)

    monkeypatch.setattr(FetchConnection, "request", counted)
    return found


@pytest.fixture
def cluster(bootstrap_servers):
    return Cluster(bootstrap_servers, WAIT_S)


@contextmanager
def together(cluster, topic, start=0):
    starts = {TopicPartition(topic, number): start for number in range(_PARTITIONS)}
    with fetched_together(cluster, starts):
        yield


def test_each_log_gives_its_own_records_and_neighbours_take_one_request(cluster, topic, asked):
    with together(cluster, topic):
        for number in range(_PARTITIONS - 1):
            with ChangelogReader(cluster, TopicPartition(topic, number)) as reader:
                rows = rows_of(reader, 0, 2 if number else 6)
            assert [(row.key, row.value) for row in rows] == [(b"a", b"%d" % number), (b"c", b"%d" % number)]
    assert asked == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_who_looks_for_a_first_record_leaves_the_log_to_who_reads_it_and_that_once(cluster, topic, asked):
    partition, empty = TopicPartition(topic, 0), TopicPartition(topic, _PARTITIONS - 1)
    with together(cluster, topic):
        assert first_offsets(cluster, {partition: (0, 6)}) == {partition: 0}
        ranges = {partition: (0, 6), empty: (0, 0)}
        assert first_offsets(cluster, ranges) == {partition: 0, empty: None}
        assert take_fetched(cluster, partition, 0) is not None
        assert take_fetched(cluster, partition, 0) is None
        assert asked == [[0, 1, 2, 3]]
        assert len(read(cluster, topic, 0, 6)) == 2
    assert take_fetched(cluster, partition, 0) is None


def test_another_offset_and_another_isolation_are_asked_for_by_themselves(cluster, topic, asked):
    with together(cluster, topic):
        assert [row.offset for row in read(cluster, topic, 3, 6)] == [4]
        assert [row.offset for row in read(cluster, topic, 0, 6, read_committed=False)] == [0, 2, 4]
    assert set(chain.from_iterable(asked)) == {0}


def test_logs_that_cannot_be_fetched_together_are_read_one_by_one(cluster, topic, asked, monkeypatch):
    monkeypatch.setattr(module, "_SILENCE_S", 0.5)
    nobody = Cluster(NO_BROKER)
    with together(nobody, topic):
        assert take_fetched(nobody, TopicPartition(topic, 0), 0) is None
    with together(cluster, topic, start=7):  # behind the end
        assert len(read(cluster, topic, 0, 6)) == 2
        assert take_fetched(cluster, TopicPartition(topic, 0), 7) is None
