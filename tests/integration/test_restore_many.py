"""Restoring many store partitions at the same time, where some share a task and its lock."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from demo.processes import wait_until
from statestore.definitions.store import StoreDefinition
from statestore.errors import WorkerLostError
from statestore.recovery import full
from statestore.recovery.many import plan_many, restore_many
from statestore.recovery.spec import RestoreSpec
from statestore.reports import Status
from statestore.requests.restore import RestoreRequest
from statestore.statedir.lock import locked
from statestore.verification.check import verify_many
from statestore.verification.options import VerifyOptions
from tests.integration.broker import WAIT_S, settle, transaction
from tests.integration.support import STORE, Application, plain_store


class SideBySide:
    """Runs all pieces at the same time; locks keep threads apart as they do processes."""

    def __init__(self) -> None:
        self.pieces = 0
        self.ended = 0

    def __call__(self, pieces: Sequence[Any], work: Callable[[Any], Any], *_: Any) -> list[Any]:
        self.pieces, self.ended = len(pieces), 0

        def run(piece: Any) -> Any:
            try:
                return work(piece)
            finally:
                self.ended += 1

        with ThreadPoolExecutor(max(len(pieces), 1)) as pool:
            return list(pool.map(run, pieces))

    def be_the_last(self, point: str) -> None:
        """Hold the lock until all other pieces have ended, as a store that takes long to restore."""
        if point == "restore, before the databases":
            wait_until(lambda: self.ended >= self.pieces - 1, WAIT_S, "the others to end")


def test_stores_of_one_task_do_not_wait_for_each_others_lock(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [plain_store("latest"), StoreDefinition(name=STORE)]
    application = Application(bootstrap_servers, tmp_path, processor="count_in_two_stores", stores=stores)
    application.process([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    shutil.rmtree(application.state_dir)
    specs = [RestoreSpec(application.store_spec(0, store.name), RestoreRequest(), "run", 1 << 24) for store in stores]
    run = SideBySide()
    monkeypatch.setattr(full.kill_switch, "reached", run.be_the_last)

    planned = plan_many(specs, run)
    assert [(row.label, row.status) for row in planned] == [
        (str(spec.store.store_partition), Status.MISSING) for spec in specs
    ]
    rows = restore_many(specs, run, tmp_path / "progress")
    assert [row.failure for row in rows] == [None] * 2
    assert [row.label for row in rows] == [str(spec.store.store_partition) for spec in specs]
    assert [row.keys for row in rows] == [2] * 2


@pytest.mark.long
def test_tasks_of_a_piece_are_restored_beside_each_other_and_one_that_is_held_keeps_no_other_waiting(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=8, stores=[plain_store(STORE)])
    for partition in range(8):
        rows = [(b"%d of %d" % (number, partition), b"1") for number in range(5)]
        transaction(bootstrap_servers, application.changelog, rows, partition=partition)
    settle(bootstrap_servers, application.changelog)
    stores = [application.store_spec(partition) for partition in range(8)]
    specs = [RestoreSpec(store, RestoreRequest(), "run", 1 << 24) for store in stores]
    beside, built = Barrier(2), count()

    def wait_for_another(point: str) -> None:
        if point == "restore, before the databases" and next(built) < 6:  # the seventh is alone
            beside.wait(WAIT_S)

    monkeypatch.setattr(full.kill_switch, "reached", wait_for_another)
    pieces: list[int] = []

    def run(found: Sequence[Any], work: Callable[[Any], Any], *_: Any) -> list[Any]:
        pieces.extend(map(len, found))
        return [work(piece) for piece in found]

    with locked(stores[7].paths):
        restored = restore_many(specs, run, tmp_path / "progress")
    assert pieces == [2, 2, 2, 2]
    assert [row.label for row in restored] == [str(store.store_partition) for store in stores]
    assert [(row.outcome, row.keys) for row in restored] == [("restored", 5)] * 7 + [("failed", 0)]
    assert restored[7].failure is not None
    assert restored[7].failure.kind == "LockedError"
    found = verify_many(stores, VerifyOptions(depth="deep"))
    assert [row.status for row in found] == [Status.OK] * 7 + [Status.MISSING]


def test_where_a_process_dies_only_the_task_that_kills_it_alone_is_lost(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=8, stores=[plain_store(STORE)])
    for partition in range(8):
        transaction(bootstrap_servers, application.changelog, [(b"a", b"1")], partition=partition)
    settle(bootstrap_servers, application.changelog)
    stores = [application.store_spec(partition) for partition in range(8)]
    specs = [RestoreSpec(store, RestoreRequest(), "run", 1 << 24) for store in stores]

    # That Spark tells a worker's death in this way, tests/spark/test_parallel.py shows.
    def run(pieces: Sequence[Any], work: Any, _: Any, lost: Any) -> list[Any]:
        died = WorkerLostError("it died, also when it ran alone")
        return [lost(piece, died) if specs[5] in piece else work(piece) for piece in pieces]

    rows = restore_many(specs, run, tmp_path / "progress")
    assert [row.label for row in rows] == [str(store.store_partition) for store in stores]
    assert [row.failure and row.failure.kind for row in rows] == [None] * 5 + ["WorkerLostError"] + [None] * 2
