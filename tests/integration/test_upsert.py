"""Single rows of a store are put and deleted: each partition's in one transaction, whatever comes in between."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from statestore.errors import FencedError, InputError
from statestore.kafka.partitioner import partition_of
from statestore.kafka.writer import TransactionalWriter
from statestore.model import transactional_id
from statestore.partition.quarantine import quarantined
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Status, WriteRow
from statestore.requests.restore import RestoreRequest
from tests.integration import dying
from tests.integration.broker import T0, consume
from tests.integration.overwriting import Upserting
from tests.integration.support import STORE
from tests.integration.test_overwrite import KEYS, Overwritable
from tests.oracle.rows import fold

#: Of both partitions.
CHANGES = {b"key-%02d" % number: (b"41" if number % 3 else None) for number in range(10)} | {b"new": b"5"}


def rows(store: Overwritable) -> dict[bytes, bytes]:
    return {**store.values(0), **store.values(1)}


def expected() -> dict[bytes, bytes]:
    found = dict.fromkeys(KEYS, b"1") | CHANGES
    return {key: value for key, value in found.items() if value is not None}


@pytest.fixture
def store(bootstrap_servers: str, tmp_path: Path) -> Overwritable:
    return Overwritable(bootstrap_servers, tmp_path)


def upsert(store: Overwritable, **changes: float) -> list[WriteRow]:
    return Upserting(store.write._replace(rows=CHANGES), **changes).carry_out()


def assert_written(store: Overwritable) -> None:
    assert rows(store) == expected()
    assert [fold(consume(store.app.servers, store.app.changelog, task)[0]) for task in range(2)] == store.rows()
    assert store.statuses() == [Status.OK, Status.OK]


@pytest.mark.long
def test_rows_are_put_and_deleted_and_processing_counts_on(store: Overwritable) -> None:
    before = store.now()
    done = upsert(store)
    deleted = sum(value is None for value in CHANGES.values())
    assert (sum(row.puts for row in done), sum(row.deletes for row in done)) == (len(CHANGES) - deleted, deleted)
    assert all(row.healthy and row.caught_up for row in done)
    assert store.now() == before
    assert_written(store)
    store.process(T0 + 1_000)
    assert rows(store) == dict.fromkeys(KEYS, b"2") | {
        key: b"1" if value is None else b"42" for key, value in CHANGES.items() if key != b"new"
    } | {b"new": b"5"}


@pytest.mark.long
@pytest.mark.parametrize("quarantine_s", [0.0, 30 * 86_400.0])
def test_replaced_stores_are_kept_as_long_as_the_settings_say(store: Overwritable, quarantine_s: float) -> None:
    old = time.time() - 10 * 86_400
    for task in range(2):
        spec = store.app.store_spec(task)
        request = RestoreRequest(mode="full", force=True)
        assert restore(RestoreSpec(spec, request, "rebuilt", 1 << 24)).failure is None
        (replaced,) = quarantined(spec.paths, STORE)
        os.utime(replaced, (old, old))
    upsert(store, quarantine_s=quarantine_s)
    left = [bool(quarantined(store.app.store_spec(task).paths, STORE)) for task in range(2)]
    assert left == [quarantine_s > 0] * 2


@pytest.mark.long
def test_more_than_a_transaction_may_have_is_refused_before_anything_is_written(store: Overwritable) -> None:
    before = store.rows()
    with pytest.raises(InputError, match="bytes in one transaction; expected 20 at most"):
        upsert(store, transaction_bytes=20)
    assert (store.rows(), store.statuses()) == (before, [Status.OK, Status.OK])


@pytest.mark.long
@pytest.mark.parametrize(
    "point", ["upsert, batch sent", "upsert, committed", "upsert, partition written:2", "upsert, store caught up"]
)
def test_a_kill_leaves_whole_partitions_and_the_same_rows_can_be_written_again(store: Overwritable, point: str) -> None:
    dying.die_in(Upserting(store.write._replace(rows=CHANGES)), point)
    for task in range(2):
        of_task = {key: value for key, value in CHANGES.items() if partition_of(key, 2) == task}
        logged = consume(store.app.servers, store.app.changelog, task)[0]
        written = [found for found in logged if found.key in of_task and found.value == of_task[found.key]]
        assert len(written) in (0, len(of_task))  # all of a transaction, or nothing
    assert set(store.statuses()) <= {Status.OK, Status.LAGGING}
    upsert(store)
    assert_written(store)
    store.process(T0 + 1_000)


@pytest.mark.long
def test_a_process_that_still_has_the_task_is_fenced(store: Overwritable) -> None:
    spec = store.app.store_spec(0)
    former = TransactionalWriter(spec.cluster, transactional_id(spec.application, spec.task))
    former.init()
    former.begin()
    upsert(store)
    former.produce(store.app.changelog, b"late", b"1", T0, 0)
    with pytest.raises(FencedError):
        former.commit()
    former.close()
    assert_written(store)
