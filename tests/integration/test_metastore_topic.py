"""The command topic: how it is made, repaired and read, and that reading leaves everything as it is."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka.admin import AdminClient

from statestore.errors import CommitOutcomeUnknownError, MetastoreDegradedError
from statestore.kafka.cluster import Cluster
from statestore.kafka.writer import TransactionalWriter
from statestore.metastore.command_topic import CONFIG, CommandTopic, topic_name
from statestore.metastore.metastore import Health
from tests.integration import broker
from tests.integration.commands import Service, application, at, names, put, rows


@pytest.mark.behaviour("C1")
def test_c1_the_first_command_makes_the_topic_that_the_service_id_names(service: Service) -> None:
    assert service.topic == topic_name(service.service_id) == f"_statestore-{service.service_id}_command_topic"
    done = service.submit(put("flights"))
    assert done.warnings == ()
    topics = Cluster(service.servers).topics
    topic = topics.describe([service.topic])[service.topic]
    assert (topic.partitions, topic.topic_id) == (1, done.view.topic_id)
    config = topics.topic_configs([service.topic])[service.topic]
    assert {key: config[key] for key in CONFIG} == CONFIG
    assert (config["retention.ms"], config["cleanup.policy"]) == ("-1", "delete")
    assert config["unclean.leader.election.enable"] == "false"


@pytest.mark.behaviour("C1")
def test_c1_settings_that_lose_commands_are_repaired_with_a_warning(service: Service) -> None:
    metastore = service.metastore()
    metastore.submit(put("flights"))
    broker.set_topic_config(service.servers, service.topic, retention_ms="1000", cleanup_policy="compact")
    assert metastore.view().health is Health.RUNNING
    assert CommandTopic(Cluster(service.servers), service.service_id).wrong_settings() == {  # reading repairs nothing
        "retention.ms": "1000",
        "cleanup.policy": "compact",
    }
    done = metastore.submit(put("weather"))
    (warning,) = done.warnings
    assert "retention.ms=1000" in warning
    assert "cleanup.policy=compact" in warning
    assert CommandTopic(Cluster(service.servers), service.service_id).wrong_settings() == {}
    assert metastore.submit(put("airports")).warnings == ()


@pytest.mark.behaviour("C1")
def test_c1_a_topic_with_another_number_of_partitions_is_refused(service: Service) -> None:
    broker.create_topic(service.servers, service.topic, 2)
    with pytest.raises(MetastoreDegradedError, match="2 partitions, expected 1"):
        service.submit(put("flights"))
    assert service.logged() == []


@pytest.mark.long
def test_a_topic_that_got_more_partitions_since_it_was_looked_at_takes_no_command(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = service.metastore()
    metastore.submit(put("flights"))
    with (
        at(
            monkeypatch,
            "command made, nobody fenced",
            lambda: broker.add_partitions(service.servers, service.topic, 2),
        ),
        pytest.raises(MetastoreDegradedError, match="2 partitions, expected 1"),
    ):
        metastore.submit(put("weather"))
    assert service.ids() == [1]


APPEND_TIME = "LogAppendTime"


def test_a_topic_whose_broker_sets_the_time_is_repaired_and_is_no_other_topic(service: Service) -> None:
    broker.create_topic(service.servers, service.topic, 1, {"message.timestamp.type": APPEND_TIME})
    done = service.submit(put("flights"))
    (warning,) = done.warnings
    assert f"message.timestamp.type={APPEND_TIME}" in warning
    assert service.metastore().require_running().pin == done.view.pin


@pytest.mark.long
def test_records_with_the_brokers_time_are_those_that_were_sent(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has changed the setting at the very moment; then the answer to the commit is lost."""
    monkeypatch.delitem(CONFIG, "message.timestamp.type")
    broker.create_topic(service.servers, service.topic, 1, {"message.timestamp.type": APPEND_TIME})
    commit = TransactionalWriter.commit

    def answer_lost(writer: TransactionalWriter) -> None:
        monkeypatch.setattr(TransactionalWriter, "commit", commit)
        commit(writer)
        raise CommitOutcomeUnknownError("the answer was lost")

    monkeypatch.setattr(TransactionalWriter, "commit", answer_lost)
    metastore = service.metastore()
    assert metastore.submit(put("flights")).attempts == 1
    (record,), (command,) = service.logged(), service.commands()
    assert record.timestamp != command.written_ms
    for reader in (metastore, service.metastore()):
        assert reader.view().reason == ""


def test_without_topic_and_backup_the_catalogue_is_empty_and_reading_makes_nothing(service: Service) -> None:
    view = service.metastore().require_running()
    assert (view.catalogue.applications, view.offset, view.topic_id) == ({}, 0, None)
    assert service.metastore().history() == []
    assert service.topic not in AdminClient({"bootstrap.servers": service.servers}).list_topics(timeout=60).topics
    assert not service.backup.parent.exists()


@pytest.mark.behaviour("C3")
def test_c3_a_log_that_ends_in_what_is_never_delivered_is_read_to_its_end(service: Service) -> None:
    metastore = service.metastore(timeout_s=5)
    metastore.submit(put("flights"))
    broker.transaction(service.servers, service.topic, rows(application("aborted"), next_id=2), end="abort")
    broker.transaction(service.servers, service.topic, [(b"k", b"v")] * 5, end="abort")
    done = metastore.submit(put("weather"))  # it would time out if it waited for the last record's offset
    assert (done.attempts, names(done.view.catalogue)) == (1, ["flights", "weather"])
    broker.transaction(service.servers, service.topic, [(b"k", b"v")], end="abort")
    view = service.metastore(timeout_s=5).view()
    assert (names(view.catalogue), view.health, view.offset) == (
        ["flights", "weather"],
        Health.RUNNING,
        done.offset + 1,
    )


@pytest.mark.long
@pytest.mark.behaviour("C3")
def test_c3_commands_are_caught_up_with_that_came_before_init(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = service.metastore()
    metastore.submit(put("flights"))

    def before_the_end_is_asked_for() -> None:
        broker.transaction(service.servers, service.topic, rows(application("weather"), next_id=2))

    with at(monkeypatch, "command writer initialized", before_the_end_is_asked_for):
        done = metastore.submit(put("airports"))
    assert done.command.id == 3
    assert names(done.view.catalogue) == ["airports", "flights", "weather"]
    assert service.ids() == [1, 2, 3]


@pytest.mark.behaviour("C3")
def test_c3_the_end_is_beyond_what_an_open_transaction_hides(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    metastore = service.metastore()
    metastore.submit(put("flights"))
    timers = []

    def leave_one_open_for_a_while() -> None:
        weather = rows(application("weather"), next_id=2)
        other = broker.transaction(service.servers, service.topic, weather, end="open")
        timers.append(threading.Timer(0.5, other.commit_transaction))
        timers[0].start()

    with at(monkeypatch, "command writer initialized", leave_one_open_for_a_while):
        done = metastore.submit(put("airports"))
    timers[0].join()
    assert names(done.view.catalogue) == ["airports", "flights", "weather"]
    assert service.ids() == [1, 2, 3]
