"""What the leader epochs of real logs tell that were never cut; tests/faults/long/test_cut_logs.py cuts some."""

from __future__ import annotations

import pytest

from statestore.changelog.epochs import Continuity, LogEnd, compare_ends, last_epochs
from statestore.errors import KafkaUnavailableError, TopicMismatchError
from statestore.kafka import cluster
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange, LogStart
from statestore.model import TopicPartition
from tests.integration.broker import (
    NO_BROKER,
    WAIT_S,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    transaction,
    unique,
)
from tests.integration.log_reading import LIBRDKAFKA, WAYS

ROWS = [(b"k", b"v")] * 10


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == LIBRDKAFKA:
        monkeypatch.setattr(cluster, "can_fetch", lambda settings: False)
    return str(request.param)


@pytest.fixture
def whole(way: str) -> Continuity:
    """What is told of a log that is whole: through librdkafka it is not certain."""
    return Continuity.UNKNOWN if way == LIBRDKAFKA else Continuity.INTACT


@pytest.fixture
def log(bootstrap_servers: str) -> TopicPartition:
    """A log of ten records."""
    partition = TopicPartition(create_topic(bootstrap_servers, unique("epochs")), 0)
    produce(bootstrap_servers, partition.topic, ROWS)
    return partition


def test_the_ends_of_a_log_have_an_epoch(bootstrap_servers: str, log: TopicPartition) -> None:
    topics = Cluster(bootstrap_servers, WAIT_S).topics
    assert topics.log_ranges([log]) == {log: LogRange(0, 10, 10, epoch=0)}
    assert topics.log_starts([log]) == {log: LogStart(0, 0)}


@pytest.mark.short_for("fetched and decoded here-4", "through librdkafka-10")
@pytest.mark.parametrize("offset", [0, 4, 10])
def test_a_log_that_only_grows_is_never_cut(
    bootstrap_servers: str, log: TopicPartition, way: str, whole: Continuity, offset: int
) -> None:
    seen = last_epochs(Cluster(bootstrap_servers, WAIT_S), {log: LogEnd(offset, 0)})
    assert seen == {log: LogEnd(offset, 0)}
    expected = whole if offset else Continuity.INTACT
    assert compare_ends(Cluster(bootstrap_servers, WAIT_S), seen)[log].continuity is expected
    produce(bootstrap_servers, log.topic, ROWS)
    assert compare_ends(Cluster(bootstrap_servers, WAIT_S), seen)[log].continuity is expected


@pytest.mark.short_for("fetched and decoded here")
def test_markers_and_an_open_transaction_are_records_like_others(
    bootstrap_servers: str, log: TopicPartition, way: str, whole: Continuity
) -> None:
    transaction(bootstrap_servers, log.topic, ROWS)
    end = Cluster(bootstrap_servers, WAIT_S).topics.log_ranges([log])[log]
    assert end.high_watermark == 21
    seen = {log: LogEnd(end.high_watermark, 0)}
    open_one = transaction(bootstrap_servers, log.topic, ROWS, end="open")
    assert compare_ends(Cluster(bootstrap_servers, WAIT_S), seen)[log].continuity is whole
    open_one.abort_transaction(WAIT_S)
    assert compare_ends(Cluster(bootstrap_servers, WAIT_S), seen)[log].continuity is whole


@pytest.mark.short_for("fetched and decoded here")
def test_deletion_leaves_a_log_comparable_up_to_its_last_record_that_was_seen(
    bootstrap_servers: str, log: TopicPartition, way: str, whole: Continuity
) -> None:
    seen = {log: LogEnd(10, 0)}
    produce(bootstrap_servers, log.topic, ROWS)
    for before, expected in ((9, whole), (10, Continuity.UNKNOWN), (15, Continuity.UNKNOWN)):
        delete_records(bootstrap_servers, log.topic, before)
        found = compare_ends(Cluster(bootstrap_servers, WAIT_S), seen)[log]
        assert found.continuity is expected
        assert found.departs_by is None
    assert "starts at offset 15" in found.detail


@pytest.mark.short_for("fetched and decoded here")
def test_an_emptied_log_tells_nothing_of_what_was_in_it(bootstrap_servers: str, log: TopicPartition, way: str) -> None:
    delete_records(bootstrap_servers, log.topic, 10)
    seen = last_epochs(Cluster(bootstrap_servers, WAIT_S), {log: LogEnd(10, 0)})
    assert compare_ends(Cluster(bootstrap_servers, WAIT_S), seen)[log].continuity is Continuity.UNKNOWN


@pytest.mark.short_for("fetched and decoded here")
def test_a_topic_that_was_made_anew_is_compared_without_an_error(
    bootstrap_servers: str, log: TopicPartition, way: str
) -> None:
    delete_topic(bootstrap_servers, log.topic)
    create_topic(bootstrap_servers, log.topic)
    produce(bootstrap_servers, log.topic, ROWS[:3])
    assert compare_ends(Cluster(bootstrap_servers, WAIT_S), {log: LogEnd(10, 0)})[log].continuity is Continuity.CUT
    found = compare_ends(Cluster(bootstrap_servers, WAIT_S), {log: LogEnd(10, 4)})[log]
    assert found.continuity is Continuity.UNKNOWN
    assert "knows no leader epoch as new as 4" in found.detail


@pytest.mark.short_for("fetched and decoded here")
def test_logs_of_many_topics_are_compared_at_once(
    bootstrap_servers: str, log: TopicPartition, way: str, whole: Continuity
) -> None:
    other = create_topic(bootstrap_servers, unique("others"), 20)
    seen = {log: LogEnd(10, 0)}
    for number in range(20):
        produce(bootstrap_servers, other, (ROWS * 2)[:number], number)
        seen[TopicPartition(other, number)] = LogEnd(number, 0)
    assert last_epochs(Cluster(bootstrap_servers, WAIT_S), seen) == seen
    found = compare_ends(Cluster(bootstrap_servers, WAIT_S), seen)
    expected = {partition: whole if end.offset else Continuity.INTACT for partition, end in seen.items()}
    assert {partition: compared.continuity for partition, compared in found.items()} == expected


@pytest.mark.short_for("fetched and decoded here-7")
@pytest.mark.parametrize("number", [0, 7])
def test_partition_that_is_not_there_is_a_mismatch(bootstrap_servers: str, way: str, number: int) -> None:
    name = create_topic(bootstrap_servers, unique("one")) if number else unique("absent")
    with pytest.raises(TopicMismatchError, match=name):
        compare_ends(Cluster(bootstrap_servers, 1), {TopicPartition(name, number): LogEnd(1, 0)})


@pytest.mark.short_for("fetched and decoded here")
def test_no_broker_is_an_error_in_time(way: str) -> None:
    seen = {TopicPartition("any", 0): LogEnd(5, 1)}
    with pytest.raises(KafkaUnavailableError):
        compare_ends(Cluster(NO_BROKER, 1), seen)
    if way != LIBRDKAFKA:
        with pytest.raises(KafkaUnavailableError):
            last_epochs(Cluster(NO_BROKER, 1), seen)


def test_nothing_asked_is_nothing_answered_even_without_a_broker(way: str) -> None:
    assert last_epochs(Cluster(NO_BROKER, 1), {}) == {}
    assert compare_ends(Cluster(NO_BROKER, 1), {}) == {}
