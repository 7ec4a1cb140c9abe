"""Spark's sources read the state directory of Kafka Streams as its own interactive queries do, and leave it alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_streams import EVERY_KIND, KafkaStreams, Row, StorePartition
from shared_state import SharedState, contents_of, random_commands
from statestore_jobs.sources.state_store_metadata import StateStoreMetadataReader

from tests.spark.store_files import batches_of, read

STORES = EVERY_KIND


@pytest.mark.long
def test_sources_read_what_kafka_streams_has_written(
    kafka_streams: Callable[..., KafkaStreams], tmp_path: Path
) -> None:
    state = SharedState(kafka_streams(), tmp_path / "state", STORES)
    state.app.write(state.state_dir, STORES, random_commands(STORES, count=1_000, seed=3))
    contents = state.app.read(state.state_dir, STORES)
    directory = state.paths(0).application_dir
    before = contents_of(state.state_dir)

    for store in STORES:
        windows = {"window_size_ms": store.window_ms} if store.kind == "window" else {}
        rows = read({"path": directory, "store": store.name, **windows})
        assert sorted(map(_as_queried, rows), key=repr) == sorted(contents.rows[store.name, 0], key=repr), store.name
        assert len(rows) > 5

    known = {row["store"]: row for batch in batches_of(_metadata(directory)) for row in batch.to_pylist()}
    assert set(known) == {store.name for store in STORES}
    for store in STORES:
        row, part = known[store.name], StorePartition(store.name)
        kind = "key-value" if store.kind == "kv" else store.kind
        assert (row["kind"], row["format"], row["problem"]) == (kind, store.format.value, None)
        assert dict(row["committed"]) == {str(state.changelog(part)): state.last_logged(part)}
        assert dict(row["position"]) == {str(input_): end for input_, end in contents.positions[part].items()}
        assert (row["open"], row["sealed"]) == ("closed", "unsealed")
    assert contents_of(state.state_dir) == before


def _metadata(directory: Path) -> StateStoreMetadataReader:
    return StateStoreMetadataReader({"path": str(directory)})


def _as_queried(row: dict[str, Any]) -> Row:
    start, end = row.get("window_start", row.get("session_start")), row.get("window_end", row.get("session_end"))
    return Row(row["key"], row["value"], row["timestamp"], start, end)
