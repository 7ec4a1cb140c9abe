"""What the jobs make of the catalogue: pins, internal topics made once, and missing or replaced ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from statestore_jobs.entry import view_of
from statestore_jobs.planning import prepare

from statestore.changelog.topic_settings import REPARTITION_CONFIG
from statestore.definitions.aggregation import AggregationDefinition
from statestore.definitions.application import ApplicationDefinition
from statestore.definitions.store import StoreDefinition
from statestore.errors import MetastoreDegradedError, TopicMismatchError, UnknownApplicationError
from statestore.kafka.cluster import Cluster
from statestore.metastore.command_topic import topic_name
from statestore.metastore.commands import DropApplication, RecordTopics
from statestore.metastore.metastore import Metastore
from statestore.model import changelog_topic, input_offsets_topic, repartition_topic
from statestore.reports import Status
from tests.integration.broker import create_topic, delete_topic, produce, set_topic_config, unique
from tests.integration.support import CHANGELOG_CONFIG, STORE, Application, put, register

GROUPED = AggregationDefinition(store="grouped", group_by="tests.integration.support:value_of", partitions=3)


class Service:
    """An application that no job has run yet, in a catalogue of its own."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.service_id = unique("service")
        self.metastore = Metastore(Cluster(servers, 60), self.service_id)
        self.topics = Cluster(servers, 60).topics
        name = unique("app")
        self.definition = ApplicationDefinition(
            name=name,
            input_topic=create_topic(servers, f"{name}-in", 2),
            processor="tests.integration.support:count",
            stores=(StoreDefinition(name=STORE),),
            aggregations=(GROUPED,),
        )
        self.changelog = changelog_topic(name, STORE)
        repartition = repartition_topic(name, "grouped")
        self.internal = {self.changelog: 2, repartition: 3, changelog_topic(name, "grouped"): 3}
        self.internal |= {input_offsets_topic(name): 2, input_offsets_topic(name, repartition): 3}

    def put(self, **changes: object) -> None:
        """Put the application into the catalogue."""
        self.definition = self.definition.model_copy(update=changes)
        partitions = {self.definition.input_topic: 2, repartition_topic(self.definition.name, "grouped"): 3}
        put(self.metastore, self.definition, partitions)

    def prepare(self, pin: str | None = None) -> None:
        """Prepare a run of the process job, with the definitions of a pin if there is one."""
        catalogue = view_of(self.metastore, pin).catalogue
        prepare(self.topics, self.metastore, [catalogue.entry(self.definition.name)])

    @property
    def pin(self) -> str:
        """Pin of the catalogue of now."""
        return str(self.metastore.view().pin)

    @property
    def recorded(self) -> dict[str, str] | None:
        """Internal topics as the catalogue has them."""
        return self.metastore.view().catalogue.entry(self.definition.name).topics


@pytest.fixture
def service(bootstrap_servers: str) -> Service:
    return Service(bootstrap_servers)


def test_internal_topics_are_made_and_recorded_by_the_first_run_and_never_again(service: Service) -> None:
    service.put()
    assert service.recorded is None
    service.prepare()
    found = service.topics.describe(service.internal)
    assert {name: topic.partitions for name, topic in found.items()} == service.internal
    assert service.recorded == {name: topic.topic_id for name, topic in found.items()}
    repartition = repartition_topic(service.definition.name, "grouped")
    for name, config in ((service.changelog, CHANGELOG_CONFIG), (repartition, REPARTITION_CONFIG)):
        assert service.topics.topic_configs([name])[name].items() >= config.items()
    pin = service.pin
    service.prepare()
    assert service.pin == pin


def test_a_run_that_ended_between_making_topics_and_recording_them_is_completed_by_the_next(service: Service) -> None:
    service.put()
    made = create_topic(service.servers, service.changelog, 2, CHANGELOG_CONFIG)
    service.prepare()
    assert (service.recorded or {})[made] == service.topics.require(made).topic_id


@pytest.mark.long
def test_a_retry_with_the_pin_of_before_the_topics_takes_those_that_the_first_attempt_made(service: Service) -> None:
    service.put()
    pin = service.pin
    service.prepare(pin)
    recorded = service.recorded
    service.prepare(pin)
    assert service.recorded == recorded


def test_a_missing_changelog_is_named_and_not_made_again(service: Service) -> None:
    service.put()
    service.prepare()
    delete_topic(service.servers, service.changelog)
    with pytest.raises(TopicMismatchError, match=rf"topic {service.changelog} is missing.* `statestore drift`"):
        service.prepare()
    assert service.changelog not in service.topics.names()


@pytest.mark.long
def test_a_replaced_changelog_is_named_until_its_new_id_is_recorded(service: Service) -> None:
    service.put()
    service.prepare()
    pin = service.pin
    delete_topic(service.servers, service.changelog)
    create_topic(service.servers, service.changelog, 2, CHANGELOG_CONFIG)
    new = service.topics.require(service.changelog).topic_id
    message = rf"{service.changelog} was replaced: its id is {re.escape(new)}.* drift"
    with pytest.raises(TopicMismatchError, match=message):
        service.prepare()
    name = service.definition.name
    service.metastore.submit(lambda _: RecordTopics(application=name, topics={service.changelog: new}))
    service.prepare(pin)  # also for a run that was pinned before


@pytest.mark.long
def test_verification_still_says_what_is_wrong_where_the_process_job_stops(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    metastore = register(bootstrap_servers, application.definition)
    application.process([(b"a", b"1")])
    delete_topic(bootstrap_servers, application.changelog)
    create_topic(bootstrap_servers, application.changelog, 1, CHANGELOG_CONFIG)
    with pytest.raises(TopicMismatchError, match="was replaced"):
        prepare(Cluster(bootstrap_servers, 10).topics, metastore, [metastore.view().catalogue.entry(application.name)])
    assert application.verify().status is Status.REPLACED


def test_topics_of_a_store_that_was_added_are_made_by_the_next_run(service: Service) -> None:
    service.put()
    service.prepare()
    before = service.recorded or {}
    service.put(stores=(*service.definition.stores, StoreDefinition(name="more")))
    service.prepare()
    added = changelog_topic(service.definition.name, "more")
    assert service.recorded == {**before, added: service.topics.require(added).topic_id}


@pytest.mark.long
def test_a_pinned_run_of_an_application_that_was_dropped_before_it_had_topics_is_refused(service: Service) -> None:
    service.put()
    pin = service.pin
    service.metastore.submit(lambda _: DropApplication(name=service.definition.name))
    with pytest.raises(UnknownApplicationError, match=service.definition.name):
        service.prepare(pin)
    assert service.changelog not in service.topics.names()


def test_a_pin_is_the_catalogue_as_it_was(service: Service) -> None:
    service.put()
    pin = service.pin
    service.put(commit_interval_ms=77)
    name = service.definition.name
    assert view_of(service.metastore, pin).catalogue.entry(name).definition.commit_interval_ms != 77
    assert view_of(service.metastore, None).catalogue.entry(name).definition.commit_interval_ms == 77
    assert str(view_of(service.metastore, pin).pin) == pin


def test_a_degraded_metastore_stops_a_job_with_the_reason_also_one_that_is_pinned(service: Service) -> None:
    service.put()
    pin = service.pin
    produce(service.servers, topic_name(service.service_id), [(b"application/x", b"no command")])
    for wanted in (pin, None):
        with pytest.raises(MetastoreDegradedError, match="not a command"):
            view_of(service.metastore, wanted)


def test_a_topic_of_input_offsets_that_forgets_is_refused(service: Service) -> None:
    service.put()
    service.prepare()
    topic = input_offsets_topic(service.definition.name)
    set_topic_config(service.servers, topic, **{"cleanup.policy": "delete"})
    with pytest.raises(TopicMismatchError, match=f"{topic} has cleanup.policy delete, expected compact"):
        service.prepare()
