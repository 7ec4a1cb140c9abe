"""What a cluster tells of topics that are asked for by name."""

from __future__ import annotations

import os

import pytest

from statestore.errors import KafkaUnavailableError
from statestore.kafka.client import Admin
from statestore.kafka.connection_pool import keep_connections
from statestore.kafka.topics import Topics
from tests.integration.broker import NO_BROKER, WAIT_S, create_topic, unique


def test_topics_that_exist_are_described_once_and_others_are_left_out(bootstrap_servers: str) -> None:
    first, second, missing = (create_topic(bootstrap_servers, unique("there"), 3), unique("there"), unique("missing"))
    create_topic(bootstrap_servers, second)
    topics = Topics(bootstrap_servers, WAIT_S)
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
        Topics(NO_BROKER, 0.5).describe(["any"])


def test_settings_of_a_topics_own_are_told_from_the_brokers(bootstrap_servers: str) -> None:
    own = create_topic(bootstrap_servers, unique("own"), config={"min.compaction.lag.ms": "0", "retention.ms": "-1"})
    other = create_topic(bootstrap_servers, unique("other"))
    topics = Topics(bootstrap_servers, WAIT_S)
    found = topics.own_settings([own, other])
    assert {"min.compaction.lag.ms", "retention.ms"} <= found[own].keys()
    assert not {"min.compaction.lag.ms", "retention.ms"} & found[other].keys()
    assert topics.topic_configs([other])[other]["min.compaction.lag.ms"] == "0"


def test_one_client_asks_all_that_is_asked_in_a_block_and_no_other_process_uses_it(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keep_connections():
        first, second = Admin(bootstrap_servers), Admin(bootstrap_servers)
        made = first.client(WAIT_S)
        assert second.client(WAIT_S) is made
        second.forget()
        anew = first.client(WAIT_S)
        assert anew is not made
        with monkeypatch.context() as forked:  # a real fork would have to live without librdkafka's threads
            forked.setattr(os, "getpid", lambda: -1)
            assert first.client(WAIT_S) is not anew
        assert Admin(bootstrap_servers).client(WAIT_S) is anew
    assert Admin(bootstrap_servers).client(WAIT_S) is not anew
