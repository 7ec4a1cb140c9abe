"""The test driver: what users' tests of their applications can rely on."""

from __future__ import annotations

import json

import pytest
from orders import BY_CITY, ENGINES, ORDERS, make, order

from statestore.definitions.application import ApplicationDefinition
from statestore.errors import DefinitionError, InputError, UnknownStoreError
from statestore.tasks import BYTES, INT64, UTF8, ValueAndTimestamp
from statestore.testing import TopologyTestDriver

# -- records in and out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_processor_keeps_and_sends_is_there_after_the_record(engine):
    with make(engine=engine) as driver:
        driver.pipe("anna", order(5), timestamp=1_000, headers=[("trace", b"7")])
        driver.pipe("anna", order(2), timestamp=1_001)
        assert driver.read("totals-out") == [
            ("anna", 5, 1_000, (("trace", b"7"),)),
            ("anna", 7, 1_001, ()),
        ]
        assert driver.store("totals").get("anna") == ValueAndTimestamp(7, 1_001)
        assert driver.read("orders-totals-changelog", key_serde=UTF8, value_serde=INT64) == [
            ("anna", 5, 1_000, ()),
            ("anna", 7, 1_001, ()),
        ]


def test_a_topic_is_read_on_from_where_it_was_read_last():
    with make() as driver:
        driver.pipe("anna", order(5), timestamp=1_000)
        assert [record.value for record in driver.read("totals-out")] == [5]
        assert driver.read("totals-out") == []
        driver.pipe("anna", order(5), timestamp=1_000)
        assert [record.value for record in driver.read("totals-out")] == [10]


def test_the_input_is_read_as_it_was_piped_also_without_key_and_value():
    with make({"name": "orders", "input_topic": "orders", "aggregations": [{"store": "c"}]}) as driver:
        driver.pipe(None, None, timestamp=1_000, headers=(("a", None), ("a", b"")))
        assert driver.read("orders") == [(None, None, 1_000, (("a", None), ("a", b"")))]


def test_records_are_bytes_without_serdes():
    with TopologyTestDriver(ORDERS, engine="in_memory") as driver:
        driver.pipe(b"anna", b'{"cents": 5}', timestamp=1_000)
        assert driver.read("totals-out") == [(b"anna", b"5", 1_000, ())]
        with pytest.raises(TypeError, match="expected bytes, found str"):
            driver.pipe("anna", b"", timestamp=1_000)


@pytest.mark.parametrize("topic", ["totals", "", "orders-by-city-repartition"])
def test_a_topic_that_the_application_does_not_have_is_refused_with_those_it_has(topic):
    with make() as driver:
        with pytest.raises(InputError, match=r"there is no topic .* orders, orders-totals-changelog, totals-out"):
            driver.read(topic)
        with pytest.raises(InputError, match=r"orders does not read topic .*; it reads: orders"):
            driver.pipe("a", order(1), timestamp=1, topic=topic)


def test_a_store_that_the_application_does_not_have_is_refused_with_those_it_has():
    with make() as driver, pytest.raises(UnknownStoreError, match="no store 'total'; its stores are: totals"):
        driver.store("total")


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_the_topic_does_not_have_is_refused(partition):
    with make(partitions=2) as driver:
        for ask in (
            lambda: driver.pipe("a", order(1), timestamp=1, partition=partition),
            lambda: driver.store("totals", partition=partition),
            lambda: driver.stream_time(partition=partition),
        ):
            with pytest.raises(InputError, match=f"orders has partitions 0 to 1, found {partition}"):
                ask()


def test_each_partition_has_a_task_with_stores_and_stream_time_of_its_own():
    with make(partitions=2) as driver:
        driver.pipe("anna", order(5), timestamp=1_000)
        driver.pipe("anna", order(7), timestamp=2_000, partition=1)
        assert [driver.store("totals", partition=number).get("anna").value for number in (0, 1)] == [5, 7]
        assert [driver.stream_time(partition=number) for number in (0, 1)] == [1_000, 2_000]
        assert driver.counts.records_in == 2


# -- what a definition may be -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["object", "mapping", "path", "text"])
def test_a_definition_is_an_object_a_mapping_or_a_file(form, tmp_path):
    path = tmp_path / "orders.yaml"
    path.write_text(json.dumps(ORDERS))  # JSON is YAML, too
    given = {
        "object": ApplicationDefinition.model_validate(ORDERS),
        "mapping": ORDERS,
        "path": path,
        "text": str(path),
    }[form]
    with make(given) as driver:
        driver.pipe("anna", order(5), timestamp=1_000)
        assert driver.counts.records_out == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stores": [{"name": "a/b"}]}, "is not a valid name"),
        ({"processor": "orders:absent"}, "processor .*:absent cannot be used"),
        ({"stores": [{"name": "totals", "key_serde": "json:loads"}]}, "serde json:loads is a function"),
        ({"aggregations": [{"store": "c", "group_by": "absent:city"}]}, "group_by absent:city cannot be used"),
        ({"aggregations": [{"store": "c", "aggregate": "orders:city"}]}, "aggregate .* is a function"),
    ],
)
def test_a_definition_that_cannot_be_used_is_refused_at_once(changes, message):
    with pytest.raises(DefinitionError, match=message):
        make({**ORDERS, **changes})


def test_a_file_that_is_not_there_or_defines_several_applications_is_refused(tmp_path):
    with pytest.raises(DefinitionError, match="does not exist"):
        make(tmp_path / "absent.yaml")
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**ORDERS, "name": name}))
    with pytest.raises(DefinitionError, match="defines one, two; expected one application"):
        make(tmp_path)


@pytest.mark.parametrize("how", [{"partitions": 0}, {"commit_every": 0}])
def test_numbers_below_one_are_refused(how):
    with pytest.raises(InputError, match="at least 1"):
        make(**how)


# -- commits ------------------------------------------------------------------------------------------------------


def test_under_exactly_once_nothing_is_seen_before_its_commit():
    with make(commit_every=None) as driver:
        driver.pipe("anna", order(5), timestamp=1_000)
        assert driver.read("totals-out") == driver.read("orders-totals-changelog") == []
        assert driver.counts.records_in == 0
        assert driver.store("totals").get("anna").value == 5  # the owner sees what it wrote
        driver.commit()
        assert len(driver.read("totals-out")) == len(driver.read("orders-totals-changelog", value_serde=BYTES)) == 1
        assert driver.counts.records_in == 1


def test_at_least_once_sends_at_once():
    with make({**ORDERS, "processing_guarantee": "at_least_once"}, commit_every=None) as driver:
        driver.pipe("anna", order(5), timestamp=1_000)
        assert len(driver.read("totals-out")) == 1


def test_commits_come_after_as_many_records_as_asked_for():
    with make(commit_every=3) as driver:
        for number in range(7):
            driver.pipe("anna", order(1), timestamp=1_000 + number)
        assert len(driver.read("totals-out")) == 6


def test_an_aggregation_sends_one_result_for_each_key_and_commit():
    with make(BY_CITY, commit_every=None) as driver:
        for name, cents in (("anna", 1), ("otto", 2), ("anna", 3)):
            driver.pipe(name, order(cents), timestamp=1_000 + cents)
        driver.commit()
        assert sorted(driver.read("spent-out", value_serde=INT64)) == [
            ("anna", 4, 1_003, ()),
            ("otto", 2, 1_002, ()),
        ]
