"""Which store partitions of defined applications are selected, if topics are missing."""

from __future__ import annotations

from pathlib import Path

from statestore.changelog.topics import Topics
from statestore.cli.selection import Where
from statestore.discovery.partitions import select_store_partitions
from tests.integration.broker import unique
from tests.integration.catalogued import BY_VALUE, changed, defined


def test_an_application_without_its_input_topic_is_returned_as_failed(bootstrap_servers: str, tmp_path: Path) -> None:
    healthy = defined(bootstrap_servers, partitions=1)
    sick = changed(healthy, name=unique("sick"), input_topic=unique("gone"))
    where = Where(bootstrap_servers, tmp_path)
    selected = select_store_partitions(where, Topics(bootstrap_servers), [sick, healthy])
    assert [(spec.application, str(spec.task)) for spec in selected.specs] == [(healthy.name, "0_0")]
    assert [(name, error.exit_code) for name, error in selected.failed.items()] == [(sick.name, 2)]


def test_a_store_on_disk_is_selected_although_its_topics_are_gone(bootstrap_servers: str, tmp_path: Path) -> None:
    """Given neither the repartition topic nor the changelog of `by-value`, whose directory is the last copy."""
    definition = defined(bootstrap_servers, partitions=1, aggregations=[{**BY_VALUE, "aggregate": "count"}])
    where = Where(bootstrap_servers, tmp_path)
    by_value = tmp_path / definition.name / "1_3" / "rocksdb" / "by-value"
    by_value.mkdir(parents=True)
    selected = select_store_partitions(where, Topics(bootstrap_servers), [definition])
    found = [(spec.store.name, str(spec.task), spec.changelog) for spec in selected.specs]
    assert ("by-value", "1_3", None) in found
    assert len(found) == 2
