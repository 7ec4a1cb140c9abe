"""A replica that lags behind is elected leader: what only the other one had is gone, also when that one comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from demo.processes import Processes
from statestore.changelog.epochs import Continuity, LogEnd, compare_ends, last_epochs
from statestore.errors import KafkaUnavailableError, TopicMismatchError
from statestore.kafka import cluster
from statestore.kafka.cluster import Cluster
from statestore.kafka.topics import LogRange
from statestore.model import TopicPartition
from tests.faults.brokers import joined_brokers
from tests.integration.broker import WAIT_S, produce, unique, wait_for

ROWS = [(b"k", b"v")] * 10


@pytest.mark.timeout(1_800)
@pytest.mark.long
def test_a_log_whose_leader_was_elected_uncleanly_was_cut_where_that_one_lagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TopicPartition(unique("unclean"), 0)
    with Processes(tmp_path) as processes, joined_brokers(processes, tmp_path, 2) as (servers, (leader, lagging)):
        admin, topics = AdminClient({"bootstrap.servers": servers}), Cluster(servers, WAIT_S).topics
        settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        made = NewTopic(log.topic, 1, replica_assignment=[[2, 3]], config=settings)
        admin.create_topics([made])[log.topic].result(WAIT_S)

        def end() -> LogRange | None:
            try:
                return topics.log_ranges([log])[log]
            except (KafkaUnavailableError, TopicMismatchError):
                return None

        def described() -> Any:
            try:
                return admin.list_topics(log.topic, timeout=WAIT_S).topics[log.topic].partitions.get(0)
            except KafkaException:  # of a topic that this broker has just heard of
                return None

        def is_followed() -> bool:
            return (partition := described()) is not None and len(partition.isrs) == 2

        def is_led_by(node: int) -> bool:
            return (partition := described()) is not None and partition.leader == node and end() is not None

        wait_for(lambda: is_led_by(2), "the first leader")
        produce(servers, log.topic, ROWS)
        lagging.kill()
        produce(servers, log.topic, ROWS)  # acknowledged when the replica that is gone is no longer in sync
        there = end()
        assert there.high_watermark == 20
        assert there.epoch is not None
        seen = last_epochs(Cluster(servers, WAIT_S), {log: LogEnd(20, there.epoch)})
        below = last_epochs(Cluster(servers, WAIT_S), {log: LogEnd(10, there.epoch)})
        assert compare_ends(Cluster(servers, WAIT_S), seen)[log].continuity is Continuity.INTACT
        leader.kill()
        lagging.start()
        wait_for(lambda: is_led_by(3), "an unclean election")
        produce(servers, log.topic, ROWS * 3)
        assert end() == LogRange(0, 40, 40, (end() or there).epoch)
        _assert_cut(servers, seen, monkeypatch)
        assert compare_ends(Cluster(servers, WAIT_S), below)[log].continuity is Continuity.INTACT
        leader.start()
        wait_for(is_followed, "the first leader to follow")
        _assert_cut(servers, seen, monkeypatch)


def _assert_cut(servers: str, seen: dict[TopicPartition, LogEnd], monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = compare_ends(Cluster(servers, WAIT_S), seen).values()
    assert (found.continuity, found.departs_by) == (Continuity.CUT, 10)
    with monkeypatch.context() as patched:
        patched.setattr(cluster, "can_fetch", lambda settings: False)
        (found,) = compare_ends(Cluster(servers, WAIT_S), seen).values()
        assert found.continuity is Continuity.CUT
