"""The log reader on a real log: bounded ranges that end where they say, under read_committed, or an error in time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from statestore.changelog.reader import ChangelogReader
from statestore.errors import KafkaUnavailableError, StoreBehindLogStartError, TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.kafka.record_columns import SCHEMA
from statestore.model import TopicPartition
from tests.integration import broker
from tests.integration.broker import NO_BROKER, T0, Row, produce, transaction
from tests.integration.log_reading import Row as Read
from tests.integration.log_reading import read

pytestmark = pytest.mark.usefixtures("way")


def _rows(*numbers: int) -> list[Row]:
    return [(b"k%d" % number, b"v%d" % number) for number in numbers]


def _offsets(rows: list[Read]) -> list[int]:
    return [row.offset for row in rows]


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    return broker.create_topic(bootstrap_servers, broker.unique("log"))


@pytest.mark.short_for("fetched and decoded here")
def test_r2_trailing_marker_is_passed_without_waiting(bootstrap_servers: str, topic: str) -> None:
    transaction(bootstrap_servers, topic, _rows(0, 1))  # the marker takes offset 2
    started = time.monotonic()
    assert _offsets(read(bootstrap_servers, topic, 0, 3, stall_s=600)) == [0, 1]
    assert time.monotonic() - started < 60


@pytest.mark.short_for("fetched and decoded here")
def test_r2_range_of_markers_only_is_done(bootstrap_servers: str, topic: str) -> None:
    transaction(bootstrap_servers, topic, _rows(0))
    assert read(bootstrap_servers, topic, 1, 2) == []


@pytest.mark.short_for("through librdkafka")
@pytest.mark.behaviour("R4")
def test_r2_r4_trailing_aborted_records_are_passed_and_not_delivered(bootstrap_servers: str, topic: str) -> None:
    transaction(bootstrap_servers, topic, _rows(0, 1))
    transaction(bootstrap_servers, topic, _rows(2, 3), end="abort")
    assert _offsets(read(bootstrap_servers, topic, 0, 6)) == [0, 1]


@pytest.mark.behaviour("R4")
def test_r4_aborted_records_in_the_middle_are_not_delivered(bootstrap_servers: str, topic: str) -> None:
    transaction(bootstrap_servers, topic, _rows(0))
    transaction(bootstrap_servers, topic, _rows(1, 2), end="abort")
    transaction(bootstrap_servers, topic, _rows(3))
    found = read(bootstrap_servers, topic, 0, 7)
    assert [(row.key, row.offset) for row in found] == [(b"k0", 0), (b"k3", 5)]
    everything = read(bootstrap_servers, topic, 0, 7, read_committed=False)
    assert _offsets(everything) == [0, 2, 3, 5]


@pytest.mark.short_for("fetched and decoded here")
@pytest.mark.behaviour("R4")
def test_r4_open_transaction_is_not_delivered_and_ends_the_stable_log(bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic, _rows(0, 1))
    hung = transaction(bootstrap_servers, topic, _rows(2), end="open")
    try:
        assert _offsets(read(bootstrap_servers, topic, 0, 2)) == [0, 1]
        # Beyond the last stable offset nothing comes before the transaction ends: an error in time, not a wait.
        with pytest.raises(KafkaUnavailableError, match="nothing came for 1 s"):
            read(bootstrap_servers, topic, 0, 3, stall_s=1)
        assert _offsets(read(bootstrap_servers, topic, 0, 3, read_committed=False)) == [0, 1, 2]
    finally:
        hung.abort_transaction(10)


@pytest.mark.short_for("through librdkafka")
def test_r2_waits_for_a_quota_are_no_stall(bootstrap_servers: str, topic: str, tmp_path: Path) -> None:
    for batch in range(6):  # larger ones than the quota allows in ten seconds would never come
        produce(bootstrap_servers, topic, [(b"k%d" % batch, os.urandom(1_000)) for _ in range(10)])
    with broker.limited(bootstrap_servers, "consumer_byte_rate", 4_000, tmp_path):
        started = time.monotonic()
        assert _offsets(read(bootstrap_servers, topic, 0, 60, stall_s=3)) == list(range(60))
        assert time.monotonic() - started > 3


@pytest.mark.behaviour("R3")
def test_r3_end_0_is_done_at_once_even_without_a_broker() -> None:
    with ChangelogReader(Cluster(NO_BROKER), TopicPartition("any", 0)) as reader:
        assert list(reader.read(0, 0)) == []


@pytest.mark.short_for("fetched and decoded here")
def test_r2_compaction_holes_are_passed_also_at_both_ends_of_a_range(bootstrap_servers: str) -> None:
    broker.make_compaction_eager(bootstrap_servers)
    topic = broker.create_topic(
        bootstrap_servers,
        broker.unique("compacted"),
        config={"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"},
    )
    # Offsets 1 to 9 are of one key that is written again later; segments roll by the records' timestamps.
    produce(bootstrap_servers, topic, [(b"first", b"v")] + [(b"k", b"%d" % number) for number in range(9)])
    rolled = [10]

    def compacted() -> bool:
        produce(bootstrap_servers, topic, [(b"k", b"roll%d" % rolled[0])], timestamp=T0 + 1_000 * rolled[0])
        rolled[0] += 1
        offsets = [record.offset for record in broker.consume(bootstrap_servers, topic)[0]]
        return not set(offsets) & set(range(1, 10))

    broker.wait_for(compacted, "compaction", 60)
    assert _offsets(read(bootstrap_servers, topic, 0, 10)) == [0]
    assert read(bootstrap_servers, topic, 3, 8) == []  # all of the range is a hole
    # Compaction goes on meanwhile: what is read is between what was there before and what is there after.
    before, end = broker.consume(bootstrap_servers, topic)
    found = set(_offsets(read(bootstrap_servers, topic, 1, end)))
    after, _ = broker.consume(bootstrap_servers, topic)
    assert {record.offset for record in after[1:]} <= found <= {record.offset for record in before[1:]}


@pytest.mark.short_for("fetched and decoded here")
def test_bounded_range_in_the_middle_has_its_start_and_not_its_end(bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic, _rows(*range(20)))
    assert _offsets(read(bootstrap_servers, topic, 5, 12)) == list(range(5, 12))


@pytest.mark.short_for("fetched and decoded here")
def test_one_reader_reads_several_ranges_also_after_one_that_was_left_early(bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic, _rows(*range(2_000)))
    with ChangelogReader(Cluster(bootstrap_servers, 10), TopicPartition(topic, 0)) as reader:
        next(reader.read(0, 2_000))
        for start, end in ((1_500, 1_510), (3, 6), (0, 2_000)):
            offsets = [offset for batch in reader.read(start, end) for offset in batch.column("offset").to_pylist()]
            assert offsets == list(range(start, end))


@pytest.mark.short_for("through librdkafka")
def test_null_and_empty_keys_and_values_stay_apart(bootstrap_servers: str, topic: str) -> None:
    rows: list[Row] = [(None, b"v"), (b"k", None), (None, None), (b"", b""), (b"\0\xff", b"\0")]
    produce(bootstrap_servers, topic, rows)
    found = read(bootstrap_servers, topic, 0, 5)
    assert [(row.key, row.value) for row in found] == rows
    assert [row.timestamp for row in found] == [T0 + at for at in range(5)]


def test_batches_have_the_promised_schema(bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic, _rows(0))
    with ChangelogReader(Cluster(bootstrap_servers), TopicPartition(topic, 0)) as reader:
        (batch,) = reader.read(0, 1)
    assert batch.schema == SCHEMA


@pytest.mark.short_for("fetched and decoded here")
def test_offset_below_the_log_start_is_a_store_behind_it(bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic, _rows(*range(10)))
    broker.delete_records(bootstrap_servers, topic, 5)
    with pytest.raises(StoreBehindLogStartError, match=f"{topic}-0 no longer has offset 3"):
        read(bootstrap_servers, topic, 3, 10)
    assert _offsets(read(bootstrap_servers, topic, 5, 10)) == list(range(5, 10))


@pytest.mark.short_for("fetched and decoded here")
def test_no_broker_is_an_error_within_the_stall_timeout() -> None:
    started = time.monotonic()
    with pytest.raises(KafkaUnavailableError):
        read(NO_BROKER, "any", 0, 10, stall_s=1)
    assert time.monotonic() - started < 60


@pytest.mark.short_for("fetched and decoded here")
def test_a_topic_that_is_not_there_is_an_error_in_time(bootstrap_servers: str) -> None:
    with pytest.raises((TopicMismatchError, KafkaUnavailableError)):
        read(bootstrap_servers, broker.unique("absent"), 0, 10, stall_s=1)
