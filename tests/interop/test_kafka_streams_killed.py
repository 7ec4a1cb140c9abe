"""The real Kafka Streams is killed on a store that we had left open; then we come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_streams import Command, KafkaStreams, Store, StorePartition
from shared_state import T0, SharedState

from statestore.errors import StoreUncleanError
from statestore.formats.offsets import STATUS_OPEN

pytestmark = pytest.mark.long  # Kafka Streams is killed

PART = StorePartition("store")
#: Much more than the memtables hold.
UNCOMMITTED = [Command("store", b"uncommitted %d" % number, b"x" * 10_000, T0) for number in range(100)]


@pytest.mark.behaviour("K17")
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
@pytest.mark.short_for("exactly_once_v2")
def test_k17_rows_that_kafka_streams_never_committed_are_not_taken_for_ours(
    kafka_streams: Callable[..., KafkaStreams], tmp_path: Path, guarantee: str
) -> None:
    """Under exactly once it builds the store anew, under at least once it goes on in ours."""
    state = SharedState(kafka_streams(), tmp_path / "state", [Store("store")])
    ours = state.build(PART)
    for _ in range(2):  # what we left open we use as it is
        ours.init(state.context(0))
        ours.put(b"ours", b"1")
        ours.commit({state.changelog(PART): 0})
        ours.close(clean=False)
    identity = state.databases(PART)[0] / "IDENTITY"
    before = identity.read_bytes()

    state.app.die(state.state_dir, state.stores, UNCOMMITTED, config={"processing.guarantee": guarantee})

    assert (identity.read_bytes() == before) is (guarantee == "at_least_once")
    assert state.statuses(PART) == [STATUS_OPEN]
    assert b"uncommitted 0" in state.raw_keys(PART, "default")
    with pytest.raises(StoreUncleanError, match="left open"):
        ours.init(state.context(0))
