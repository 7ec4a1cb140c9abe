"""Fetching from brokers that refuse, hang up or answer something else: a peer on a real socket, told what to say."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError
from peers import Peer, Play, each_passing, framed, playing
from test_record_batches import BATCH, ROWS, encoded

from statestore.changelog.compaction_gaps import holes
from statestore.errors import KafkaUnavailableError, StoreBehindLogStartError, TopicMismatchError
from statestore.kafka import (
    record_kernels,  # noqa: F401  # else short ranges go through librdkafka
    stall,
)
from statestore.kafka.cluster import Cluster
from statestore.kafka.partition_fetcher import PartitionFetcher
from statestore.kafka.reader import LogReader, first_offsets
from statestore.model import TopicPartition

PARTITION = TopicPartition("log", 3)
_NEVER = 2**62


class Asked(NamedTuple):
    """A fetch request of one partition, as far as the peer looks."""

    number: int
    offset: int


Answer = Callable[[Asked], bytes]


def told(records: bytes = b"", error: int = 0, last_stable: int = 0, replica: int = -1) -> Answer:
    """Answer with records or with an error code; or with a replica that is to be asked instead."""

    def answer(asked: Asked) -> bytes:
        topic = PARTITION.topic.encode()
        body = struct.pack(">iihi", asked.number, 0, 0, 0)
        body += struct.pack(">ih", 1, len(topic)) + topic
        body += struct.pack(">iihqqqi", 1, PARTITION.partition, error, _NEVER, last_stable, 0, -1)
        return framed(body + struct.pack(">ii", replica, len(records)) + records)

    return answer


def throttled(milliseconds: int) -> Answer:
    """Answer as over a quota: nothing, and when to come again."""
    return lambda asked: framed(struct.pack(">iihii", asked.number, milliseconds, 0, 0, 0))


def _read_request(request: bytes) -> Asked:
    key, version, number, name = struct.unpack_from(">hhih", request)
    assert (key, version) == (1, 11)
    at = 10 + name + 25 + 4
    (topic,) = struct.unpack_from(">h", request, at)
    partition, _, offset = struct.unpack_from(">iiq", request, at + 2 + topic + 4)
    assert partition == PARTITION.partition
    return Asked(number, offset)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play[Asked]]:
    """Start peers."""
    with playing(monkeypatch, _read_request) as start:
        yield start


def _offsets(peer: Peer[Asked]) -> list[int]:
    return [asked.offset for asked in peer.asked]


def _fetched(stall_s: float = 5, offset: int = 0) -> bytes:
    fetcher = PartitionFetcher(Cluster("127.0.0.1:1", stall_s), PARTITION, read_committed=True)
    with closing(fetcher):
        return fetcher.fetch(offset, _NEVER).records.tobytes()


@each_passing
def test_broker_that_does_not_lead_any_more_is_left_for_the_one_that_does(play: Play[Asked], code: int) -> None:
    old, new = play([told(error=code)], [told(BATCH)])
    assert _fetched() == BATCH
    assert _offsets(old) == _offsets(new) == [0]


def test_leader_that_is_being_elected_is_waited_for(play: Play[Asked]) -> None:
    play(KafkaError(KafkaError.LEADER_NOT_AVAILABLE), KafkaError(KafkaError._TRANSPORT), [told(BATCH)])
    assert _fetched() == BATCH


@pytest.mark.parametrize(
    "broken",
    [
        lambda asked: b"",
        lambda asked: told(BATCH)(asked)[:100],
        lambda asked: told(BATCH)(asked._replace(number=asked.number + 1)),
        lambda asked: struct.pack(">i", -5),
        lambda asked: framed(told(BATCH)(asked)[4:50]),
        lambda asked: framed(told(BATCH)(asked)[4:-1]),
    ],
    ids=["hangs up", "hangs up within an answer", "another answer", "no answer", "ends early", "too few records"],
)
def test_connection_that_breaks_is_made_again(play: Play[Asked], broken: Answer) -> None:
    (peer,) = play([broken, told(BATCH)])
    assert _fetched() == BATCH
    assert _offsets(peer) == [0, 0]


def test_connection_that_breaks_between_answers_leaves_no_gap(play: Play[Asked]) -> None:
    second, third = (encoded(ROWS, base=base) for base in (20, 40))
    (peer,) = play([told(BATCH), lambda asked: told(second)(asked)[:200], told(second), told(third)])
    with LogReader(Cluster("127.0.0.1:1", 5), PARTITION) as reader:
        offsets = [offset for batch in reader.read(0, 60) for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(60))
    assert _offsets(peer) == [0, 20, 20, 40]


def test_quota_is_kept(play: Play[Asked]) -> None:
    play([throttled(300), told(BATCH)])
    started = time.monotonic()
    assert _fetched() == BATCH
    assert time.monotonic() - started >= 0.3


def test_waits_for_a_quota_are_no_stall(play: Play[Asked]) -> None:
    play([throttled(600), throttled(600), told(BATCH)])
    assert _fetched(0.5) == BATCH


def test_quota_that_lets_nothing_through_is_told(play: Play[Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall, "_LONGEST_S", 0.5)
    play([throttled(200)] * 100)
    with pytest.raises(KafkaUnavailableError, match=r"log-3 from offset 0: a quota .* consumer_byte_rate"):
        _fetched(0.3)


def test_empty_answers_are_a_stall_in_the_end(play: Play[Asked]) -> None:
    play([told()] * 100_000)
    with pytest.raises(KafkaUnavailableError, match=r"log-3 from offset 7: nothing came for 0\.5 s"):
        _fetched(0.5, 7)


def _read(end: int, stall_s: float = 30) -> list[int]:
    with LogReader(Cluster("127.0.0.1:1", stall_s), PARTITION) as reader:
        return [offset for batch in reader.read(0, end) for offset in batch.column("offset").to_pylist()]


def test_range_is_done_when_nothing_is_left_in_it_before_the_last_stable_offset(
    play: Play[Asked],
) -> None:
    (peer,) = play([told(BATCH), told(last_stable=30), told(BATCH), told(last_stable=30), told(last_stable=30)])
    assert _read(30) == list(range(20))
    assert holes(Cluster("127.0.0.1:1", 30), PARTITION, 0, 30) == 10
    assert first_offsets(Cluster("127.0.0.1:1", 30), {PARTITION: (20, 30)}) == {PARTITION: None}
    assert _offsets(peer) == [0, 20, 0, 20, 20]


@pytest.mark.parametrize("empty", [told(last_stable=29), told(last_stable=30, replica=2)])
def test_range_is_not_done_by_an_empty_answer_that_says_nothing_of_all_of_it(play: Play[Asked], empty: Answer) -> None:
    play([told(BATCH), *[empty] * 100_000])
    with pytest.raises(KafkaUnavailableError, match=r"log-3 from offset 20: nothing came for 0\.5 s"):
        _read(30, 0.5)
    with pytest.raises(KafkaUnavailableError, match=r"log-3 the first: nothing came for 0\.5 s"):
        first_offsets(Cluster("127.0.0.1:1", 0.5), {PARTITION: (20, 30)})


def test_what_failed_last_is_told_when_nothing_comes(play: Play[Asked]) -> None:
    play([told(error=6)] * 100)
    with pytest.raises(KafkaUnavailableError, match="NOT_LEADER"):
        _fetched(0.5)


def test_topic_that_stays_unknown_is_a_mismatch(play: Play[Asked]) -> None:
    play(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(TopicMismatchError):
        _fetched(0.5)
    with pytest.raises(TopicMismatchError):
        first_offsets(Cluster("127.0.0.1:1", 0.5), {PARTITION: (0, 20)})


@pytest.mark.parametrize(("code", "error"), [(1, StoreBehindLogStartError), (29, KafkaUnavailableError)])
def test_what_does_not_pass_is_told_at_once(play: Play[Asked], code: int, error: type[Exception]) -> None:
    play([told(error=code)] * 2)
    started = time.monotonic()
    with pytest.raises(error, match="log-3"):
        _fetched(600)
    with pytest.raises(error, match="log-3"):
        first_offsets(Cluster("127.0.0.1:1", 600), {PARTITION: (0, 20)})
    assert time.monotonic() - started < 60


def test_search_goes_on_with_the_broker_that_leads(play: Play[Asked]) -> None:
    old, new = play([told(error=6)], [told(), lambda asked: b"", told(BATCH)])
    assert first_offsets(Cluster("127.0.0.1:1", 5), {PARTITION: (5, 20)}) == {PARTITION: 5}
    assert (_offsets(old), _offsets(new)) == ([5], [5, 5, 5])
