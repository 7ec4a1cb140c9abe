"""Windows and sessions that are emitted when they close, with `dsl.store.format=HEADERS`, byte for byte.

Kafka Streams' queries do not tell headers, so rows are compared as they lie in the databases.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka_streams import KafkaStreams, Store, StorePartition
from shared_state import SharedState, recent
from test_kafka_streams_headers import Stopped, commands

from statestore.model import StoreFormat
from statestore.reports import Action, Status
from statestore.stores.rocksdb import RocksDB, column_families

pytestmark = pytest.mark.long  # Kafka Streams is started several times

STORES = [
    Store("closed-windows", "window", layout="time-ordered-headers"),
    Store("closed-sliding", "window", layout="sliding-headers"),
    Store("closed-sessions", "session", layout="time-ordered-headers"),
]
KINDS = {
    "closed-windows": "indexed-time-ordered-window",
    "closed-sliding": "indexed-time-ordered-window",
    "closed-sessions": "time-ordered-session",
}
FAMILIES = {"window": "windowKeyValueWithHeaders", "session": "sessionKeyValueWithHeaders"}
INDEX = 1


@pytest.fixture(scope="module")
def stopped(kafka_streams: Callable[..., KafkaStreams], tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    state = SharedState(kafka_streams(changelog_config={}), tmp_path_factory.mktemp("closed") / "state", STORES)
    state.app.write(state.state_dir, STORES, recent(list(commands(STORES, 600, seed=7))))
    return Stopped(state)


def rows_alone(stopped: Stopped) -> dict[str, dict[str, dict[bytes, bytes]]]:
    """All rows but those of the index: a null value leaves some, and a replay does not make them."""
    return {
        store: {name: {key: row for key, row in found.items() if key[0] != INDEX} for name, found in databases.items()}
        for store, databases in stopped.dump().items()
    }


def described(kind: str) -> list[str]:
    return [
        f"{store.name}:kind={KINDS[store.name]},{kind},subtopology=0,retention_ms={store.retention_ms}"
        for store in STORES
    ]


def test_they_are_told_by_their_rows_and_families_and_are_what_their_logs_give(stopped: Stopped) -> None:
    for store in STORES:
        databases = stopped.dump()[store.name]
        assert {name.split()[1] for name in databases} == {FAMILIES[store.kind]}
        assert len(databases) >= 2, "segments"
        traced = any(b"trace" in row for rows in databases.values() for row in rows.values())
        assert traced is (store.kind == "window"), "Kafka Streams keeps no headers of such sessions"
    found = {store.name: store.definition for store in stopped.chosen().discovered}
    assert {name: (made.kind, made.format) for name, made in found.items() if made} == {
        name: (kind, StoreFormat.HEADERS) for name, kind in KINDS.items()
    }
    for depth in ("offsets", "scan", "deep"):
        rows = stopped.verified(depth=depth)  # type: ignore[arg-type]
        assert {name: (row.status, row.detail) for name, row in rows.items()} == dict.fromkeys(KINDS, (Status.OK, ""))


@pytest.mark.parametrize("how", ["in place", "as described"])
def test_what_is_restored_has_the_rows_that_kafka_streams_restores(stopped: Stopped, tmp_path: Path, how: str) -> None:
    theirs, ours = stopped.copy(tmp_path / "theirs"), stopped.copy(tmp_path / "ours")
    theirs.remove()
    assert all(count > 0 for count in theirs.started().values())
    if how == "as described":
        ours.remove()
    for row in ours.restored(*(described("format=headers") if how == "as described" else ())).values():
        assert (row.outcome, row.failure) == ("restored", None)
    assert rows_alone(ours) == rows_alone(theirs) == rows_alone(stopped)
    assert {row.status for row in ours.verified().values()} == {Status.OK}
    assert ours.started() == dict.fromkeys(ours.parts, 0)
    assert rows_alone(ours) == rows_alone(stopped)


def test_lost_ones_are_not_restored_as_if_they_had_no_headers(stopped: Stopped, tmp_path: Path) -> None:
    lost = stopped.copy(tmp_path / "lost")
    lost.remove()
    for store in lost.chosen(*described("format=plain")[2:]).discovered:
        assert store.trouble == "unknown"
        assert f"add --store {store.name}:format=headers" in store.problem


@pytest.mark.parametrize("store", STORES, ids=str)
def test_a_row_that_is_not_its_logs_is_found_and_mended(stopped: Stopped, tmp_path: Path, store: Store) -> None:
    broken = stopped.copy(tmp_path / "broken")
    directory = broken.state.databases(StorePartition(store.name))[0]
    database = RocksDB(directory, [name for name in column_families(directory) if name != "offsets"])
    key, row = next(iter(database.scan(FAMILIES[store.kind])))
    database.put(FAMILIES[store.kind], key, row + b"!")
    database.sync()
    database.close()
    found = broken.verified(store.name)[store.name]
    assert (found.status, found.action) == (Status.DIVERGED, Action.FULL)
    assert broken.restored(store.name)[store.name].outcome == "restored"
    assert broken.verified(store.name)[store.name].status is Status.OK
    shutil.rmtree(broken.state.state_dir)
