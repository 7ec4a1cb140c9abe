"""Internal topics follow from definitions once: made, recorded, and from then on never made by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import (
    InputError,
    InvalidCommandError,
    StateStoreError,
    TopicMismatchError,
    UnknownApplicationError,
)
from statestore.kafka.cluster import Cluster
from statestore.metastore.apply import carry_out, plan_definitions, require_own_topic
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.command_topic import topic_name
from statestore.metastore.commands import DropApplication
from statestore.metastore.effects import internal_topics, make_topics, resolve_partitions
from statestore.metastore.metastore import Metastore
from statestore.model import input_offsets_topic
from tests.integration.broker import (
    add_partitions,
    create_topic,
    delete_topic,
    member_of,
    set_topic_config,
    unique,
    wait_for,
)
from tests.integration.catalogued import BY_VALUE, changed, commands_in, defined, log_end
from tests.integration.commands import at

WINDOW = {"name": "windows", "kind": "window", "retention_ms": 7_200_000, "window_size_ms": 3_600_000}


class Catalogued:
    """A service of its own."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.service_id = unique("service")
        self.topics = Cluster(servers, 60).topics
        self.metastore = Metastore(Cluster(servers, 60), self.service_id)

    def apply(self, *definitions: ApplicationDefinition) -> None:
        catalogue = self.catalogue
        plan = plan_definitions(self.topics, catalogue, definitions)
        for _ in carry_out(self.topics, self.metastore, catalogue, plan):
            pass

    def applied(self, **fields: Any) -> ApplicationDefinition:
        definition = defined(self.servers, **fields)
        self.apply(definition)
        return definition

    @property
    def catalogue(self) -> Catalogue:
        return self.metastore.view().catalogue

    def put(self, definition: ApplicationDefinition) -> None:
        """Log the definition alone, as if its writer had ended right after the commit."""
        catalogue = self.catalogue
        (step,) = plan_definitions(self.topics, catalogue, [definition]).steps
        self.metastore.submit(lambda _: step.command)

    def recorded(self, definition: ApplicationDefinition) -> dict[str, str] | None:
        return self.catalogue.entry(definition.name).topics


@pytest.fixture
def catalogued(bootstrap_servers: str) -> Catalogued:
    return Catalogued(bootstrap_servers)


def test_internal_topics_are_made_as_kafka_streams_makes_them_and_recorded(catalogued: Catalogued) -> None:
    definition = defined(
        catalogued.servers, stores=[{"name": "counts"}, WINDOW], aggregations=[{**BY_VALUE, "partitions": 3}]
    )
    catalogued.apply(definition)
    name = definition.name
    expected = {
        f"{name}-by-value-repartition": (3, "delete", "-1"),
        f"{name}-by-value-repartition-offsets": (3, "compact", None),
        f"{name}-input-offsets": (2, "compact", None),
        f"{name}-by-value-changelog": (3, "compact", None),
        f"{name}-counts-changelog": (2, "compact", None),
        f"{name}-windows-changelog": (2, "compact,delete", str(7_200_000 + 86_400_000)),
    }
    found = catalogued.topics.describe(expected)
    configs = catalogued.topics.topic_configs(expected)
    assert {
        topic: (
            found[topic].partitions,
            configs[topic]["cleanup.policy"],
            configs[topic]["retention.ms"] if "delete" in configs[topic]["cleanup.policy"] else None,
        )
        for topic in expected
    } == expected
    assert catalogued.recorded(definition) == {topic: found[topic].topic_id for topic in expected}


@pytest.mark.long
def test_what_is_recorded_is_never_made_again(catalogued: Catalogued) -> None:
    definition = catalogued.applied()
    delete_topic(catalogued.servers, f"{definition.name}-counts-changelog")
    end = log_end(catalogued.servers, catalogued.service_id)
    make_topics(catalogued.topics, catalogued.metastore, definition.name)
    catalogued.apply(definition)
    assert Metastore(Cluster(catalogued.servers), catalogued.service_id).view().catalogue.definitions()
    assert catalogued.topics.describe([f"{definition.name}-counts-changelog"]) == {}
    assert log_end(catalogued.servers, catalogued.service_id) == end


@pytest.mark.short_for("True")
@pytest.mark.parametrize("made", [False, True])
def test_a_writer_that_ended_before_it_recorded_topics_is_made_up_for(catalogued: Catalogued, made: bool) -> None:
    definition = defined(catalogued.servers)
    catalogued.put(definition)
    assert catalogued.recorded(definition) is None
    name = f"{definition.name}-counts-changelog"
    if made:
        needed = internal_topics(definition, resolve_partitions(catalogued.topics, definition))
        (topic,) = (topic for topic in needed if topic.name == name)
        topic_id = catalogued.topics.ensure(topic.name, topic.partitions, dict(topic.config)).topic_id
    catalogued.apply(definition)
    recorded = catalogued.recorded(definition)
    names = (name, input_offsets_topic(definition.name))
    assert recorded == {name: catalogued.topics.require(name).topic_id for name in names}
    if made:
        assert recorded[name] == topic_id
    assert commands_in(catalogued.metastore) == ["put-application", "record-topics"]


@pytest.mark.long
def test_a_store_that_is_added_gets_its_topic_and_the_others_stay(catalogued: Catalogued) -> None:
    definition = catalogued.applied()
    before = catalogued.recorded(definition)
    assert before is not None
    catalogued.apply(changed(definition, stores=[{"name": "counts"}, {"name": "latest"}]))
    after = catalogued.recorded(definition)
    added = f"{definition.name}-latest-changelog"
    assert after == {**before, added: catalogued.topics.require(added).topic_id}


def test_everything_that_does_not_fit_is_named_and_nothing_is_made(catalogued: Catalogued) -> None:
    missing = changed(
        defined(catalogued.servers), output_topics=["no-such-output"], dead_letter_topic="no-such-dead-letters"
    )
    other = defined(catalogued.servers)
    changelog = create_topic(catalogued.servers, f"{other.name}-counts-changelog", 5)
    good = defined(catalogued.servers)
    with pytest.raises(TopicMismatchError) as refused:
        catalogued.apply(good, missing, other)
    message = str(refused.value)
    assert "output topic no-such-output does not exist" in message
    assert "dead-letter topic no-such-dead-letters does not exist" in message
    assert f"internal topic {changelog} has 5 partitions, expected 2" in message
    assert catalogued.metastore.view().topic_id is None
    assert catalogued.topics.describe([f"{good.name}-counts-changelog"]) == {}


def test_a_definition_that_was_changed_since_the_plan_is_not_overwritten(catalogued: Catalogued) -> None:
    definition = catalogued.applied()
    seen = catalogued.catalogue
    plan = plan_definitions(catalogued.topics, seen, [changed(definition, commit_interval_ms=500)])
    catalogued.apply(changed(definition, commit_interval_ms=900))
    with pytest.raises(InvalidCommandError, match=r"was changed by .* since this plan was made"):
        list(carry_out(catalogued.topics, catalogued.metastore, seen, plan))
    assert catalogued.catalogue.entry(definition.name).definition.commit_interval_ms == 900


@pytest.mark.long
def test_a_plan_that_another_writer_has_carried_out_already_logs_nothing(catalogued: Catalogued) -> None:
    definition = defined(catalogued.servers)
    seen = catalogued.catalogue
    plan = plan_definitions(catalogued.topics, seen, [definition])
    catalogued.apply(definition)
    kinds = commands_in(catalogued.metastore)
    (done,) = carry_out(catalogued.topics, catalogued.metastore, seen, plan)
    assert done.submitted.command is None
    assert commands_in(catalogued.metastore) == kinds


def test_topics_of_an_application_that_is_not_there_are_not_made(catalogued: Catalogued) -> None:
    with pytest.raises(UnknownApplicationError, match="no application 'none' is in the catalogue"):
        make_topics(catalogued.topics, catalogued.metastore, "none")


# -- topics that are in the way -----------------------------------------------------------------------------------


def test_a_store_whose_changelog_kafka_would_not_make_is_refused_before_anything_is_logged(
    catalogued: Catalogued,
) -> None:
    definition = defined(catalogued.servers, stores=[{"name": "counts.x"}])
    other = create_topic(catalogued.servers, f"{definition.name}-counts_x-changelog")
    changelog = f"{definition.name}-counts.x-changelog"
    with pytest.raises(StateStoreError, match="collides with existing topic"):
        catalogued.topics.create(changelog, 1, {})
    with pytest.raises(TopicMismatchError, match=rf"{changelog} cannot be created beside topic {other}: Kafka treats"):
        catalogued.apply(definition)
    assert catalogued.metastore.view().topic_id is None


@pytest.mark.long
def test_a_service_whose_topic_kafka_would_not_make_is_refused(catalogued: Catalogued) -> None:
    catalogued.apply(defined(catalogued.servers))
    require_own_topic(catalogued.topics, catalogued.service_id)
    dotted, lined = (f"{unique('s')}{dot}s" for dot in "._")
    create_topic(catalogued.servers, topic_name(dotted))
    require_own_topic(catalogued.topics, lined)
    with pytest.raises(TopicMismatchError, match="choose another service id"):
        require_own_topic(catalogued.topics, dotted.replace(".", "_"))


@pytest.mark.long
def test_of_two_writers_only_one_gets_topics_that_both_have_planned_with(catalogued: Catalogued) -> None:
    name = unique("app")
    first, second = (changed(defined(catalogued.servers), name=f"{name}{dot}x") for dot in "._")
    seen = catalogued.catalogue
    plans = [plan_definitions(catalogued.topics, seen, [definition]) for definition in (first, second)]
    list(carry_out(catalogued.topics, catalogued.metastore, seen, plans[0]))
    with pytest.raises(InvalidCommandError, match=rf"application {second.name}: .* of application {first.name}: Kafka"):
        list(carry_out(catalogued.topics, catalogued.metastore, seen, plans[1]))
    assert list(catalogued.catalogue.applications) == [first.name]


@pytest.mark.long
@pytest.mark.short_for("window")
@pytest.mark.parametrize("before", [{"name": "more"}, {**WINDOW, "name": "more"}], ids=["key-value", "window"])
def test_a_store_of_another_kind_does_not_take_over_the_log_of_one_that_was_taken_out(
    catalogued: Catalogued, before: dict[str, object]
) -> None:
    definition, counts = defined(catalogued.servers), {"name": "counts"}
    session = {"name": "more", "kind": "session", "retention_ms": 1_000}
    now, policy = (session, "compact,delete") if before == {"name": "more"} else ({"name": "more"}, "compact")
    catalogued.apply(changed(definition, stores=[counts, before]))
    catalogued.apply(definition)
    turned, changelog = changed(definition, stores=[counts, now]), f"{definition.name}-more-changelog"
    with pytest.raises(TopicMismatchError, match=rf"{changelog} exists with cleanup.policy .* another kind of store"):
        catalogued.apply(turned)
    assert catalogued.catalogue.entry(definition.name).definition == definition
    catalogued.apply(changed(definition, stores=[counts, before]))
    catalogued.apply(definition)
    set_topic_config(catalogued.servers, changelog, cleanup_policy=policy)
    wait_for(lambda: catalogued.topics.topic_configs([changelog])[changelog]["cleanup.policy"] == policy, "the policy")
    with pytest.raises(InvalidCommandError, match=rf"stores\.more\.kind: {before.get('kind', 'key-value')} -> "):
        catalogued.apply(turned)  # the history knows better than the setting
    delete_topic(catalogued.servers, changelog)
    catalogued.apply(turned)
    assert catalogued.catalogue.entry(definition.name).definition == turned


@pytest.mark.behaviour("C19")
@pytest.mark.short_for("application-True", "store-False")
@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("dropped", ["store", "application"])
def test_c19_a_changelog_is_not_taken_over_by_a_store_that_is_defined_otherwise(
    catalogued: Catalogued, dropped: str, compacted: bool
) -> None:
    total = {"store": "more", "aggregate": "tests.integration.support:number_of"}
    without = defined(catalogued.servers)
    counted = changed(without, stores=[{"name": "counts"}], aggregations=[{"store": "more"}])
    catalogued.apply(counted)
    if dropped == "store":
        catalogued.apply(without)
    else:
        catalogued.metastore.submit(lambda _: DropApplication(name=without.name))
    if compacted:
        catalogued.metastore.compact()
        catalogued.metastore = Metastore(Cluster(catalogued.servers, 60), catalogued.service_id)
        assert commands_in(catalogued.metastore) == ["snapshot"]
    kinds = commands_in(catalogued.metastore)
    with pytest.raises(InvalidCommandError, match=r"stores\.more\.aggregate: count -> tests\..*:number_of\. Give"):
        catalogued.apply(changed(without, stores=[{"name": "counts"}], aggregations=[total]))
    if dropped == "application":
        with pytest.raises(InvalidCommandError, match=r"stores\.counts\.value_serde: bytes -> int64"):
            catalogued.apply(changed(without, stores=[{"name": "counts", "value_serde": "int64"}]))
    assert commands_in(catalogued.metastore) == kinds
    catalogued.apply(counted)
    assert catalogued.catalogue.entry(without.name).definition == counted


def test_a_changelog_that_another_application_wrote_is_not_taken_over(catalogued: Catalogued) -> None:
    first = catalogued.applied(stores=[{"name": "b-c"}])
    catalogued.metastore.submit(lambda _: DropApplication(name=first.name))
    second = changed(first, name=f"{first.name}-b", stores=[{"name": "c"}])
    with pytest.raises(
        InvalidCommandError, match=f"{first.name}-b-c-changelog was written by application {first.name}"
    ):
        catalogued.apply(second)
    delete_topic(catalogued.servers, f"{first.name}-b-c-changelog")
    catalogued.apply(second)


@pytest.mark.long
def test_a_store_that_is_there_gets_no_other_serdes(catalogued: Catalogued) -> None:
    definition = catalogued.applied()
    with pytest.raises(InvalidCommandError, match=r"stores\.counts\.key_serde: bytes -> utf8\. Undo"):
        catalogued.apply(changed(definition, stores=[{"name": "counts", "key_serde": "utf8"}]))
    assert catalogued.catalogue.entry(definition.name).definition == definition


# -- stores that are taken out ------------------------------------------------------------------------------------


def test_stores_are_not_taken_out_while_the_application_s_group_has_members(catalogued: Catalogued) -> None:
    two = defined(catalogued.servers, stores=[{"name": "counts"}, {"name": "more"}])
    catalogued.apply(two)
    fresh, kinds = defined(catalogued.servers), commands_in(catalogued.metastore)
    with member_of(catalogued.servers, two.name, two.input_topic):
        with pytest.raises(InputError, match="has active members: somebody-else"):
            catalogued.apply(fresh, changed(two, stores=[{"name": "counts"}]))
        assert commands_in(catalogued.metastore) == kinds, "nothing is done for the others, either"
        catalogued.apply(changed(two, commit_interval_ms=77))
    catalogued.apply(fresh, changed(two, stores=[{"name": "counts"}]))


@pytest.mark.parametrize("what", ["is gone", "has grown"])
def test_topics_are_looked_at_again_when_nobody_else_can_write(
    catalogued: Catalogued, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    definition = defined(catalogued.servers)
    seen = catalogued.catalogue
    plan = plan_definitions(catalogued.topics, seen, [definition])

    def change_the_input() -> None:
        if what == "is gone":
            delete_topic(catalogued.servers, definition.input_topic)
        else:
            add_partitions(catalogued.servers, definition.input_topic, 3)

    with at(monkeypatch, "command writer caught up", change_the_input), pytest.raises(TopicMismatchError) as refused:
        list(carry_out(catalogued.topics, catalogued.metastore, seen, plan))
    expected = {"is gone": f"input topic {definition.input_topic} does not exist", "has grown": "found {'"}[what]
    assert expected in str(refused.value)
    assert catalogued.catalogue.applications == {}
