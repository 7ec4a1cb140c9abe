"""Applications that tests of the test driver run."""

from __future__ import annotations

import json

from statestore.tasks import JSON, UTF8, ValueAndTimestamp, sum_of
from statestore.testing import TopologyTestDriver

ENGINES = ["txn_rocksDB", "rocksDB", "in_memory"]


def total(record, context):
    """Add up a customer's orders and send the total on; poison is whatever has no cents."""
    store = context.state_store("totals")
    found = store.get(record.key.decode())
    cents = json.loads(record.value)["cents"] + (found.value if found else 0)
    store.put(record.key.decode(), ValueAndTimestamp(cents, record.timestamp))
    context.forward(record.key, b"%d" % cents, headers=record.headers)


class Remembering:
    """Keeps what it must not: a count in the object, and tells when it is made and closed."""

    made = 0
    closed = 0

    def init(self, context):
        type(self).made += 1
        self.seen = 0

    def process(self, record, context):
        self.seen += 1
        context.state_store("totals").put(record.key.decode(), ValueAndTimestamp(self.seen, record.timestamp))

    def close(self):
        type(self).closed += 1


def remember(record, context):
    """Keep the record in the window that begins with it."""
    context.state_store("seen").put(record.key, record.value, record.timestamp)


def city(record):
    return json.loads(record.value)["city"].encode()


spent = sum_of(lambda order: order["cents"])
ORDERS = {
    "name": "orders",
    "input_topic": "orders",
    "output_topics": ["totals-out"],
    "processor": f"{__name__}:total",
    "stores": [{"name": "totals", "key_serde": "utf8", "value_serde": "int64"}],
}
SEEN = {
    "name": "orders",
    "input_topic": "orders",
    "processor": f"{__name__}:remember",
    "stores": [{"name": "seen", "kind": "window", "window_size_ms": 1, "retention_ms": 120_000, "format": "plain"}],
}
BY_CITY = {
    "name": "orders",
    "input_topic": "orders",
    "aggregations": [
        {"store": "spent", "aggregate": f"{__name__}:spent", "output_topic": "spent-out"},
        {
            "store": "by-city",
            "group_by": f"{__name__}:city",
            "windows": {"size_ms": 100, "grace_ms": 50},
            "output_topic": "by-city-out",
        },
        {"store": "visits", "sessions": {"gap_ms": 30, "grace_ms": 50}},
    ],
    "stores": [
        {"name": "spent", "key_serde": "utf8", "value_serde": "int64"},
        {
            "name": "by-city",
            "kind": "window",
            "window_size_ms": 100,
            "retention_ms": 1000,
            "key_serde": "utf8",
            "value_serde": "int64",
        },
        {"name": "visits", "kind": "session", "retention_ms": 1000, "key_serde": "utf8", "value_serde": "int64"},
    ],
}


def make(definition=ORDERS, **how):
    return TopologyTestDriver(definition, **{"key_serde": UTF8, "value_serde": JSON, "engine": "in_memory", **how})


def order(cents, city="Bonn"):
    return {"cents": cents, "city": city}
