"""The rows of a store show which offsets of its log they equal, whatever its committed offset is."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.bulk.routing import routing_of
from statestore.formats.offsets import COLUMN_FAMILY, STATUS_CLOSED, STATUS_OPEN
from statestore.partition.quarantine import waits_for_a_person
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import restore
from statestore.reports import Action, Status
from statestore.statedir.seal import break_seal
from statestore.stores.rocksdb import RocksDB
from statestore.stores.table import DeletedRange
from statestore.verification.check import verify
from statestore.verification.contents import databases
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import Proof, is_provable, prove
from tests.integration import broker
from tests.integration.broker import Row
from tests.integration.kinds import ALL_STORES, changes, logged, stored

PROVABLE = [
    pytest.param(kind, marks=[pytest.mark.long] if store.values.keeps_headers else [])
    for kind, store in ALL_STORES.items()
    if not store.retain_duplicates
]


def proof_of(spec: StorePartitionSpec) -> Proof:
    """Prove the closed live store against its log as it is now."""
    assert is_provable(spec)
    log = spec.cluster.topics.log_ranges([spec.partition])[spec.partition]
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


def leave_open(spec: StorePartitionSpec, rows: dict[bytes, bytes | None]) -> None:
    """Write rows that were never committed, and leave the store as a killed application does, without its offset."""
    break_seal(spec.paths, spec.store.name)
    family = spec.store.values.column_families[0]
    for segment, directory in databases(spec).items():
        database = RocksDB(directory, spec.store.values.column_families)
        own = {key: value for key, value in rows.items() if routing_of(spec.store).place(key)[0] == segment}
        database.write({family: own}, status=STATUS_OPEN, ranges={COLUMN_FAMILY: [DeletedRange(b"", b"\xff")]})
        database.sync()
        database.close()


@pytest.mark.parametrize("kind", PROVABLE)
def test_a_store_that_was_left_open_is_caught_up_from_where_its_rows_are(
    bootstrap_servers: str, tmp_path: Path, kind: str
) -> None:
    store = ALL_STORES[kind]
    rows = changes(store, 300, seed=2)
    application = logged(bootstrap_servers, tmp_path, store, rows[:270])
    application.restore("full")
    spec = application.store_spec()
    here = stored(spec, spec.live)
    aborted = [row for row in changes(store, 300, seed=3)[260:] if row[1] is not None]
    broker.transaction(bootstrap_servers, application.changelog, aborted, end="abort")
    broker.transaction(bootstrap_servers, application.changelog, rows[270:])
    uncommitted = aborted[-1][0]
    leave_open(spec, {max(here): None, min(here): here[max(here)], uncommitted: here[min(here)]})
    found = application.verify()
    assert (found.status, found.action) == (Status.UNCLEAN, Action.FULL)
    done = application.restore(label="caught up")
    assert (done.before, done.outcome) == (Status.UNCLEAN, "restored")
    caught_up = stored(spec, spec.live)
    assert application.verify("deep").status is Status.OK
    assert application.restore("full", force=True).mode == "full"
    assert stored(spec, spec.live) == caught_up
    assert done.mode == "tail"
    assert done.records < 270


def test_an_offset_that_the_rows_refute_is_named_and_corrected(bootstrap_servers: str, tmp_path: Path) -> None:
    store = ALL_STORES["key-value"]
    rows: list[Row] = [(b"k%d" % (at % 90), b"%d" % at) for at in range(200)]
    application = logged(bootstrap_servers, tmp_path, store, rows[:120])
    application.restore("full")
    spec = application.store_spec()
    broker.transaction(bootstrap_servers, application.changelog, rows[120:])
    break_seal(spec.paths, store.name)
    database = RocksDB(spec.live, store.values.column_families)
    database.write({}, {spec.partition: 149}, status=STATUS_CLOSED)
    database.sync()
    database.close()
    found = application.verify("deep")
    assert (found.status, found.action) == (Status.WRONG_OFFSET, Action.FULL)
    assert found.contents is not None
    assert found.contents.offsets == ((119, 120),)
    done = restore(application.restore_spec("auto", force=True)._replace(diverged=True))
    assert (done.outcome, done.mode, done.records) == ("restored", "tail", 80)
    assert application.verify("deep").status is Status.OK


def test_a_row_of_an_aborted_transaction_is_not_proven(bootstrap_servers: str, tmp_path: Path) -> None:
    store = ALL_STORES["plain key-value"]
    application = logged(bootstrap_servers, tmp_path, store, [(b"b", b"1"), (b"a", b"1")])
    application.restore("full")
    spec = application.store_spec()
    broker.transaction(bootstrap_servers, application.changelog, [(b"a", b"2"), (b"c", b"2")], end="abort")
    break_seal(spec.paths, store.name)
    (family,) = store.values.column_families
    database = RocksDB(spec.live, (family,))
    database.write({family: {b"a": b"2", b"c": b"2"}}, {spec.partition: 4}, status=STATUS_CLOSED)
    database.sync()
    database.close()
    found = application.verify("deep")
    assert (found.status, found.action) == (Status.DIVERGED, Action.FULL)
    assert restore(application.restore_spec("auto", force=True)._replace(diverged=True)).mode == "tail"
    assert stored(spec, spec.live) == {b"a": b"1", b"b": b"1"}


def test_rows_that_no_record_explains_are_kept_for_a_person(bootstrap_servers: str, tmp_path: Path) -> None:
    store = ALL_STORES["plain key-value"]
    application = logged(bootstrap_servers, tmp_path, store, [(b"k%d" % at, b"v") for at in range(50)])
    application.restore("full")
    spec = application.store_spec()
    leave_open(spec, {b"k40": b"from elsewhere"})
    spec.paths.record(store.name).unlink()
    done = application.restore(label="caught up")
    assert (done.mode, done.records) == ("tail", 10)
    assert done.quarantine is not None
    assert "position in its changelog is unknown" in str(
        waits_for_a_person(spec.paths, store.name, Path(done.quarantine).name)
    )


def test_a_damaged_store_that_was_left_open_is_rebuilt(bootstrap_servers: str, tmp_path: Path) -> None:
    store = ALL_STORES["plain key-value"]
    application = logged(bootstrap_servers, tmp_path, store, [(b"k%d" % at, b"v" * 100) for at in range(500)])
    application.restore("full")
    spec = application.store_spec()
    leave_open(spec, {})
    victim = max(spec.live.glob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[len(content) // 3] ^= 1
    victim.write_bytes(content)
    done = application.restore()
    assert (done.outcome, done.mode, done.before) == ("restored", "full", Status.UNCLEAN)
    assert application.verify("deep").status is Status.OK


def test_keys_that_only_the_log_has_are_counted_in_the_memory_of_a_proof(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    store = ALL_STORES["plain key-value"]
    rows: list[Row] = [(b"gone-%04d" % (at // 2), None if at % 2 else b"v") for at in range(8_000)]
    application = logged(bootstrap_servers, tmp_path, store, [*rows, (b"k", b"v")])
    application.restore("full")
    spec = application.store_spec()
    log = spec.cluster.topics.log_ranges([spec.partition])[spec.partition]
    small = VerifyOptions("deep", run_bytes=20_000)  # the memory of about 1,000 keys
    assert prove(spec, databases(spec), log, small, most_passes=2) is None
    found = prove(spec, databases(spec), log, small)
    assert found is not None
    assert (found.offsets, found.digest.rows) == (proof_of(spec).offsets, 1)
    in_key_order = verify(spec, small)
    assert in_key_order.status is Status.OK
    assert in_key_order.contents is not None
    assert in_key_order.contents.not_proven.startswith("the store has too many keys for the memory")


def test_the_report_states_why_a_store_is_not_proven(bootstrap_servers: str, tmp_path: Path) -> None:
    store = ALL_STORES["window with duplicates"]
    application = logged(bootstrap_servers, tmp_path, store, changes(store, 100, seed=4))
    application.restore("full")
    found = application.verify("deep")
    assert found.status is Status.OK
    assert found.contents is not None
    assert found.contents.offsets == ()
    assert found.contents.not_proven == "store and log number duplicates independently"
