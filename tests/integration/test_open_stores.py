"""A store that another process has open is left alone by every command, also if all lock files were deleted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from statestore.definitions.store import StoreDefinition
from statestore.discovery.applications import discover
from statestore.errors import LockedError
from statestore.formats.value_format import value_format
from statestore.kafka.cluster import Cluster
from statestore.partition.rollback import RollbackSpec, roll_back
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.restore import restore
from statestore.reports import Action, Status
from statestore.statedir.lock import locked
from statestore.stores.rocksdb import RocksDB
from statestore.tasks.stream_task import StreamTask
from statestore.verification.check import verify, verify_many
from statestore.verification.options import VerifyOptions
from tests.integration import dying
from tests.integration.broker import WAIT_S
from tests.integration.command_line import command_on
from tests.integration.support import STORE, Application


def hold_open(spec: StorePartitionSpec, opened: Any) -> None:
    """Have the store open as a running Kafka Streams has, whose lock on the application was lost."""
    database = RocksDB(spec.live, value_format(spec.store.format).column_families)
    opened.set()
    time.sleep(WAIT_S)  # the test kills this process
    database.close()


@contextmanager
def held_open(application: Application, *deleted: str) -> Iterator[None]:
    """A process that has the store open, while these files are deleted."""
    spec, opened = application.store_spec(), dying.new_event()
    process = dying.start_process(hold_open, spec, opened)
    try:
        assert opened.wait(WAIT_S)
        for file in (spec.paths.application_dir / ".lock", spec.paths.own_dir / "lock"):
            file.unlink()
        for name in deleted:
            (spec.live / name).unlink()
        yield
    finally:
        process.kill()
        process.join(WAIT_S)


@pytest.fixture
def replaced(bootstrap_servers: str, tmp_path: Path) -> Application:
    """An application whose store was restored, so that it could be rolled back."""
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1"), (b"b", b"1")])
    application.restore("full", force=True)
    return application


@pytest.mark.short_for(every=2)
@pytest.mark.parametrize("deleted", [(), ("LOCK",)], ids=["our locks deleted", "RocksDB's, too"])
def test_nobody_touches_a_store_that_is_open_elsewhere(replaced: Application, deleted: tuple[str, ...]) -> None:
    spec = replaced.store_spec()
    inode, topics = spec.live.stat().st_ino, Cluster(replaced.servers, 60).topics
    with held_open(replaced, *deleted):
        for depth in ("offsets", "scan", "deep"):
            row = verify(spec, VerifyOptions(depth=depth))  # type: ignore[arg-type]
            assert (row.status, row.action) == (Status.LOCKED, Action.LATER), row.detail
            assert str(spec.live) in row.detail
        [found] = discover(replaced.task_spec(), topics, replaced.name, lock_wait_s=0)
        assert found.trouble == "in use"
        for outcome in (
            restore(replaced.restore_spec("full", force=True)),
            roll_back(RollbackSpec(spec, "back")),
            replaced.run(),
        ):
            assert outcome.failure.kind == "LockedError"
            assert str(spec.live) in outcome.failure.message
    assert spec.live.stat().st_ino == inode
    assert verify(spec).status is Status.OK
    replaced.process([(b"a", b"2")])


def test_other_stores_of_an_application_without_a_definition_are_restored(
    bootstrap_servers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stores = [StoreDefinition(name=STORE), StoreDefinition(name="other")]
    application = Application(bootstrap_servers, tmp_path, stores=stores)
    application.process([(b"a", b"1")])
    command, _ = command_on(application, tmp_path, monkeypatch, capfd)
    monkeypatch.setattr("statestore.cli.selection.discover", partial(discover, lock_wait_s=0))
    before = application.store_spec(store="other").live
    task = before.parents[1].with_name("1_0")
    (task / "rocksdb").mkdir(parents=True)
    before.rename(task / "rocksdb" / "other")  # a lock is held for all stores of a task
    with held_open(application):
        ran = command("restore", "--application", application.name, "--force", "--accept-loss", "--json", "-")
        rows = {row["store"]: (row["outcome"], row["failure"]) for row in json.loads(ran.out)["rows"]}
        assert (ran.code, rows["other"]) == (3, ("restored", None))
        outcome, failure = rows[STORE]
        assert (outcome, failure["kind"], failure["retriable"]) == ("failed", "LockedError", True)


@pytest.mark.long
def test_others_are_verified_beside_one_that_is_open(bootstrap_servers: str, tmp_path: Path) -> None:
    application = Application(bootstrap_servers, tmp_path, partitions=2)
    for partition in range(2):
        application.send([(b"a", b"1")], partition=partition)
        assert application.run(partition).failure is None
    with held_open(application):
        for depth in ("offsets", "scan"):
            specs = [application.store_spec(partition) for partition in range(2)]
            rows = verify_many(specs, VerifyOptions(depth=depth))  # type: ignore[arg-type]
            assert [row.status for row in rows] == [Status.LOCKED, Status.OK]


def test_a_task_that_lost_its_lock_file_does_not_set_a_damaged_store_aside(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    application = Application(bootstrap_servers, tmp_path)
    application.process([(b"a", b"1")])
    (application.live / "CURRENT").write_text("MANIFEST-999999\n")
    spec = application.task_spec()
    before = sorted(path.name for path in application.live.iterdir())
    lost = pytest.raises(LockedError, match="is no longer the file that this process has locked")
    with locked(spec.paths, 1), lost, StreamTask(spec) as task:
        (spec.paths.own_dir / "lock").unlink()
        task.recover()
    assert sorted(path.name for path in application.live.iterdir()) == before
    assert application.run().failure is None
