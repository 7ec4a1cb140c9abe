"""Windows with duplicates that a real Kafka Streams filled in two runs: it numbers them from 1 again in the second.

Store and log count each by itself, and only the log counts nulls. So the second run may write over a record in the log,
or in the store, that the other still has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_streams import Command, KafkaStreams, Store, StorePartition
from shared_state import T0 as START
from stopped import Stopped

from statestore.reports import Action, Status
from tests.integration.broker import T0

pytestmark = pytest.mark.long  # Kafka Streams is started several times

#: By store: what the first run and the second put into one window; None is a null.
RUNS: dict[str, tuple[list[tuple[bytes, bytes | None]], list[tuple[bytes, bytes | None]]]] = {
    "log-overwritten": ([(b"c", None), (b"k", b"1")], [(b"d", b"2"), (b"k", b"3")]),
    "store-overwritten": ([(b"c", None), (b"k", b"1")], [(b"k", b"3")]),
    "null-over-a-row": ([(b"k", b"1")], [(b"k", None)]),
}
STORES = [Store(name, "window", duplicates=True) for name in RUNS]


@pytest.fixture(scope="module")
def stopped(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    app = kafka_streams(changelog_config={})
    state_dir = tmp_path_factory.mktemp("duplicates") / "state"
    for run in range(2):
        puts = [(name, *put) for name, runs in RUNS.items() for put in runs[run]]
        app.write(state_dir, STORES, [Command(name, key, value, T0 + run, start=START) for name, key, value in puts])
    stopped = Stopped(app, state_dir)
    stopped.keep_known()
    return stopped


def test_a_row_that_only_the_log_wrote_over_is_no_divergence(stopped: Stopped) -> None:
    rows = stopped.verified(depth="deep")
    assert {name: rows[name].status for name in ("log-overwritten", "null-over-a-row")} == {
        "log-overwritten": Status.OK,
        "null-over-a-row": Status.OK,
    }
    contents = rows["log-overwritten"].contents
    assert contents is not None
    assert (contents.equal, contents.not_judged, contents.first) == (2, 1, ())


def test_a_row_that_only_the_store_wrote_over_cannot_be_told_from_a_lost_one(stopped: Stopped) -> None:
    row = stopped.verified(depth="deep")["store-overwritten"]
    assert (row.status, row.action) == (Status.DIVERGED, Action.FULL)
    assert row.contents is not None
    assert (row.contents.only_in_store, row.contents.only_in_log) == (0, 1)


def test_a_null_of_the_log_is_no_delete(stopped: Stopped, tmp_path: Path) -> None:
    state = stopped.copy(tmp_path / "state")
    shutil.rmtree(state.directory)
    state.restored()
    rows = stopped.app.read(state.state_dir, STORES).rows
    assert [row.value for row in rows[StorePartition("null-over-a-row")]] == [b"1"]
    assert [row.value for row in rows[StorePartition("log-overwritten")]] == [b"2", b"3"], (
        "as Kafka Streams restores it"
    )
