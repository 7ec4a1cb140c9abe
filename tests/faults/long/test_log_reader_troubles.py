"""The log reader and a broker that is restarted, killed, silent or damaged: no gap, no duplicate, no wrong record."""

from __future__ import annotations

import struct
import time
import zlib

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from statestore.changelog.compaction_gaps import holes
from statestore.changelog.reader import ChangelogReader
from statestore.errors import KafkaUnavailableError, LogCorruptedError
from statestore.kafka.cluster import Cluster
from statestore.kafka.reader import first_offsets
from statestore.model import TopicPartition
from tests.faults.own_broker import OwnBroker
from tests.integration import broker
from tests.integration.broker import T0, WAIT_S, produce
from tests.integration.log_reading import FETCHED, WAYS, choose, read

#: More than fits into two answers.
_COUNT = 20_000
_VALUE = b"v" * 1_000
#: Longer than a fetch takes on a busy machine.
_STALL_S = 60


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    choose(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture
def topic(own_broker: OwnBroker) -> str:
    return broker.create_topic(own_broker.servers, broker.unique("log"))


@pytest.fixture(scope="module")
def long_topic(own_broker: OwnBroker) -> str:
    return _long_topic(own_broker.servers)


def _long_topic(servers: str) -> str:
    name = broker.create_topic(servers, broker.unique("log"))
    produce(servers, name, [(b"k", _VALUE)] * _COUNT)
    return name


def _offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.share_for("fetched and decoded here-False", why="our own reader, and the harder end")
@pytest.mark.parametrize("orderly", [True, False])
def test_restart_in_the_middle_leaves_no_gap_and_no_duplicate(
    own_broker: OwnBroker, long_topic: str, *, orderly: bool
) -> None:
    servers = own_broker.servers
    with ChangelogReader(Cluster(servers, 60), TopicPartition(long_topic, 0)) as reader:
        reading = reader.read(0, _COUNT)
        batches = [next(reading)]
        (own_broker.stop if orderly else own_broker.kill)()
        own_broker.start()
        batches += reading
    assert _offsets(batches) == list(range(_COUNT))


@pytest.mark.share_for("fetched and decoded here", why="our own reader")
def test_broker_that_stays_silent_is_an_error_within_the_stall_timeout(paused_broker: OwnBroker) -> None:
    servers = paused_broker.servers
    with ChangelogReader(Cluster(servers, _STALL_S), TopicPartition(_long_topic(servers), 0)) as reader:
        reading = reader.read(0, _COUNT + 1)  # what librdkafka has read ahead would hide the silence
        next(reading)
        paused_broker.pause()
        started = time.monotonic()
        try:
            with pytest.raises(KafkaUnavailableError):
                list(reading)
            assert time.monotonic() - started < 3 * _STALL_S
        finally:
            paused_broker.resume()


def test_caller_that_takes_its_time_is_no_stall(own_broker: OwnBroker, long_topic: str) -> None:
    batches = []
    with ChangelogReader(Cluster(own_broker.servers, _STALL_S), TopicPartition(long_topic, 0)) as reader:
        for batch in reader.read(0, _COUNT):
            if not batches:
                time.sleep(_STALL_S + 1)  # longer than a stall may last
            batches.append(batch)
    assert _offsets(batches) == list(range(_COUNT))


def test_flipped_bit_in_the_log_is_an_error_that_names_the_place(own_broker: OwnBroker, topic: str) -> None:
    servers = own_broker.servers
    for number in range(3):  # three batches
        produce(servers, topic, [(b"key", b"a value of record %d" % number)])
    whole = own_broker.segment(topic).read_bytes()
    damaged = whole.replace(b"of record 1", b"of record 0")
    assert damaged != whole
    own_broker.segment(topic).write_bytes(damaged)
    with pytest.raises(LogCorruptedError, match=f"{topic}-0: the record batch at offset 1 is damaged"):
        read(servers, topic, 0, 3, stall_s=_STALL_S)
    own_broker.segment(topic).write_bytes(whole)
    assert [row.offset for row in read(servers, topic, 0, 3, stall_s=_STALL_S)] == [0, 1, 2]


def _message_of_format_1(offset: int, key: bytes, value: bytes, timestamp: int) -> bytes:
    body = struct.pack(">bbqi", 1, 0, timestamp, len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def test_records_of_an_old_format_are_read_beside_new_ones(own_broker: OwnBroker, topic: str) -> None:
    servers = own_broker.servers
    produce(servers, topic, [(b"new", b"0")])
    own_broker.stop()
    with own_broker.segment(topic).open("ab") as log:  # what Kafka before 0.11 wrote; brokers no longer do
        for offset in (1, 2):
            log.write(_message_of_format_1(offset, b"old", b"%d" % offset, T0))
    own_broker.start()
    produce(servers, topic, [(b"new", b"3")])
    found = read(servers, topic, 0, 4, stall_s=_STALL_S)
    assert [(row.key, row.value, row.offset) for row in found] == [
        (b"new", b"0", 0),
        (b"old", b"1", 1),
        (b"old", b"2", 2),
        (b"new", b"3", 3),
    ]
    assert first_offsets(Cluster(servers, WAIT_S), {TopicPartition(topic, 0): (1, 4)}) == {TopicPartition(topic, 0): 1}


def _without(segment: bytes, gone: range) -> bytes:
    """Leave out the record batches at some offsets, as compaction does."""
    left, at = b"", 0
    while at < len(segment):
        base, length = struct.unpack_from(">qi", segment, at)
        left += b"" if base in gone else segment[at : at + 12 + length]
        at += 12 + length
    return left


@pytest.mark.parametrize("way", [FETCHED], indirect=True)
def test_range_that_ends_in_a_hole_before_an_open_transaction_is_done(own_broker: OwnBroker, topic: str) -> None:
    servers, partition = own_broker.servers, TopicPartition(topic, 0)
    produce(servers, topic, [(b"k", b"0")])
    produce(servers, topic, [(b"k", b"1"), (b"k", None)])
    settings = {"transactional.id": topic, "transaction.timeout.ms": 600_000, "log_level": 0}
    hung = Producer({"bootstrap.servers": servers, **settings})
    hung.init_transactions(WAIT_S)
    hung.begin_transaction()
    hung.produce(topic, b"3", b"k", timestamp=T0)
    assert hung.flush(WAIT_S) == 0
    own_broker.stop()
    whole = own_broker.segment(topic).read_bytes()
    own_broker.segment(topic).write_bytes(_without(whole, range(1, 3)))
    own_broker.start()
    started = time.monotonic()
    assert [row.offset for row in read(servers, topic, 0, 3, stall_s=WAIT_S)] == [0]
    assert read(servers, topic, 1, 3, stall_s=WAIT_S) == []
    with ChangelogReader(Cluster(servers, WAIT_S), partition) as reader:  # through librdkafka
        assert [message.offset() for messages in reader.read_messages(0, 3) for message in messages] == [0]
    assert first_offsets(Cluster(servers, WAIT_S), {partition: (1, 3)}) == {partition: None}
    assert holes(Cluster(servers, WAIT_S), partition, 0, 3) == 2
    assert time.monotonic() - started < WAIT_S / 2
    with pytest.raises(KafkaUnavailableError):  # the transaction is still open: its record is not to be had
        read(servers, topic, 0, 4, stall_s=1)
