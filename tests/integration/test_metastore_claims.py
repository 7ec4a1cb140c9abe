"""An application belongs to one catalogue of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from statestore_jobs import process
from statestore_jobs.planning import prepare

from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InputError, OtherCatalogueError
from statestore.formats.input_offset import CLAIM_KEY
from statestore.kafka.topics import Topics
from statestore.metastore.apply import carry_out, plan_definitions
from statestore.metastore.claims import FoundClaim, claims_of, release, require_own, write_claims
from statestore.metastore.dropping import drop_application
from statestore.model import input_offsets_topic
from statestore.requests.process import ProcessRequest
from tests.integration.broker import WAIT_S, member_of, produce, unique
from tests.integration.test_metastore_effects import Catalogued


class Service(Catalogued):
    """A separate service, which prepares runs and takes applications over."""

    def take(self, definition: ApplicationDefinition, other: Catalogued | None) -> None:
        plan = plan_definitions(self.topics, self.catalogue, [definition])
        taken_from = None if other is None else other.service_id
        for _ in carry_out(self.topics, self.metastore, self.catalogue, plan, taken_from=taken_from):
            pass

    def prepare(self, definition: ApplicationDefinition) -> None:
        prepare(self.topics, self.metastore, [self.catalogue.entry(definition.name)])

    def owner(self, definition: ApplicationDefinition) -> str | None:
        return claims_of(self.topics, [definition.name])[definition.name].service_id


@pytest.fixture
def one(bootstrap_servers: str) -> Service:
    return Service(bootstrap_servers)


@pytest.fixture
def two(bootstrap_servers: str) -> Service:
    return Service(bootstrap_servers)


def test_an_application_of_another_catalogue_is_refused_before_anything_is_logged(one: Service, two: Service) -> None:
    definition = one.applied()
    with pytest.raises(OtherCatalogueError, match=f"{definition.name} belongs to catalogue {one.service_id}"):
        two.apply(definition)
    assert two.catalogue.applications == {}
    assert one.owner(definition) == one.service_id
    one.apply(definition)
    one.prepare(definition)


def test_an_application_without_a_claim_belongs_to_the_catalogue_that_runs_it_first(one: Service, two: Service) -> None:
    definition = one.applied()
    release(one.topics, definition.name, one.service_id)
    two.apply(definition)
    release(two.topics, definition.name, two.service_id)
    one.prepare(definition)
    with pytest.raises(OtherCatalogueError, match=one.service_id):
        two.prepare(definition)
    assert one.owner(definition) == one.service_id


def test_an_application_is_taken_over_deliberately_and_only_while_it_is_stopped(one: Service, two: Service) -> None:
    definition = one.applied()
    with pytest.raises(OtherCatalogueError):
        two.take(definition, Catalogued(one.servers))
    with member_of(one.servers, definition.name, definition.input_topic), pytest.raises(InputError, match="active"):
        two.take(definition, one)
    assert two.catalogue.applications == {}
    two.take(definition, one)
    two.prepare(definition)
    with pytest.raises(OtherCatalogueError, match=two.service_id):
        one.prepare(definition)
    one.metastore.submit(drop_application(definition.name, {}))
    release(one.topics, definition.name, one.service_id)
    assert two.owner(definition) == two.service_id


def test_a_dropped_application_can_be_applied_to_another_catalogue(one: Service, two: Service) -> None:
    definition = one.applied()
    one.metastore.submit(drop_application(definition.name, {}))
    release(one.topics, definition.name, one.service_id)
    two.apply(definition)
    assert one.owner(definition) == two.service_id


def test_a_claim_is_found_behind_an_open_transaction_and_written_again_far_from_the_end(one: Service) -> None:
    definition = one.applied()
    topic = input_offsets_topic(definition.name)
    release(one.topics, definition.name, one.service_id)
    producer = Producer({"bootstrap.servers": one.servers, "transactional.id": unique("open")})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"{}", b"other", partition=0)
    producer.flush(WAIT_S)
    write_claims(one.topics, [definition.name], one.service_id)
    assert claims_of(one.topics, [definition.name]) == {definition.name: FoundClaim(one.service_id, True)}
    producer.abort_transaction(WAIT_S)
    produce(one.servers, topic, [(b"other", b"{}")] * 1100)
    assert require_own(one.topics, [definition.name], one.service_id) == [definition.name]
    one.prepare(definition)
    assert claims_of(one.topics, [definition.name]) == {definition.name: FoundClaim(one.service_id, True)}


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_run_asks_for_all_claims_at_once(
    one: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: bool
) -> None:
    """Unless one of them cannot be read: it does not stop the other applications."""
    names = [one.applied().name for _ in range(3)]
    if unreadable:
        produce(one.servers, input_offsets_topic(names[1]), [(CLAIM_KEY, b"{")])
    asked: list[list[str]] = []

    def counted(topics: Topics, applications: Iterable[str]) -> dict[str, FoundClaim]:
        asked.append([*applications])
        return claims_of(topics, asked[-1])

    for module in ("statestore.metastore.claims", "statestore_jobs.process"):
        monkeypatch.setattr(f"{module}.claims_of", counted)
    where = {name: tmp_path / name for name in ("state_dir", "reports_dir", "data_docs_dir")}
    settings = Settings(bootstrap_servers=one.servers, service_id=one.service_id, **where)
    selected = [one.catalogue.entry(name).definition for name in names]
    prepared, failed = process._prepared(ProcessRequest(), settings, one.catalogue, one.topics, selected)
    if unreadable:
        assert ([each.name for each in prepared], [*failed]) == ([names[0], names[2]], [names[1]])
        assert asked == [names, *([name] for name in names)]
    else:
        assert ([each.name for each in prepared], failed, asked) == (names, {}, [names])
