"""The rows of a store show which offsets of its log they equal, whatever the store says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.changelog.topics import Topics
from statestore.partition.spec import StorePartitionSpec
from statestore.stores.rocksdb import RocksDB
from statestore.verification.contents import databases
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import Proof, is_provable, prove
from tests.integration import broker
from tests.integration.kinds import ALL_STORES, changes, logged

PROVABLE = [
    pytest.param(kind, marks=[pytest.mark.long] if store.values.keeps_headers else [])
    for kind, store in ALL_STORES.items()
    if not store.retain_duplicates
]


def proof_of(spec: StorePartitionSpec) -> Proof:
    """Prove the closed live store against its log as it is now."""
    assert is_provable(spec)
    log = Topics(spec.bootstrap_servers, 60).log_ranges([spec.partition])[spec.partition]
    found = prove(spec, databases(spec), log, VerifyOptions())
    assert found is not None
    return found


@pytest.mark.parametrize("kind", PROVABLE)
def test_the_position_of_a_closed_store_is_found_without_its_offset(
    bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    store = ALL_STORES[kind]
    rows = changes(store, 300, seed=1)
    application = logged(bootstrap_servers, tmp_path, store, rows[:200])
    committed = application.restore("full").committed
    assert committed is not None
    broker.transaction(bootstrap_servers, application.changelog, rows[200:], end="abort")
    broker.transaction(bootstrap_servers, application.changelog, rows[200:])
    found = proof_of(application.store_spec())
    assert found.equals_at(committed)
    # The next record that changes a row is after the aborted ones. New windows and sessions have other segments.
    assert committed < found.replay_from <= 403
    if not store.segmented:
        assert not found.equals_at(found.replay_from)
    assert not found.unexplained


@pytest.mark.parametrize("damage", ["changed", "lost", "added"])
def test_a_damaged_row_is_found(bootstrap_servers: str, tmp_path: Path, damage: str) -> None:
    store = ALL_STORES["plain key-value"]
    application = logged(bootstrap_servers, tmp_path, store, [(b"k%d" % at, b"v") for at in range(50)])
    application.restore("full")
    spec = application.store_spec()
    (family,) = store.values.column_families
    row = {"changed": {b"k7": b"w"}, "lost": {b"k7": None}, "added": {b"other": b"v"}}[damage]
    database = RocksDB(spec.live, (family,))
    database.write({family: row})
    database.sync()
    database.close()
    found = proof_of(spec)
    assert not found.equals_at(49)
    # A lost row is as before its first record: torn, not unexplained.
    assert (found.unexplained, found.orphans) == {"changed": (1, 0), "lost": (0, 0), "added": (1, 1)}[damage]
    assert found.replay_from == (51 if damage == "added" else 7)
