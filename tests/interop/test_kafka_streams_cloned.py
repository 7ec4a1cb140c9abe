"""Kafka Streams starts on an application that was made of a set of snapshots of another Kafka cluster, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_streams import Command, Driver, KafkaStreams, Store, StorePartition

from statestore.cli.selection import Where
from statestore.definitions.application import ApplicationDefinition
from statestore.discovery.partitions import store_partition_specs
from statestore.kafka.cluster import Cluster
from statestore.kafka.partitioner import partition_of
from statestore.model import StoreFormat
from statestore.reports import Status
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.faults.own_broker import own_broker_in
from tests.integration.broker import T0
from tests.integration.catalogued import CatalogueCommand
from tests.integration.support import STORE, register
from tests.integration.test_snapshot_sets import WithSets

pytestmark = pytest.mark.long  # a second broker, and Kafka Streams is started twice

HOUR = 3_600_000
STORES = [
    Store(STORE, format=StoreFormat.TIMESTAMPED),
    Store("minutes", "window", StoreFormat.TIMESTAMPED, retention_ms=HOUR, window_ms=60_000),
]
WINDOWS = {"store": "minutes", "windows": {"size_ms": 60_000, "grace_ms": HOUR - 60_000}}
KEYS = [b"key-%02d" % number for number in range(24)]


def test_kafka_streams_starts_on_a_clone_in_another_cluster_with_nothing_to_restore(
    driver: Driver,
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source = WithSets(bootstrap_servers, tmp_path / "source", partitions=2)
    source.extend(aggregations=[WINDOWS])
    for at in (T0, T0 + 120_000):
        for task in range(2):
            source.send([(key, b"1") for key in KEYS if partition_of(key, 2) == task], task, at)
    made = source.run_all()
    assert made is not None
    assert made.snapshot_set, made.why
    with own_broker_in(tmp_path / "broker") as elsewhere:
        streams = KafkaStreams(driver, elsewhere.servers, partitions=2)
        command = CatalogueCommand(monkeypatch, capfd, elsewhere.servers, tmp_path)
        named = {"name": streams.application_id, "input_topic": streams.input_topic, "output_topics": ()}
        definition = ApplicationDefinition.model_validate({**source.definition.model_dump(), **named})
        metastore = register(elsewhere.servers, definition, service_id=command.service_id)
        assert metastore.view().catalogue.entry(definition.name).topics
        names = ["--application", source.name, "--to", definition.name]
        where = ["--from-cluster", source.archive.cluster, "--archive", source.archive.url]
        done = command.shown("rewrite", "clone", *names, *where, "--parallel", "1", "--yes")
        assert sum(row["rows"] for row in done["rows"]) == 3 * len(KEYS)
        specs = store_partition_specs(
            Where(Cluster(elsewhere.servers), command.state_dir), command.topics, [definition]
        )
        assert {verify(spec, VerifyOptions("deep")).status for spec in specs} == {Status.OK}
        parts = [StorePartition(store.name, number) for store in STORES for number in range(2)]
        changed = [Command(STORE, key, b"9", T0 + HOUR // 2, partition=partition_of(key, 2)) for key in KEYS[:5]]
        began = streams.write(command.state_dir, STORES, changed)
        assert began.restored == dict.fromkeys(parts, 0)
        found = streams.read(command.state_dir, STORES)
        assert found.restored == dict.fromkeys(parts, 0)
        for number in range(2):
            own = {key for key in KEYS if partition_of(key, 2) == number}
            values = {row.key: row.value for row in found.rows[StorePartition(STORE, number)]}
            assert values == {key: b"9" if key in KEYS[:5] else b"2" for key in own}
            windows = {(row.key, row.start) for row in found.rows[StorePartition("minutes", number)]}
            assert {key for key, _ in windows} == own
            assert len(windows) == 2 * len(own)
