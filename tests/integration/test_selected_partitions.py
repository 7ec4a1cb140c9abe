"""Which store partitions of defined applications are selected, if topics are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from statestore_jobs.sources.state_store_writer import plan_write

from statestore.cli.selection import Where
from statestore.discovery.partitions import select_store_partitions, store_partition_specs
from statestore.kafka.cluster import Cluster
from tests.integration.broker import unique
from tests.integration.catalogued import BY_VALUE, changed, defined
from tests.integration.command_line import settings_of
from tests.integration.support import STORE, register


def test_an_application_without_its_input_topic_is_returned_as_failed(bootstrap_servers: str, tmp_path: Path) -> None:
    healthy = defined(bootstrap_servers, partitions=1)
    sick = changed(healthy, name=unique("sick"), input_topic=unique("gone"))
    where = Where(Cluster(bootstrap_servers), tmp_path)
    selected = select_store_partitions(where, Cluster(bootstrap_servers).topics, [sick, healthy])
    assert [(spec.application, str(spec.task)) for spec in selected.specs] == [(healthy.name, "0_0")]
    assert [(name, error.exit_code) for name, error in selected.failed.items()] == [(sick.name, 2)]


def test_a_store_on_disk_is_selected_although_its_topics_are_gone(bootstrap_servers: str, tmp_path: Path) -> None:
    """Given neither the repartition topic nor the changelog of `by-value`, whose directory is the last copy."""
    definition = defined(bootstrap_servers, partitions=1, aggregations=[{**BY_VALUE, "aggregate": "count"}])
    where = Where(Cluster(bootstrap_servers), tmp_path)
    by_value = tmp_path / definition.name / "1_3" / "rocksdb" / "by-value"
    by_value.mkdir(parents=True)
    selected = select_store_partitions(where, Cluster(bootstrap_servers).topics, [definition], leftovers=True)
    found = [(spec.store.name, str(spec.task), spec.changelog) for spec in selected.specs]
    assert ("by-value", "1_3", None) in found
    assert len(found) == 2


def test_nobody_writes_to_a_partition_that_no_topic_has(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a directory of a partition that a repartition has left: verification alone selects it."""
    definition = defined(bootstrap_servers, partitions=2, stores=[{"name": STORE}])
    metastore = register(bootstrap_servers, definition)
    where, topics = Where(Cluster(bootstrap_servers), tmp_path), Cluster(bootstrap_servers).topics
    (tmp_path / definition.name / "0_7" / "rocksdb" / STORE).mkdir(parents=True)
    judged = select_store_partitions(where, topics, [definition], leftovers=True).specs
    assert [str(spec.task) for spec in judged] == ["0_0", "0_1", "0_7"]
    assert [str(spec.task) for spec in store_partition_specs(where, topics, [definition])] == ["0_0", "0_1"]
    for name, value in {**settings_of(bootstrap_servers, tmp_path), "SERVICE_ID": metastore.service_id}.items():
        monkeypatch.setenv(f"STATESTORE_{name}", value)
    planned = plan_write({"application": definition.name, "store": STORE, "state_dir": str(tmp_path)})
    assert [str(spec.task) for spec in planned.stores] == ["0_0", "0_1"]
