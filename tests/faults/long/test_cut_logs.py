"""Logs that are cut on the broker's disk and grow again, beside others that the same restarts leave whole."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from statestore.changelog.epochs import Continuity, LogComparison, LogEnd, compare_ends, last_epochs
from statestore.errors import KafkaUnavailableError
from statestore.kafka import cluster
from statestore.kafka.cluster import Cluster
from statestore.kafka.connection import Connection
from statestore.model import TopicPartition
from statestore.reports import Action, Loss, Status
from tests.faults.own_broker import OwnBroker, own_broker_in
from tests.integration import broker
from tests.integration.broker import T0, WAIT_S, produce, wait_for
from tests.integration.log_reading import FETCHED, LIBRDKAFKA, WAYS
from tests.integration.support import Application

ROWS = [(b"k", b"v")] * 5
INTACT, UNKNOWN = LogComparison(Continuity.INTACT), LogComparison(Continuity.UNKNOWN)


class Log(NamedTuple):
    """What happens to a log: ten offsets of a first leader epoch, and those above of a second one.

    Attributes
    ----------
    seen
        Up to where it was seen.
    cut
        Where it is cut then, if it is.
    grows
        Whether it grows again beyond what was seen.
    found
        What is to be told of it, and through librdkafka.
    """

    seen: int
    cut: int | None
    grows: bool
    found: LogComparison
    through_librdkafka: LogComparison = UNKNOWN

    @property
    def written(self) -> int:
        return max(self.seen, (self.cut or 0) + 5)


LOGS = {
    "cut": Log(20, 15, True, LogComparison(Continuity.CUT, 15), LogComparison(Continuity.CUT, 19)),
    "lost-an-epoch": Log(20, 10, True, LogComparison(Continuity.CUT, 10), LogComparison(Continuity.CUT, 19)),
    "cut-short": Log(20, 15, False, LogComparison(Continuity.CUT, 15), LogComparison(Continuity.CUT, 15)),
    "cut-above": Log(15, 15, True, INTACT),
    "whole": Log(20, None, True, INTACT),
    "idle": Log(10, None, False, INTACT),
    "deleted": Log(20, None, True, UNKNOWN),
}


class History(NamedTuple):
    """Logs to which it has happened, and how their ends were kept."""

    broker: OwnBroker
    partitions: dict[str, TopicPartition]
    kept: dict[str, LogEnd]

    def compare(self) -> dict[str, LogComparison]:
        """Return what is told of the logs, without the details."""
        seen = {self.partitions[name]: end for name, end in self.kept.items()}
        found = compare_ends(Cluster(self.broker.servers, WAIT_S), seen)
        return {name: found[partition]._replace(detail="") for name, partition in self.partitions.items()}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with own_broker_in(tmp_path_factory.mktemp("epochs")) as own:
        topics = {name: broker.create_topic(own.servers, broker.unique(name)) for name in LOGS}
        for topic in topics.values():
            for _ in range(2):  # a batch each
                produce(own.servers, topic, ROWS)
        own.stop()
        own.start()
        for name, topic in topics.items():
            for _ in range(10, LOGS[name].written, 5):
                produce(own.servers, topic, ROWS)
        partitions = {name: TopicPartition(topic, 0) for name, topic in topics.items()}
        kept = _ends(own.servers, partitions)
        own.kill()
        for name, log in LOGS.items():
            if log.cut is not None:
                own.cut(topics[name], log.cut)
        own.start()
        for name, log in LOGS.items():
            if log.grows:
                produce(own.servers, topics[name], ROWS * 4)
        own.kill()
        own.start()
        broker.delete_records(own.servers, topics["deleted"], 25)
        yield History(own, partitions, kept)


def _ends(servers: str, partitions: dict[str, TopicPartition]) -> dict[str, LogEnd]:
    """Return what is kept at a clean close."""
    ends = {}
    for name, partition in partitions.items():
        log = Cluster(servers, WAIT_S).topics.log_ranges([partition])[partition]
        assert log.epoch is not None
        assert log.high_watermark >= LOGS[name].seen
        ends[partition] = LogEnd(LOGS[name].seen, log.epoch)
    assert len({end.epoch for end in ends.values()}) == 1, "the leader's epoch, also where it wrote nothing"
    found = last_epochs(Cluster(servers, WAIT_S), ends)
    return {name: found[partition] for name, partition in partitions.items()}


def test_an_end_is_kept_with_the_epoch_of_its_last_record(history: History) -> None:
    first, second = sorted({end.epoch for end in history.kept.values()})
    assert history.kept == {name: LogEnd(log.seen, second if log.seen > 10 else first) for name, log in LOGS.items()}


@pytest.mark.share_for(FETCHED, why="our own connections")
@pytest.mark.parametrize("way", WAYS)
def test_a_log_that_was_cut_and_grew_again_is_told_from_those_that_only_saw_the_restarts(
    history: History, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == LIBRDKAFKA:
        monkeypatch.setattr(cluster, "can_fetch", lambda settings: False)
        assert history.compare() == {name: log.through_librdkafka for name, log in LOGS.items()}
    else:
        assert history.compare() == {name: log.found for name, log in LOGS.items()}


def test_an_epoch_without_records_finds_the_same_cuts(history: History) -> None:
    later = {name: end._replace(epoch=end.epoch + 1) for name, end in history.kept.items()}
    found = history._replace(kept=later).compare()
    cut = {name for name, log in LOGS.items() if log.found.continuity is Continuity.CUT}
    assert {name for name, compared in found.items() if compared.continuity is Continuity.CUT} == cut
    assert Continuity.INTACT not in {compared.continuity for compared in found.values()}


def test_a_broker_that_is_just_starting_is_waited_for(history: History) -> None:
    answered: list[dict[str, LogComparison]] = []
    asking = threading.Thread(target=lambda: answered.append(history.compare()))
    history.broker.kill()
    asking.start()
    history.broker.start()
    asking.join(2 * WAIT_S)
    # Killed before it noted that records were deleted, it has offsets again whose epochs it does not know.
    assert answered == [{name: log.found for name, log in LOGS.items()}]


def test_a_broker_that_stays_silent_is_an_error_in_time(history: History) -> None:
    history.broker.pause()
    try:
        with pytest.raises(KafkaUnavailableError):
            compare_ends(Cluster(history.broker.servers, 2), {history.partitions["whole"]: history.kept["whole"]})
        with pytest.raises(KafkaUnavailableError):
            last_epochs(Cluster(history.broker.servers, 2), {history.partitions["whole"]: history.kept["whole"]})
    finally:
        history.broker.resume()


def test_a_compacted_log_knows_the_epochs_of_records_that_are_gone(history: History) -> None:
    servers, whole = history.broker.servers, history.partitions["whole"]
    broker.make_compaction_eager(servers)
    eager = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.001"}
    broker.set_topic_config(servers, whole.topic, **eager)
    written = [0]

    def compacted() -> bool:
        written[0] += 10_000
        produce(servers, whole.topic, ROWS, timestamp=broker.T0 + written[0])  # rolls a segment
        return all(record.offset >= 40 for record in broker.consume(servers, whole.topic)[0])

    wait_for(compacted, "compaction")
    assert history.compare()["whole"] == INTACT


@pytest.mark.parametrize("way", WAYS)
def test_thousands_of_logs_are_compared_in_few_requests(
    history: History, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, count = history.broker.servers, 2_000
    topic = broker.create_topic(servers, broker.unique("many"), count)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        producer.produce(topic, b"v", b"k", partition=number)
    assert producer.flush(WAIT_S) == 0
    seen = {TopicPartition(topic, number): LogEnd(1, 0) for number in range(count)}
    requests: list[int] = []
    send = Connection._send

    def counted(self: Connection, api: int, version: int, body: bytes) -> None:
        requests.append(api)
        send(self, api, version, body)

    monkeypatch.setattr(Connection, "_send", counted)
    if way == LIBRDKAFKA:
        monkeypatch.setattr(cluster, "can_fetch", lambda settings: False)
    found = compare_ends(Cluster(servers, WAIT_S), seen)
    expected = Continuity.UNKNOWN if way == LIBRDKAFKA else Continuity.INTACT
    assert [found[partition].continuity for partition in seen] == [expected] * count
    assert requests == ([] if way == LIBRDKAFKA else [23, 23])


def test_a_store_whose_log_was_cut_and_grew_again_is_for_a_person(tmp_path: Path) -> None:
    with own_broker_in(tmp_path) as own:
        application = Application(own.servers, tmp_path / "app")
        application.process([(b"a", b"1"), (b"b", b"1")])
        cut = (application.committed() or 0) + 2  # behind the marker
        application.process([(b"c", b"1")], T0 + 100)
        before = application.contents()
        own.kill()
        own.cut(application.changelog, cut)
        own.start()
        produce(own.servers, application.changelog, [(b"z", b"1")] * 20)
        found = application.verify()
        assert (found.status, found.action, found.loss) == (Status.AHEAD, Action.BY_HAND, Loss.LIKELY), found
        row = application.run()
        assert row.failure.kind == "StoreAheadError"
        assert application.contents() == before
        shutil.rmtree(application.live)
        assert application.verify().status is Status.MISSING
        assert application.verify().action is Action.BY_HAND
