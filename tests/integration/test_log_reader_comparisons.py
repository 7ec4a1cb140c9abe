"""The log reader beside a plain consumer of the same log: every codec, every end of a transaction, any range."""

from __future__ import annotations

import random
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from statestore.changelog.reader import ChangelogReader
from statestore.formats import position as position_format
from statestore.formats.value_format import value_format
from statestore.kafka.cluster import Cluster
from statestore.model import TopicPartition
from tests.integration import broker
from tests.integration.broker import T0, WAIT_S
from tests.integration.log_reading import consumed, read, rows_of

pytestmark = pytest.mark.usefixtures("way")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LARGE = 1_500_000


def _topic(servers: str, **config: str) -> str:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return broker.create_topic(servers, broker.unique("log"), config={"max.message.bytes": "4000000", **settings})


def _bytes(chosen: random.Random, largest: int) -> bytes | None:
    kind = chosen.random()
    if kind < 0.1:
        return None
    if kind < 0.2:
        return b""
    return chosen.randbytes(chosen.randrange(largest)) if kind < 0.6 else b"abc" * chosen.randrange(largest // 3)


def _log(servers: str, topic: str, seed: int) -> Producer:
    """Write transactions and plain records, some interleaved; return the producer of one that is left open."""
    chosen = random.Random(seed)
    for _ in range(12):
        producers = []
        for _ in range(chosen.choice((1, 1, 2))):
            config = {
                "bootstrap.servers": servers,
                "linger.ms": chosen.choice((0, 5)),
                "compression.type": chosen.choice(CODECS),
                "message.max.bytes": 4_000_000,
            }
            transactional = chosen.random() < 0.7
            producer = Producer({**config, **({"transactional.id": uuid4().hex} if transactional else {})})
            if transactional:
                producer.init_transactions(WAIT_S)
                producer.begin_transaction()
            producers.append((producer, transactional))
        for _ in range(chosen.choice((1, 3, 40))):
            producer, _ = chosen.choice(producers)
            headers = [("h", _bytes(chosen, 30)) for _ in range(chosen.choice((0, 0, 2)))]
            timestamp = T0 + chosen.randrange(-50_000, 50_000)
            key, value = _bytes(chosen, 60), _bytes(chosen, 300)
            producer.produce(topic, value, key, partition=0, timestamp=timestamp, headers=headers)
            if chosen.random() < 0.2:
                assert producer.flush(WAIT_S) == 0
        for producer, transactional in producers:
            assert producer.flush(WAIT_S) == 0
            if transactional and chosen.random() < 0.6:
                producer.commit_transaction(WAIT_S)
            elif transactional:
                producer.abort_transaction(WAIT_S)
    broker.settle(servers, topic)
    hung = Producer({"bootstrap.servers": servers, "transactional.id": uuid4().hex})
    hung.init_transactions(WAIT_S)
    hung.begin_transaction()
    hung.produce(topic, b"never committed", b"k", partition=0)
    assert hung.flush(WAIT_S) == 0
    return hung


@pytest.mark.short_for("fetched and decoded here-0")
@pytest.mark.parametrize("seed", range(4))
def test_r4_any_range_of_any_log_is_what_a_consumer_has(bootstrap_servers: str, seed: int) -> None:
    topic = _topic(bootstrap_servers)
    hung = _log(bootstrap_servers, topic, seed)
    chosen = random.Random(seed)
    try:
        for read_committed in (True, False):
            expected, end = consumed(bootstrap_servers, topic, read_committed=read_committed)
            assert read(bootstrap_servers, topic, 0, end, read_committed=read_committed) == expected
            for _ in range(5):
                first, last = sorted(chosen.randrange(end + 1) for _ in range(2))
                found = read(bootstrap_servers, topic, first, last, read_committed=read_committed)
                assert found == [row for row in expected if first <= row.offset < last]
    finally:
        hung.abort_transaction(WAIT_S)


@pytest.mark.short_for("fetched and decoded here-zstd", "through librdkafka-lz4")
@pytest.mark.parametrize("codec", CODECS[1:])
def test_batches_that_the_broker_compressed_are_read(bootstrap_servers: str, codec: str) -> None:
    # Brokers frame snappy as Java does, librdkafka does not.
    topic = _topic(bootstrap_servers, compression_type=codec)
    rows = [(b"k%d" % number, b"value " * (number % 50)) for number in range(3_000)]
    broker.produce(bootstrap_servers, topic, rows)
    expected, end = consumed(bootstrap_servers, topic)
    found = read(bootstrap_servers, topic, 0, end)
    assert found == expected
    assert [(row.key, row.value) for row in found] == rows


@pytest.mark.short_for("fetched and decoded here-zstd")
@pytest.mark.parametrize("codec", CODECS)
def test_large_records_are_read_whole(bootstrap_servers: str, codec: str) -> None:
    topic = _topic(bootstrap_servers)
    chosen = random.Random(codec)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "compression.type": codec, "message.max.bytes": 4_000_000}
    )
    values = [chosen.randbytes(_LARGE), b"small", b"x" * 2 * _LARGE, None, chosen.randbytes(_LARGE)] * 3
    for value in values:
        producer.produce(topic, value, b"k", partition=0)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert [row.value for row in read(bootstrap_servers, topic, 0, len(values))] == values


def test_timestamps_are_the_brokers_where_it_gives_them(bootstrap_servers: str) -> None:
    topic = _topic(bootstrap_servers, message_timestamp_type="LogAppendTime")
    broker.produce(bootstrap_servers, topic, [(b"k", b"%d" % number) for number in range(10)])
    expected, end = consumed(bootstrap_servers, topic)
    found = read(bootstrap_servers, topic, 0, end)
    assert found == expected
    assert all(row.timestamp > T0 + 1_000_000 for row in found)  # T0 is an hour ago


def test_positions_in_headers_are_merged_as_records_are_delivered(bootstrap_servers: str) -> None:
    topic = _topic(bootstrap_servers)
    chosen = random.Random(1)
    merged: dict[TopicPartition, int] = {}
    partial: dict[TopicPartition, int] = {}
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    for number in range(1_000):
        found = {
            TopicPartition(chosen.choice(("input", "other-input", "öffsets")), chosen.randrange(20)): chosen.randrange(
                10**12
            )
            for _ in range(chosen.randrange(4))
        }
        raw = position_format.encode(found) + bytes(chosen.randrange(3))
        headers = [("v", b"\0"), ("c", raw)]
        if number == 7:
            headers = []
        elif number == 8:  # some other application's
            headers = [("c", b"\xff\xff"), ("v", b"\0")]
        elif number == 9:
            headers = [("v", b"\1"), ("c", raw)]
        elif number == 10:
            headers = [("c", b"none"), *headers]  # the last one of a name counts
        if number not in (7, 8, 9):
            for partition, offset in found.items():
                merged[partition] = offset
                if 100 <= number < 200:
                    partial[partition] = offset
        producer.produce(topic, b"v", b"k", partition=0, headers=headers)
    assert producer.flush(WAIT_S) == 0
    with ChangelogReader(Cluster(bootstrap_servers), TopicPartition(topic, 0)) as opened:
        assert opened.position == {}
        rows_of(opened, 100, 200)
        assert opened.position == partial
        rows_of(opened, 0, 1_000)
        assert opened.position == merged


def test_position_of_more_partitions_than_usual_is_merged(bootstrap_servers: str) -> None:
    topic = _topic(bootstrap_servers)
    positions = [
        {TopicPartition("input", number): at * 1_000 + number for number in range(300 * at, 500)} for at in range(2)
    ]
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    for position in positions:
        headers = [("v", b"\0"), ("c", position_format.encode(position))]
        producer.produce(topic, b"v", b"k", partition=0, headers=headers)
    assert producer.flush(WAIT_S) == 0
    with ChangelogReader(Cluster(bootstrap_servers), TopicPartition(topic, 0)) as opened:
        rows_of(opened, 0, 2)
        assert opened.position == {**positions[0], **positions[1]}
    with ChangelogReader(Cluster(bootstrap_servers), TopicPartition(topic, 0)) as opened:  # they may be of another row
        assert sum(batch.num_rows for batch in opened.read(0, 2, value_format("headers"))) == 2
        assert opened.position == {}


def test_log_without_positions_has_none(bootstrap_servers: str) -> None:
    topic = _topic(bootstrap_servers)
    broker.produce(bootstrap_servers, topic, [(b"k", b"v")])
    with ChangelogReader(Cluster(bootstrap_servers), TopicPartition(topic, 0)) as opened:
        rows_of(opened, 0, 1)
        assert opened.position == {}


@pytest.mark.short_for(every=5)
@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ([], None),
        ([("v", b"\0"), ("c", b"\0")], None),
        ([("c", None), ("v", b"\0"), ("c", b"none")], None),
        ([("v", b"\0"), ("c", b"\0"), ("trace", b"1")], "trace"),
        ([("trace", None), ("other", b"1")], "trace"),
        ([("v", b"\3")], "v"),
        ([("v", b"\0\0")], "v"),
        ([("v", b"")], "v"),
        ([("v", None)], "v"),
        ([("vc", b"\0")], "vc"),
        ([("", b"")], ""),
        ([("a name that ends" * 10, b"")], ("a name that ends" * 10)[:100]),
    ],
)
def test_a_header_that_is_none_of_a_position_is_told_once_it_is_read(
    bootstrap_servers: str, headers: list[tuple[str, bytes | None]], foreign: str | None
) -> None:
    topic = _topic(bootstrap_servers)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    for number in range(3):
        producer.produce(topic, b"v", b"k", partition=0, headers=headers if number == 2 else [])
    assert producer.flush(WAIT_S) == 0
    partition = TopicPartition(topic, 0)
    with ChangelogReader(Cluster(bootstrap_servers), partition, watch_headers=True) as opened:
        rows_of(opened, 0, 2)
        assert opened.foreign_header is None
        rows_of(opened, 2, 3)
        assert opened.foreign_header == foreign
    with ChangelogReader(Cluster(bootstrap_servers), partition) as opened:
        rows_of(opened, 0, 3)
        assert opened.foreign_header is None
