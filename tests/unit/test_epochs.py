"""What the ends of leader epochs tell, on modelled logs; and how brokers are asked for them, on real sockets."""

from __future__ import annotations

import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import Play, each_passing, framed, playing

from statestore.changelog.epochs import Continuity, LastEpoch, LogComparison, LogEnd, compared, last_epochs, validated
from statestore.errors import KafkaUnavailableError, TopicMismatchError
from statestore.kafka.cluster import Cluster
from statestore.kafka.epoch_ends import EpochEnd, ask_epoch_ends
from statestore.kafka.topics import LogRange, LogStart
from statestore.model import TopicPartition
from tests.session.examples import examples

NOBODY = "127.0.0.1:1"


# -- what the answers mean --------------------------------------------------------------------------------------------


class ModelLog:
    """A partition's log, with what its leader knows of epochs: Kafka's LeaderEpochFileCache, and LogLoader's cuts.

    Attributes
    ----------
    written
        What was written at each offset: a different number each time, but the same for an offset and an epoch, in which
        one leader wrote.
    """

    def __init__(self) -> None:
        self.written: list[int] = []
        self.epochs: list[int] = []
        self.start = 0
        self.epoch = 0
        self.cache = {0: 0}
        self._numbers: dict[tuple[int, int], int] = {}

    def append(self, records: int, epoch: int | None = None) -> None:
        for _ in range(records):
            self.epochs.append(self.epoch if epoch is None else epoch)
            place = len(self.written), self.epochs[-1]
            self.written.append(self._numbers.setdefault(place, len(self._numbers)))

    def restart(self, lost: int = 0) -> None:
        """Elect a leader that lacks some records at the end."""
        self._cut(lost)
        self._elect()

    def elect_with_a_longer_tail(self, lost: int, records: int) -> None:
        """Elect a replica that had gone on leading in an older epoch, with records that no other replica has."""
        self._cut(lost)
        if self.epochs:
            older = self.epochs[-1]
            self.cache = {epoch: start for epoch, start in self.cache.items() if epoch < older}
            self.cache[older] = max(self.epochs.index(older), self.start)
            self.append(records, older)
        self._elect()

    def elect_with_a_compacted_log(self, every: int) -> None:
        """Elect a replica that was filled when compaction had left only some records: it knows only their epochs."""
        self.cache = {}
        for offset in range(self.start, len(self.written)):
            if offset % every == 0:
                self.cache.setdefault(self.epochs[offset], offset)
        self._elect()

    def lose_the_epochs(self) -> None:
        """Start with a log directory that has lost its leader-epoch-checkpoint."""
        self.cache = {}
        self._elect()

    def forget_the_start(self) -> None:
        """Start with the log's start from before its records were deleted: brokers note it once a minute only."""
        self.start = 0
        self._elect()

    def delete_records(self, left: int) -> None:
        self.start = max(self.start, len(self.written) - left)
        entries = sorted(self.cache.items())
        first = bisect_right([start for _, start in entries], self.start) - 1
        if first >= 0:
            self.cache = {entries[first][0]: self.start, **dict(entries[first + 1 :])}

    def _cut(self, lost: int) -> None:
        end = max(len(self.written) - lost, self.start)
        del self.written[end:]
        del self.epochs[end:]

    def _elect(self) -> None:
        self.epoch += 2
        end = len(self.written)
        self.cache = {epoch: start for epoch, start in self.cache.items() if start < end} | {self.epoch: end}

    def ask(self, epoch: int) -> EpochEnd:
        if epoch == max(self.cache):
            return EpochEnd(epoch, len(self.written))
        higher = [known for known in self.cache if known > epoch]
        if epoch < 0 or not higher:
            return EpochEnd(-1, -1)
        return EpochEnd(max((known for known in self.cache if known <= epoch), default=epoch), self.cache[min(higher)])

    def log_start(self) -> LogStart:
        first = min(self.cache)
        return LogStart(self.start, first if self.cache[first] <= self.start else None)

    def seen(self, offset: int) -> LogEnd:
        """What is kept at a clean close."""
        found = LastEpoch(LogEnd(offset, self.epoch))
        while (epoch := found.asks()) is not None:
            found.take(self.ask(epoch))
        return found.end

    def since(self, seen: LogEnd) -> LogComparison:
        return compared(seen, self.ask(seen.epoch), self.log_start())

    def validated(self, seen: LogEnd) -> LogComparison:
        """What comes of a position that librdkafka validates, and then fetches from."""
        valid = self.ask(seen.epoch).offset >= seen.offset and self.start <= seen.offset <= len(self.written)
        end = len(self.written)
        return validated(seen, None if valid else LogRange(self.start, end, end, self.epoch))


_LOST = st.integers(1, 9)
_APPENDED = st.tuples(st.just("append"), st.integers(0, 12))
_RESTARTED = st.just(("restart",))
_CUT = st.tuples(st.just("restart"), _LOST)
_DELETED = st.tuples(st.just("delete_records"), st.integers(0, 20))
_HARDER = st.one_of(
    st.tuples(st.just("elect_with_a_longer_tail"), _LOST, st.integers(0, 12)),
    st.tuples(st.just("elect_with_a_compacted_log"), st.integers(1, 20)),
    st.sampled_from([("lose_the_epochs",), ("forget_the_start",)]),
)
Steps = list[tuple[object, ...]]


def _go(log: ModelLog, steps: Steps) -> None:
    for name, *arguments in steps:
        getattr(log, str(name))(*arguments)


def _differs(before: list[int], after: list[int]) -> int | None:
    """Return the first offset of `before` that is not the same any more."""
    return next((at for at, number in enumerate(before) if after[at : at + 1] != [number]), None)


@settings(max_examples=examples(300))
@given(
    before=st.lists(st.one_of(_APPENDED, _RESTARTED, _CUT, _DELETED, _HARDER), max_size=8),
    after=st.lists(st.one_of(_APPENDED, _RESTARTED, _CUT, _DELETED, _HARDER), max_size=8),
    behind=st.integers(0, 5),
)
def test_nothing_false_is_told_of_any_log(before: Steps, after: Steps, behind: int) -> None:
    log = ModelLog()
    _go(log, before)
    offset = max(len(log.written) - behind, log.start)
    seen, written = log.seen(offset), log.written[:offset]
    _go(log, after)
    differs = _differs(written, log.written)
    for found in (log.since(seen), log.validated(seen)):
        assert found.continuity is not Continuity.INTACT or differs is None
        assert found.continuity is not Continuity.CUT or differs is not None
        if found.departs_by is not None:
            assert differs is not None
            assert differs <= found.departs_by < offset


@given(
    before=st.lists(st.one_of(_APPENDED, _RESTARTED, _CUT), max_size=8),
    after=st.lists(st.one_of(_APPENDED, _RESTARTED, _CUT), max_size=8),
    behind=st.integers(0, 5),
)
def test_all_is_told_of_a_log_whose_start_stays_and_whose_epochs_are_known(
    before: Steps, after: Steps, behind: int
) -> None:
    log = ModelLog()
    _go(log, before)
    offset = max(len(log.written) - behind, 0)
    seen, written = log.seen(offset), log.written[:offset]
    _go(log, after)
    differs = _differs(written, log.written)
    assert log.since(seen).continuity is (Continuity.INTACT if differs is None else Continuity.CUT)
    assert log.validated(seen).continuity is (Continuity.UNKNOWN if differs is None else Continuity.CUT)


@given(steps=st.lists(st.one_of(_APPENDED, _RESTARTED, _CUT, _DELETED), max_size=10), behind=st.integers(0, 5))
def test_the_epoch_that_is_kept_is_that_of_the_last_record(steps: Steps, behind: int) -> None:
    log = ModelLog()
    _go(log, steps)
    offset = len(log.written) - behind
    if offset > log.start:
        assert log.seen(offset) == LogEnd(offset, log.epochs[offset - 1])


def test_a_log_without_its_epochs_is_not_asked_for_one_after_the_other() -> None:
    log = ModelLog()
    log.append(10)
    for _ in range(500):
        log.restart()
    log.lose_the_epochs()
    asked: list[int] = []
    found = LastEpoch(LogEnd(10, log.epoch))
    while (epoch := found.asks()) is not None:
        asked.append(epoch)
        found.take(log.ask(epoch))
    assert len(asked) <= 3


SEEN = LogEnd(100, 5)
FROM_THE_START = LogStart(0, 0)


@pytest.mark.parametrize(
    ("answered", "start", "continuity", "departs_by"),
    [
        pytest.param(EpochEnd(5, 100), FROM_THE_START, Continuity.INTACT, None, id="ends where it ended"),
        pytest.param(EpochEnd(5, 180), FROM_THE_START, Continuity.INTACT, None, id="went on in the epoch"),
        pytest.param(EpochEnd(5, 99), FROM_THE_START, Continuity.CUT, 99, id="lost its last record"),
        pytest.param(EpochEnd(4, 60), FROM_THE_START, Continuity.CUT, 60, id="lost all of the epoch"),
        pytest.param(EpochEnd(5, 0), LogStart(0, 7), Continuity.CUT, 0, id="lost everything"),
        pytest.param(EpochEnd(4, 100), FROM_THE_START, Continuity.UNKNOWN, None, id="an older epoch goes on"),
        pytest.param(EpochEnd(-1, -1), FROM_THE_START, Continuity.UNKNOWN, None, id="the leader has no such epoch"),
        pytest.param(EpochEnd(5, 150), LogStart(150, 7), Continuity.UNKNOWN, None, id="all that was seen is deleted"),
        pytest.param(EpochEnd(5, 150), LogStart(100, 5), Continuity.UNKNOWN, None, id="deleted up to the offset"),
        pytest.param(EpochEnd(5, 150), LogStart(99, 5), Continuity.INTACT, None, id="one record is left"),
        pytest.param(EpochEnd(5, 150), LogStart(0, None), Continuity.UNKNOWN, None, id="the first epochs are unknown"),
        pytest.param(EpochEnd(5, 150), LogStart(0, 6), Continuity.UNKNOWN, None, id="changed between two answers"),
    ],
)
def test_each_answer_has_its_meaning(
    answered: EpochEnd, start: LogStart, continuity: Continuity, departs_by: int | None
) -> None:
    found = compared(SEEN, answered, start)
    assert (found.continuity, found.departs_by) == (continuity, departs_by)
    assert bool(found.detail) is (continuity is not Continuity.INTACT)


@pytest.mark.parametrize(
    ("log", "continuity", "departs_by"),
    [
        pytest.param(None, Continuity.UNKNOWN, None, id="not refused"),
        pytest.param(LogRange(0, 180, 180, 7), Continuity.CUT, 99, id="grew again"),
        pytest.param(LogRange(0, 60, 60, 7), Continuity.CUT, 60, id="ends below"),
        pytest.param(LogRange(100, 180, 180, 7), Continuity.CUT, 99, id="starts at the offset, and was refused"),
        pytest.param(LogRange(101, 180, 180, 7), Continuity.UNKNOWN, None, id="all that was seen is deleted"),
        pytest.param(LogRange(0, 180, 180, 4), Continuity.UNKNOWN, None, id="the leader has no such epoch"),
        pytest.param(LogRange(0, 180, 180), Continuity.UNKNOWN, None, id="the leader tells no epoch"),
    ],
)
def test_each_refusal_of_a_position_has_its_meaning(
    log: LogRange | None, continuity: Continuity, departs_by: int | None
) -> None:
    found = validated(SEEN, log)
    assert (found.continuity, found.departs_by) == (continuity, departs_by)
    assert found.detail


def test_a_log_of_which_nothing_was_seen_is_intact_whatever_became_of_it() -> None:
    for answered in (EpochEnd(0, 0), EpochEnd(-1, -1), EpochEnd(5, 10)):
        assert compared(LogEnd(0, 5), answered, LogStart(10, 9)).continuity is Continuity.INTACT


# -- how brokers are asked --------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A request for the ends of epochs."""

    number: int
    epochs: dict[TopicPartition, int]


Answer = Callable[[Asked], bytes]
LOG, OTHER = TopicPartition("log", 3), TopicPartition("another", 0)


def _read_request(request: bytes) -> Asked:
    key, version, number, name = struct.unpack_from(">hhih", request)
    assert (key, version) == (23, 3), "which brokers since Kafka 2.3 have, and those of 4 still"
    at = 10 + name
    replica, topics = struct.unpack_from(">ii", request, at)
    assert replica == -1, "a consumer"
    at += 8
    epochs = {}
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", request, at)
        topic = request[at + 2 : at + 2 + size].decode()
        (partitions,) = struct.unpack_from(">i", request, at + 2 + size)
        at += 2 + size + 4
        for _ in range(partitions):
            partition, current, epoch = struct.unpack_from(">iii", request, at)
            assert current == -1
            epochs[TopicPartition(topic, partition)] = epoch
            at += 12
    assert at == len(request)
    return Asked(number, epochs)


def told(
    end: Callable[[TopicPartition, int], EpochEnd] = lambda _, epoch: EpochEnd(epoch, 10),
    error: int = 0,
    throttled_ms: int = 0,
) -> Answer:
    """Answer with where epochs end, or with an error code for each partition."""

    def answer(asked: Asked) -> bytes:
        body = struct.pack(">iii", asked.number, throttled_ms, len(asked.epochs))
        for partition, epoch in asked.epochs.items():
            topic = partition.topic.encode()
            found = EpochEnd(-1, -1) if error else end(partition, epoch)
            body += struct.pack(">h", len(topic)) + topic
            body += struct.pack(">ihiiq", 1, error, partition.partition, *found)
        return framed(body)

    return answer


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play[Asked]]:
    """Start peers."""
    with playing(monkeypatch, _read_request) as start:
        yield start


def _ask(epochs: dict[TopicPartition, int], stall_s: float = 60) -> dict[TopicPartition, EpochEnd]:
    found: dict[TopicPartition, EpochEnd] = {}

    def take(partition: TopicPartition, end: EpochEnd) -> None:
        found[partition] = end

    ask_epoch_ends(Cluster(NOBODY, stall_s), epochs, take)
    return found


def test_thousands_of_partitions_are_asked_for_in_few_requests(play: Play[Asked]) -> None:
    epochs = {TopicPartition(f"log-{topic}", number): topic for topic in range(5) for number in range(900)}
    (peer,) = play([told(lambda partition, epoch: EpochEnd(epoch, partition.partition))] * 100)
    assert _ask(epochs) == {partition: EpochEnd(epoch, partition.partition) for partition, epoch in epochs.items()}
    assert len(peer.asked) == 5


def test_nothing_asked_is_nothing_answered_even_without_a_broker() -> None:
    assert _ask({}) == {}
    assert last_epochs(Cluster(NOBODY, 1), {}) == {}
    assert last_epochs(Cluster(NOBODY, 1), {LOG: LogEnd(0, 7), OTHER: LogEnd(5, 0)}) == {
        LOG: LogEnd(0, 7),
        OTHER: LogEnd(5, 0),
    }


@each_passing
def test_broker_that_does_not_lead_any_more_is_left_for_the_one_that_does(play: Play[Asked], code: int) -> None:
    old, new = play([told(error=code)], [told()])
    assert _ask({LOG: 4}) == {LOG: EpochEnd(4, 10)}
    assert [len(old.asked), len(new.asked)] == [1, 1]


@pytest.mark.parametrize(
    "broken",
    [
        lambda asked: b"",
        lambda asked: told()(asked)[:30],
        lambda asked: told()(asked._replace(number=asked.number + 1)),
        lambda asked: framed(told()(asked)[4:-1]),
    ],
    ids=["hangs up", "hangs up within an answer", "another answer", "ends early"],
)
def test_connection_that_breaks_is_made_again(play: Play[Asked], broken: Answer) -> None:
    (peer,) = play([broken, told()])
    assert _ask({LOG: 4}) == {LOG: EpochEnd(4, 10)}
    assert len(peer.asked) == 2


def test_quota_is_kept(play: Play[Asked]) -> None:
    play([told(error=6, throttled_ms=300), told()])
    started = time.monotonic()
    assert _ask({LOG: 4}) == {LOG: EpochEnd(4, 10)}
    assert time.monotonic() - started >= 0.3


def test_waits_for_a_quota_are_no_stall(play: Play[Asked]) -> None:
    play([told(error=6, throttled_ms=600), told(error=6, throttled_ms=600), told()])
    assert _ask({LOG: 4}, 0.5) == {LOG: EpochEnd(4, 10)}


def test_what_failed_last_is_told_when_nothing_comes(play: Play[Asked]) -> None:
    play([told(error=6)] * 100)
    with pytest.raises(KafkaUnavailableError, match=r"log-3 the first: nothing came for 0\.5 s .*NOT_LEADER"):
        _ask({LOG: 4}, 0.5)


def test_topic_that_stays_unknown_is_a_mismatch(play: Play[Asked]) -> None:
    play(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    with pytest.raises(TopicMismatchError, match="log-3"):
        _ask({LOG: 4}, 0.5)


def test_refused_access_is_told_at_once(play: Play[Asked]) -> None:
    play([told(error=29)])
    started = time.monotonic()
    with pytest.raises(KafkaUnavailableError, match="log-3"):
        _ask({LOG: 4}, 600)
    assert time.monotonic() - started < 60


def test_the_last_epochs_of_many_logs_are_found_side_by_side(play: Play[Asked]) -> None:
    logs = {TopicPartition("log", number): ModelLog() for number in range(50)}
    for partition, log in logs.items():
        for at in range(partition.partition % 4):
            log.append(3 * (at != 1))
            log.restart()
    (peer,) = play([told(lambda partition, epoch: logs[partition].ask(epoch))] * 100)
    ends = {partition: LogEnd(len(log.written), log.epoch) for partition, log in logs.items()}
    expected = {
        partition: LogEnd(len(log.written), log.epochs[-1] if log.epochs else log.epoch)
        for partition, log in logs.items()
    }
    assert last_epochs(Cluster(NOBODY, 60), ends) == expected
    assert len(peer.asked) <= 3


def test_the_epoch_of_an_offset_that_several_elections_left_behind_is_found(play: Play[Asked]) -> None:
    ends = {8: EpochEnd(6, 30), 5: EpochEnd(2, 24), 1: EpochEnd(0, 12)}
    (peer,) = play([told(lambda _, epoch: ends[epoch])] * 10)
    assert last_epochs(Cluster(NOBODY, 60), {LOG: LogEnd(20, 9)}) == {LOG: LogEnd(20, 2)}
    assert [asked.epochs[LOG] for asked in peer.asked] == [8, 5, 1]
