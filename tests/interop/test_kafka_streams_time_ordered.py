"""Stores of EmitStrategy.onWindowClose and the buffer of a join with grace: verified, lost, restored, and started on.

A real Kafka Streams application writes them. Some of their values are deleted, and their rows lie in two segments.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from kafka_streams import KEPT, Command, KafkaStreams, Store
from shared_state import contents_of
from test_kafka_streams_refused import Refused

from statestore.cli import known_stores
from statestore.cli.restore_selection import stores_to_restore
from statestore.reports import Action, Status
from statestore.stores.rocksdb import RocksDB, column_families
from tests.integration.broker import T0, create_topic, produce
from tests.integration.restored import restored_here

pytestmark = pytest.mark.long  # Kafka Streams is started several times

STORES = [
    Store("closed-sessions", "session", layout="time-ordered"),
    Store("closed-sliding", "window", layout="sliding"),
    Store("closed-windows", "window", layout="time-ordered"),
]
KINDS = {
    "closed-sessions": "time-ordered-session",
    "closed-sliding": "indexed-time-ordered-window",
    "closed-windows": "time-ordered-window",
}
HOUR = 3_600_000
START = T0 - T0 % HOUR


def commands() -> list[Command]:
    found = []
    for number in range(90):
        # Out of order, in three segments, and some again as deletes.
        start = START + (number * 37 % 90) * 60_000
        for store in STORES:
            key, value = struct.pack(">q", number % 20), b"%d" % number
            found.append(Command(store.name, key, value, T0 + number, start=start, end=start + 500))
            if number % 7 == 0:
                found.append(found[-1]._replace(value=None, timestamp=T0 + number + 1))
    return found


@pytest.fixture(scope="module")
def stopped(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Refused:
    app = kafka_streams(changelog_config={})
    state_dir = tmp_path_factory.mktemp("time-ordered") / "state"
    app.write(state_dir, STORES, commands())
    return Refused(app, state_dir)


def restored(state: Refused, mode: str = "full") -> None:
    rows = restored_here(stores_to_restore(state.chosen(), state.topics, kafka_streams="4.3.1"), mode=mode, force=True)
    assert {(row.store, row.outcome, row.failure) for row in rows} == {(name, "restored", None) for name in KINDS}


def require_healthy(state: Refused) -> None:
    for depth in ("offsets", "scan", "deep"):
        rows = state.verified(depth=depth)
        assert {name: (row.status, row.detail) for name, row in rows.items()} == dict.fromkeys(KINDS, (Status.OK, ""))


def test_such_stores_are_told_by_their_rows_and_verified_at_every_depth(stopped: Refused) -> None:
    require_healthy(stopped)
    assert {spec.store.name: spec.store.kind for spec in stopped.chosen().specs} == KINDS


@pytest.mark.parametrize("loss", ["in place", "all"])
def test_kafka_streams_starts_on_restored_ones_with_nothing_to_restore(
    stopped: Refused, tmp_path: Path, loss: str
) -> None:
    reopened = stopped.app.read(stopped.copy(tmp_path / "reopened").state_dir, STORES)
    state = stopped.copy(tmp_path / "state")
    chosen = state.chosen()
    known_stores.keep(chosen, state.state_dir, [*state.verified().values()], None)
    if loss == "all":
        shutil.rmtree(state.directory)
    restored(state)
    require_healthy(state)
    started = stopped.app.read(state.state_dir, STORES)
    assert set(started.restored.values()) == {0}
    assert started.rows == reopened.rows
    assert all(len(rows) > 20 for rows in started.rows.values())


def segment(state: Refused, store: str) -> Path:
    return max((state.directory / "0_0" / store).iterdir())


def changed(state: Refused, store: str, how: str) -> None:
    directory = segment(state, store)
    database = RocksDB(directory, [name for name in column_families(directory) if name != "offsets"])
    rows = dict(database.scan("default"))
    key = next(key for key in rows if key[0] == (1 if how == "index row deleted" else 0))
    database.write({"default": {key: rows[key] + b"x" if how == "row changed" else None}}, {})
    database.sync()
    database.close()


@pytest.mark.parametrize("how", ["row changed", "row deleted", "index row deleted"])
@pytest.mark.parametrize("store", KINDS)
def test_what_is_broken_is_found_and_restored(stopped: Refused, tmp_path: Path, store: str, how: str) -> None:
    if how == "index row deleted" and store == "closed-windows":
        pytest.skip("tumbling windows have no index")
    state = stopped.copy(tmp_path / "state")
    changed(state, store, how)
    row = state.verified(depth="deep")[store]
    expected = Status.CORRUPT if how == "index row deleted" else Status.DIVERGED
    assert (row.status, row.action) == (expected, Action.FULL)
    scanned = state.verified(depth="scan")[store]
    assert scanned.status is (expected if how == "index row deleted" else Status.OK)
    assert how != "index row deleted" or "without their index rows" in scanned.detail
    restored(state)
    require_healthy(state)


@pytest.mark.parametrize("said", ["window", "session", "key-value"])
def test_who_says_that_they_are_ordinary_is_refused_and_nothing_is_changed(
    stopped: Refused, tmp_path: Path, said: str
) -> None:
    state = stopped.copy(tmp_path / "state")
    before = contents_of(state.directory)
    for store, kind in KINDS.items():
        row = next(found for found in state.chosen(f"{store}:kind={said}").discovered if found.name == store)
        assert row.definition is None
        assert f"{kind} store, not of a {said} store" in row.problem or "correct its kind" in row.problem
    assert contents_of(state.directory) == before


# -- the buffer of a join with a grace period -------------------------------------------------------------------------

BUFFER = "priced-Buffer"


@pytest.fixture(scope="module")
def joined(
    kafka_streams: Callable[..., KafkaStreams], bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Refused:
    name = uuid4().hex[:8]
    stream, table = (create_topic(bootstrap_servers, f"{what}-{name}", 1, KEPT) for what in ("stream", "table"))
    keys = [struct.pack(">q", number) for number in range(40)]
    produce(bootstrap_servers, table, [(key, b"price") for key in keys], partition=0, timestamp=T0)
    for number in range(40):
        rows = [(keys[(number + at) % len(keys)], b"v") for at in range(5)]
        produce(bootstrap_servers, stream, rows, partition=0, timestamp=T0 + number * 30_000)
    app = kafka_streams(changelog_config={}, dsl=(stream, table))
    state_dir = tmp_path_factory.mktemp("joined") / "state"
    app.write(state_dir, [Store("plain-kv")], [Command("plain-kv", b"key", b"value", T0)])
    return Refused(app, state_dir)


def buffered(state: Refused) -> dict[bytes, bytes]:
    (directory,) = state.directory.glob(f"*/{BUFFER}/{BUFFER}.0")
    database = RocksDB(directory, [name for name in column_families(directory) if name != "offsets"], read_only=True)
    try:
        return dict(database.scan("default"))
    finally:
        database.close()


def test_a_buffer_is_restored_with_the_rows_that_it_had(joined: Refused, tmp_path: Path) -> None:
    state, before = joined.copy(tmp_path / "state"), buffered(joined)
    assert len(before) > 50
    for depth in ("offsets", "scan", "deep"):
        rows = state.verified(depth=depth)
        assert {name: rows[name].status for name in (BUFFER, "closed", "closed-windows", "counts")} == dict.fromkeys(
            (BUFFER, "closed", "closed-windows", "counts"), Status.OK
        )
    known_stores.keep(state.chosen(), state.state_dir, [*state.verified().values()], None)
    (directory,) = state.directory.glob(f"*/{BUFFER}")
    shutil.rmtree(directory)
    (row,) = restored_here(
        stores_to_restore(state.chosen(BUFFER), state.topics, kafka_streams="4.3.1"), mode="full", force=True
    )
    assert (row.outcome, row.failure) == ("restored", None)
    assert buffered(state) == before
    assert state.verified(BUFFER, depth="deep")[BUFFER].status is Status.OK
    joined.app.read(state.state_dir, [Store("plain-kv")])
    assert buffered(state) == before, "Kafka Streams restored it by itself"


def test_a_buffer_that_kafka_streams_has_restored_by_itself_is_found_and_mended(
    joined: Refused, tmp_path: Path
) -> None:
    state, before = joined.copy(tmp_path / "state"), buffered(joined)
    (directory,) = state.directory.glob(f"*/{BUFFER}")
    shutil.rmtree(directory)
    # Kafka Streams has the offsets of buffers beside them. With that file it would not even restore this one.
    (directory.parent / f".checkpoint_{BUFFER}").unlink()
    joined.app.read(state.state_dir, [Store("plain-kv")])
    assert buffered(state) != before
    said = f"{BUFFER}:kind=time-ordered-buffer"
    assert state.verified()[BUFFER].status is Status.UNKNOWN_FORMAT
    row = state.verified(said, depth="deep")[BUFFER]
    assert row.status is Status.DIVERGED
    (row,) = restored_here(
        stores_to_restore(state.chosen(said), state.topics, kafka_streams="4.3.1"), mode="full", force=True
    )
    assert (row.outcome, row.failure) == ("restored", None)
    assert buffered(state) == before
