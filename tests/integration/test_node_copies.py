"""Copies of stores that other nodes have by now: old ones go from a disk if the archive has all that they have."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from statestore.archive.layout import BLOBS
from statestore.partition.spec import StorePartitionSpec
from statestore.recovery.copies import clean_copies
from statestore.recovery.restore import restore
from statestore.recovery.spec import RestoreSpec
from statestore.reports import ProcessRow, Status
from statestore.requests.restore import RestoreRequest
from statestore.statedir.lock import locked
from statestore.statedir.record import read_record, write_record
from statestore.verification.check import verify
from statestore.verification.options import VerifyOptions
from tests.integration.archived import ROWS, TINY_RUN
from tests.integration.broker import delete_records, set_topic_config
from tests.integration.support import Application
from tests.integration.test_node_local import Nodes

_DAY_S = 24 * 60 * 60


class TwoTasks(Nodes):
    """Two tasks that have both run on node `a`; what follows is about the copy of the second one there."""

    def __init__(self, servers: str, directory: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(servers, directory, partitions=2)
        self._patch = patch
        for partition in (0, 1):
            self.send(ROWS, partition)
            self.on("a", partition)

    def on(self, node: str, partition: int, **changes: Any) -> ProcessRow:
        """Run a task on a node of that name."""
        self._patch.setattr("socket.gethostname", lambda: node)
        return self.run_on(node, partition=partition, **changes)

    def copy(self) -> StorePartitionSpec:
        """Plan the second task's store on node `a`."""
        return self.store_spec(1, archive=self.archive, state_dir=self.disk("a"))

    def moved(self) -> None:
        """Have the second task go on on node `b`."""
        self.send([(b"new", b"value")], 1)
        self.on("b", 1)

    def accept_loss_on(self, node: str) -> None:
        """Build the second task's store on a node from what its log still has, and publish it."""
        self._patch.setattr("socket.gethostname", lambda: node)
        spec = self.copy().model_copy(update={"state_dir": self.disk(node)})
        row = restore(RestoreSpec(spec, RestoreRequest(mode="full", accept_loss=True), "accepted", TINY_RUN))
        assert row.failure is None, row.failure
        assert row.published is not None
        assert row.published.failure is None, row.published.failure

    def age(self) -> None:
        """Make what is kept of the copy ten days old."""
        then = time.time() - 10 * _DAY_S
        own = self.copy().paths.own_dir
        for path in (*own.rglob("*"), own):
            os.utime(path, (then, then))

    def cleaned(self) -> list[Path]:
        """Clean node `a`, when its first task has run there."""
        self._patch.setattr("socket.gethostname", lambda: "a")
        return clean_copies([self.store_spec(0, archive=self.archive, state_dir=self.disk("a"))], 7 * _DAY_S)


@pytest.fixture
def tasks(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoTasks:
    made = TwoTasks(bootstrap_servers, tmp_path, monkeypatch)
    # Both tasks have looked through the node, which is done once a day.
    for found in tmp_path.rglob("looked-through-*"):
        found.unlink()
    return made


def test_an_old_copy_of_a_store_that_another_node_has_published_goes_and_its_task_may_come_back(
    tasks: TwoTasks,
) -> None:
    tasks.moved()
    tasks.age()
    own = tasks.copy().paths
    assert tasks.on("a", 0).failure is None  # what runs there cleans up
    assert not tasks.copy().live.exists()
    left = {path.name for path in own.own_dir.rglob("*") if path.is_file()}
    assert {name for name in left if not name.endswith("lock")} <= {"shape.json"}
    assert verify(tasks.copy().model_copy(update={"task": own.task}), VerifyOptions(depth="scan")).status is Status.OK

    tasks.send([(b"newer", b"value")], 1)
    row = tasks.on("a", 1)
    assert row.stores[0].rebuilt is not None
    alone = tasks.copy().model_copy(update={"archive": None})
    assert verify(alone, VerifyOptions(depth="deep")).status is Status.OK


@pytest.mark.long
def test_a_node_is_looked_through_once_a_day(tasks: TwoTasks) -> None:
    assert tasks.cleaned() == []
    tasks.moved()
    tasks.age()
    assert tasks.cleaned() == []
    (looked,) = tasks.disk("a").rglob("looked-through-*")
    os.utime(looked, (0, 0))
    assert tasks.cleaned() == [tasks.copy().live]


def _young(tasks: TwoTasks) -> None:
    tasks.moved()


def _newest_is_its_own(tasks: TwoTasks) -> None:
    tasks.age()


def _never_published(tasks: TwoTasks) -> None:
    tasks.moved()
    tasks.send([(b"here", b"alone")], 1)
    tasks.on("a", 1)
    tasks.send([(b"newer", b"value")], 1)
    assert Application.run(tasks, 1, archive=None, state_dir=tasks.disk("a")).failure is None
    tasks.age()


def _archive_lacks_a_file(tasks: TwoTasks) -> None:
    tasks.moved()
    for found in list(tasks.objects.entries(BLOBS)):
        tasks.objects.delete(found.name)
    tasks.age()


def _nothing_kept(tasks: TwoTasks) -> None:
    tasks.moved()
    tasks.copy().paths.record(tasks.copy().store.name).unlink()
    tasks.age()


def _its_log_lost_what_no_snapshot_has(tasks: TwoTasks) -> None:
    for found in list(tasks.objects.entries("stores")):  # as if it had never been published
        if "/0_1/" in found.name:
            tasks.objects.delete(found.name)
    set_topic_config(tasks.servers, tasks.changelog, cleanup_policy="compact,delete")
    delete_records(tasks.servers, tasks.changelog, 50, 1)
    tasks.accept_loss_on("b")
    tasks.age()


def _it_has_rows_that_were_never_logged(tasks: TwoTasks) -> None:
    tasks.moved()
    spec = tasks.copy()
    record = read_record(spec.paths, spec.store.name)
    assert record is not None
    with locked(spec.paths):
        write_record(spec.paths, spec.store.name, record.model_copy(update={"adopted": True}))
    tasks.age()


@pytest.mark.short_for("_its_log_lost_what_no_snapshot_has")
@pytest.mark.parametrize(
    "happened",
    [
        _never_published,
        _archive_lacks_a_file,
        _its_log_lost_what_no_snapshot_has,
        _it_has_rows_that_were_never_logged,
        *(pytest.param(found, marks=pytest.mark.long) for found in (_young, _newest_is_its_own, _nothing_kept)),
    ],
)
def test_a_copy_stays_where_it_may_be_of_use(tasks: TwoTasks, happened: Any) -> None:
    happened(tasks)
    assert tasks.cleaned() == []
    assert tasks.copy().live.exists()


@pytest.mark.long
def test_a_copy_that_is_in_use_stays(tasks: TwoTasks) -> None:
    tasks.moved()
    tasks.age()
    with locked(tasks.copy().paths):
        assert tasks.cleaned() == []
    assert tasks.copy().live.exists()
