"""Stores without a changelog in the TopologyTestDriver: nothing is logged, and restarts change no result."""

from __future__ import annotations

import pytest

from statestore.tasks import INT64, UTF8
from statestore.testing import TopologyTestDriver

DEFINITION = {
    "name": "app",
    "input_topic": "in",
    "stores": [
        {"name": "total", "logged": False, "key_serde": "utf8"},
        {
            "name": "hours",
            "kind": "window",
            "retention_ms": 7_200_000,
            "window_size_ms": 3_600_000,
            "logged": False,
            "key_serde": "utf8",
            "value_serde": "int64",
        },
    ],
    "aggregations": [
        {"store": "total"},
        {"store": "hours", "windows": {"size_ms": 3_600_000}, "output_topic": "out"},
    ],
}


def results(*, crash, engine=None):
    with TopologyTestDriver(DEFINITION, key_serde=UTF8, value_serde=UTF8, commit_every=None, engine=engine) as driver:
        for number in range(1, 6):
            driver.pipe("a", "x", timestamp=number * 1_000_000)
            driver.commit()
            driver.pipe("a", "x", timestamp=number * 1_000_000)
            if crash:
                driver.restart(crash=True)
        driver.commit()
        return list(driver.store("total").all()), list(driver.store("hours").all())


@pytest.mark.behaviour("U1")
@pytest.mark.parametrize("engine", [None, "in_memory"])
def test_what_was_committed_stays_and_what_was_not_is_processed_again(engine):
    found = results(crash=True, engine=engine)
    assert [int.from_bytes(total.value, "big") for _, total in found[0]] == [10]
    assert found == results(crash=False)


def test_nothing_is_logged():
    with TopologyTestDriver(DEFINITION, key_serde=UTF8, value_serde=UTF8) as driver:
        driver.pipe("a", "x", timestamp=1_000)
        assert driver.read("out", value_serde=INT64)
        with pytest.raises(Exception, match="app-total-changelog"):
            driver.read("app-total-changelog")
        assert driver.counts.changelog_records == 0
        driver.restart()
        assert driver.store("total").get("a") is not None
