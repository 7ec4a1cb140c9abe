"""Looks at running and killed applications of Kafka Streams find the offsets that the applications' own notes show."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from kafka_streams import Driver, Store, StorePartition, other_driver
from streams_oracle import Life, expected, flushed

from demo.kafka_jars import KAFKA_VERSION
from statestore.formats.time_ordered_key import INDEX
from statestore.partition.spec import StorePartitionSpec
from statestore.reports import Status
from statestore.stores.scan import ScannedDatabase
from statestore.verification.contents import databases
from statestore.verification.options import VerifyOptions
from statestore.verification.proof.closed import prove
from statestore.verification.versions import stored_keys, timeline
from tests.faults.proof_oracle import Expected, Killed
from tests.integration.kinds import stored
from tests.interop.compatibility import GUARANTEES, TRANSACTIONAL, Column

SEED = int(os.environ.get("FAULTS_SEED", "1"))
VERSIONS = ("3.9.1", "4.2.0", KAFKA_VERSION, "4.4.0", TRANSACTIONAL)
#: Kills in each column, and looks before each of them: 20 looks at each store.
KILLS, LOOKS = 5, 4
SHARE = (Column(KAFKA_VERSION, "exactly_once_v2"), 0)


def cells() -> Iterator[object]:
    """Yield each column with each of its kills."""
    for version in VERSIONS:
        for guarantee in GUARANTEES:
            for kill in range(KILLS):
                column = Column(version, guarantee)
                marks = [pytest.mark.long, *([pytest.mark.share] if (column, kill) == SHARE else [])]
                yield pytest.param(column, kill, id=f"{column}-kill{kill}", marks=marks)


@pytest.mark.parametrize(("column", "kill"), list(cells()))
def test_the_proven_offsets_are_those_that_kafka_streams_noted(
    driver: Driver, bootstrap_servers: str, tmp_path: Path, column: Column, kill: int
) -> None:
    if column.release != KAFKA_VERSION:
        (tmp_path / "driver").mkdir()
        driver = other_driver(driver, column.release, tmp_path / "driver")
    life = Life(driver, bootstrap_servers, column, tmp_path, SEED * 1_000 + kill * 10)
    with life.running(killed=True):
        specs = life.specs()
        for _ in range(LOOKS):
            for spec in specs.values():
                life.look(spec)
        life.wait_for_kill()
    if kill != 1:  # one proof is made while the transaction is still open
        life.abort_transaction()
    for store in life.stores:
        assert_looks(life, store)
        assert_proof(life, store, specs[store.name])
    life.abort_transaction()
    unlogged = {} if column.guarantee == "exactly_once_v2" else never_logged(life, specs)
    assert_repaired(life, specs, unlogged, starts=kill == 0)


def never_logged(life: Life, specs: Mapping[str, StorePartitionSpec]) -> dict[str, int]:
    """Return how many keys each store has on disk from puts that the kill kept from the log."""
    found = {}
    for store in life.stores:
        puts, on_disk = life.puts(store), flushed(specs[store.name])
        found[store.name] = len(
            {
                one.key
                for one, segment, sequence in zip(puts.puts, puts.segments, puts.sequences, strict=True)
                if one.number >= len(puts.offsets) and segment in on_disk and sequence <= on_disk[segment].sequence
            }
        )
    return found


def assert_looks(life: Life, store: Store) -> None:
    """Check all looks at a running store: no alarm, and the offsets are those of its puts on disk."""
    puts = life.puts(store)
    committed = {one.offset: True for one in life.logged(store, read_committed=True)}
    exact = 0
    for look in life.looks[store.name]:
        assert (look.row.status, look.row.detail) == (Status.PROVEN, "")
        for segment, prefix in look.prefixes.items():
            if segment not in look.before or segment not in look.after:
                continue
            first, last = (
                expected(puts, segment, at[segment].sequence, look.log, committed=committed)
                for at in (look.before, look.after)
            )
            found = [(one.first, one.last) for one in prefix.offsets]
            assert prefix.unexplained == 0
            if first == last:
                assert_found(found, first, puts, segment, committed, (store.name, segment, look))
                exact += 1
            else:
                assert found[0][0] <= last.last, (store.name, segment, look)
                assert found[-1][1] >= first.first, (store.name, segment, look)
    assert exact >= LOOKS // 2, "looks at files that did not change meanwhile"


def assert_found(
    found: list[tuple[int, int]],
    truth: Expected,
    puts: Killed,
    segment: int,
    committed: Mapping[int, bool],
    what: object,
) -> None:
    """Check that the true range was found, and others only where a delete has undone all that came between."""

    def rows(offset: int) -> dict[bytes, bytes | None]:
        on_way = {
            one.key: one.value
            for one, of in zip(puts.puts, puts.segments, strict=True)
            if of == segment and one.number < len(puts.offsets) and puts.offsets[one.number] <= offset
            if puts.offsets[one.number] <= truth.last or committed.get(puts.offsets[one.number])
        }
        return {key: value for key, value in on_way.items() if value is not None}

    assert (truth.first, truth.last) in found, (found, truth, what)
    assert all(rows(at) == rows(truth.last) for one in found for at in one), (found, truth, what)


def assert_proof(life: Life, store: Store, spec: StorePartitionSpec) -> None:
    """Check the proof of a store that was left open by a kill."""
    log = spec.cluster.topics.log_ranges([spec.partition])[spec.partition]
    committed = {one.offset: True for one in life.logged(store, read_committed=True)}
    proof = prove(spec, databases(spec), log, VerifyOptions(), claim=None)
    assert proof is not None
    puts, on_disk = life.puts(store), flushed(spec)
    truths: dict[int, Expected] = {}
    for segment, prefix in proof.prefixes.items():
        truth = truths[segment] = expected(
            puts, segment, on_disk[segment].sequence if segment in on_disk else 0, log, committed=committed
        )
        if truth.offset is None:  # the last puts on disk were never logged
            assert not prefix.is_prefix
            continue
        found = [(one.first, one.last) for one in prefix.offsets]
        assert prefix.unexplained == 0, (store.name, segment, truth)
        assert_found(found, truth, puts, segment, committed, (store.name, segment, truth))
    assert any(truth.first > 0 for truth in truths.values()), "no put is on disk"


def assert_repaired(
    life: Life, specs: dict[str, StorePartitionSpec], unlogged: Mapping[str, int], *, starts: bool
) -> None:
    """Check that the stores that are caught up equal those that are built from their whole logs.

    Processed at least once, a store keeps rows of puts that were never logged, until they are put again.
    """
    caught_up = {row.store: row for row in life.stopped.restored()}
    assert {row.before for row in caught_up.values()} <= {Status.UNCLEAN, Status.LAGGING, Status.OK}, caught_up
    found = life.stopped.verified(depth="deep")
    for name, row in found.items():
        differing = 0 if row.contents is None else row.contents.differing
        assert row.status is (Status.DIVERGED if differing else Status.OK), (row, caught_up[name])
        assert differing <= unlogged.get(name, 0), (row, caught_up[name])
    rebuilt = life.stopped.copy(life.directory / "rebuilt")
    assert {row.mode for row in rebuilt.restored(mode="full", force=True)} == {"full"}
    for name, spec in specs.items():
        there = spec.model_copy(update={"state_dir": rebuilt.state_dir})
        assert found[name].status is Status.DIVERGED or contents(spec) == contents(there), name
    if starts:
        started = life.stopped.app.read(life.stopped.state_dir, life.stores, config=life.stopped.config)
        assert {started.restored[StorePartition(store.name)] for store in life.stores} == {0}


def contents(spec: StorePartitionSpec) -> object:
    """Return what a store has: rows, or the versions of each key. An index row may be there without its row."""
    if not spec.store.store_kind.has_history:
        layout = spec.store.store_kind.layout
        indexed = layout is not None and layout.indexed
        return {key: value for key, value in stored(spec, spec.live).items() if not indexed or key[0] != INDEX}
    database = ScannedDatabase(spec.live, spec.store.values)
    try:
        return {key: timeline(versions, 0) for key, versions in stored_keys(database, None)}
    finally:
        database.close()
