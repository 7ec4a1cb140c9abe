"""The plan of an apply: what is created, changed or left, and each field of it by its path."""

from __future__ import annotations

import pytest
from metastore_samples import after, orders, simple

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InvalidCommandError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import DropApplication
from statestore.metastore.evolution import partitions_of
from statestore.metastore.plan import difference, make_plan, put


def texts(old, new):
    return [str(change) for change in difference(old, new)]


def planned(catalogue, *definitions, of_input=4):
    return make_plan(catalogue, [(item, partitions_of(item, of_input)) for item in definitions])


def test_of_a_new_application_every_field_is_shown_that_is_not_empty():
    assert texts(None, simple("app", {"name": "s", "owner": "me"}, output_topics=["a", "b"])) == [
        "schema_version: - -> 1",
        "name: - -> app",
        "input_topic: - -> in",
        "output_topics: - -> a, b",
        "processor: - -> module:process",
        "processing_guarantee: - -> exactly_once_v2",
        "default_dsl_store: - -> txn_rocksDB",
        "stores.s.kind: - -> key-value",
        "stores.s.format: - -> timestamped",
        "stores.s.engine: - -> txn_rocksDB",
        "stores.s.retain_duplicates: - -> False",
        "stores.s.key_serde: - -> bytes",
        "stores.s.value_serde: - -> bytes",
        "stores.s.owner: - -> me",
        "commit_interval_ms: - -> 1s",
        "uncommitted_max_bytes: - -> 67108864",
    ]


def test_equal_definitions_have_no_difference():
    assert texts(orders(), orders()) == []


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (simple("app", "s"), simple("app", {"name": "s", "owner": "me"}), ["stores.s.owner: - -> me"]),
        (simple("app", {"name": "s", "owner": "me"}), simple("app", "s"), ["stores.s.owner: me -> -"]),
        (simple(output_topics=["a"]), simple(), ["output_topics: a -> -"]),
        (simple(output_topics=["a"]), simple(output_topics=["b", "a"]), ["output_topics: a -> b, a"]),
        (simple("app", "s", "t"), simple("app", "t", "s"), ["stores: s, t -> t, s"]),
        (
            simple("app", "s", aggregations=[{"store": "c", "sessions": {"gap_ms": 5}}]),
            simple(
                "app",
                "s",
                aggregations=[{"store": "c", "sessions": {"gap_ms": 5, "grace_ms": 1}}],
                commit_interval_ms=50,
            ),
            [
                "aggregations.c.sessions.grace_ms: 0 ms -> 1 ms",
                "stores.c.retention_ms: 5 ms -> 6 ms",
                "commit_interval_ms: 1s -> 50 ms",
            ],
        ),
    ],
)
def test_a_change_is_shown_by_its_path_and_both_values(old, new, changes):
    assert texts(old, new) == changes


def test_a_store_that_is_left_out_is_shown_as_gone():
    changes = difference(simple("app", "s", "t"), simple("app", "s"))
    assert {change.path for change in changes} >= {"stores.t.kind", "stores.t.engine"}
    assert all(change.path.startswith("stores.t.") and change.after is None for change in changes)


def test_definitions_that_are_not_equal_differ_in_some_field():
    aggregations = [item.model_dump() for item in orders().aggregations]
    turned = ApplicationDefinition.model_validate({**orders().model_dump(), "aggregations": aggregations[::-1]})
    assert texts(orders(), turned) == ["aggregations: spent, by-city, visits -> visits, by-city, spent"]


def test_a_plan_says_what_is_created_changed_and_left():
    catalogue = after(
        Catalogue(), *(put(Catalogue(), one, partitions_of(one, 4)) for one in (simple("a"), simple("b")))
    )
    plan = planned(catalogue, simple("c"), simple("b", "s", "more"), simple("a"))
    assert [(step.application, step.kind) for step in plan.steps] == [
        ("c", "create"),
        ("b", "change"),
        ("a", "unchanged"),
    ]
    assert [step.command is None for step in plan.steps] == [False, False, True]
    assert plan.changes_something
    assert not planned(catalogue, simple("a"), simple("b")).changes_something


def test_the_commands_of_a_plan_do_what_it_says():
    plan = planned(Catalogue(), orders(), simple())
    catalogue = after(Catalogue(), *(step.command for step in plan.steps))
    assert catalogue.definitions() == {"app": simple(), "orders": orders()}
    assert not planned(catalogue, orders(), simple()).changes_something


def test_partitions_are_part_of_the_plan():
    (step,) = planned(Catalogue(), simple(), of_input=6).steps
    assert str(step.changes[-1]) == "partitions.in: - -> 6"


def test_of_an_application_that_is_not_given_nothing_is_said():
    catalogue = after(Catalogue(), put(Catalogue(), simple("a"), {"in": 4}))
    assert [step.application for step in planned(catalogue, simple("b")).steps] == ["b"]


def test_what_cannot_be_applied_is_refused_before_anything_is():
    catalogue = after(Catalogue(), put(Catalogue(), simple(), {"in": 4}))
    with pytest.raises(InvalidCommandError, match=r"stores\.s\.format"):
        planned(catalogue, simple("fine"), simple("app", {"name": "s", "format": "plain"}))


def test_definitions_that_exclude_each_other_are_refused_though_each_would_fit():
    planned(Catalogue(), simple("a", "b-c"))
    planned(Catalogue(), simple("a-b", "c"))
    with pytest.raises(InvalidCommandError, match="share the internal topic a-b-c-changelog"):
        planned(Catalogue(), simple("a", "b-c"), simple("a-b", "c"))


def grouped(name):
    return simple(name, aggregations=[{"store": "by", "group_by": "module:key"}])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (simple("a.b"), simple("a_b")),
        (simple("a", "b-c_d"), simple("a-b", "c.d")),
        (simple("a"), simple("b", output_topics=["a-s-changelog"])),
        (simple("a"), simple("b", dead_letter_topic="a-s-changelog")),
        (grouped("a"), simple("b", aggregations=[{"store": "c", "output_topic": "a-by-repartition"}])),
    ],
)
def test_topics_that_are_another_application_s_alone_are_refused_whichever_comes_first(one, other):
    for first, second in ((one, other), (other, one)):
        planned(Catalogue(), first)
        catalogue = after(Catalogue(), put(Catalogue(), first, partitions_of(first, 4)))
        for made_from, definitions in ((Catalogue(), (first, second)), (catalogue, (second,))):
            with pytest.raises(InvalidCommandError, match=rf"application {second.name}: .*{first.name}"):
                planned(made_from, *definitions)
        assert planned(catalogue, first).steps[0].kind == "unchanged"


def test_what_an_application_no_longer_has_may_be_another_s():
    catalogue = after(Catalogue(), put(Catalogue(), simple("a", "s", "b-c"), {"in": 4}))
    planned(catalogue, simple("a", "s"), simple("a-b", "c"))


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (simple("a", "s.t", "s_t"), "its topics a-s.t-changelog and a-s_t-changelog cannot both exist"),
        (simple("a", input_topic="a-s-changelog"), "it would read what it writes"),
        (
            simple("a", "s", aggregations=[{"store": "by", "group_by": "m:k"}], input_topic="a-by-repartition"),
            "would read what it writes",
        ),
    ],
)
def test_an_application_whose_own_topics_are_in_each_other_s_way_is_refused(definition, reason):
    with pytest.raises(InvalidCommandError, match=reason):
        planned(Catalogue(), definition)


def test_another_application_s_changelog_may_be_read():
    planned(Catalogue(), simple("a"), simple("b", input_topic="a-s-changelog"))


def test_what_is_in_the_log_by_older_rules_is_still_read_and_may_be_dropped():
    older = [simple("a.b"), simple("a_b", "s.t", "s_t"), simple("c", input_topic="c-s-changelog")]
    catalogue = after(Catalogue(), *(put(Catalogue(), item, partitions_of(item, 4)) for item in older))
    assert not planned(catalogue, *older).changes_something
    planned(after(catalogue, DropApplication(name="a.b")), simple("a_b", "s.t"))


def test_a_plan_says_which_stores_an_application_loses():
    catalogue = after(Catalogue(), put(Catalogue(), simple("a", "s", "t", "u"), {"in": 4}))
    plan = planned(catalogue, simple("a", "v", "t"), simple("b"))
    assert [step.removed for step in plan.steps] == [("s", "u"), ()]
    assert planned(catalogue, simple("a", "s", "t", "u")).steps[0].removed == ()
