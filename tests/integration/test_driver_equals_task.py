"""The test driver gives what tasks give: the same records in every topic, the same rows, the same counts.

Positions in the headers of changelog records are left out: only tasks log them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Message, Producer
from statestore_jobs.planning import prepare, task_specs

from statestore.changelog.reader import ChangelogReader
from statestore.config import Settings
from statestore.definitions.application import ApplicationDefinition
from statestore.kafka.cluster import Cluster
from statestore.model import TaskId, TopicPartition
from statestore.statedir.context import store_context
from statestore.statedir.paths import TaskPaths
from statestore.stores.api import Windowed
from statestore.stores.open import build_store
from statestore.stores.serdes import load_serde
from statestore.tasks import INT64, JSON, ProcessorContext, Record, ValueAndTimestamp, aggregate, sum_of
from statestore.tasks.driver_logs import LoggedRecord
from statestore.tasks.stream_task import run_task
from statestore.testing import Counts, TopologyTestDriver
from tests.integration.broker import T0, WAIT_S, create_topic, settle, unique
from tests.integration.support import register

PARTITIONS = 2
RETENTION_MS = 120_000
#: Nothing may be compacted away before it is compared.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
MODULE = "tests.integration.test_driver_equals_task"


# -- the applications ---------------------------------------------------------------------------------------------


class Everything:
    """Uses all of the Processor API: stores of each kind, headers, punctuation, deletes, and poison."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(
            50, lambda now: context.forward(b"tick", INT64.serialize(now), topic=context.application + "-out")
        )

    def process(self, record: Record, context: ProcessorContext) -> None:
        name, order = record.key.decode(), json.loads(record.value or b"{}")
        totals, days, visits = (context.state_store(store) for store in ("totals", "days", "visits"))
        found = totals.get(name)
        total = (found.value if found else 0) + order.get("cents", 0)
        totals.put(name, ValueAndTimestamp(total, record.timestamp))
        days.put(name, ValueAndTimestamp(total, record.timestamp), record.timestamp // 100 * 100)
        visits.put(Windowed(name, record.timestamp, record.timestamp + 5), record.value or b"")
        if order.get("city") == "Kiel":
            totals.delete(name)
            visits.remove(Windowed(name, record.timestamp, record.timestamp + 5))
        context.forward(record.key, b"%d" % total, topic=context.application + "-out", headers=record.headers)
        if order.get("city") == "Trier":
            raise LookupError("no shop in Trier")


def city(record: Record) -> bytes | None:
    found: str = json.loads(record.value or b"{}")["city"]
    return found.encode()


def _longest(key: bytes, order: dict[str, Any], so_far: dict[str, Any]) -> dict[str, Any]:
    return {"names": sorted({*so_far["names"], order["city"]}), "cents": so_far["cents"] + order["cents"]}


def _merge(key: bytes, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"names": sorted({*one["names"], *other["names"]}), "cents": one["cents"] + other["cents"]}


spent = sum_of(lambda order: order["cents"])
visit = aggregate(lambda: {"names": [], "cents": 0}, _longest, merger=_merge, value=JSON)


def processing(name: str) -> dict[str, Any]:
    return {
        "processor": f"{MODULE}:Everything",
        "stores": [
            {"name": "totals", "key_serde": "utf8", "value_serde": "int64"},
            {
                "name": "days",
                "kind": "window",
                "window_size_ms": 100,
                "retention_ms": RETENTION_MS,
                "key_serde": "utf8",
                "value_serde": "int64",
            },
            {"name": "visits", "kind": "session", "retention_ms": RETENTION_MS, "key_serde": "utf8"},
        ],
    }


def aggregating(name: str) -> dict[str, Any]:
    return {
        "aggregations": [
            {"store": "spent", "aggregate": f"{MODULE}:spent", "output_topic": f"{name}-out"},
            {
                "store": "by-city",
                "group_by": f"{MODULE}:city",
                "partitions": 3,
                "windows": {"size_ms": 100, "advance_ms": 50, "grace_ms": 100},
            },
            {"store": "newest", "aggregate": "latest"},
            {"store": "visits", "aggregate": f"{MODULE}:visit", "sessions": {"gap_ms": 20, "grace_ms": 100}},
        ],
        "stores": [  # a store that is only read has another stream time: nothing may have expired
            {"name": "by-city", "kind": "window", "window_size_ms": 100, "retention_ms": RETENTION_MS},
            {"name": "visits", "kind": "session", "retention_ms": RETENTION_MS},
        ],
    }


# -- both sides ---------------------------------------------------------------------------------------------------


class Piped(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int


def batches() -> list[list[Piped]]:
    """Orders of three runs: out of order, some without key, value or sense."""
    chosen = random.Random(5)
    found = []
    for number in range(240):
        order = {"cents": chosen.randrange(100), "city": chosen.choice(["Bonn", "Bonn", "Köln", "Kiel", "Trier"])}
        value = chosen.choice([json.dumps(order).encode()] * 8 + [b"{", b'{"city": "Bonn"}'])
        found.append(
            Piped(
                chosen.choice([b"anna", b"otto", b"ida"]),
                value,
                T0 + number * 5 - chosen.choice([0, 0, 0, 7, 60, 400]),
                chosen.choice([(), (("trace", b"%d" % number), ("empty", None))]),
                chosen.randrange(PARTITIONS),
            )
        )
    return [found[:100], found[100:101], found[101:]]


class Tasks:
    """The application on a broker, its tasks run one after the other as a job would."""

    def __init__(self, servers: str, directory: Path, definition: ApplicationDefinition) -> None:
        self._definition = definition
        self._settings = Settings(
            bootstrap_servers=servers,
            state_dir=directory / "state",
            reports_dir=directory,
            data_docs_dir=directory,
            kafka_timeout_s=60,
        )
        self._topics = Cluster(servers, 60).topics
        create_topic(servers, definition.input_topic, PARTITIONS)
        for topic in (*definition.output_topics, definition.dead_letter_topic):
            assert topic is not None
            create_topic(servers, topic)
        for part in definition.subtopologies:
            for store in part.stores:
                count = 3 if part.index else PARTITIONS
                create_topic(servers, f"{definition.name}-{store.name}-changelog", count, KEPT)
        metastore = register(servers, definition)
        prepare(self._topics, metastore, [metastore.view().catalogue.entry(definition.name)])
        self.counts = Counts()

    def run(self, batch: list[Piped]) -> None:
        servers, totals = self._settings.bootstrap_servers, asdict(self.counts)
        producer = Producer({"bootstrap.servers": servers})
        for key, value, timestamp, headers, partition in batch:
            producer.produce(
                self._definition.input_topic, value, key, partition, timestamp=timestamp, headers=list(headers)
            )
        assert producer.flush(WAIT_S) == 0
        for part in self._definition.subtopologies:
            settle(servers, part.input_topic)
            for spec in task_specs(self._settings, self._topics, self._definition, part.index):
                row = run_task(spec)
                assert row.failure is None, row.failure
                for name, found in zip(
                    totals,
                    (
                        row.records_in,
                        row.records_out,
                        row.changelog_records,
                        row.late_records,
                        row.dropped_records,
                        row.poison_records,
                    ),
                    strict=True,
                ):
                    totals[name] += found
        self.counts = Counts(**totals)

    def read(self, topic: str) -> list[LoggedRecord]:
        servers = self._settings.bootstrap_servers
        settle(servers, topic)
        partitions = [TopicPartition(topic, n) for n in range(self._topics.require(topic).partitions)]
        ranges = self._topics.log_ranges(partitions)
        found = []
        for partition in partitions:
            with ChangelogReader(Cluster(servers), partition) as reader:
                found += [
                    LoggedRecord(message.key(), message.value(), message.timestamp()[1], own_headers(message))
                    for messages in reader.read_messages(0, ranges[partition].last_stable)
                    for message in messages
                ]
        return found

    @contextmanager
    def store(self, name: str, partition: int) -> Iterator[Any]:
        definition = self._definition.store(name)
        task = TaskId(self._definition.subtopology_of(name).index, partition)
        opened = build_store(definition, load_serde(definition.key_serde), load_serde(definition.value_serde))
        paths = TaskPaths(self._settings.state_dir, self._definition.name, task)
        opened.init(store_context(paths, read_only=True))
        try:
            yield opened
        finally:
            opened.close(clean=False)


def own_headers(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """Headers without those of a position, which the driver does not log."""
    headers = tuple(message.headers() or ())
    return headers[:-2] if [name for name, _ in headers[-2:]] == ["v", "c"] else headers


def by_task(records: list[LoggedRecord]) -> list[LoggedRecord]:
    """Bring dead letters into the order of the tasks that they come from: at least once they mix."""
    wanted = ("__streams.errors.topic", "__streams.errors.partition")
    return sorted(records, key=lambda record: [value for name, value in record.headers if name in wanted])


@pytest.mark.short_for("processing-exactly_once_v2-txn_rocksDB")
@pytest.mark.parametrize(
    ("kind", "guarantee", "engine"),
    [
        (processing, "exactly_once_v2", "txn_rocksDB"),
        (processing, "at_least_once", "in_memory"),
        (aggregating, "exactly_once_v2", "txn_rocksDB"),
        (aggregating, "at_least_once", "rocksDB"),
    ],
)
def test_tasks_and_driver_give_the_same(
    bootstrap_servers: str, tmp_path: Path, kind: Any, guarantee: str, engine: str
) -> None:
    name = unique("app")
    definition = ApplicationDefinition.model_validate(
        {
            "name": name,
            "input_topic": f"{name}-in",
            "output_topics": [f"{name}-out"],
            "dead_letter_topic": f"{name}-dead",
            "processing_guarantee": guarantee,
            "default_dsl_store": engine,
            "commit_interval_ms": 600_000,
            **kind(name),
        }
    )
    tasks = Tasks(bootstrap_servers, tmp_path, definition)
    with TopologyTestDriver(definition, commit_every=None, partitions=PARTITIONS) as driver:
        for batch in batches():
            tasks.run(batch)
            for key, value, timestamp, headers, partition in sorted(batch, key=attrgetter("partition")):
                driver.pipe(key, value, timestamp=timestamp, headers=headers, partition=partition)
            driver.restart()
        read = {
            topic: driver.read(topic)
            for topic in (
                f"{name}-out",
                f"{name}-dead",
                *(f"{name}-{store.name}-changelog" for store in definition.stores),
                *(part.input_topic for part in definition.subtopologies),
            )
        }
        assert all(read.values())
        for topic, expected in read.items():
            assert by_task(tasks.read(topic)) == by_task(expected), topic
        assert tasks.counts == driver.counts
        assert driver.counts.poison > 0
        assert driver.counts.late > 0 or kind is processing
        if engine == "in_memory":
            return
        for store in definition.stores:
            for partition in range(3 if definition.subtopology_of(store.name).index else PARTITIONS):
                with tasks.store(store.name, partition) as opened:
                    assert list(opened.all()) == list(driver.store(store.name, partition=partition).all()), store.name
