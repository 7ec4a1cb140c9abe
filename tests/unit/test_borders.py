"""No result depends on where a commit or a run ended: processors, aggregations, punctuations, dead letters (R18)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.tasks import JSON, ValueAndTimestamp, aggregate, sum_of
from statestore.testing import TopologyTestDriver
from tests.session.examples import examples

#: Long enough for segments of the stores below to expire.
STEP_MS = 400
RETENTION_MS = 120_000


class Processor:
    """Appends to each store, tells of stream time, and fails where the order says so, after it has written."""

    def init(self, context):
        context.schedule(50 * STEP_MS, lambda now: context.forward(b"tick", b"%d" % now))

    def process(self, record, context):
        key, at = record.key or b"none", record.timestamp
        totals, latest = context.state_store("totals"), context.state_store("latest")
        found = totals.get(key)
        totals.put(key, ValueAndTimestamp((found.value if found else b"") + b"x", at))
        latest.put(key, (latest.get(key) or b"") + record.value[:12])
        context.state_store("seen").put(key, ValueAndTimestamp(record.value, at), at)
        context.forward(record.key, record.value)
        if "fail" in json.loads(record.value):
            raise ValueError("as it was told to")


def city(record):
    return json.loads(record.value)["city"].encode()


spent = sum_of(lambda order: order["cents"])
listed = aggregate(list, lambda key, order, so_far: [*so_far, order["cents"]], merger=lambda _, a, b: a + b, value=JSON)

WINDOWS = {"size_ms": 100 * STEP_MS, "grace_ms": 50 * STEP_MS}
DEFINITION = {
    "name": "app",
    "input_topic": "in",
    "output_topics": ["out"],
    "dead_letter_topic": "dead",
    "default_dsl_store": "in_memory",
    "processor": f"{__name__}:Processor",
    "stores": [
        {"name": "totals"},
        {"name": "latest", "format": "plain"},
        {"name": "seen", "kind": "window", "window_size_ms": 10, "retention_ms": RETENTION_MS},
    ],
    "aggregations": [
        {"store": "spent", "aggregate": f"{__name__}:spent"},
        {"store": "by-city", "group_by": f"{__name__}:city", "aggregate": f"{__name__}:listed", "windows": WINDOWS},
        {"store": "hopping", "aggregate": f"{__name__}:spent", "windows": {**WINDOWS, "advance_ms": 30 * STEP_MS}},
        {
            "store": "visits",
            "aggregate": f"{__name__}:listed",
            "sessions": {"gap_ms": 30 * STEP_MS, "grace_ms": 50 * STEP_MS},
        },
    ],
}
ORDERS = [
    {"cents": 1, "city": "Bonn"},
    {"cents": 2, "city": "Kiel"},
    {"cents": "2", "city": "Bonn"},
    {"cents": 3},
    {"cents": 4, "city": "Bonn", "fail": True},
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([b"anna", b"otto", None]),
        st.sampled_from(ORDERS),
        st.integers(0, 800),
        st.sampled_from(["", "", "commit", "restart", "crash"]),
    ),
    max_size=25,
)


@pytest.mark.long
@settings(max_examples=examples(80))
@given(STEPS)
def test_results_do_not_depend_on_where_commits_and_runs_end(steps):
    assert results(steps, bordered=True) == results(steps, bordered=False)


def results(steps, *, bordered):
    with TopologyTestDriver(DEFINITION, commit_every=None) as driver:
        for key, order, step, border in steps:
            driver.pipe(key, json.dumps(order).encode(), timestamp=step * STEP_MS)
            if bordered and border == "commit":
                driver.commit()
            elif bordered and border:
                driver.restart(crash=border == "crash")
        driver.restart()
        rows = {store.name: list(driver.store(store.name).all()) for store in driver.application.stores}
        counts = driver.counts
        return {
            "rows": rows,
            "sent": driver.read("out"),
            "dead": sorted(reason(letter) for letter in driver.read("dead")),
            "late, dropped, poison": (counts.late, counts.dropped, counts.poison),
            "stream times": (driver.stream_time(), driver.stream_time(topic="app-by-city-repartition")),
        }


def reason(letter):
    """Return what a dead letter says, but for the trace: that tells how much was aggregated at once."""
    return [content for name, content in letter.headers if name != "__streams.errors.stacktrace"]
