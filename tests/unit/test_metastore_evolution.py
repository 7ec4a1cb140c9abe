"""What may be changed and dropped while stores are there, and what is refused with its path and what to do."""

from __future__ import annotations

import pytest
from metastore_samples import after, orders, put, simple

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import InvalidCommandError
from statestore.metastore.catalogue import Catalogue
from statestore.metastore.commands import DropStore, PutApplication
from statestore.metastore.evolution import internal_topic_names, partitions_of, require_compatible, require_droppable

WINDOW = {"name": "s", "kind": "window", "retention_ms": 9_000, "window_size_ms": 1_000}


def entry_of(definition, of_input=4):
    return after(Catalogue(), put(definition, of_input)).entry(definition.name)


def changed(definition, **fields):
    return ApplicationDefinition.model_validate({**definition.model_dump(), **fields})


def with_aggregation(definition, store, **fields):
    """The definition with some fields of one of its aggregations changed."""
    items = [item.model_dump() | (fields if item.store == store else {}) for item in definition.aggregations]
    return changed(definition, aggregations=items)


# -- partitions


def test_the_topics_of_an_application_follow_from_its_definition():
    assert partitions_of(orders(), 6) == {"placed": 6, "orders-by-city-repartition": 6, "orders-visits-repartition": 2}
    changelogs = [f"orders-{store}-changelog" for store in ("customers", "seen", "by-city", "spent", "visits")]
    repartitions = ["orders-by-city-repartition", "orders-visits-repartition"]
    offsets = ["orders-input-offsets", *[f"{topic}-offsets" for topic in repartitions]]
    assert sorted(internal_topic_names(orders())) == sorted([*changelogs, *repartitions, *offsets])


@pytest.mark.parametrize(
    "partitions",
    [
        {},
        {"placed": 4},
        {**partitions_of(orders(), 4), "other": 1},
        {**partitions_of(orders(), 4), "orders-customers-changelog": 4},
    ],
)
def test_partitions_are_those_of_what_the_tasks_read_and_of_nothing_else(partitions):
    with pytest.raises(
        InvalidCommandError, match="application orders: partitions: expected those of placed, orders-by"
    ):
        require_compatible(None, PutApplication(definition=orders(), partitions=partitions))


@pytest.mark.parametrize(("topic", "count"), [("orders-by-city-repartition", 4), ("orders-visits-repartition", 2)])
def test_a_repartition_topic_has_as_many_as_the_definition_says(topic, count):
    partitions = {**partitions_of(orders(), 4), topic: 5}
    with pytest.raises(InvalidCommandError, match=f"partitions: expected {count} of {topic}, found 5"):
        require_compatible(None, PutApplication(definition=orders(), partitions=partitions))


@pytest.mark.parametrize(
    ("store", "found", "topic"), [("customers", 4, "placed"), ("visits", 2, "orders-visits-repar")]
)
def test_expected_partitions_of_a_store_are_compared_with_the_topic_that_its_tasks_read(store, found, topic):
    stores = [item.model_dump() for item in orders().stores]

    def expecting(count):
        return changed(
            orders(), stores=[item | ({"partitions": count} if item["name"] == store else {}) for item in stores]
        )

    require_compatible(None, put(expecting(found)))
    with pytest.raises(
        InvalidCommandError, match=rf"stores\.{store}\.partitions: expected 3, found {found} of {topic}"
    ):
        require_compatible(None, put(expecting(3)))


# -- changes


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ("s", WINDOW, r"stores\.s\.kind: key-value -> window"),
        (WINDOW, {**WINDOW, "window_size_ms": 2_000}, r"stores\.s\.window_size_ms: 1s -> 2s"),
        (WINDOW, {**WINDOW, "retention_ms": 10_000}, r"stores\.s\.retention_ms: 9s -> 10s"),
        (WINDOW, {**WINDOW, "retain_duplicates": True}, r"stores\.s\.retain_duplicates: False -> True"),
        ("s", {"name": "s", "format": "plain"}, r"stores\.s\.format: timestamped -> plain, which has no place"),
    ],
)
def test_a_store_that_would_have_to_be_rebuilt_is_refused_with_path_and_values(before, now, change):
    with pytest.raises(InvalidCommandError, match=rf"application app: .*{change}.*another name"):
        require_compatible(entry_of(simple("app", before)), put(simple("app", now)))


@pytest.mark.parametrize(
    ("store", "fields", "change"),
    [
        ("spent", {"aggregate": "shop:spent"}, r"stores\.spent\.aggregate: count -> shop:spent"),
        ("spent", {"group_by": "shop:city"}, r"stores\.spent\.subtopology: 0 -> 1, other tasks"),
        ("by-city", {"group_by": None}, r"stores\.by-city\.subtopology: 1 -> 0, .*stores\.visits\.subtopology: 2 -> 1"),
        ("by-city", {"group_by": "shop:town"}, r"stores\.by-city\.group_by: shop:city -> shop:town"),
        ("by-city", {"windows": {"size_ms": 60_000, "advance_ms": 6_000}}, r"windows\.advance_ms: 1m -> 6s"),
        ("visits", {"sessions": {"gap_ms": 900}}, r"stores\.visits\.sessions\.gap_ms: 1s -> 0.9s"),
        ("visits", {"partitions": 3}, r"stores\.visits\.partitions: its tasks read 2, and would read 3"),
    ],
)
def test_an_aggregation_that_would_write_other_rows_is_refused(store, fields, change):
    with pytest.raises(InvalidCommandError, match=change):
        require_compatible(entry_of(orders()), put(with_aggregation(orders(), store, **fields)))


def test_an_aggregation_must_not_take_over_a_store_or_leave_one_behind():
    alone = simple("app", "s", "t")
    writing = simple("app", "s", "t", aggregations=[{"store": "t"}])
    with pytest.raises(InvalidCommandError, match=r"stores\.t\.aggregate: - -> count"):
        require_compatible(entry_of(alone), put(writing))
    with pytest.raises(InvalidCommandError, match=r"stores\.t\.aggregate: count -> -"):
        require_compatible(entry_of(writing), put(alone))


def test_another_input_is_refused_where_stores_were_built_from_the_one_before():
    with pytest.raises(InvalidCommandError, match=r"stores\.s\.input_topic: in -> other, which holds other records"):
        require_compatible(entry_of(simple()), put(simple(input_topic="other")))


def test_other_partitions_of_the_input_are_refused():
    with pytest.raises(InvalidCommandError, match=r"stores\.s\.partitions: its tasks read 4, and would read 5"):
        require_compatible(entry_of(simple(), 4), put(simple(), 5))


def test_the_order_of_regrouped_aggregations_is_that_of_their_tasks():
    spent, by_city, visits = (item.model_dump() for item in orders().aggregations)
    with pytest.raises(InvalidCommandError, match=r"stores\.by-city\.subtopology: 1 -> 2"):
        require_compatible(entry_of(orders()), put(changed(orders(), aggregations=[spent, visits, by_city])))
    require_compatible(entry_of(orders()), put(changed(orders(), aggregations=[by_city, spent, visits])))


def test_all_that_is_wrong_is_said_at_once():
    now = simple("app", {"name": "s", "format": "plain"}, {**WINDOW, "name": "t"}, input_topic="other")
    with pytest.raises(InvalidCommandError) as caught:
        require_compatible(entry_of(simple("app", "s", "t")), put(now, 5))
    for path in ("s.format", "s.input_topic", "s.partitions", "t.kind", "t.retention_ms", "t.window_size_ms"):
        assert f"stores.{path}: " in str(caught.value)


@pytest.mark.parametrize(
    "now",
    [
        simple("app", "s", "more"),
        simple("app", "more"),
        simple("app", {**WINDOW, "name": "more"}, "s"),
        simple("app", {"name": "s", "engine": "in_memory"}),
        simple("app", {"name": "s", "ttl_ms": 5}),
        simple("app", {"name": "s", "owner": "me", "expectations": "suite", "key_serde": "utf8"}),
        simple("app", "s", processor="module:other", commit_interval_ms=50, processing_guarantee="at_least_once"),
        simple("app", "s", output_topics=["out"], dead_letter_topic="dead"),
        simple("app", "s", aggregations=[{"store": "counted"}]),
    ],
)
def test_other_changes_are_accepted(now):
    require_compatible(entry_of(simple()), put(now))


@pytest.mark.behaviour("F14")
@pytest.mark.parametrize("now", [{}, {"ttl_ms": 7}])
def test_a_ttl_may_change_and_go(now):
    require_compatible(entry_of(simple("app", {"name": "s", "ttl_ms": 5})), put(simple("app", {"name": "s", **now})))


def test_a_plain_store_may_become_timestamped():
    require_compatible(entry_of(simple("app", {"name": "s", "format": "plain"})), put(simple()))


def test_how_long_late_records_are_taken_may_change_while_the_store_keeps_them():
    longer = with_aggregation(orders(), "by-city", windows={"size_ms": 60_000, "grace_ms": 30_000})
    require_compatible(entry_of(orders()), put(longer))


def test_an_application_that_keeps_no_store_may_have_another_input():
    now = simple("app", "fresh", input_topic="other")
    require_compatible(entry_of(simple()), put(now, 9))


def test_the_last_regrouped_aggregation_may_go_with_its_store():
    spent, by_city, _ = (item.model_dump() for item in orders().aggregations)
    stores = [item.model_dump() for item in orders().stores if item.name != "visits"]
    require_compatible(entry_of(orders()), put(changed(orders(), aggregations=[spent, by_city], stores=stores)))


# -- drops


def test_a_processor_s_store_may_be_dropped():
    require_droppable(entry_of(orders()), "customers")


def test_a_store_that_an_aggregation_writes_is_in_use():
    with pytest.raises(InvalidCommandError, match=r"orders/by-city is in use: aggregations\.1 writes it; apply a def"):
        require_droppable(entry_of(orders()), "by-city")


def test_a_store_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(InvalidCommandError, match="app has no store 't'; its stores are: s, u"):
        require_droppable(entry_of(simple("app", "s", "u")), "t")


def test_the_only_store_is_dropped_with_its_application():
    with pytest.raises(InvalidCommandError, match=r"only store .* Drop application app instead"):
        require_droppable(entry_of(simple()), "s")


def test_what_is_left_after_a_drop_is_a_whole_definition():
    catalogue = after(Catalogue(), put(orders()), DropStore(application="orders", store="customers"))
    left = catalogue.entry("orders").definition
    assert left == ApplicationDefinition.model_validate(left.model_dump())
    assert [store.name for store in left.stores] == ["seen", "by-city", "spent", "visits"]
