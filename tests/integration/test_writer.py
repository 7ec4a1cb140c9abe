"""The transactional writer on a real broker: all or nothing, fenced by a successor, records where Kafka puts them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from statestore.errors import FencedError, InputError, KafkaUnavailableError, TransactionTimedOutError
from statestore.kafka.cluster import Cluster
from statestore.kafka.groups import ConsumerGroup, GroupOffset
from statestore.kafka.writer import AtLeastOnceWriter, TransactionalWriter
from statestore.model import TopicPartition
from tests.integration import broker
from tests.integration.broker import NO_BROKER, T0, consume

PARTITIONS = 4


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    return broker.create_topic(bootstrap_servers, broker.unique("written"))


def _writer(servers: str, name: str | None = None) -> TransactionalWriter:
    writer = TransactionalWriter(Cluster(servers, 60), name or broker.unique("writer"))
    writer.init()
    return writer


def _values(servers: str, topic: str) -> list[bytes | None]:
    broker.settle(servers, topic)
    return [record.value for record in consume(servers, topic)[0]]


def test_committed_records_and_offsets_become_visible_together(bootstrap_servers: str, topic: str) -> None:
    group = broker.unique("group")
    source = TopicPartition(topic, 0)
    writer = _writer(bootstrap_servers)
    with ConsumerGroup(Cluster(bootstrap_servers, 10), group) as consumer:
        assert consumer.committed(source) is None
        writer.begin()
        writer.produce(topic, b"k", b"v", T0, 0)
        writer.produce(topic, b"k", None, T0 + 1, 0)
        assert writer.flush() == {source: 1}
        writer.send_offsets(consumer, {source: GroupOffset(17, "metadata")})
        assert consume(bootstrap_servers, topic)[0] == []
        writer.commit()
        assert consumer.committed(source) == (17, "metadata")
    assert _values(bootstrap_servers, topic) == [b"v", None]


def test_last_offsets_are_those_of_this_transaction_only(bootstrap_servers: str, topic: str) -> None:
    writer = _writer(bootstrap_servers)
    writer.begin()
    writer.produce(topic, b"k", b"1", T0, 0)
    assert writer.flush() == {TopicPartition(topic, 0): 0}
    writer.commit()
    writer.begin()
    assert writer.flush() == {}
    writer.produce(topic, b"k", b"2", T0, 0)
    assert writer.flush() == {TopicPartition(topic, 0): 2}  # 1 is the marker
    writer.commit()


@pytest.mark.parametrize("flushed", [True, False])
def test_r4_aborted_records_stay_invisible_and_the_writer_goes_on(
    bootstrap_servers: str, topic: str, flushed: bool
) -> None:
    writer = _writer(bootstrap_servers)
    writer.begin()
    writer.produce(topic, b"k", b"aborted", T0, 0)
    if flushed:
        writer.flush()
    writer.abort()
    writer.abort()  # there is none any more: nothing happens
    writer.begin()
    writer.produce(topic, b"k", b"committed", T0, 0)
    writer.flush()
    writer.commit()
    assert _values(bootstrap_servers, topic) == [b"committed"]


@pytest.mark.short_for("begin", "commit")
@pytest.mark.parametrize("moment", ["begin", "produce", "flush", "send_offsets", "commit"])
def test_r14_a_successor_fences_the_writer_wherever_it_is(bootstrap_servers: str, topic: str, moment: str) -> None:
    name, group = broker.unique("writer"), broker.unique("group")
    first = _writer(bootstrap_servers, name)
    first.begin()
    first.produce(topic, b"k", b"zombie", T0, 0)
    first.flush()
    if moment == "begin":
        first.commit()
    second = _writer(bootstrap_servers, name)

    def go_on() -> None:
        if moment == "begin":
            first.begin()
        if moment in ("begin", "produce", "flush"):
            first.produce(topic, b"k", b"later", T0, 0)
        if moment == "produce":  # what the broker answers is seen by a later call
            broker.wait_for(lambda: first.poll() or False, "the fencing of the writer")
        if moment in ("begin", "flush"):
            first.flush()
        with ConsumerGroup(Cluster(bootstrap_servers, 10), group) as consumer:
            if moment == "send_offsets":
                first.send_offsets(consumer, {TopicPartition(topic, 0): GroupOffset(5)})
        first.commit()

    with pytest.raises(FencedError):
        go_on()
    first.abort()
    second.begin()
    second.produce(topic, b"k", b"successor", T0, 0)
    second.flush()
    second.commit()
    before = [b"zombie"] if moment == "begin" else []
    assert _values(bootstrap_servers, topic) == [*before, b"successor"]
    assert broker.group_offset(bootstrap_servers, group, topic) < 0


@pytest.mark.long
def test_a_transaction_that_the_broker_aborts_for_its_age_is_told_as_that(bootstrap_servers: str, topic: str) -> None:
    writer = TransactionalWriter(Cluster(bootstrap_servers, 60), broker.unique("writer"), transaction_timeout_ms=1_000)
    writer.init()
    writer.begin()

    def end_too_late() -> None:
        writer.produce(topic, b"k", b"too old", T0, 0)
        writer.flush()  # which may come too late itself on a busy machine
        broker.settle(bootstrap_servers, topic)  # the broker looks every 10 s for those that are too old
        writer.commit()

    with pytest.raises(TransactionTimedOutError, match="had to end within 1 s"):
        end_too_late()
    assert _values(bootstrap_servers, topic) == []


def test_a_transaction_that_is_too_old_and_was_taken_over_is_told_as_either_and_two_writers_never_both_commit(
    bootstrap_servers: str, topic: str
) -> None:
    name = broker.unique("writer")
    slept = TransactionalWriter(Cluster(bootstrap_servers, 60), name, transaction_timeout_ms=1_000)
    slept.init()
    slept.begin()
    slept.produce(topic, b"k", b"of the one that slept", T0, 0)
    slept.flush()
    began = time.monotonic()
    successor = _writer(bootstrap_servers, name)
    successor.begin()
    successor.produce(topic, b"k", b"of the successor", T0, 0)
    successor.flush()
    broker.wait_for(lambda: time.monotonic() - began > 1, "the age at which the broker would have aborted it")
    with pytest.raises(TransactionTimedOutError, match="for its age, or another process has taken the task over"):
        slept.commit()
    again = _writer(bootstrap_servers, name)  # the retry of the one that slept
    with pytest.raises(FencedError):
        successor.commit()
    again.begin()
    again.produce(topic, b"k", b"of the retry", T0, 0)
    again.flush()
    again.commit()
    assert _values(bootstrap_servers, topic) == [b"of the retry"]


def test_r14_producing_after_having_been_fenced_says_so_every_time(bootstrap_servers: str, topic: str) -> None:
    name = broker.unique("writer")
    first = _writer(bootstrap_servers, name)
    first.begin()
    second = _writer(bootstrap_servers, name)
    first.produce(topic, b"k", b"zombie", T0, 0)
    with pytest.raises(FencedError):
        first.flush()
    with pytest.raises(FencedError):
        first.produce(topic, b"k", b"again", T0, 0)
    with pytest.raises(FencedError):
        first.commit()
    del second


def _murmur2(data: bytes) -> int:
    """Kafka's murmur2 (org.apache.kafka.common.utils.Utils), unsigned."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@pytest.mark.long
def test_keys_go_to_the_partitions_that_kafka_gives_them(bootstrap_servers: str) -> None:
    # Pairs from Kafka's own UtilsTest.testMurmur2 check the function above.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: _murmur2(key) for key in known} == {key: value & 0xFFFFFFFF for key, value in known.items()}
    topic = broker.create_topic(bootstrap_servers, broker.unique("keyed"), PARTITIONS)
    keys = [*known, b"N14228", b"N24211", b"\0", b"\xff" * 7, "Ü".encode(), *(b"key-%d" % n for n in range(40))]
    writer = _writer(bootstrap_servers)
    writer.begin()
    for key in keys:
        writer.produce(topic, key, b"v", T0)
    writer.flush()
    writer.commit()
    broker.settle(bootstrap_servers, topic)
    found = {
        record.key: partition
        for partition in range(PARTITIONS)
        for record in consume(bootstrap_servers, topic, partition)[0]
    }
    assert found == {key: (_murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in keys}


@pytest.mark.long
@pytest.mark.parametrize(("key", "value"), [(b"", b""), (b"k", b""), (b"\0", b"\0"), (b"k" * 100_000, b"v")])
def test_odd_keys_and_values_arrive_as_they_are(bootstrap_servers: str, topic: str, key: bytes, value: bytes) -> None:
    writer = _writer(bootstrap_servers)
    writer.begin()
    writer.produce(topic, key, value, T0, 0)
    writer.flush()
    writer.commit()
    broker.settle(bootstrap_servers, topic)
    assert [(record.key, record.value) for record in consume(bootstrap_servers, topic)[0]] == [(key, value)]


@pytest.mark.behaviour("F8")
@pytest.mark.parametrize("timestamp", [0, 1, pytest.param(T0, id="an hour ago")])
def test_f8_a_record_has_the_timestamp_that_was_asked_for_or_is_refused(
    bootstrap_servers: str, topic: str, timestamp: int
) -> None:
    writer = _writer(bootstrap_servers)
    writer.begin()
    try:
        writer.produce(topic, b"k", b"v", timestamp, 0)
    except InputError:
        return  # better than another time than the store's
    writer.flush()
    writer.commit()
    broker.settle(bootstrap_servers, topic)
    assert [record.timestamp for record in consume(bootstrap_servers, topic)[0]] == [timestamp]


@pytest.mark.behaviour("F8")
@pytest.mark.parametrize("timestamp", [-1, -5])
def test_f8_a_negative_timestamp_is_refused(bootstrap_servers: str, topic: str, timestamp: int) -> None:
    writer = _writer(bootstrap_servers)
    writer.begin()
    with pytest.raises(InputError, match="timestamp"):
        writer.produce(topic, b"k", b"v", timestamp, 0)


def test_a_record_that_is_too_large_is_bad_input_and_named(bootstrap_servers: str, topic: str) -> None:
    broker.set_topic_config(bootstrap_servers, topic, max_message_bytes="10000")
    writer = TransactionalWriter(Cluster(bootstrap_servers, 10), broker.unique("writer"), max_batch_bytes=10_000)
    writer.init()
    writer.begin()
    for number in range(1_000):  # together they are larger than one batch may be
        writer.produce(topic, b"%d" % number, os.urandom(100), T0, 0)
    writer.flush()
    writer.commit()
    writer.begin()
    writer.produce(topic, b"the key", os.urandom(20_000), T0, 0)
    with pytest.raises(InputError, match=r"record of 20007 bytes with key b'the key' .* max.message.bytes is 10000"):
        writer.flush()
    writer.abort()
    broker.settle(bootstrap_servers, topic)
    assert len(broker.consume(bootstrap_servers, topic)[0]) == 1_000


def test_no_broker_is_an_error_within_the_timeout() -> None:
    writer = TransactionalWriter(Cluster(NO_BROKER, 1), "any")
    started = time.monotonic()
    with pytest.raises(KafkaUnavailableError):
        writer.init()
    assert time.monotonic() - started < 60


def test_waits_for_a_quota_are_no_stall(bootstrap_servers: str, topic: str, tmp_path: Path) -> None:
    with broker.limited(bootstrap_servers, "producer_byte_rate", 4_000, tmp_path):
        writer = AtLeastOnceWriter(Cluster(bootstrap_servers, 2), "limited")
        writer.begin()
        started = time.monotonic()
        for count in (52, 8):  # what is over the quota by the first delays the second
            for _ in range(count):
                writer.produce(topic, b"k", os.urandom(1_000), T0, 0)
            last = writer.flush()
        assert last == {TopicPartition(topic, 0): 59}
        assert time.monotonic() - started > 2
        writer.close()
