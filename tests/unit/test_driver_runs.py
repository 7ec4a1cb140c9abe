"""The test driver over several tasks and runs: aggregations, restarts, crashes, failures."""

from __future__ import annotations

import pytest
from orders import BY_CITY, ENGINES, ORDERS, SEEN, Remembering, make, order

from statestore.errors import InvalidStateError, ProcessingError
from statestore.stores.api import Windowed
from statestore.tasks import INT64, ValueAndTimestamp

# -- aggregations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_regrouped_records_go_through_the_repartition_topic_into_the_store(engine):
    with make(BY_CITY, engine=engine) as driver:
        driver.pipe("anna", order(5, "Bonn"), timestamp=1_000)
        driver.pipe("otto", order(2, "Bonn"), timestamp=1_050)
        driver.pipe("otto", order(2, "Kiel"), timestamp=1_060)
        repartitioned = driver.read("orders-by-city-repartition")
        assert [(record.key, record.timestamp) for record in repartitioned] == [
            ("Bonn", 1_000),
            ("Bonn", 1_050),
            ("Kiel", 1_060),
        ]
        assert list(driver.store("by-city").all()) == [
            (Windowed("Bonn", 1_000, 1_100), ValueAndTimestamp(2, 1_050)),
            (Windowed("Kiel", 1_000, 1_100), ValueAndTimestamp(1, 1_060)),
        ]
        assert driver.store("spent").get("otto") == ValueAndTimestamp(4, 1_060)
        assert list(driver.store("visits").all()) == [
            (Windowed("anna", 1_000, 1_000), 1),
            (Windowed("otto", 1_050, 1_060), 2),
        ]
        assert driver.stream_time(topic="orders-by-city-repartition") == 1_060


def test_a_repartition_topic_has_the_partitions_of_its_aggregation_and_keys_choose_one():
    by_city = {**BY_CITY["aggregations"][1], "partitions": 3}
    with make({**BY_CITY, "aggregations": [by_city], "stores": BY_CITY["stores"][1:2]}) as driver:
        cities = [f"city-{number}" for number in range(20)]
        for name in cities:
            driver.pipe("anna", order(1, name), timestamp=1_000)
        found = [{row[0].key for row in driver.store("by-city", partition=number).all()} for number in range(3)]
        assert all(found)
        assert sorted(name for part in found for name in part) == sorted(cities)


def test_a_repartition_topic_can_be_piped_into():
    with make(BY_CITY) as driver:
        driver.pipe("Bonn", order(1), timestamp=1_000, topic="orders-by-city-repartition")
        assert [row[0].key for row in driver.store("by-city").all()] == ["Bonn"]
        assert driver.store("spent").get("Bonn") is None
        assert driver.stream_time() == -1


def test_late_and_dropped_records_are_counted():
    with make(BY_CITY) as driver:
        driver.pipe("anna", order(1), timestamp=1_000)
        driver.pipe("anna", order(1), timestamp=1_200)  # closes the window to 1100 and its 50 ms of grace
        driver.pipe("anna", order(1), timestamp=1_099)
        driver.pipe(None, order(1), timestamp=1_200)
        assert driver.counts.late == 2  # its window, and its session
        assert driver.counts.dropped == 2  # no key to add up by, nor for a session


# -- restarts -----------------------------------------------------------------------------------------------------


@pytest.mark.short_for("True-txn_rocksDB", "False-in_memory")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_goes_on_with_stores_stream_time_and_topics(engine, crash):
    with make(BY_CITY, engine=engine) as driver:
        driver.pipe("anna", order(1), timestamp=1_000)
        driver.pipe("anna", order(1), timestamp=1_200)
        before = {name: list(driver.store(name).all()) for name in ("spent", "by-city", "visits")}
        driver.restart(crash=crash)
        assert {name: list(driver.store(name).all()) for name in before} == before
        assert driver.stream_time() == driver.stream_time(topic="orders-by-city-repartition") == 1_200
        driver.pipe("anna", order(1), timestamp=1_099)
        assert driver.counts.late == 2
        assert len(driver.read("spent-out", value_serde=INT64)) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_store_no_longer_shows_stays_hidden_after_a_restart(engine):
    with make(SEEN, engine=engine) as driver:
        driver.pipe("early", 1, timestamp=120_000)
        driver.pipe("late", 1, timestamp=240_001)  # 120,000 ms after it, the early one can be seen no more
        for _ in range(2):
            assert [window.key for window, _ in driver.store("seen").all()] == [b"late"]
            driver.restart()


def test_a_restart_commits_first_and_makes_the_processor_anew():
    Remembering.made = Remembering.closed = 0
    with make({**ORDERS, "processor": "orders:Remembering"}, commit_every=None) as driver:
        driver.pipe("anna", order(1), timestamp=1_000)
        driver.pipe("anna", order(1), timestamp=1_001)
        driver.restart()
        assert driver.store("totals").get("anna").value == 2
        driver.pipe("anna", order(1), timestamp=1_002)
        assert driver.store("totals").get("anna").value == 1  # a result that depends on where a batch ended
        assert (Remembering.made, Remembering.closed) == (2, 1)
    assert (Remembering.made, Remembering.closed) == (2, 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_after_a_crash_what_was_not_committed_is_processed_again_and_once(engine):
    with make(engine=engine, commit_every=None) as driver:
        driver.pipe("anna", order(1), timestamp=1_000)
        driver.commit()
        driver.pipe("anna", order(2), timestamp=1_001)
        driver.restart(crash=True)
        assert driver.store("totals").get("anna").value == 1
        driver.commit()
        assert driver.store("totals").get("anna").value == 3
        assert [record.value for record in driver.read("totals-out")] == [1, 3]
        assert driver.counts.records_in == 2


def test_after_a_crash_at_least_once_sends_again():
    with make({**ORDERS, "processing_guarantee": "at_least_once"}, commit_every=None) as driver:
        driver.pipe("anna", order(1), timestamp=1_000)
        driver.restart(crash=True)
        driver.commit()
        assert [record.value for record in driver.read("totals-out")] == [1, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_ends_the_run_and_the_next_one_begins_at_the_last_commit(engine):
    with make(engine=engine) as driver:
        driver.pipe("anna", order(1), timestamp=1_000)
        with pytest.raises(ProcessingError, match=r"task 0_0, record orders-0@1: KeyError: 'cents' .*orders\.py:"):
            driver.pipe("anna", {"cent": 1}, timestamp=1_001)
        for ask in (
            driver.commit,
            lambda: driver.store("totals"),
            lambda: driver.pipe("anna", order(9), timestamp=1_002),
        ):
            with pytest.raises(InvalidStateError, match="restart the driver"):
                ask()
        driver.restart()
        assert driver.store("totals").get("anna").value == 1
        with pytest.raises(ProcessingError, match="orders-0@1"):  # it is still the next record
            driver.commit()
        assert len(driver.read("orders")) == 2  # what was refused did not arrive
        assert [record.value for record in driver.read("totals-out")] == [1]


def test_a_failure_in_an_aggregation_leaves_nothing_of_its_commit():
    with make(BY_CITY, commit_every=None) as driver:
        driver.pipe("anna", order(1), timestamp=1_000)
        driver.pipe("anna", {"city": "Bonn"}, timestamp=1_001)
        with pytest.raises(ProcessingError, match=r"orders-0@1: KeyError: 'cents'"):
            driver.commit()
        assert driver.read("spent-out") == driver.read("orders-by-city-repartition") == []


def test_a_closed_driver_has_removed_its_directory():
    with make(engine="rocksDB") as driver:
        directory = driver._state_dir
        assert directory.exists()
    assert not directory.exists()
