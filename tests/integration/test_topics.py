"""What a cluster tells of topics that are asked for by name."""

from __future__ import annotations

import os
import pickle

import pytest

from statestore.errors import KafkaUnavailableError
from statestore.kafka.cluster import Cluster
from tests.integration.broker import NO_BROKER, WAIT_S, create_topic, unique


def test_topics_that_exist_are_described_once_and_others_are_left_out(bootstrap_servers: str) -> None:
    first, second, missing = (create_topic(bootstrap_servers, unique("there"), 3), unique("there"), unique("missing"))
    create_topic(bootstrap_servers, second)
    topics = Cluster(bootstrap_servers, WAIT_S).topics
    found = topics.describe([first, missing, second, first, "no/name of a topic", "x" * 300])
    assert {name: (topic.name, topic.partitions) for name, topic in found.items()} == {
        first: (first, 3),
        second: (second, 1),
    }
    assert found[first] == topics.find(first)
    assert topics.describe([missing]) == {}
    assert missing not in topics.names()  # a question does not make the topic


def test_without_a_broker_nothing_is_taken_for_missing() -> None:
    with pytest.raises(KafkaUnavailableError):
        Cluster(NO_BROKER, 0.5).topics.describe(["any"])


def test_settings_of_a_topics_own_are_told_from_the_brokers(bootstrap_servers: str) -> None:
    own = create_topic(bootstrap_servers, unique("own"), config={"min.compaction.lag.ms": "0", "retention.ms": "-1"})
    other = create_topic(bootstrap_servers, unique("other"))
    topics = Cluster(bootstrap_servers, WAIT_S).topics
    found = topics.own_settings([own, other])
    assert {"min.compaction.lag.ms", "retention.ms"} <= found[own].keys()
    assert not {"min.compaction.lag.ms", "retention.ms"} & found[other].keys()
    assert topics.topic_configs([other])[other]["min.compaction.lag.ms"] == "0"


def test_all_questions_share_one_client_which_no_other_process_uses(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(bootstrap_servers, WAIT_S)
    made = cluster.admin(WAIT_S)
    assert cluster.within(1).admin(WAIT_S) is cluster.topics.cluster.admin(WAIT_S) is made
    cluster.forget_admin()
    anew = cluster.admin(WAIT_S)
    assert anew is not made
    with monkeypatch.context() as forked:  # a real fork would have to live without librdkafka's threads
        forked.setattr(os, "getpid", lambda: -1)
        assert cluster.admin(WAIT_S) is not anew


def test_a_copy_in_another_process_has_the_addresses_and_its_own_clients(bootstrap_servers: str) -> None:
    cluster = Cluster(bootstrap_servers, WAIT_S)
    client = cluster.admin(WAIT_S)
    one, same = pickle.loads(pickle.dumps([cluster, cluster]))
    assert one is same
    assert {one: 1} == {cluster: 1}
    assert one.admin(WAIT_S) is not client
    assert one.topics.cluster_id() == cluster.topics.cluster_id()
