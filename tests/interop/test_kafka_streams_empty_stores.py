"""Stores without a row beside others of their task, of which Kafka Streams 4.3.1 keeps all or none, exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_streams import Command, KafkaStreams, Store, StorePartition
from shared_state import described

from statestore.cli.restore_selection import stores_to_restore
from statestore.cli.selection import PartitionSelection, Where, choose
from statestore.model import StoreFormat
from statestore.partition.spec import StorePartitionSpec
from tests.integration.broker import T0
from tests.integration.restored import restored_here

pytestmark = pytest.mark.long

STORES = [
    Store("counts"),
    Store("never", format=StoreFormat.TIMESTAMPED),
    Store("never-window", "window"),
    Store("never-session", "session"),
]
ROWS = 20


@pytest.fixture(scope="module")
def app(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> KafkaStreams:
    """An application of which one store has rows."""
    app = kafka_streams(partitions=1, changelog_config={})
    app.write(
        tmp_path_factory.mktemp("gone"), STORES, [Command("counts", b"%d" % at, b"1", T0 + at) for at in range(ROWS)]
    )
    return app


def specs_of(app: KafkaStreams, state_dir: Path, stores: list[Store] = STORES) -> list[StorePartitionSpec]:
    topics = app.cluster.topics
    asked = PartitionSelection(
        Where(app.cluster, state_dir), applications=[app.application_id], stores=described(stores)
    )
    return stores_to_restore(choose(asked, topics), topics, kafka_streams="4.3.1")


def test_kafka_streams_discards_the_stores_of_a_task_if_one_of_them_does_not_say_how_far_it_is(
    app: KafkaStreams, tmp_path: Path
) -> None:
    restored_here(specs_of(app, tmp_path, STORES[:1]))  # the others are not there
    assert app.read(tmp_path, STORES).restored[StorePartition("counts")] == ROWS


def test_stores_without_a_row_are_made_so_that_kafka_streams_keeps_those_beside_them(
    app: KafkaStreams, tmp_path: Path
) -> None:
    rows = restored_here(specs_of(app, tmp_path))
    assert {row.store: (row.outcome, row.keys) for row in rows} == {
        store.name: ("restored", ROWS if store.name == "counts" else 0) for store in STORES
    }
    assert [row.outcome for row in restored_here(specs_of(app, tmp_path), "again")] == ["skipped"] * len(STORES)
    contents = app.read(tmp_path, STORES)
    assert contents.restored == dict.fromkeys(map(StorePartition, (store.name for store in STORES)), 0)
    assert len(contents.rows[StorePartition("counts")]) == ROWS
